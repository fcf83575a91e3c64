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

This file lists every operation with its meaning. The code of an operation is in `journal/store/operations`, in the file
that its one line here names: `self._send.send(...)` is in `send.py`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, Callable, Collection, Iterable, Iterator, Sequence
from types import TracebackType

from journal.append.completion import Completion
from journal.append.operations import PlainOperation
from journal.errors import ClosedError, InvalidOperationError, JournalError, StateError
from journal.kafka.ports import Consumed, Sent
from journal.process.clocks import monotonic_ms
from journal.store.address_settings import AddressSettings, KeptSettings, ToldSetting
from journal.store.bodies.chunks import BodyStream
from journal.store.incoming import Incoming, PlainRun
from journal.store.model import Delivery, Held, Message, QueueConfig, ReferenceInfo
from journal.store.operations.acknowledge import AcknowledgeOperations
from journal.store.operations.add import MessageAdder
from journal.store.operations.address_settings import AddressSettingsOperations
from journal.store.operations.change import ReferenceChanges
from journal.store.operations.consume import ConsumeOperations
from journal.store.operations.core import ClockMs, StoreCore
from journal.store.operations.cursor import StoreCursor
from journal.store.operations.dead_letters import DeadMessages
from journal.store.operations.declare import DeclareOperations
from journal.store.operations.discard import MessageDiscard
from journal.store.operations.due import DueOperations
from journal.store.operations.garbage import Garbage
from journal.store.operations.hold import HoldOperations, Releasing
from journal.store.operations.ids import StoreIds
from journal.store.operations.look import LookOperations, QueueInfo, Reading
from journal.store.operations.move import DEAD, MoveOperations, Rejected
from journal.store.operations.purge import Purging
from journal.store.operations.route import RouteOperations
from journal.store.operations.send import SendOperations
from journal.store.operations.send_all import SendAllOperations
from journal.store.operations.start import start_from
from journal.store.operations.stream import StreamOperations
from journal.store.operations.take_in import Settles, TakeInOperations, TakenIn, Takes
from journal.store.operations.transactions import Prepared, TransactionOperations
from journal.store.pending import Moved, Pending, PendingAll
from journal.store.ports import StoreJournal
from journal.store.queues.counters import HolderInfo, QueueCounts
from journal.store.queues.entry import AddressEntry, BindingEntry, MessageEntry
from journal.store.queues.loaded import LoadedStore
from journal.store.settings import StoreSettings
from journal.store.transactions import TransactionInfo


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return int(time.time() * 1000)


class MessageStore:
    """The message store of one activation of a journal. When the activation is fenced or fails, so is the store.

    All operations are thread-safe. An operation that changes something is accepted or refused at once; a refused one
    has changed nothing. An accepted one returns a `Pending`, which is done when the operation is durable. With `tx` the
    operation is a part of that transaction, and takes effect when the transaction is committed.

    Times are milliseconds since 1970. A holder is a name that the broker chose: of a member, a client, a session. `id`,
    `ids` and `checked` are for the stores of a chain: the first store has issued the id, and has checked the
    duplicate-detection id, or that the message may be delivered. Its answer holds here too. `discard` is false if the
    caller calls `discard_leaving` itself.

    Every operation raises what ended the activation, ClosedError after `close`, StateError before `start`, and
    CallbackError in a completion's callback. Only `incoming` asks nobody, and `room` and `flush` ask the journal alone:
    they also work in a callback, before `start` and after `close`. An operation on a transaction raises
    TransactionUnknownError, TransactionPreparedError, and what refused the whole transaction before. Operations that
    append raise FullError when the journal has no room: await `room()` and try again.

    The class has an attribute for each of its parts, because it is the list of them.
    """

    def __init__(
        self,
        journal: StoreJournal,
        settings: StoreSettings | None = None,
        *,
        clock_ms: ClockMs = wall_clock_ms,
        elapsed_ms: Callable[[], float] = monotonic_ms,
    ) -> None:
        """`journal` must be started. `elapsed_ms` gives the milliseconds of a monotonic clock.

        Raises ConfigError for settings that the journal's limits contradict, LocalStorageError if the swap directory
        cannot be used.
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
        dead_letters = DeadMessages(core)
        self._hold = HoldOperations(core, dead_letters)
        self._due = DueOperations(core, self._hold, dead_letters)
        self._transactions = TransactionOperations(core, discard, garbage, self._hold, dead_letters)
        self._declare = DeclareOperations(core, ids, discard)
        self._address_settings = AddressSettingsOperations(core)
        self._stream = StreamOperations(core, ids, adder, self._transactions)
        self._send = SendOperations(core, adder, self._stream)
        self._send_all = SendAllOperations(core, ids, adder, discard)
        self._take_in = TakeInOperations(core, ids, adder, discard, garbage)
        self._route = RouteOperations(core, discard)
        self._consume = ConsumeOperations(core, changes, self._hold, self._look, dead_letters)
        self._acknowledge = AcknowledgeOperations(core, changes, discard)
        self._move = MoveOperations(
            core,
            adder,
            self._stream,
            self._acknowledge,
            changes,
            self._transactions,
            self._look,
            dead_letters,
            self._declare,
        )
        core.let_go_in_passing = self._hold.let_go_in_passing
        core.take_back = self._take_in.take_back
        core.unfinished = (garbage.delete_some, self._transactions.roll_back_abandoned, self._hold.give_back_left)
        self._started = self._closed = False
        self.orphaned_messages = 0
        """The number of messages without references that the load has found, and that are being deleted."""

    # ---- the store itself ------------------------------------------------------------------------------------------

    def start(self, loaded: LoadedStore) -> None:
        """Take over the state that the journal's activation has loaded, and delete records without a reference to them.
        Call it once.

        Messages that holders had stay theirs for `acquire_grace_ms` from now, and for good if they come back for them.
        Transactions in doubt stay as they were: messages that they add are not visible, references that they
        acknowledge or change are locked, and queues that they destroy are gone. Raises StateError if the store was
        started.
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
        """Called by the journal when the node is not active any more. Every later call raises the reason."""
        if self._core.refusal is None:
            self._core.refusal = error

    def room(self) -> Completion:
        """A future that is done when operations that met FullError may be tried again, first come first served."""
        return self._core.journal.room()

    def flush(self) -> Completion:
        """A future that is done when everything accepted so far is durable."""
        return self._core.journal.flush()

    def close(self) -> None:
        """Refuse every later call, and drop messages that are not durable. The journal stays open, because its owner
        closes it."""
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
        """Bodies larger than this are stored in chunks."""
        return self._core.inline_bytes_max

    @property
    def collected(self) -> int:
        """The number of records without a reference to them whose deletion is durable."""
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

        In a transaction, others see the address after the commit; queues of the same transaction can use it at once.
        Raises AddressExistsError (also if a transaction creates or destroys it), InvalidOperationError.
        """
        return self._declare.create_address(name, duplicate_window, tx)

    def destroy_address(self, name: str, tx: int = 0, *, discard: bool = True) -> Pending:
        """Destroy an address without queues, and its messages that were never in a queue.

        In a transaction it is gone for everybody at once, and comes back with a rollback. Raises AddressMissingError,
        AddressInUseError (it has queues, or a transaction creates or destroys some, or stores messages there).
        """
        return self._declare.destroy_address(name, tx, discard=discard)

    def create_queue(self, config: QueueConfig, tx: int = 0) -> Pending:
        """Create a queue of an address that exists, or that the transaction creates.

        In a transaction, others see the queue after the commit; bindings of the same transaction can use it at once.
        Raises AddressMissingError, QueueExistsError (the name, or the client's durable subscription at any address,
        exists; also if a transaction creates or destroys it), InvalidOperationError (its dead-letter or expiry address
        is the queue's own address).
        """
        return self._declare.create_queue(config, tx)

    def change_queue(self, config: QueueConfig) -> Pending:
        """Let the queue of that name be as `config` says, with all that is in it. What is left out of `config` has its
        default: `dataclasses.replace(store.queue(name).config, ...)` keeps the rest.

        Raises QueueMissingError (also if a transaction creates or destroys it), InvalidOperationError (a field that is
        not in `CHANGEABLE` differs; its dead-letter or expiry address is the queue's own address).
        """
        return self._declare.change_queue(config)

    def pause(self, queue: str) -> Pending:
        """Let a queue take messages in and hand out none, until `resume`, also in later activations. What holders have
        stays with them. Raises QueueMissingError."""
        return self._declare.pause(queue, paused=True)

    def resume(self, queue: str) -> Pending:
        """Let a paused queue hand out messages again. Raises QueueMissingError."""
        return self._declare.pause(queue, paused=False)

    def purge(self, queue: str) -> Purging:
        """Settle all messages that are ready in a queue now, in steps. Held, scheduled and locked messages stay, and so
        do those that arrive meanwhile.

        A FullError, or a crash, leaves the rest ready: call it again. Raises QueueMissingError.
        """
        purging = self.purging(queue)
        while purging.step():
            pass
        return purging

    def purging(self, queue: str) -> Purging:
        """`purge` in steps that the caller makes, who can wait for room between them. Raises QueueMissingError."""
        return Purging(self._core, self._acknowledge, self._look, queue)

    def destroy_queue(self, name: str, tx: int = 0, *, discard: bool = True) -> Pending:
        """Destroy a queue. Messages left without a reference are deleted afterwards, in bounded groups.

        In a transaction it is gone for everybody at once, with its messages, and comes back with a rollback. Raises
        QueueMissingError, QueueInDoubtError: a transaction whose settlement is not durable, which may be this one, adds
        messages to the queue, acknowledges or changes some, or binds it; or a `take_in` settles some.
        """
        return self._declare.destroy_queue(name, tx, discard=discard)

    def discard_leaving(self) -> None:
        """Discard the messages of destroyed queues and addresses, in steps. A chain calls it without its own lock,
        after operations to which it gave `discard=False`."""
        self._discard.discard_leaving()

    def bind(self, queue: str, key: str = "", filter: str = "", tx: int = 0, *, id: int = 0) -> Pending:
        """Add a binding to a queue: the key and the filter by which its broker routes to it.

        The queue may be one that the transaction creates. Raises QueueMissingError, StoreError (`id` is in use).
        """
        return self._declare.bind(queue, key, filter, tx, id=id)

    def unbind(self, binding_id: int, tx: int = 0) -> Pending:
        """Remove a binding, even inside a transaction for everybody at once. Raises StoreError if there is no binding
        with that id."""
        return self._declare.unbind(binding_id, tx)

    def bindings(self, queue: str) -> list[BindingEntry]:
        """Bindings of a queue. Raises QueueMissingError."""
        return self._declare.bindings(queue)

    def set_address_settings(self, pattern: str, settings: AddressSettings) -> Pending:
        """Let all addresses that a pattern matches have these settings, from now on and in later activations. They
        replace what was set for the same pattern before. Raises InvalidOperationError (it is no pattern)."""
        return self._address_settings.set(pattern, settings)

    def unset_address_settings(self, pattern: str) -> Pending:
        """Take back what `set_address_settings` has set for a pattern. Raises InvalidOperationError if that is
        nothing."""
        return self._address_settings.unset(pattern)

    def address_settings(self) -> list[KeptSettings]:
        """What `set_address_settings` has set, the most specific pattern first."""
        return self._address_settings.kept()

    def settings_of(self, address: str) -> dict[str, ToldSetting]:
        """The settings of an address, whether it exists or not: each value by its name, and where it comes from."""
        return self._address_settings.told(address)

    # ---- messages into the store -----------------------------------------------------------------------------------

    def send(
        self, message: Message, queues: Sequence[str], tx: int = 0, *, id: int = 0, checked: bool = False
    ) -> Pending:
        """Store a message and route it to queues of its address, in one group. It is not delivered before
        `message.due`.

        Raises QueueMissingError, StoreError (a queue of another address), and what `store` raises.
        """
        self._prepare(message, queues=queues)
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

        Without queues they are only stored, as `store` does. A body that is too large for a group needs `store_stream`.

        Raises what `send` raises for one of them, and then none was stored; StoreError also for messages of several
        addresses; DuplicateMessageError also for two with the same duplicate-detection id; InvalidOperationError also
        for more than a group may have: the journal's `queue_bytes_max`, and its `queue_operations_max`, of which each
        message takes one, and one more for each durable queue, each duplicate-detection id and each chunk.
        """
        self._prepare(*messages, queues=queues)
        return self._send_all.send_all(messages, queues, tx, ids, checked=checked)

    def store(self, message: Message, tx: int = 0, *, id: int = 0, checked: bool = False) -> Pending:
        """Store a message without routing it yet. A load deletes a message that was never in a queue.

        Raises AddressMissingError, StoreError (the id is in use, or in another virtual shard than the address),
        MessageTooLargeError, InvalidOperationError, FullError, and DuplicateMessageError, after which the transaction
        can only be rolled back.
        """
        self._prepare(message)
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
        """Send a message whose body comes in pieces of any size; `message.body` is empty. It waits for room in the
        journal.

        An error of the iterator `body` cuts the message off: nothing of it remains, and the transaction can only be
        rolled back. Raises what `send` raises, and DeadlineError if there is no room within `read_timeout_ms`.
        """
        self._prepare(message, queues=queues)
        return self._stream.store_stream(message, body, queues, tx, id=id, checked=checked)

    async def store_stream_async(
        self, message: Message, body: AsyncIterable[bytes], queues: Sequence[str] = (), tx: int = 0, *, id: int = 0
    ) -> Pending:
        """`store_stream` in an event loop. The message is accepted when it returns.

        It does not block the loop on a journal whose appends do not wait (`Journal`, or `room_timeout_ms` 0); on
        another journal each chunk may block for `room_timeout_ms`.
        """
        self._prepare(message, queues=queues)
        return await self._stream.store_stream_async(message, body, queues, tx, id=id)

    def _prepare(self, *messages: Message, queues: Sequence[str] = ()) -> None:
        """Give messages without a timestamp the time of now. Other stores of a chain then store the same time. Raises
        InvalidOperationError for a text where bytes, or a list of names, are needed."""
        if isinstance(queues, str):
            raise InvalidOperationError(f"queues is a list of names, not a text: [{queues!r}]")
        for message in messages:
            if isinstance(message.body, str):
                raise InvalidOperationError("a message's body is bytes, not a text: encode it")
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
        """Store messages of Kafka topics and route them to queues of their address, together with the offsets of the
        consumed records.

        All is one group and one Kafka transaction, together with the records `beside`, which go to other topics, and
        the acknowledgements of `settles`. `takes` decides for queues with a filter. The completion is told
        NotTakenInError if nothing was written: then consume again from the committed offsets.

        Raises AddressMissingError, QueueMissingError (the address has no queue), MessageMissingError and
        MessageHeldError (of `settles`), FullError, InvalidOperationError, StateError (an earlier batch is on its way);
        then nothing was changed.
        """
        return self._take_in.take_in(messages, consumed, beside, takes, settles)

    def ways_in(self, addresses: Collection[str]) -> dict[str, list[QueueConfig]]:
        """The queues of those addresses that exist, by address."""
        return self._take_in.ways_in(addresses)

    def route(self, message_id: int, queue: str, due: int = 0, tx: int = 0) -> Pending:
        """Route a stored message to one more queue of its address. It is not delivered there before `due`.

        If an earlier reference there was acknowledged, and that is durable, this begins a new one. Raises
        MessageMissingError (also if another transaction stores it), QueueMissingError, StoreError (the queue is of
        another address, or has the message, even if it is arriving or its acknowledgement is not durable yet),
        InvalidOperationError (`due` is no time).
        """
        return self._route.route(message_id, queue, due, tx)

    def delete(self, message_id: int) -> Pending:
        """Delete a stored message that is in no queue. A message in queues is deleted with its last reference.

        Raises MessageMissingError (also if it is being deleted), StoreError (it is in a queue, or is arriving there; or
        a transaction stores it, whose rollback deletes it).
        """
        return self._route.delete(message_id)

    # ---- messages out of the store ---------------------------------------------------------------------------------

    def take(self, queue: str, holder: str) -> Delivery | None:
        """Acquire the first ready message of a queue. None if there is none, or if this node may deliver nothing now.

        Up to 250 expired messages are passed. If more come first, the result is None, and `next_due` is in the past.
        Raises QueueMissingError, InvalidOperationError (the holder has no name).
        """
        taken = self._consume.take_all(queue, holder, 1, bodies=False)
        return taken[0] if taken else None

    def take_all(self, queue: str, holder: str, count: int, *, bodies: bool = True) -> list[Delivery]:
        """Acquire the first ready messages of a queue, at most `count`, in one step. Nothing is read from disk: a
        message that is not in memory has no `content`, and `bodies` reads it.

        Raises what `take` raises; InvalidOperationError also for a count below 1.
        """
        return self._consume.take_all(queue, holder, count, bodies=bodies)

    def cursor(
        self, queue: str, selects: Callable[[Message], bool] | None = None, *, browses: bool = False
    ) -> StoreCursor:
        """A reader's place in a queue, at its beginning: `take_all` of it acquires the messages that `selects` wants,
        and passes the others once. One that `browses` meets each message once. Close it at the end.

        `selects` gets a large message without its body. Raises QueueMissingError.
        """
        return StoreCursor(self._core, self._look, self._consume, queue, selects, browses=browses)

    def acquire(self, message_id: int, queue: str, holder: str, tx: int = 0, *, checked: bool = False) -> Pending:
        """Acquire a certain message. A message that `holder` has already stays with it.

        Raises QueueMissingError, MessageMissingError, MessageExpiredError (nobody holds it, and it has expired),
        MessageHeldError (another holder or a transaction has it, or it is not due yet), StateError (this node may
        deliver nothing now, or the queue is paused), InvalidOperationError (the holder has no name).
        """
        return self._consume.acquire(message_id, queue, holder, tx, checked=checked)

    def release(self, message_id: int, queue: str, holder: str = "", tx: int = 0, *, counts: bool = True) -> Pending:
        """Release a message: it is ready again in its old place. Without `holder`, any holder's message is released.

        With `counts` its number of deliveries grows by one; set it to false for a message that the client never saw.
        Raises QueueMissingError, MessageMissingError, MessageHeldError (nobody holds it, or another does, or a
        transaction has locked it).
        """
        released = self._consume.release_all([Held(queue, (message_id,), holder)], tx, counts=counts)
        return Pending(message_id, released.completion)

    def release_all(self, held: Sequence[Held], tx: int = 0, *, counts: bool = True) -> PendingAll:
        """Release many messages, of any queues and holders, in one group: all of them or none.

        Raises what `release` raises for one of them, and then none is released; StoreError also for a message that is
        named twice in a queue, InvalidOperationError also for more than a group may have: each message that counts, or
        whose queue has `journaled_acquisition`, is one operation.
        """
        return self._consume.release_all(held, tx, counts=counts)

    def release_holder(self, name: str, *, counts: bool = True) -> Pending:
        """Release everything that a holder holds now, in bounded groups. The result is done when the last group is.

        `counts` is as in `release`. After a FullError the rest is still held: call it again.
        """
        return self._hold.release_holder(name, counts=counts)

    def releasing(self, name: str, *, counts: bool = True) -> Releasing:
        """`release_holder` in steps that the caller makes, as a chain of stores does."""
        return self._hold.releasing(name, counts=counts)

    def reattach(self, holder: str) -> list[tuple[int, str]]:
        """The (message, queue) pairs that a holder has from before a load, in order of acquisition. They stay with it
        from now on."""
        return [*self._hold.reattaching(holder)]

    def reattaching(self, holder: str) -> Iterator[tuple[int, str]]:
        """`reattach` for a chain of stores: the messages stay with the holder when this returns, and are listed in
        steps while the caller asks for them."""
        return self._hold.reattaching(holder)

    def holders(self) -> list[str]:
        """The names of all holders that have messages."""
        return self._hold.holders()

    def deliveries(self, message_id: int, queue: str, count: int, tx: int = 0) -> Pending:
        """Set the number of deliveries of a message, as its broker counts them: 0 to `DELIVERIES_MAX`.

        Raises QueueMissingError, MessageMissingError, MessageHeldError (a transaction changes it; in a transaction:
        another one has locked it), InvalidOperationError.
        """
        return self._consume.deliveries(message_id, queue, count, tx)

    def schedule(self, message_id: int, queue: str, due: int, tx: int = 0) -> Pending:
        """Do not deliver a message before `due` (0 means at once). For a held message this takes effect at its release.

        Raises QueueMissingError, MessageMissingError, MessageHeldError (a transaction has locked it),
        InvalidOperationError (`due` is no time).
        """
        return self._consume.schedule(message_id, queue, due, tx)

    def acknowledge(self, message_id: int, queue: str, holder: str = "", tx: int = 0) -> Pending:
        """Settle a queue's reference to a message. If it is the last reference, the message is deleted in the same
        group.

        In a transaction the reference is locked until the transaction is settled. Raises QueueMissingError,
        MessageMissingError (not in the queue, or acknowledged before), MessageHeldError (another holder has it, or a
        transaction locks it).
        """
        pending = self._acknowledge.acknowledge_all([Held(queue, (message_id,), holder)], tx)
        return Pending(message_id, pending.completion)

    def acknowledge_all(self, held: Sequence[Held], tx: int = 0) -> PendingAll:
        """Settle many references, of any queues and holders, in one group: all of them or none. One is as cheap as in
        `acknowledge`.

        Raises what `acknowledge` raises for one of them; the error has its id as `message`, and none is settled.
        StoreError also for a message that is named twice in a queue, InvalidOperationError also for more than a group
        may have: the journal's `queue_bytes_max`, and its `queue_operations_max`, of which each message takes two, and
        each chunk of a large one takes one.
        """
        return self._acknowledge.acknowledge_all(held, tx)

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
        """Copy a message to queues of another address, and settle it in this queue. The id of the Pending is the
        copy's.

        The copy expires when the message would have; it has no scheduled time and no duplicate-detection id. Raises
        QueueMissingError, MessageMissingError, MessageHeldError (a transaction has locked it), AddressMissingError,
        StoreError (a queue of another address).
        """
        return self._move.move(message_id, queue, address, queues, reason, id=id, tx=tx)

    def expire(self, message_id: int, queue: str, *, queues: Sequence[str] = (), id: int = 0, tx: int = 0) -> Moved:
        """Settle a message as expired. If the queue has an expiry address, the message is moved there, and does not
        expire any more.

        `queues` are those of that address; by default the multicast ones, and the anycast one with the fewest messages.
        `Moved.queues` has them. Raises what `move` raises; QueueMissingError also if that address has no queue,
        StoreError if there is no such address for `queues`.
        """
        return self._move.expire(message_id, queue, queues=queues, id=id, tx=tx)

    def dead_letter(
        self, message_id: int, queue: str, *, queues: Sequence[str] = (), reason: str = DEAD, id: int = 0, tx: int = 0
    ) -> Moved:
        """Move a message that was delivered in vain to the dead-letter address of its queue, or of its queue's address;
        without one, to an address that is made by a prefix. It is deleted only if the address' settings say so.
        The copy's origin has the `reason`.

        The address and a queue of its name are made if the address has no queue. The copy does not expire. All else is
        as in `expire`; StoreError also for a message whose queue has the dead letters of others.
        """
        return self._move.dead_letter(message_id, queue, queues=queues, reason=reason, id=id, tx=tx)

    def reject(self, held: Sequence[Held], reason: str = DEAD, tx: int = 0) -> Rejected:
        """Settle many messages as dead letters, of any queues and holders, in one group: all of them or none. Nothing
        is read from disk: large messages, and others that are not in memory, stay as they are in `Rejected.left`
        unless they are deleted, and so do those in a queue where dead letters stay. `dead_letter` does the same for
        one of them, in a thread.

        Raises what `acknowledge_all` raises.
        """
        return self._move.reject(held, reason, tx)

    # ---- transactions ----------------------------------------------------------------------------------------------

    def begin(self, tx: int = 0) -> int:
        """Begin a transaction with the number `tx`, or with a free number.

        Raises StateError if the rollback of a `tx` that was prepared is not durable yet, TransactionPreparedError,
        FullError if too many are open (the journal's `transactions_max`): settle some.
        """
        return self._transactions.begin(tx)

    def prepare(self, tx: int, data: bytes = b"") -> Prepared:
        """Make a transaction wait, through every crash, for commit or rollback; `data` names it (an xid).

        Raises StateError while the body of a large message is being stored in it.
        """
        return self._transactions.prepare(tx, data)

    def commit(self, tx: int, *, then: Sequence[PlainOperation] = (), discard: bool = True) -> Pending:
        """Make a transaction take effect, and after it plain operations on other records, in the same group.

        Raises StateError as `prepare` does.
        """
        return self._transactions.commit(tx, then=then, discard=discard)

    def rollback(self, tx: int, *, release: bool = False) -> Pending:
        """Drop all operations of a transaction.

        With `release`, holders lose the messages that it has acknowledged or changed: these are ready again, and the
        delivery counts, as in `release`. If the journal has no room for their counts, the next calls of the store
        release the rest.
        """
        return self._transactions.rollback(tx, release=release)

    def is_empty(self, tx: int) -> bool:
        """Whether a transaction has no operations."""
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

    # ---- reading ----------------------------------------------------------------------------------------------------

    def message(self, message_id: int, *, body: bool = True) -> Message:
        """A message. With `body` false a large body is left out, because `body_stream` gives it in pieces.

        It is for threads: it reads the local copy, and waits if the message is not there yet. An event loop awaits
        `bodies`. Raises MessageMissingError (also for a large
        message in a transaction that is not committed), DeadlineError, LocalStorageError.
        """
        return self._look.message(message_id, body=body)

    def watch(self, wake: Callable[[], None]) -> None:
        """Have `wake` called when queues have something in which a `take` or `take_all` found too little: whatever the
        cause, and at most once until `woken` is called.

        It is called in any thread, perhaps with the store's lock held: it must neither wait nor call the store (in an
        event loop: `call_soon_threadsafe`). Messages that become due are told when `tick` makes them ready, and queues
        in which nothing was taken while the node did not know that it is still active, once a `tick` finds it active.
        """
        self._core.watch.begin(wake)

    @property
    def current(self) -> bool:
        """Whether this node knows that it is still active. While it does not, nothing is taken."""
        return self._core.journal.current

    def woken(self) -> list[str]:
        """The names of queues that have something again, or are gone, since the last call."""
        with self._core.lock:
            return self._core.woken()

    def bodies(self, message_ids: Sequence[int]) -> Reading:
        """Messages by id, without large bodies and without messages that are gone; await it, or `wait` in a thread.

        It reads the local copy, and waits for messages that are not there yet. Raises DeadlineError, LocalStorageError.
        """
        return self._look.bodies(message_ids)

    def body_stream(self, message_id: int) -> BodyStream:
        """The body of a message, piece by piece, for `for` and `async for`. Raises MessageMissingError."""
        return self._look.body_stream(message_id)

    def describe(self, message_id: int) -> MessageEntry:
        """The facts about a message that are known without reading it. Raises MessageMissingError."""
        return self._look.describe(message_id)

    def explain(self, record_id: int) -> list[ReferenceInfo]:
        """Why a message still exists: its reference in each queue, with the holder and the transaction of the
        reference.

        Raises MessageMissingError.
        """
        return self._look.explain(record_id)

    def browse(self, queue: str, limit: int = 0) -> Iterator[ReferenceInfo]:
        """A queue's messages in delivery order, at most `limit` of them; 0 means all. It consumes nothing.

        They are the messages that are in the queue now, each in its state at the time when it is read; a message that
        is gone by then is left out. Raises QueueMissingError, InvalidOperationError (a limit below 0).
        """
        return self._look.browse(queue, limit)

    def queue(self, name: str) -> QueueInfo:
        """A queue and its counts. Raises QueueMissingError."""
        return self._look.queue(name)

    def counters(self, queue: str) -> QueueCounts:
        """What has happened in a queue since the activation, counted. Raises QueueMissingError."""
        return self._look.counters(queue)

    def holding(self, queue: str) -> list[HolderInfo]:
        """Who holds messages of a queue, and when each last did something. It claims nothing, as `reattach` does.
        Raises QueueMissingError."""
        return self._look.holding(queue)

    def queues(self) -> list[QueueInfo]:
        """All queues, each in its state at the time when it is read."""
        return self._look.queues()

    def address(self, name: str) -> AddressEntry:
        """An address, in its state now. Raises AddressMissingError."""
        return self._look.address(name)

    def addresses(self) -> list[AddressEntry]:
        """All addresses, each in its state at the time when it is read."""
        return self._look.addresses()

    # ---- time ------------------------------------------------------------------------------------------------------

    def tick(self) -> int:
        """Do the work that is due by now: scheduled messages become ready, and absent holders lose their messages.
        Returns the number of messages that became ready.

        `take` does both by itself; this is for brokers that wait for `next_due` instead of calling `take`. The work is
        done in batches, the earliest first: while `next_due` is in the past, there is more.
        """
        return self._due.tick()

    def next_due(self) -> int:
        """When `tick` has work next; 0 if nothing waits for a time.

        Scheduled messages wait for a time, and so do the messages of holders that have not come back since the load,
        and watched queues in which nothing was taken while the node did not know that it is still active. The time is
        also in the past after a `take` that met more expired messages than it passes at once, and it is soon while the
        journal has no room for messages that are given back.
        """
        return self._due.next_due()

    def dead(self, limit: int = 1000) -> list[tuple[int, str]]:
        """The (message, queue) pairs that were delivered as often as their queue allows, to be settled with
        `dead_letter`. Nobody is handed such a message.

        A message is found when it is given back, and after a load when a take comes across it. First come those that
        were given here longest ago. Raises InvalidOperationError (a limit below 0).
        """
        return self._due.dead(limit)

    def expired(self, limit: int = 1000, *, agreed: bool = True) -> list[tuple[int, str]]:
        """The (message, queue) pairs that have expired and that nobody holds, to be settled with `expire`.

        A message is hidden by the wall clock alone, and visible again if that clock is set back. But it is given here
        only after both clocks have agreed on its expiry for `expiry_agreement_ms`; with `agreed` false, as soon as it
        is hidden.

        First come messages that were not given before, then those that were given longest ago, so that messages that
        the caller cannot settle do not hide others. Raises InvalidOperationError (a limit below 0).
        """
        return self._due.expired(limit, agreed=agreed)
