"""Transactions of a message store: begun, prepared, committed, rolled back; those in doubt stay so across loads.

A commit's group also deletes the messages whose last reference it settles (what no group has room for follows in
groups behind it): that is decided when it is accepted, as another transaction may have settled one in between. What it
acknowledges is gone from then on, and what it declares is there; what it adds and changes is visible once it is
durable. A prepared transaction's rollback gives back what it held once that is durable, so that nobody is handed a
message that a crash would lock again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from journal.append.completion import Completion
from journal.append.operations import PlainOperation
from journal.errors import InvalidOperationError, JournalError, StateError, TransactionUnknownError
from journal.store.declared import bring_back, carry_out, queue_name
from journal.store.duplicates import DuplicateWindow
from journal.store.operations.core import StoreBase
from journal.store.pending import Pending
from journal.store.transactions import Changed, NotDurable, StoreTransaction, TransactionInfo
from journal.v1.journal_pb2 import DELETE


class Prepared(Pending):
    """An accepted prepare; `not_durable` is what of the transaction would not survive a crash."""

    __slots__ = ("not_durable",)

    def __init__(self, id: int, completion: Completion, not_durable: NotDurable) -> None:
        super().__init__(id, completion)
        self.not_durable = not_durable


class Settling(StoreBase):
    """Operations on transactions."""

    def begin(self, tx: int = 0) -> int:
        """Begin a transaction: `tx`, or without one a number that is free. Raises FullError, StateError (also if the
        rollback of a `tx` that was prepared is not durable yet)."""
        with self._lock:
            self._enter()
            if tx and any(each.tx == tx and each.rolled_back for each in self._settling):
                raise StateError(f"the rollback of transaction {tx} is not durable yet: flush() first")
            tx = self._journal.begin(tx or None)
            if tx not in self._transactions:
                self._transactions[tx] = StoreTransaction(tx, self._clock_ms())
            return tx

    def is_empty(self, tx: int) -> bool:
        """Whether nothing was done in `tx`. Raises TransactionUnknownError."""
        with self._lock:
            self._enter()
            txn = self._known(tx)
            return txn.refused is None and not txn.streams and self._info(txn).empty

    def prepare(self, tx: int, data: bytes = b"") -> Prepared:
        """Make `tx` wait, through every crash, for commit or rollback; `data` names it (an xid).

        Raises TransactionUnknownError, TransactionPreparedError, StateError (a large message is on its way into it),
        and what refused the whole transaction before.
        """
        with self._lock:
            self._enter()
            txn = self._transaction(tx)
            txn.require_whole()
            completion = self._journal.prepare(tx, data)
            txn.prepared = True
            txn.data = data
            return Prepared(tx, completion, self._not_durable(txn))

    def commit(self, tx: int, *, then: Sequence[PlainOperation] = ()) -> Pending:
        """Make `tx` take effect, and plain operations of other records behind it in the same group.

        Raises TransactionUnknownError, StateError (as `prepare`), and what refused the whole transaction before.
        """
        with self._lock:
            self._enter()
            txn = self._known(tx)
            txn.require_whole()
            completion = self._commit_with_deletes(txn, then)
            del self._transactions[tx]
            for message_id in txn.stored:
                del self._stored_in[message_id]
            self._settling.append(txn)
            self._commit_taken(txn, completion)
            self._commit_changed(txn, completion)
            self._commit_added(txn, completion)
            self._commit_declared(txn)
            self._when_durable(completion, self._is_settled, txn, None)
        self._discard_leaving()
        return Pending(tx, completion)

    def _commit_with_deletes(self, txn: StoreTransaction, then: Sequence[PlainOperation]) -> Completion:
        """What is not referred to any more is deleted with it; behind it, if that is more than one group takes."""
        last = self._last_references(txn)
        deletes: list[PlainOperation] = [(DELETE, each, 0, b"", False, 0) for records in last for each in records]
        try:
            return self._journal.commit(txn.tx, then=[*deletes, *then])
        except InvalidOperationError:
            if not deletes:
                raise
        completion = self._journal.commit(txn.tx, then=then)
        self._when_durable(completion, self._leave_to_collect, last, None)
        return completion

    def _leave_to_collect(self, last: list[tuple[int, ...]], _: None) -> None:
        self._garbage.extend(last)

    def _is_settled(self, txn: StoreTransaction, _: None) -> None:
        self._settling.remove(txn)

    def _last_references(self, txn: StoreTransaction) -> list[tuple[int, ...]]:
        """Records of each durable message of which the transaction settles all references that are left."""
        state, last = self._state, []
        for message_id, count in Counter(taken.message for taken in txn.taken).items():
            durable, references, chunks = state.remainder(message_id)
            if durable and references == count:
                last.append((message_id, *chunks))
        return last

    def _commit_taken(self, txn: StoreTransaction, completion: Completion) -> None:
        state = self._state
        for message_id, queue_id, holder, durable in txn.taken:
            message_durable, _, chunks = state.remainder(message_id)
            if state.acknowledge(message_id, queue_id, holder, tx=txn.tx):
                self._drop_bodies(message_id, chunks)
                durable = durable or message_durable
            if durable:
                self._settles(completion, message_id, queue_id)
            else:
                state.settled(message_id, queue_id)

    def _commit_changed(self, txn: StoreTransaction, completion: Completion) -> None:
        for key, changed in txn.changed.items():
            if changed.acknowledged:
                continue
            if changed.durable:
                self._when_durable(completion, self._change, txn, (key, changed))
            else:
                self._change(txn, (key, changed))

    def _change(self, txn: StoreTransaction, what: tuple[tuple[int, int], Changed]) -> None:
        """A reference is what a committed transaction has made of it."""
        key, (holder, deliveries, due, _, _) = what
        state = self._state
        before = state.reference(*key).holder
        state.unlock(*key)
        if before not in ("", holder):
            state.release(*key, before)
        if holder not in ("", before):
            state.acquire(*key, holder, None)
        state.deliveries(*key, deliveries)
        state.schedule(*key, due)
        if holder and key in txn.unclaimed:
            state.hold_over(*key, counts=txn.unclaimed[key])
        self._come_back(key, holder)

    def _come_back(self, key: tuple[int, int], holder: str) -> None:
        """A reference is no longer locked: it is given back if its holder has let go of it meanwhile."""
        if holder not in self._absent and self._state.held_over_counts(*key) is not None:
            self._let_go[key] = None

    def _commit_declared(self, txn: StoreTransaction) -> None:
        declared = txn.declared
        if not declared:
            return
        del self._declaring[txn.tx]
        for address in declared.addresses:
            if address.made and address.duplicate_window:
                self._windows[address.record_id] = DuplicateWindow(address.record_id, address.duplicate_window)
            elif not address.made:
                self._windows.pop(address.record_id, None)
                self._leaving.append(self._unrouted.parts(address.record_id))
        self._leaving.extend(carry_out(self._state, declared))

    def _commit_added(self, txn: StoreTransaction, completion: Completion) -> None:
        state = self._state
        self._settle_reservations(txn, entered=True)
        for message_id, body in txn.bodies.items():
            self._cache.put(completion, message_id, body)
        for message_id, queue_id, durable in txn.routed:
            self._unrouted.discard(message_id)
            if durable:
                self._arrives(completion, message_id, queue_id)
            else:
                state.arrive(message_id, queue_id)

    def rollback(self, tx: int) -> Pending:
        """Drop what was done in `tx`. Raises TransactionUnknownError."""
        with self._lock:
            self._enter()
            txn = self._known(tx)
            completion = self._journal.rollback(tx)
            del self._transactions[tx]
            if txn.prepared:
                txn.rolled_back = True
                self._settling.append(txn)
                self._when_durable(completion, self._undo, txn, None)
                self._when_durable(completion, self._is_settled, txn, None)
            else:
                self._undo(txn, None)
            return Pending(tx, completion)

    def _undo(self, txn: StoreTransaction, _: None) -> None:
        """What a transaction held is as it was before."""
        state = self._state
        for message_id, queue_id, holder, _durable in txn.taken:
            state.unlock(message_id, queue_id)
            self._come_back((message_id, queue_id), holder)
        for key, changed in txn.changed.items():
            if changed.acknowledged:
                continue
            holder = state.reference(*key).holder
            state.unlock(*key)
            self._come_back(key, holder)
        if txn.declared:
            del self._declaring[txn.tx]
            bring_back(state, txn.declared)
        unreferenced = []
        for message_id, queue_id, _durable in reversed(txn.routed):
            none_left = state.withdraw(message_id, queue_id)
            if none_left and message_id not in txn.stored and message_id not in self._unrouted:
                unreferenced.append(message_id)
        for message_id in txn.stored:
            del self._stored_in[message_id]
            chunks = state.message(message_id).chunks
            state.forget(message_id)
            self._unrouted.discard(message_id)
            self._drop_bodies(message_id, chunks)
        self._settle_reservations(txn, entered=False)
        if unreferenced:
            self._discard(unreferenced)
        self._collect()

    def _abandon(self, tx: int) -> None:
        """Roll back a transaction of the store's own, later if the journal does not take it now."""
        if tx not in self._transactions:
            return
        try:
            self.rollback(tx)
        except JournalError:
            self._abandoned.append(tx)

    def _collect(self) -> None:
        super()._collect()
        abandoned, self._abandoned = self._abandoned, []
        for tx in abandoned:
            self._abandon(tx)

    # ---- what is open ----------------------------------------------------------------------------------------------

    def transactions(self) -> list[TransactionInfo]:
        """Those open and those in doubt."""
        with self._lock:
            self._enter()
            return [self._info(txn) for _, txn in sorted(self._transactions.items())]

    def transaction(self, tx: int) -> TransactionInfo:
        """Raises TransactionUnknownError."""
        with self._lock:
            self._enter()
            return self._info(self._known(tx))

    def in_doubt(self) -> list[TransactionInfo]:
        """Prepared transactions, which wait for their coordinator."""
        return [info for info in self.transactions() if info.prepared]

    def _known(self, tx: int) -> StoreTransaction:
        txn = self._transactions.get(tx)
        if txn is None:
            raise TransactionUnknownError(f"no transaction {tx} is open or prepared")
        return txn

    def _settle_reservations(self, txn: StoreTransaction, *, entered: bool) -> None:
        for address in dict.fromkeys(reservation.address for reservation in txn.reservations):
            window = self._windows.get(address)
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
        return tuple((message, queue_name(self._state, queue)) for message, queue in references)
