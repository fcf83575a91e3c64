"""Transactions of a message store: they are begun, prepared, committed and rolled back. Prepared ones stay in doubt
across loads.

The group of a commit also deletes the messages whose last reference the transaction settles; if the group is too small
for all deletes, the others follow in further groups. These messages are found when the commit is accepted, because
another transaction may have settled a reference before. From then on, acknowledged messages are gone and declared
queues exist; added and changed messages are visible when the commit is durable. When a prepared transaction is rolled
back, its messages are released only after the rollback is durable. Otherwise a consumer could get a message that a
crash would lock again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from journal.append.completion import Completion
from journal.append.operations import PlainOperation
from journal.errors import InvalidOperationError, JournalError, StateError
from journal.store.declared import bring_back, carry_out, queue_name
from journal.store.duplicates import DuplicateWindow
from journal.store.operations.core import StoreCore
from journal.store.operations.dead_letters import DeadMessages
from journal.store.operations.discard import MessageDiscard
from journal.store.operations.garbage import Garbage, MessageRecords
from journal.store.operations.hold import HoldOperations
from journal.store.pending import Pending
from journal.store.transactions import Changed, NotDurable, StoreTransaction, TransactionInfo
from journal.v1.journal_pb2 import DELETE


class Prepared(Pending):
    """An accepted prepare. `not_durable` names the parts of the transaction that a crash would lose."""

    __slots__ = ("not_durable",)

    def __init__(self, id: int, completion: Completion, not_durable: NotDurable) -> None:
        super().__init__(id, completion)
        self.not_durable = not_durable


class TransactionOperations:
    """Operations on transactions."""

    def __init__(
        self,
        core: StoreCore,
        discard: MessageDiscard,
        garbage: Garbage,
        hold: HoldOperations,
        dead_letters: DeadMessages,
    ) -> None:
        self._core = core
        self._dead_letters = dead_letters
        self._discard = discard
        self._garbage = garbage
        self._hold = hold
        self._abandoned: dict[int, None] = {}
        """Transactions of the store itself that still have to be rolled back."""

    def begin(self, tx: int = 0) -> int:
        core = self._core
        with core.lock:
            core.enter()
            if tx and any(each.tx == tx and each.rolled_back for each in core.transactions.settling):
                raise StateError(f"the rollback of transaction {tx} is not durable yet: flush() first")
            tx = core.journal.begin(tx or None)
            if tx not in core.transactions.open:
                core.transactions.open[tx] = StoreTransaction(tx, core.clock_ms())
            return tx

    def is_empty(self, tx: int) -> bool:
        with self._core.lock:
            self._core.enter()
            txn = self._core.transactions.find(tx)
            return txn.refused is None and not txn.streams and self._info(txn).empty

    def prepare(self, tx: int, data: bytes = b"") -> Prepared:
        with self._core.lock:
            self._core.enter()
            txn = self._core.transactions.accepting(tx)
            txn.require_whole()
            completion = self._core.journal.prepare(tx, data)
            txn.prepared = True
            txn.data = data
            return Prepared(tx, completion, self._not_durable(txn))

    def commit(self, tx: int, *, then: Sequence[PlainOperation] = (), discard: bool = True) -> Pending:
        core = self._core
        with core.lock:
            core.enter()
            txn = core.transactions.find(tx)
            txn.require_whole()
            completion = self._commit_with_deletes(txn, then)
            del core.transactions.open[tx]
            for message_id in txn.stored:
                del core.transactions.stored_in[message_id]
            core.transactions.settling.append(txn)
            self._commit_taken(txn, completion)
            self._commit_changed(txn, completion)
            self._commit_added(txn, completion)
            self._commit_declared(txn)
            core.effects.when_durable(completion, self._is_settled, txn, None)
        if discard:
            self._discard.discard_leaving()
        return Pending(tx, completion)

    def _commit_with_deletes(self, txn: StoreTransaction, then: Sequence[PlainOperation]) -> Completion:
        """Append the commit, and deletes for the messages that it leaves without a reference.

        The deletes are in the same group, or in later groups if there is no room for them.
        """
        last = self._last_references(txn)
        deletes: list[PlainOperation] = [(DELETE, each, 0, b"", False, 0) for records in last for each in records]
        try:
            return self._core.journal.commit(txn.tx, then=[*deletes, *then])
        except InvalidOperationError:
            if not deletes:
                raise
        completion = self._core.journal.commit(txn.tx, then=then)
        self._core.effects.when_durable(completion, self._leave_to_collect, last, None)
        return completion

    def _leave_to_collect(self, last: list[MessageRecords], _: None) -> None:
        self._garbage.add(last)

    def _is_settled(self, txn: StoreTransaction, _: None) -> None:
        self._core.transactions.settling.remove(txn)

    def _last_references(self, txn: StoreTransaction) -> list[MessageRecords]:
        """The records of each durable message for which the transaction settles all remaining references."""
        state, last = self._core.state, []
        for message_id, count in Counter(taken.message for taken in txn.taken).items():
            durable, references, chunks = state.remainder(message_id)
            if durable and references == count:
                last.append((message_id, *chunks))
        return last

    def _commit_taken(self, txn: StoreTransaction, completion: Completion) -> None:
        state = self._core.state
        for message_id, queue_id, holder, durable, reason in txn.taken:
            state.queue_of(queue_id).counters.settled(reason)
            message_durable, _, chunks = state.remainder(message_id)
            if state.acknowledge(message_id, queue_id, holder, tx=txn.tx):
                self._discard.drop_bodies(message_id, chunks)
                durable = durable or message_durable
            if durable:
                self._core.effects.settles(completion, message_id, queue_id)
            else:
                state.settled(message_id, queue_id)

    def _commit_changed(self, txn: StoreTransaction, completion: Completion) -> None:
        for key, changed in txn.changed.items():
            if changed.acknowledged:
                continue
            if changed.durable:
                self._core.effects.when_durable(completion, self._change, txn, (key, changed))
            else:
                self._change(txn, (key, changed))

    def _change(self, txn: StoreTransaction, what: tuple[tuple[int, int], Changed]) -> None:
        """Apply a committed transaction's change to a reference."""
        key, (holder, deliveries, due, _, _) = what
        state = self._core.state
        before = state.reference(*key).holder
        state.unlock(*key)
        if before not in ("", holder):
            state.release(*key, before)
        if holder not in ("", before):
            state.acquire(*key, holder, self._core.clock_ms(), checked=True)
        state.deliveries(*key, deliveries)
        state.schedule(*key, due)
        if not holder:
            self._dead_letters.given_back(key[0], state.queue_of(key[1]), deliveries)
        if holder and key in txn.unclaimed:
            state.hold_over(*key, counts=txn.unclaimed[key])
        self._hold.come_back(key, holder)

    def _commit_declared(self, txn: StoreTransaction) -> None:
        declared = txn.declared
        if not declared:
            return
        del self._core.transactions.declaring[txn.tx]
        for address in declared.addresses:
            if address.made and address.duplicate_window:
                self._core.windows[address.record_id] = DuplicateWindow(address.record_id, address.duplicate_window)
            elif not address.made:
                self._core.windows.pop(address.record_id, None)
                self._discard.leaving.append(self._discard.unrouted.parts(address.record_id))
        self._discard.leaving.extend(carry_out(self._core.state, declared))

    def _commit_added(self, txn: StoreTransaction, completion: Completion) -> None:
        state = self._core.state
        self._settle_reservations(txn, entered=True)
        for message_id, body in txn.bodies.items():
            self._core.cache.put(completion, message_id, body)
        for message_id, queue_id, durable in txn.routed:
            self._discard.unrouted.discard(message_id)
            if durable:
                self._core.effects.arrives(completion, message_id, queue_id)
            else:
                state.arrive(message_id, queue_id)

    def rollback(self, tx: int, *, release: bool = False) -> Pending:
        core = self._core
        with core.lock:
            core.enter()
            pending = self._roll_back(tx, release=release)
            core.go_on()
        if release:
            pending.completion = self._hold.give_back_all_left()
        return pending

    def _roll_back(self, tx: int, *, release: bool = False) -> Pending:
        core = self._core
        txn = core.transactions.find(tx)
        completion = core.journal.rollback(tx)
        del core.transactions.open[tx]
        txn.releases = release
        if release:
            for key in {*((each.message, each.queue) for each in txn.taken), *txn.changed}:
                if core.state.reference(*key).holder:
                    core.state.hold_over(*key, counts=True)
        if txn.prepared:
            txn.rolled_back = True
            core.transactions.settling.append(txn)
            core.effects.when_durable(completion, self._undo, txn, None)
            core.effects.when_durable(completion, self._is_settled, txn, None)
        else:
            self._undo(txn, None)
        return Pending(tx, completion)

    def _undo(self, txn: StoreTransaction, _: None) -> None:
        """Release everything that a transaction held, and restore the state before it."""
        core, state, discard = self._core, self._core.state, self._discard
        for message_id, queue_id, holder, _durable, _reason in txn.taken:
            state.unlock(message_id, queue_id)
            self._hold.come_back((message_id, queue_id), holder, released=txn.releases)
        for key, changed in txn.changed.items():
            if changed.acknowledged:
                continue
            holder = state.reference(*key).holder
            state.unlock(*key)
            self._hold.come_back(key, holder, released=txn.releases)
        if txn.declared:
            del core.transactions.declaring[txn.tx]
            bring_back(state, txn.declared)
        unreferenced = []
        for message_id, queue_id, _durable in reversed(txn.routed):
            none_left = state.withdraw(message_id, queue_id)
            if none_left and message_id not in txn.stored and message_id not in discard.unrouted:
                unreferenced.append(message_id)
        for message_id in txn.stored:
            del core.transactions.stored_in[message_id]
            discard.forget(message_id, state.message(message_id).chunks)
        self._settle_reservations(txn, entered=False)
        if unreferenced:
            discard.discard(unreferenced)

    def abandon(self, tx: int) -> None:
        """Roll back a transaction of the store itself. If the journal does not accept the rollback now, it is done
        later."""
        with self._core.lock:
            self._abandoned[tx] = None
            self.roll_back_abandoned()

    def roll_back_abandoned(self) -> None:
        """Roll back abandoned transactions, until the journal refuses one."""
        while self._abandoned:
            tx = next(iter(self._abandoned))
            if tx in self._core.transactions.open:
                try:
                    self._roll_back(tx)
                except JournalError:
                    return
            del self._abandoned[tx]

    # ---- what is open ----------------------------------------------------------------------------------------------

    def transactions(self) -> list[TransactionInfo]:
        with self._core.lock:
            self._core.enter()
            return [self._info(txn) for _, txn in sorted(self._core.transactions.open.items())]

    def transaction(self, tx: int) -> TransactionInfo:
        with self._core.lock:
            self._core.enter()
            return self._info(self._core.transactions.find(tx))

    def in_doubt(self) -> list[TransactionInfo]:
        return [info for info in self.transactions() if info.prepared]

    def _settle_reservations(self, txn: StoreTransaction, *, entered: bool) -> None:
        for address in dict.fromkeys(reservation.address for reservation in txn.reservations):
            window = self._core.windows.get(address)
            if window is not None:
                window.settle([each for each in txn.reservations if each.address == address], entered=entered)

    def _not_durable(self, txn: StoreTransaction) -> NotDurable:
        return NotDurable(
            tuple(message for message, durable in txn.stored.items() if not durable),
            self._named((item.message, item.queue) for item in txn.routed if not item.durable),
            self._named((item.message, item.queue) for item in txn.taken if not item.durable),
            self._named(key for key, changed in txn.changed.items() if not changed.durable),
            txn.declared.not_durable(),
        )

    def _info(self, txn: StoreTransaction) -> TransactionInfo:
        return TransactionInfo(
            txn.tx,
            txn.data,
            txn.prepared,
            txn.since_ms,
            tuple(txn.stored),
            self._named((item.message, item.queue) for item in txn.routed),
            self._named((item.message, item.queue) for item in txn.taken),
            self._named(key for key, changed in txn.changed.items() if not changed.acknowledged),
            txn.declared.all(),
        )

    def _named(self, references: Iterable[tuple[int, int]]) -> tuple[tuple[int, str], ...]:
        return tuple((message, queue_name(self._core.state, queue)) for message, queue in references)
