"""`MessageStore`: the message store that a broker writes to, on any journal.

    loader = QueueLoader(...)
    journal.activate(loader)
    store = MessageStore(journal)
    store.start(loader.loaded)
    store.create_address("orders").wait()
    store.create_queue(QueueConfig("orders/eu", "orders")).wait()
    sent = store.send(Message("orders", b"..."), ["orders/eu"])
    ...
    delivery = store.take("orders/eu", holder="session 7")
    store.acknowledge(delivery.message, "orders/eu", holder="session 7").wait()

This file lists every operation and says what it does. Its body is in `journal/store/operations`, in the file that the
one line below it names: `self._send.send(...)` is in `send.py`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, Callable, Collection, Iterable, Iterator, Sequence
from types import TracebackType

from journal.append.completion import Completion
from journal.append.operations import PlainOperation
from journal.errors import ClosedError, JournalError, StateError
from journal.kafka.ports import Consumed, Sent
from journal.process.clocks import monotonic_ms
from journal.store.bodies.chunks import BodyStream
from journal.store.incoming import Incoming, PlainRun
from journal.store.model import Delivery, Message, QueueConfig, ReferenceInfo
from journal.store.operations.acknowledge import AcknowledgeOperations
from journal.store.operations.add import MessageAdder
from journal.store.operations.change import ReferenceChanges
from journal.store.operations.consume import ConsumeOperations
from journal.store.operations.core import ClockMs, StoreCore
from journal.store.operations.declare import DeclareOperations
from journal.store.operations.discard import MessageDiscard
from journal.store.operations.due import DueOperations
from journal.store.operations.garbage import Garbage
from journal.store.operations.hold import HoldOperations
from journal.store.operations.ids import StoreIds
from journal.store.operations.look import LookOperations, QueueInfo
from journal.store.operations.move import MoveOperations
from journal.store.operations.route import RouteOperations
from journal.store.operations.send import SendOperations
from journal.store.operations.send_all import SendAllOperations
from journal.store.operations.start import start_from
from journal.store.operations.stream import StreamOperations
from journal.store.operations.take_in import Settles, TakeInOperations, TakenIn, Takes
from journal.store.operations.transactions import Prepared, TransactionOperations
from journal.store.pending import Moved, Pending, PendingAll
from journal.store.ports import StoreJournal
from journal.store.queues.entry import AddressEntry, BindingEntry, MessageEntry
from journal.store.queues.loaded import LoadedStore
from journal.store.settings import StoreSettings
from journal.store.transactions import TransactionInfo


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return int(time.time() * 1000)


class MessageStore:
    """The message store of one activation of a journal. When the activation is fenced or fails, so is the store.

    All operations are thread-safe. One that changes something is accepted or refused at once; a refused one has changed
    nothing. An accepted one gives a `Pending`, which is done when the operation is durable. With `tx` it is a part of
    that transaction, and takes effect when the transaction is committed.

    Times are milliseconds since 1970. A holder is whoever its broker names: a member, a client, a session. `id`, `ids`
    and `checked` are for the stores of a chain: the first store has issued the id, and has checked the
    duplicate-detection id, or that the message may be handed out. Its answer holds here too.

    Every operation raises what ended the activation, ClosedError after `close`, StateError before `start`, and
    CallbackError in a completion's callback. Only `incoming` asks nobody, and `room` and `flush` ask the journal alone:
    they also work in a callback, before `start` and after `close`. An operation on a transaction raises
    TransactionUnknownError, TransactionPreparedError, and what refused the whole transaction before. Operations that
    append raise FullError when the journal has no room: await `room()` and try again.

    The class has an attribute for each of its parts, as it is the list of them.
    """

    def __init__(
        self,
        journal: StoreJournal,
        settings: StoreSettings | None = None,
        *,
        clock_ms: ClockMs = wall_clock_ms,
        elapsed_ms: Callable[[], float] = monotonic_ms,
    ) -> None:
        """`journal` is started. `elapsed_ms` gives the milliseconds of a clock that is never set.

        Raises ConfigError for settings that the journal's limits contradict, LocalStorageError if there is no place to
        swap to.
        """
        settings = settings or StoreSettings()
        settings.require_fit(journal.limits)
        core = self._core = StoreCore(journal, settings, clock_ms, elapsed_ms)
        ids = StoreIds(core)
        garbage = self._garbage = Garbage(core)
        discard = self._discard = MessageDiscard(core, ids, garbage)
        adder = MessageAdder(core, ids, discard)
        changes = ReferenceChanges(core)
        self._look = LookOperations(core)
        self._hold = HoldOperations(core)
        self._due = DueOperations(core, self._hold)
        self._transactions = TransactionOperations(core, discard, garbage, self._hold)
        self._declare = DeclareOperations(core, ids, discard)
        self._stream = StreamOperations(core, ids, adder, self._transactions)
        self._send = SendOperations(core, adder, self._stream)
        self._send_all = SendAllOperations(core, ids, adder, discard)
        self._take_in = TakeInOperations(core, ids, adder, discard, garbage)
        self._route = RouteOperations(core, discard)
        self._consume = ConsumeOperations(core, changes, self._hold)
        self._acknowledge = AcknowledgeOperations(core, changes, discard)
        self._move = MoveOperations(
            core, adder, self._stream, self._acknowledge, changes, self._transactions, self._look
        )
        core.let_go_in_passing = self._hold.let_go_in_passing
        core.take_back = self._take_in.take_back
        core.unfinished = (garbage.delete_some, self._transactions.roll_back_abandoned, self._hold.give_back_left)
        self._started = self._closed = False
        self.orphaned_messages = 0
        """Messages without references that the load has found, and that are deleted."""

    # ---- the store itself ------------------------------------------------------------------------------------------

    def start(self, loaded: LoadedStore) -> None:
        """Go on from what the journal's activation has loaded, and delete what nothing refers to. Once.

        What holders hold stays theirs for `acquire_grace_ms` from now, and for good if they come back for it.
        Transactions in doubt are as they were: what they add is not visible, what they acknowledge and change is
        locked, what they destroy is gone. Raises StateError if the store was started.
        """
        core = self._core
        with core.lock:
            if self._started:
                raise StateError("the store was started")
            self._started = True
            start_from(loaded, core, self._discard, self._garbage)
            self.orphaned_messages = loaded.orphaned_messages
            core.journal.ended.add_callback(self._end)
            core.go_on()

    def _end(self, error: JournalError | None) -> None:
        """The node is not active any more: every later call is told so. Called by the journal."""
        if self._core.refusal is None:
            self._core.refusal = error

    def room(self) -> Completion:
        """Done when operations that met FullError may be tried again, first come first served."""
        return self._core.journal.room()

    def flush(self) -> Completion:
        """Done when everything accepted so far is durable."""
        return self._core.journal.flush()

    def close(self) -> None:
        """Refuse every later call, and drop what is not durable. The journal stays open for its owner."""
        core = self._core
        with core.lock:
            if not self._closed:
                self._closed = True
                core.refusal = ClosedError("the store was closed")
                core.volatile.close()

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def inline_bytes_max(self) -> int:
        """Larger bodies are stored in chunks."""
        return self._core.inline_bytes_max

    @property
    def collected(self) -> int:
        """Number of records that nothing referred to any more, and that are durably deleted."""
        return self._garbage.deleted

    @property
    def volatile_bytes(self) -> tuple[int, int]:
        """Bytes of bodies that are not durable: in memory, and in swap files."""
        return self._look.volatile_bytes()

    @property
    def cached_bytes(self) -> int:
        """Bytes of bodies of durable messages that the local copy does not have yet."""
        return self._look.cached_bytes()

    # ---- addresses, queues and bindings ----------------------------------------------------------------------------

    def create_address(self, name: str, duplicate_window: int = 0, tx: int = 0) -> Pending:
        """Create an address, which remembers the last `duplicate_window` duplicate-detection ids.

        In a transaction: there for others from its commit on, for its own queues at once. Raises AddressExistsError
        (also if a transaction creates or destroys it), InvalidOperationError.
        """
        return self._declare.create_address(name, duplicate_window, tx)

    def destroy_address(self, name: str, tx: int = 0) -> Pending:
        """Destroy an address without queues, and the messages there that no queue ever got.

        In a transaction it is gone for everybody at once, and back if that is rolled back. Raises AddressMissingError,
        AddressInUseError (it has queues, or a transaction creates or destroys some, or stores messages there).
        """
        return self._declare.destroy_address(name, tx)

    def create_queue(self, config: QueueConfig, tx: int = 0) -> Pending:
        """Create a queue of an address that exists, or that the transaction creates.

        In a transaction: there for others from its commit on, for its own bindings at once. Raises AddressMissingError,
        QueueExistsError (that name, or that durable subscription of its client at whatever address; also if a
        transaction creates or destroys it), InvalidOperationError (its dead-letter or expiry address is its own).
        """
        return self._declare.create_queue(config, tx)

    def destroy_queue(self, name: str, tx: int = 0) -> Pending:
        """Destroy a queue. Messages left without a reference are deleted afterwards, in bounded groups.

        In a transaction it is gone for everybody at once, with its messages, and back if that is rolled back. Raises
        QueueMissingError, QueueInDoubtError (transactions, this one included, whose settlement is not durable add
        messages to it, have acknowledged or changed some, or bind it; or what is taken in settles some).
        """
        return self._declare.destroy_queue(name, tx)

    def bind(self, queue: str, key: str = "", filter: str = "", tx: int = 0, *, id: int = 0) -> Pending:
        """Add a binding to a queue: the key and the filter by which its broker routes to it.

        The queue may be one that the transaction creates. Raises QueueMissingError, StoreError (`id` is in use).
        """
        return self._declare.bind(queue, key, filter, tx, id=id)

    def unbind(self, binding_id: int, tx: int = 0) -> Pending:
        """Remove a binding, in a transaction for everybody at once. Raises StoreError if there is none of that id."""
        return self._declare.unbind(binding_id, tx)

    def bindings(self, queue: str) -> list[BindingEntry]:
        """Bindings of a queue. Raises QueueMissingError."""
        return self._declare.bindings(queue)

    # ---- messages into the store -----------------------------------------------------------------------------------

    def send(
        self, message: Message, queues: Sequence[str], tx: int = 0, *, id: int = 0, checked: bool = False
    ) -> Pending:
        """Store a message and route it to queues of its address, in one group. Not delivered before `message.due`.

        Raises QueueMissingError, StoreError (a queue of another address), and what `store` raises.
        """
        self._give_time(message)
        return self._send.send(message, queues, tx, id, checked)

    def send_all(
        self,
        messages: Sequence[Message],
        queues: Sequence[str],
        tx: int = 0,
        *,
        ids: Sequence[int] = (),
        checked: bool = False,
    ) -> PendingAll:
        """Send messages of one address to the same queues, in their order and in one group: all of them or none.

        Without queues they are stored as by `store`. A body that a group does not take is for `store_stream`.

        Raises what `send` raises for one of them, and then none was stored; StoreError also for messages of several
        addresses; DuplicateMessageError also for two with the same duplicate-detection id; InvalidOperationError also
        for more than a group takes (the journal's `queue_operations_max`, of which each message takes one, one more
        for each durable queue and for a duplicate-detection id, and one for each chunk; `queue_bytes_max`).
        """
        self._give_time(*messages)
        return self._send_all.send_all(messages, queues, tx, ids, checked=checked)

    def store(self, message: Message, tx: int = 0, *, id: int = 0, checked: bool = False) -> Pending:
        """Store a message without routing it yet. A load deletes one that no queue ever got.

        Raises AddressMissingError, StoreError (the id is in use, or of another virtual shard than the address),
        MessageTooLargeError, InvalidOperationError, FullError, and DuplicateMessageError; after that one the
        transaction can only be rolled back.
        """
        self._give_time(message)
        return self._send.store(message, tx, id, checked)

    def store_stream(
        self,
        message: Message,
        body: Iterable[bytes],
        queues: Sequence[str] = (),
        tx: int = 0,
        *,
        id: int = 0,
        checked: bool = False,
    ) -> Pending:
        """Send a message whose body comes in pieces of any size; its own body is empty. Waits for room in the journal.

        What `body` raises cuts the message off: nothing is left of it, and the transaction can only be rolled back.
        Raises what `send` raises, and DeadlineError when there is no room within `read_timeout_ms`.
        """
        self._give_time(message)
        return self._stream.store_stream(message, body, queues, tx, id=id, checked=checked)

    async def store_stream_async(
        self, message: Message, body: AsyncIterable[bytes], queues: Sequence[str] = (), tx: int = 0, *, id: int = 0
    ) -> Pending:
        """`store_stream` in an event loop. Accepted when it returns.

        It does not block the loop on a journal whose appends do not wait (`Journal`, or `room_timeout_ms` 0); on
        another journal each chunk may block for `room_timeout_ms`.
        """
        self._give_time(message)
        return await self._stream.store_stream_async(message, body, queues, tx, id=id)

    def _give_time(self, *messages: Message) -> None:
        """Give messages without a timestamp the time of now. Other stores of a chain then store the same time."""
        for message in messages:
            if not message.timestamp:
                message.timestamp = int(self._core.clock_ms())

    def incoming(self, message: Message) -> Incoming:
        """Encode a message for `take_in`; it is durable from here on.

        Raises MessageTooLargeError, InvalidOperationError.
        """
        return self._take_in.incoming(message)

    def take_in(
        self,
        messages: Sequence[Incoming | PlainRun],
        consumed: Consumed,
        beside: Sequence[Sent],
        takes: Takes,
        settles: Sequence[Settles] = (),
    ) -> TakenIn:
        """Store messages of Kafka topics and route them to queues of their address, with the offsets consumed for them.

        All is one group and one Kafka transaction, together with the records `beside`, which go to other topics, and
        the acknowledgements of `settles`. `takes` is asked for queues with a filter. The completion is told
        NotTakenInError if nothing of it is there: consume again from the committed offsets.

        Raises AddressMissingError, QueueMissingError (the address has no queue), MessageMissingError and
        MessageHeldError (of `settles`), FullError, InvalidOperationError, StateError (an earlier batch is on its way);
        then nothing was changed.
        """
        return self._take_in.take_in(messages, consumed, beside, takes, settles)

    def ways_in(self, addresses: Collection[str]) -> dict[str, list[QueueConfig]]:
        """Queues of those of the addresses that exist, by address."""
        return self._take_in.ways_in(addresses)

    def route(self, message_id: int, queue: str, due: int = 0, tx: int = 0) -> Pending:
        """Route a stored message to one more queue of its address, where it is not delivered before `due`.

        Once the acknowledgement of an earlier route is durable, this begins a new reference. Raises MessageMissingError
        (or another transaction stores it), QueueMissingError, StoreError (the queue is of another address, or has the
        message: arriving, or acknowledged and not yet durably so, included), InvalidOperationError (not a time).
        """
        return self._route.route(message_id, queue, due, tx)

    def delete(self, message_id: int) -> Pending:
        """Delete a stored message that no queue has. A message that queues have goes with its last reference.

        Raises MessageMissingError (not there, or on its way out), StoreError (a queue has it, or is about to; or a
        transaction stores it, whose rollback deletes it).
        """
        return self._route.delete(message_id)

    # ---- messages out of the store ---------------------------------------------------------------------------------

    def take(self, queue: str, holder: str) -> Delivery | None:
        """Acquire the first message of a queue that is ready; None if none is, or this node may hand out nothing now.

        Up to 250 expired messages are passed; if more come first, None, and `next_due` has passed. Raises
        QueueMissingError, InvalidOperationError (the holder has no name).
        """
        return self._consume.take(queue, holder)

    def acquire(self, message_id: int, queue: str, holder: str, tx: int = 0, *, checked: bool = False) -> Pending:
        """Acquire a certain message; a message that `holder` has already stays its own.

        Raises QueueMissingError, MessageMissingError, MessageExpiredError (nobody had it, and it has expired),
        MessageHeldError (another has it, a transaction, or it is not due yet), StateError (this node may hand out
        nothing now), InvalidOperationError (the holder has no name).
        """
        return self._consume.acquire(message_id, queue, holder, tx, checked=checked)

    def release(self, message_id: int, queue: str, holder: str = "", tx: int = 0, *, counts: bool = True) -> Pending:
        """Give a message back: it is ready in its old place. Without `holder`: whoever has it.

        `counts`: it counts one delivery more; false for a message that its client never saw. Raises QueueMissingError,
        MessageMissingError, MessageHeldError (nobody holds it, or another does, or a transaction has locked it).
        """
        return self._consume.release(message_id, queue, holder, tx, counts=counts)

    def release_holder(self, name: str, *, counts: bool = True) -> Pending:
        """Give back everything that a holder holds now, in bounded groups; done when the last of them is.

        `counts` is as in `release`. After a FullError the rest is still held: call it again.
        """
        return self._hold.release_holder(name, counts=counts)

    def reattach(self, holder: str) -> list[tuple[int, str]]:
        """(message, queue) that a holder has from before a load, in order of acquisition: they stay its own."""
        return self._hold.reattach(holder)

    def holders(self) -> list[str]:
        """Names of those who hold messages."""
        return self._hold.holders()

    def deliveries(self, message_id: int, queue: str, count: int, tx: int = 0) -> Pending:
        """Set how often a message was delivered, as its broker counts: 0 to `DELIVERIES_MAX`.

        Raises QueueMissingError, MessageMissingError, MessageHeldError (a transaction changes it; in a transaction:
        another one has locked it), InvalidOperationError.
        """
        return self._consume.deliveries(message_id, queue, count, tx)

    def schedule(self, message_id: int, queue: str, due: int, tx: int = 0) -> Pending:
        """Deliver a message not before `due` (0: at once); a message that is held, once it is given back.

        Raises QueueMissingError, MessageMissingError, MessageHeldError (a transaction has locked it),
        InvalidOperationError (not a time).
        """
        return self._consume.schedule(message_id, queue, due, tx)

    def acknowledge(self, message_id: int, queue: str, holder: str = "", tx: int = 0) -> Pending:
        """Settle a queue's reference to a message; the last one deletes the message in the same group.

        In a transaction it is locked until that is settled. Raises QueueMissingError, MessageMissingError (not there,
        or acknowledged before), MessageHeldError (another holds it, or a transaction locks it).
        """
        return self._acknowledge.acknowledge(message_id, queue, holder, tx)

    def acknowledge_all(self, message_ids: Sequence[int], queue: str, holder: str = "", tx: int = 0) -> PendingAll:
        """Settle many references of one queue, in one group: all of them or none.

        Raises what `acknowledge` raises for one of them, whose id the error has as `message`; then none was settled.
        StoreError also for a message that is given twice, InvalidOperationError also for more than a group takes (the
        journal's `queue_operations_max`, of which each takes two, and a chunk of a large one takes one;
        `queue_bytes_max`).
        """
        return self._acknowledge.acknowledge_all(message_ids, queue, holder, tx)

    def move(
        self,
        message_id: int,
        queue: str,
        address: str,
        queues: Iterable[str],
        reason: str,
        *,
        id: int = 0,
        tx: int = 0,
    ) -> Moved:
        """Copy a message to queues of another address, and settle it in this one; the Pending's id is the copy's.

        The copy expires when the message would; it has no scheduled time and no duplicate-detection id. Raises
        QueueMissingError, MessageMissingError, MessageHeldError (a transaction has locked it), AddressMissingError,
        StoreError (a queue of another address).
        """
        return self._move.move(message_id, queue, address, queues, reason, id=id, tx=tx)

    def expire(self, message_id: int, queue: str, *, queues: Sequence[str] = (), id: int = 0, tx: int = 0) -> Moved:
        """Settle a message as expired: moved to the queue's expiry address, if it has one, where it expires no more.

        `queues` are those of that address; by default the multicast ones, and the anycast one with the fewest messages.
        `Moved.queues` tells them. Raises what `move` raises; QueueMissingError also if that address has no queue,
        StoreError if there is no such address for `queues`.
        """
        return self._move.expire(message_id, queue, queues=queues, id=id, tx=tx)

    def dead_letter(
        self, message_id: int, queue: str, *, queues: Sequence[str] = (), id: int = 0, tx: int = 0
    ) -> Moved:
        """Settle a message that was delivered in vain: moved to the queue's dead-letter address, if it has one.

        A broker calls it when `Delivery.deliveries` has reached `QueueConfig.deliveries_max`. The copy does not expire.
        Otherwise as `expire`.
        """
        return self._move.dead_letter(message_id, queue, queues=queues, id=id, tx=tx)

    # ---- transactions ----------------------------------------------------------------------------------------------

    def begin(self, tx: int = 0) -> int:
        """Begin a transaction: `tx`, or without one a number that is free.

        Raises StateError if the rollback of a `tx` that was prepared is not durable yet, TransactionPreparedError,
        FullError if too many are open (the journal's `transactions_max`): settle some.
        """
        return self._transactions.begin(tx)

    def prepare(self, tx: int, data: bytes = b"") -> Prepared:
        """Make a transaction wait, through every crash, for commit or rollback; `data` names it (an xid).

        Raises StateError if a large message is on its way into it.
        """
        return self._transactions.prepare(tx, data)

    def commit(self, tx: int, *, then: Sequence[PlainOperation] = ()) -> Pending:
        """Make a transaction take effect, and plain operations of other records behind it in the same group.

        Raises StateError as `prepare` does.
        """
        return self._transactions.commit(tx, then=then)

    def rollback(self, tx: int) -> Pending:
        """Drop what was done in a transaction."""
        return self._transactions.rollback(tx)

    def is_empty(self, tx: int) -> bool:
        """Whether nothing was done in a transaction."""
        return self._transactions.is_empty(tx)

    def transaction(self, tx: int) -> TransactionInfo:
        """A transaction that is open or in doubt."""
        return self._transactions.transaction(tx)

    def transactions(self) -> list[TransactionInfo]:
        """All transactions that are open or in doubt."""
        return self._transactions.transactions()

    def in_doubt(self) -> list[TransactionInfo]:
        """Prepared transactions, which wait for their coordinator."""
        return self._transactions.in_doubt()

    # ---- what is there ---------------------------------------------------------------------------------------------

    def message(self, message_id: int, *, body: bool = True) -> Message:
        """A message; `body` false leaves a large body out, as `body_stream` gives it in pieces.

        Reads the local copy, and waits for it if the message is on its way there. Raises MessageMissingError (also for
        a large message in a transaction that is not committed), DeadlineError, LocalStorageError.
        """
        return self._look.message(message_id, body=body)

    def body_stream(self, message_id: int) -> BodyStream:
        """A message's body piece by piece, for `for` and `async for`. Raises MessageMissingError."""
        return self._look.body_stream(message_id)

    def describe(self, message_id: int) -> MessageEntry:
        """What is known of a message without reading it. Raises MessageMissingError."""
        return self._look.describe(message_id)

    def explain(self, record_id: int) -> list[ReferenceInfo]:
        """Why a message is still there: every queue's reference, its holder and transaction.

        Raises MessageMissingError.
        """
        return self._look.explain(record_id)

    def browse(self, queue: str, limit: int = 0) -> Iterator[ReferenceInfo]:
        """A queue's messages in delivery order; the first `limit` of them, 0 for all. Consumes nothing.

        They are those that are there now, each as it stands when it is looked at; a message that is gone by then is
        left out. Raises QueueMissingError, InvalidOperationError (a limit below 0).
        """
        return self._look.browse(queue, limit)

    def queue(self, name: str) -> QueueInfo:
        """A queue and its counts. Raises QueueMissingError."""
        return self._look.queue(name)

    def queues(self) -> list[QueueInfo]:
        """All queues, each as it stands when it is looked at."""
        return self._look.queues()

    def addresses(self) -> list[AddressEntry]:
        """All addresses, each as it is when it is looked at."""
        return self._look.addresses()

    # ---- time ------------------------------------------------------------------------------------------------------

    def tick(self) -> int:
        """Do what is due by now: scheduled messages become ready (how many), and the absent lose what they held.

        `take` does both by itself; this is for brokers that wait for `next_due` rather than ask. Both go in batches,
        the earliest first: while `next_due` has passed, there is more.
        """
        return self._due.tick()

    def next_due(self) -> int:
        """When `tick` has something to do next; 0: nothing waits for its time.

        Scheduled messages wait for their time, and so do holders that have not come back since the load. It has also
        passed after a `take` that met more expired messages than it passes at once.
        """
        return self._due.next_due()

    def expired(self, limit: int = 1000, *, agreed: bool = True) -> list[tuple[int, str]]:
        """(message, queue) of those that have expired and nobody has: for `expire`.

        The wall clock alone hides a message, and shows it again when it is set back. Here a message is told once the
        clocks have agreed on its time for `expiry_agreement_ms`; with `agreed` false, as soon as it is hidden.

        First come those that were not told before, then those that were told longest ago: what its caller cannot settle
        keeps nothing else from being told. Raises InvalidOperationError (a limit below 0).
        """
        return self._due.expired(limit, agreed=agreed)
