"""A message store as plain dictionaries: what it should say, and what it should refuse with which error.

It knows no journal: what survives an activation is marked as durable when it is made. Everything is durable at once, as
its user waits after every operation, or goes on with a copy from before those that it did not wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from journal.errors import (
    AddressExistsError,
    DuplicateMessageError,
    FullError,
    JournalError,
    MessageExpiredError,
    MessageHeldError,
    MessageMissingError,
    QueueExistsError,
    QueueInDoubtError,
    QueueMissingError,
    StateError,
    StoreError,
    TransactionPreparedError,
    TransactionUnknownError,
)
from journal.store.model import Message
from journal.store.operations.dead_letters import DEAD_LETTERS
from tests.properties.store.plain_window import PlainWindow

Key = tuple[int, str]
"""Message and queue."""


class Refusal(Exception):
    """What the store should raise."""

    def __init__(self, error: type[JournalError]) -> None:
        super().__init__(error)
        self.error = error


@dataclass
class Reference:
    """A message's place in a queue."""

    place: int
    durable: bool
    priority: int
    due: int = 0
    written_due: int = 0
    """The state that a load finds."""
    journaled: bool = True
    """Whether the journal holds who has acquired it."""
    loaded: bool = False
    """Whether it may have been delivered before a load."""
    waits: bool = False
    """Scheduled, and not yet found due."""
    deliveries: int = 0
    limit: int = 0
    """After how many deliveries it is dead; 0: never."""
    holder: str = ""
    held_over: bool = False
    """From before the activation, and its holder has not come back for it."""
    left_counts: bool = False
    """Held over, its holder has said that it counts when it is given back."""
    tx: int = 0
    """The transaction that has it locked."""

    @property
    def is_dead(self) -> bool:
        """Whether it was delivered as often as allowed."""
        return 0 < self.limit <= self.deliveries

    @property
    def state(self) -> str:
        if self.tx:
            return "locked"
        if self.holder:
            return "held"
        return "scheduled" if self.waits else "ready"


@dataclass
class Transaction:
    prepared: bool = False
    refused: bool = False
    stored: list[int] = field(default_factory=list)
    routed: list[tuple[Key, int, bool]] = field(default_factory=list)
    """Reference, due and whether durable."""
    taken: list[tuple[Key, str]] = field(default_factory=list)
    changed: dict[Key, Reference] = field(default_factory=dict)
    """References as it has left them, those that it has acknowledged since included."""
    created: dict[str, tuple[str, bool]] = field(default_factory=dict)
    destroyed: dict[str, tuple[str, bool]] = field(default_factory=dict)
    bound: dict[int, str] = field(default_factory=dict)
    unbound: dict[int, str] = field(default_factory=dict)
    created_address: bool = False
    destroyed_address: bool = False

    @property
    def declarations(self) -> int:
        """How many addresses, queues and bindings it creates or destroys; those of a destroyed queue go with it."""
        removed = [each for each, queue in self.unbound.items() if queue not in self.destroyed]
        queues = len(self.created) + len(self.destroyed)
        return queues + len(self.bound) + len(removed) + self.created_address + self.destroyed_address


class PlainStore:
    """The whole store. Methods raise Refusal and then have changed nothing."""

    def __init__(
        self,
        queues: dict[str, tuple[str, bool]],
        grace_ms: int,
        window: int,
        journaled: Container[str] = (),
        limits: Mapping[str, int] | None = None,
    ) -> None:
        """`queues`: name to address and whether durable. `journaled`: those whose acquisitions are in the journal.
        `window`: how many ids these addresses remember. `limits`: the number of deliveries of queues that have one."""
        self._limits = limits or {}
        self.queues = dict(queues)
        self.changed = dict.fromkeys(queues, ("", False))
        """Filter of each queue, and whether it is paused; those that transactions destroy included."""
        self.bindings: dict[int, str] = {}
        """Queues by binding."""
        self.address = False
        """Whether there is the address that is no queue's."""
        self.messages: dict[int, Message] = {}
        self.stored_in: dict[int, int] = {}
        self.unrouted: set[int] = set()
        self.references: dict[Key, Reference] = {}
        self.transactions: dict[int, Transaction] = {}
        self.windows = {address: PlainWindow(window) for address, _ in queues.values()}
        self.absent: set[str] = set()
        self.grace_until_ms = 0
        self._grace_ms = grace_ms
        self._place = 0
        self._journaled = journaled

    # ---- asking ----------------------------------------------------------------------------------------------------

    def browse(self, queue: str) -> list[tuple[int, str, int, str]]:
        """(message, state, deliveries, holder) in delivery order."""
        rows = [(key[0], reference) for key, reference in self.references.items() if key[1] == queue]
        rows.sort(key=lambda row: (-row[1].priority, row[1].place))
        return [(message, each.state, each.deliveries, each.holder) for message, each in rows]

    def routes_of(self, message: int) -> set[str]:
        """Queues that have it, or will by a commit."""
        there = {key[1] for key in self.references if key[0] == message}
        return there | {key[1] for txn in self.transactions.values() for key, _, _ in txn.routed if key[0] == message}

    def _reference(self, message: int, queue: str) -> Reference:
        if queue not in self.queues:
            raise Refusal(QueueMissingError)
        if (message, queue) not in self.references:
            raise Refusal(MessageMissingError)
        return self.references[message, queue]

    def _all_references(self) -> list[Reference]:
        """Those of the transactions that change some included."""
        changed = [each for txn in self.transactions.values() for each in txn.changed.values()]
        return [*self.references.values(), *changed]

    def _transaction_of(self, key: Key) -> Transaction | None:
        """The one that changes a reference."""
        return next((txn for txn in self.transactions.values() if key in txn.changed), None)

    def _seen(self, message: int, queue: str, txn: Transaction | None) -> Reference:
        """A reference as a transaction has left it, or as it is."""
        reference = self._reference(message, queue)
        if txn is None:
            return reference
        key = (message, queue)
        if key in {taken for taken, _ in txn.taken} or (reference.tx and key not in txn.changed):
            raise Refusal(MessageHeldError)
        return txn.changed.get(key, reference)

    def _changed(self, message: int, queue: str, tx: int) -> Reference:
        """The reference to be changed: the transaction's own, which locks the one that all see."""
        key = (message, queue)
        if not tx:
            return self.references[key]
        txn = self.transactions[tx]
        self.references[key].tx = tx
        return txn.changed.setdefault(key, replace(self.references[key], tx=0))

    def _open(self, tx: int) -> Transaction | None:
        if not tx:
            return None
        txn = self.transactions.get(tx)
        if txn is None:
            raise Refusal(TransactionUnknownError)
        if txn.prepared:
            raise Refusal(TransactionPreparedError)
        if txn.refused:
            raise Refusal(DuplicateMessageError)
        return txn

    # ---- sending ---------------------------------------------------------------------------------------------------

    def check_send(
        self, messages: Sequence[Message], queues: tuple[str, ...], tx: int, *, in_flight: bool = False
    ) -> None:
        """Messages of one address. In flight nothing is said of duplicates: which slot is free depends on what gets
        durable first."""
        txn = self._open(tx)
        if any(queue not in self.queues for queue in queues):
            raise Refusal(QueueMissingError)
        address = messages[0].address
        if any(self.queues[queue][0] != address for queue in queues):
            raise Refusal(StoreError)
        duplicate_ids = [message.duplicate_id for message in messages if message.duplicate_id]
        refusals = [] if in_flight else [self.windows[address].refusal(each, tx) for each in duplicate_ids]
        if not in_flight and len(set(duplicate_ids)) < len(duplicate_ids):
            refusals.append(DuplicateMessageError)
        refusal = next((each for each in sorted(refusals, key=lambda each: each is FullError) if each), None)
        if refusal is not None:
            if txn is not None and refusal is DuplicateMessageError:
                txn.refused = True
            raise Refusal(refusal)

    def send_all(self, ids: Sequence[int], messages: Sequence[Message], queues: tuple[str, ...], tx: int) -> None:
        """After `check_send`."""
        if tx:
            for message_id, message in zip(ids, messages, strict=True):
                self._send_in(message_id, message, queues, tx)
            return
        arriving = []
        for message_id, message in zip(ids, messages, strict=True):
            self.messages[message_id] = message
            arriving += self._routed(message_id, message, queues)
            if message.duplicate_id:
                self.windows[message.address].enter(message.duplicate_id, durable=message.durable)
            if not queues:
                self.unrouted.add(message_id)
        self._arrive(arriving)

    def send(self, message_id: int, message: Message, queues: tuple[str, ...], tx: int) -> None:
        self.send_all([message_id], [message], queues, tx)

    def _routed(self, message_id: int, message: Message, queues: tuple[str, ...]) -> list[tuple[Key, int, bool]]:
        return [((message_id, queue), message.due, message.durable and self.queues[queue][1]) for queue in queues]

    def _send_in(self, message_id: int, message: Message, queues: tuple[str, ...], tx: int) -> None:
        self.messages[message_id] = message
        txn = self.transactions[tx]
        txn.stored.append(message_id)
        self.stored_in[message_id] = tx
        self.unrouted.add(message_id)
        txn.routed += self._routed(message_id, message, queues)
        if message.duplicate_id:
            self.windows[message.address].reserve(message.duplicate_id, tx, durable=message.durable)

    def _arrive(self, routed: list[tuple[Key, int, bool]]) -> None:
        """What is not durable comes first: it waits for nothing."""
        for key, due, durable in sorted(routed, key=lambda each: each[2]):
            self._place += 1
            priority = self.messages[key[0]].priority
            self.references[key] = Reference(
                self._place,
                durable,
                priority,
                due,
                due,
                key[1] in self._journaled,
                waits=bool(due),
                limit=self._limits.get(key[1], 0),
            )

    def route(self, message: int, queue: str, due: int, tx: int) -> None:
        if message not in self.messages:
            raise Refusal(MessageMissingError)
        if queue not in self.queues:
            raise Refusal(QueueMissingError)
        if self.stored_in.get(message, tx) != tx:
            raise Refusal(MessageMissingError)
        if self.queues[queue][0] != self.messages[message].address:
            raise Refusal(StoreError)
        txn = self._open(tx)
        if queue in self.routes_of(message):
            raise Refusal(StoreError)
        own = self.messages[message]
        routed = ((message, queue), due or own.due, own.durable and self.queues[queue][1])
        if txn is None:
            self.unrouted.discard(message)
            self._arrive([routed])
        else:
            txn.routed.append(routed)

    # ---- consuming -------------------------------------------------------------------------------------------------

    def find_due(self, now_ms: int) -> None:
        for reference in self.references.values():
            if reference.state == "scheduled" and reference.due <= now_ms:
                reference.waits, reference.due = False, 0

    def let_go_of_absent(self, now_ms: int) -> None:
        """First thing of whatever is asked or done, but for `release`."""
        if now_ms >= self.grace_until_ms:
            self.absent.clear()
            self._give_back_overdue(self.references.values())

    def _give_back_overdue(self, references: Iterable[Reference]) -> None:
        for reference in references:
            if reference.state == "held" and reference.held_over and reference.holder not in self.absent:
                self._give_back(reference, counts=reference.left_counts)

    def take(
        self, queue: str, holder: str, now_ms: int, wanted: Callable[[Message], bool] = lambda _: True
    ) -> tuple[int, int, bool] | None:
        """Message, deliveries, and whether it is redelivered."""
        if queue not in self.queues:
            raise Refusal(QueueMissingError)
        self.let_go_of_absent(now_ms)
        self.find_due(now_ms)
        if self.changed[queue][1]:
            return None
        for message, state, deliveries, _ in self.browse(queue):
            if state == "ready" and not self._has_expired(message, now_ms) and wanted(self.messages[message]):
                reference = self.references[message, queue]
                if reference.is_dead:
                    self._hold(reference, DEAD_LETTERS)
                    continue
                self._hold(reference, holder)
                return message, deliveries, bool(deliveries or reference.loaded)
        return None

    def _has_expired(self, message: int, now_ms: int) -> bool:
        return 0 < self.messages[message].expires <= now_ms

    def expired(self, now_ms: int) -> set[Key]:
        return {
            key
            for key, reference in self.references.items()
            if key[1] in self.queues and reference.state in ("ready", "scheduled") and self._has_expired(key[0], now_ms)
        }

    def _hold(self, reference: Reference, holder: str, *, written: bool = False) -> None:
        reference.holder, reference.held_over = holder, False
        reference.waits, reference.due = False, 0
        if written or reference.journaled:
            reference.written_due = 0

    def acquire(self, message: int, queue: str, holder: str, now_ms: int, tx: int) -> None:
        if queue not in self.queues:
            raise Refusal(QueueMissingError)
        reference = self._seen(message, queue, self._open(tx))
        if reference.tx or reference.holder not in ("", holder) or (reference.waits and reference.due > now_ms):
            raise Refusal(MessageHeldError)
        if not reference.holder and self._has_expired(message, now_ms):
            raise Refusal(MessageExpiredError)
        if not reference.holder and self.changed[queue][1]:
            raise Refusal(StateError)
        reference = self._changed(message, queue, tx)
        if not reference.holder:
            self._hold(reference, holder, written=bool(tx))
        for each in (reference, self.references[message, queue]):
            if each.holder == holder:
                each.held_over = False

    def release_all(self, messages: Sequence[int], queue: str, holder: str, tx: int, *, counts: bool) -> None:
        if queue not in self.queues:
            raise Refusal(QueueMissingError)
        txn = self._open(tx)
        if len(set(messages)) < len(messages):
            raise Refusal(StoreError)
        for message in messages:
            reference = self._seen(message, queue, txn)
            if reference.state != "held" or holder not in ("", reference.holder):
                raise Refusal(MessageHeldError)
        for message in messages:
            self._give_back(self._changed(message, queue, tx), counts=counts, written=bool(tx))

    def _give_back(self, reference: Reference, *, counts: bool, written: bool = False) -> None:
        reference.holder = ""
        reference.deliveries += counts
        if written or counts or reference.journaled:
            reference.written_due = reference.due
        reference.waits = bool(reference.due)
        if not written:
            self._set_aside_if_dead(reference)

    def _set_aside_if_dead(self, reference: Reference) -> None:
        if reference.is_dead and not reference.holder:
            self._hold(reference, DEAD_LETTERS)

    def dead(self) -> set[Key]:
        return {key for key, reference in self.references.items() if reference.holder == DEAD_LETTERS}

    def release_holder(self, holder: str, *, counts: bool) -> None:
        for reference in self.references.values():
            if reference.state == "held" and reference.holder == holder:
                self._give_back(reference, counts=counts)
        self.absent.discard(holder)
        for reference in self._all_references():
            if reference.holder == holder:
                reference.held_over, reference.left_counts = True, counts

    def reattach(self, holder: str, now_ms: int) -> set[Key]:
        self.let_go_of_absent(now_ms)
        self.absent.discard(holder)
        for reference in self._all_references():
            if reference.holder == holder:
                reference.held_over = False
        return {
            key
            for key, reference in self.references.items()
            if key[1] in self.queues and reference.state == "held" and reference.holder == holder
        }

    def deliveries(self, message: int, queue: str, count: int, tx: int) -> None:
        if queue not in self.queues:
            raise Refusal(QueueMissingError)
        self._seen(message, queue, self._open(tx))
        if not tx and self._transaction_of((message, queue)) is not None:
            raise Refusal(MessageHeldError)
        reference = self._changed(message, queue, tx)
        reference.deliveries = count
        reference.written_due = reference.due

    def schedule(self, message: int, queue: str, due: int, tx: int) -> None:
        if queue not in self.queues:
            raise Refusal(QueueMissingError)
        if self._seen(message, queue, self._open(tx)).tx:
            raise Refusal(MessageHeldError)
        reference = self._changed(message, queue, tx)
        reference.due = reference.written_due = due
        reference.waits = bool(due) and not reference.holder

    def acknowledge(self, message: int, queue: str, holder: str, tx: int) -> None:
        self.acknowledge_all([message], queue, holder, tx)

    def acknowledge_all(self, messages: Sequence[int], queue: str, holder: str, tx: int) -> None:
        if queue not in self.queues:
            raise Refusal(QueueMissingError)
        self._open(tx)
        if len(set(messages)) < len(messages):
            raise Refusal(StoreError)
        for message in messages:
            self._check_acknowledge(message, queue, holder, tx)
        for message in messages:
            if tx:
                self.references[message, queue].tx = tx
                self.transactions[tx].taken.append(((message, queue), holder))
            else:
                self._settle((message, queue))

    def purge(self, queue: str) -> int:
        """The number of ready references, which are settled."""
        if queue not in self.queues:
            raise Refusal(QueueMissingError)
        ready = [key for key, each in self.references.items() if key[1] == queue and each.state == "ready"]
        for key in ready:
            self._settle(key)
        return len(ready)

    def _check_acknowledge(self, message: int, queue: str, holder: str, tx: int) -> None:
        if queue not in self.queues:
            raise Refusal(QueueMissingError)
        txn = self._open(tx)
        seen = self._seen(message, queue, txn)
        if seen.tx or seen.holder not in ("", holder):
            raise Refusal(MessageHeldError)

    def _settle(self, key: Key) -> None:
        del self.references[key]
        self._forget_unreferenced(key[0])

    def _forget_unreferenced(self, message: int) -> None:
        if message in self.messages and message not in self.unrouted and not self.routes_of(message):
            del self.messages[message]

    def check_move(self, message: int, queue: str, queues: tuple[str, ...], tx: int) -> None:
        """To `queues`, or nowhere."""
        holder = self._holder_of(message, queue, tx)
        if any(each not in self.queues for each in queues):
            raise Refusal(QueueMissingError)
        self._check_acknowledge(message, queue, holder, tx)

    def check_reject(self, messages: Sequence[int], queue: str, queues: tuple[str, ...], holder: str, tx: int) -> None:
        """To `queues`, or nowhere."""
        if queue not in self.queues:
            raise Refusal(QueueMissingError)
        self._open(tx)
        if len(set(messages)) < len(messages):
            raise Refusal(StoreError)
        for message in messages:
            self._check_acknowledge(message, queue, holder, tx)
        if any(each not in self.queues for each in queues):
            raise Refusal(QueueMissingError)

    def settle_for_its_holder(self, message: int, queue: str, tx: int) -> None:
        """After `check_move`."""
        self.acknowledge(message, queue, self._holder_of(message, queue, tx), tx)

    def _holder_of(self, message: int, queue: str, tx: int) -> str:
        """Who has it, as the transaction has left it."""
        holder = self._reference(message, queue).holder
        changed = self.transactions[tx].changed.get((message, queue)) if tx in self.transactions else None
        return holder if changed is None else changed.holder

    # ---- transactions ----------------------------------------------------------------------------------------------

    def prepare(self, tx: int) -> None:
        txn = self._open(tx)
        if txn is None:
            raise Refusal(TransactionUnknownError)
        txn.prepared = True

    def commit(self, tx: int) -> None:
        txn = self.transactions.get(tx)
        if txn is None:
            raise Refusal(TransactionUnknownError)
        if txn.refused:
            raise Refusal(DuplicateMessageError)
        del self.transactions[tx]
        for message in txn.stored:
            del self.stored_in[message]
        for key, _, _ in txn.routed:
            self.unrouted.discard(key[0])
        self._arrive(txn.routed)
        taken = [key for key, _ in txn.taken]
        for key in taken:
            del self.references[key]
        for key in taken:
            self._forget_unreferenced(key[0])
        for key, reference in txn.changed.items():
            if key not in taken:
                self.references[key] = reference
                self._set_aside_if_dead(reference)
        self._give_back_overdue(self.references.values())
        for queue in txn.destroyed:
            self._drop_queue(queue)
        self.address = self.address or txn.created_address
        self.queues |= txn.created
        self.changed |= dict.fromkeys(txn.created, ("", False))
        self.bindings |= txn.bound
        for window in self.windows.values():
            window.settle(tx, entered=True)

    def rollback(self, tx: int, *, release: bool = False) -> None:
        for message in self._undo(tx, release=release):
            self._forget_unreferenced(message)

    def _undo(self, tx: int, *, release: bool = False) -> list[int]:
        """Messages that may have no reference now."""
        txn = self.transactions.pop(tx, None)
        if txn is None:
            raise Refusal(TransactionUnknownError)
        for key in {*(key for key, _ in txn.taken), *txn.changed}:
            self.references[key].tx = 0
            if release and self.references[key].holder:
                self._give_back(self.references[key], counts=True)
        self._give_back_overdue(self.references.values())
        self.address = self.address or txn.destroyed_address
        self.queues |= txn.destroyed
        self.bindings |= txn.unbound
        for message in txn.stored:
            del self.messages[message], self.stored_in[message]
            self.unrouted.discard(message)
        for window in self.windows.values():
            window.settle(tx, entered=False)
        return [key[0] for key, _, _ in txn.routed]

    # ---- queues and activations ------------------------------------------------------------------------------------

    def create_address(self, tx: int) -> None:
        txn = self._open(tx)
        for other in self.transactions.values():
            if other.created_address or (other.destroyed_address and other is not txn):
                raise Refusal(AddressExistsError)
        if txn is None:
            self.address = True
        else:
            txn.created_address = True

    def destroy_address(self, tx: int) -> None:
        txn = self._open(tx)
        self.address = False
        if txn is not None:
            txn.destroyed_address = True

    def create_queue(self, queue: str, config: tuple[str, bool], tx: int) -> None:
        txn = self._open(tx)
        if queue in self.queues:
            raise Refusal(QueueExistsError)
        for other in self.transactions.values():
            if queue in other.created or (queue in other.destroyed and other is not txn):
                raise Refusal(QueueExistsError)
        (self.queues if txn is None else txn.created)[queue] = config
        if txn is None:
            self.changed[queue] = ("", False)

    def change_queue(self, queue: str, filter: str | None, paused: bool | None) -> None:
        """What is None stays."""
        if queue not in self.queues:
            raise Refusal(QueueMissingError)
        old_filter, was_paused = self.changed[queue]
        self.changed[queue] = (old_filter if filter is None else filter, was_paused if paused is None else paused)

    def destroy_queue(self, queue: str, tx: int) -> None:
        txn = self._open(tx)
        if queue not in self.queues:
            raise Refusal(QueueMissingError)
        for other in self.transactions.values():
            touched = [key for key, _, _ in other.routed] + [key for key, _ in other.taken] + list(other.changed)
            bound = [*other.bound.values(), *(() if other is txn else other.unbound.values())]
            if any(key[1] == queue for key in touched) or queue in bound:
                raise Refusal(QueueInDoubtError)
        if txn is None:
            self._drop_queue(queue)
        else:
            txn.destroyed[queue] = self.queues.pop(queue)
            txn.unbound |= {each: name for each, name in self.bindings.items() if name == queue}
            self.bindings = {each: name for each, name in self.bindings.items() if name != queue}

    def _drop_queue(self, queue: str) -> None:
        self.queues.pop(queue, None)
        self.bindings = {each: name for each, name in self.bindings.items() if name != queue}
        for key in [key for key in self.references if key[1] == queue]:
            self._settle(key)

    def check_bind(self, queue: str, tx: int) -> None:
        txn = self._open(tx)
        if queue not in self.queues and (txn is None or queue not in txn.created):
            raise Refusal(QueueMissingError)

    def bind(self, binding: int, queue: str, tx: int) -> None:
        """After `check_bind`."""
        (self.transactions[tx].bound if tx else self.bindings)[binding] = queue

    def unbind(self, binding: int, tx: int) -> None:
        txn = self._open(tx)
        if binding not in self.bindings:
            raise Refusal(StoreError)
        queue = self.bindings.pop(binding)
        if txn is not None:
            txn.unbound[binding] = queue

    def activate(self, now_ms: int) -> int:
        """What is not durable is gone, and what is open; how many messages without references were left."""
        for reference in self._all_references():
            reference.held_over = False
            if not reference.journaled:
                reference.holder, reference.loaded = "", True
        for tx in [tx for tx, txn in self.transactions.items() if not txn.prepared]:
            self._undo(tx)
        for txn in self.transactions.values():
            self._keep_durable(txn)
        self.queues = {name: (address, durable) for name, (address, durable) in self.queues.items() if durable}
        self.bindings = {each: name for each, name in self.bindings.items() if name in self.queues}
        self.references = {key: each for key, each in self.references.items() if each.durable}
        orphans = 0
        for message in list(self.messages):
            if not self.messages[message].durable:
                del self.messages[message]
                self.unrouted.discard(message)
            elif message not in self.stored_in:
                self.unrouted.discard(message)  # one that a prepared route kept goes with its rollback
                if not self.routes_of(message):
                    del self.messages[message]
                    orphans += 1
        for window in self.windows.values():
            window.activate()
        for reference in self.references.values():
            reference.due = reference.written_due
            reference.waits = bool(reference.due) and not reference.holder
        held = [each for each in self._all_references() if each.holder]
        for reference in held:
            reference.held_over, reference.left_counts = True, False
        self.absent = {each.holder for each in held}
        self.grace_until_ms = now_ms + self._grace_ms
        return orphans

    def _keep_durable(self, txn: Transaction) -> None:
        for message in [each for each in txn.stored if not self.messages[each].durable]:
            txn.stored.remove(message)
            del self.messages[message], self.stored_in[message]
            self.unrouted.discard(message)
        txn.routed = [each for each in txn.routed if each[2]]
        txn.taken = [(key, holder) for key, holder in txn.taken if self.references[key].durable]
        txn.changed = {key: each for key, each in txn.changed.items() if each.durable}
        txn.bound = {each: name for each, name in txn.bound.items() if (self.queues | txn.created)[name][1]}
        txn.unbound = {each: name for each, name in txn.unbound.items() if (self.queues | txn.destroyed)[name][1]}
        txn.created = {name: config for name, config in txn.created.items() if config[1]}
        txn.destroyed = {name: config for name, config in txn.destroyed.items() if config[1]}
