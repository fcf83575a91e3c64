"""How messages go from a queue to another address: because they are moved, have expired, or are dead. The copy says
where it came from.

A copy and the acknowledgement of its original are in one group, or in one transaction if the body is large. So after a
crash the message is at exactly one of the two places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from journal.append.completion import Completion
from journal.errors import QueueMissingError, StoreError
from journal.store.message_records import encode_message
from journal.store.model import Held, Message, Origin, QueueConfig, Routing
from journal.store.operations.acknowledge import AcknowledgeOperations, HeldPart, Reason, parts_of, require_each_once
from journal.store.operations.add import Adding, MessageAdder, Outgoing
from journal.store.operations.change import ReferenceChanges
from journal.store.operations.core import StoreCore
from journal.store.operations.dead_letters import DeadMessages
from journal.store.operations.declare import DeclareOperations
from journal.store.operations.look import LookOperations, content_of
from journal.store.operations.stream import StreamOperations
from journal.store.operations.transactions import TransactionOperations
from journal.store.pending import COMPLETED, Moved, Pending, PendingAll
from journal.store.queues.state import QueueState
from journal.store.transactions import StoreTransaction
from journal.v1.store_pb2 import Acknowledgement

DEAD = "dead"
"""The reason of a dead letter for which nobody has given another."""


class Rejected(PendingAll):
    """Messages that were settled as dead letters in one step."""

    __slots__ = ("copies", "left")

    def __init__(self, ids: Sequence[int], completion: Completion, copies: Sequence[int], left: Sequence[Held]) -> None:
        super().__init__(ids, completion)
        self.copies = tuple(copies)
        """Ids of the dead letters, in order. There are none of messages whose queue has no dead-letter address."""
        self.left = left
        """Messages that must be read first, and are still held: call `dead_letter` for each in a thread."""


class MoveOperations:
    """Operations that move a message to another address. A held message is moved for its holder."""

    def __init__(
        self,
        core: StoreCore,
        adder: MessageAdder,
        stream: StreamOperations,
        acknowledge: AcknowledgeOperations,
        changes: ReferenceChanges,
        transactions: TransactionOperations,
        look: LookOperations,
        dead_letters: DeadMessages,
        declare: DeclareOperations,
    ) -> None:
        self._core = core
        self._adder = adder
        self._stream = stream
        self._acknowledge = acknowledge
        self._changes = changes
        self._transactions = transactions
        self._look = look
        self._dead_letters = dead_letters
        self._declare = declare

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
        return self._move(message_id, queue, address, tuple(queues), reason, Acknowledgement.MOVED, id, tx)

    def expire(self, message_id: int, queue: str, *, queues: Sequence[str] = (), id: int = 0, tx: int = 0) -> Moved:
        with self._core.lock:
            config = self._core.enter().queue(queue).config
            address = config.expiry_address or self._core.address_settings.of(config.address).expiry_address
        return self._dispose(message_id, queue, address, queues, "expired", Acknowledgement.EXPIRED, id, tx)

    def dead_letter(
        self, message_id: int, queue: str, *, queues: Sequence[str] = (), reason: str = DEAD, id: int = 0, tx: int = 0
    ) -> Moved:
        with self._core.lock:
            address = self._dead_letters.destination(self._core.enter().queue(queue).config)
        if address is None:
            raise StoreError(
                f"message {message_id} is in {queue}, where dead letters stay: acknowledge it, or move it elsewhere"
            )
        return self._dispose(message_id, queue, address, queues, reason, Acknowledgement.DEAD, id, tx)

    def reject(self, held: Sequence[Held], reason: str, tx: int) -> Rejected:
        core, acknowledge = self._core, self._acknowledge
        with core.lock:
            state = core.enter()
            given = parts_of(state, held)
            txn = core.transactions.accepting(tx) if tx else None
            require_each_once(given)
            parts: list[HeldPart] = []
            left: list[Held] = []
            begun: list[tuple[Outgoing, Adding]] = []
            try:
                for part in given:
                    settled, waiting = self._begin_letters(state, part, reason, txn, begun)
                    parts += [part._replace(messages=settled)] if settled else []
                    left += [Held(part.queue.config.name, waiting, part.holder)] if waiting else []
                before = [operation for _, adding in begun for operation in adding.operations]
                settle = acknowledge.settle_all if txn is None else partial(acknowledge.settle_in, tx=tx)
                completion = settle(state, parts, reason=Acknowledgement.DEAD, before=before) if parts else COMPLETED
            except BaseException:
                for _, adding in begun:
                    core.volatile.drop(adding.message_id)
                raise
            for out, adding in begun:
                if txn is None:
                    self._adder.finish(state, out, adding, completion)
                else:
                    self._adder.finish_in(txn, state, out, adding)
            ids, copies = [each for part in parts for each in part.messages], [each.message_id for _, each in begun]
            return Rejected(ids, completion, copies, left)

    def _begin_letters(
        self,
        state: QueueState,
        part: HeldPart,
        reason: str,
        txn: StoreTransaction | None,
        begun: list[tuple[Outgoing, Adding]],
    ) -> tuple[list[int], list[int]]:
        """Begin to add the dead letters of messages of one queue. Returns the messages that can be settled now, and
        those that must be read first."""
        for message_id in part.messages:
            self._changes.require_settleable(txn, message_id, part.queue, part.holder)
        address = self._dead_letters.destination(part.queue.config)
        if address is None:
            return [], [*part.messages]
        if not address:
            return [*part.messages], []
        self._require_queue(address)
        copies = self._copies(state, part, address, reason)
        queues = self._queues_for(address)
        for out in copies.values():
            begun.append((out, self._adder.begin(state, out, queues, 0, txn)))
        settled = [each for each in part.messages if each in copies]
        return settled, [each for each in part.messages if each not in copies]

    def _copies(self, state: QueueState, part: HeldPart, address: str, reason: str) -> dict[int, Outgoing]:
        """The dead letters of those messages that are in memory as a whole, by message."""
        copies: dict[int, Outgoing] = {}
        for message_id in part.messages:
            data, durable = self._look.in_memory(message_id)
            if data is not None and not state.message(message_id).chunks:
                message = content_of(data, durable=durable)
                copy = _copy(message_id, message, part.queue.config.name, address, reason, expires=0)
                copies[message_id] = Outgoing(copy, encode_message(copy))
        return copies

    def _dispose(
        self,
        message_id: int,
        queue: str,
        address: str,
        queues: Sequence[str],
        reason: str,
        code: Reason,
        id: int,
        tx: int,
    ) -> Moved:
        if address:
            self._require_queue(address)
            return self._move(message_id, queue, address, tuple(queues) or None, reason, code, id, tx)
        if queues:
            raise StoreError(f"queue {queue} has no address of which {', '.join(queues)} could get the message")
        with self._core.lock:
            state = self._core.enter()
            target = state.queue(queue)
            holder = self._changes.holder_of(message_id, target, tx)
            if tx:
                completion = self._acknowledge.settle_in(state, [HeldPart(target, [message_id], holder)], tx, code)
            else:
                completion = self._acknowledge.settle(state, message_id, target, holder, code).completion
            return Moved(0, completion)

    def _require_queue(self, address: str) -> None:
        """Make the address, and a queue of its name, if it has no queue."""
        with self._core.lock:
            state = self._core.enter()
            if not state.has_address(address):
                self._declare.create_address(address)
            if not state.queues_of(address):
                self._declare.create_queue(QueueConfig(address, address))

    def _move(
        self,
        message_id: int,
        queue: str,
        address: str,
        queues: tuple[str, ...] | None,
        reason: str,
        code: Reason,
        id: int,
        tx: int,
    ) -> Moved:
        """Move a message. Without `queues` it goes to the queues to which a message without filters would go."""
        with self._core.lock:
            state = self._core.enter()
            self._core.reference(message_id, state.queue(queue))
            state.address(address)
            if queues is None:
                queues = self._queues_for(address)
            large = bool(state.message(message_id).chunks)
        message = self._look.message(message_id, body=False)
        expires = message.expires if code == Acknowledgement.MOVED else 0
        copy = _copy(message_id, message, queue, address, reason, expires=expires)
        if tx or large:
            moved = self._move_in(message_id, queue, copy, queues, code, id, tx)
        else:
            moved = self._move_at_once(message_id, queue, copy, queues, code, id)
        return Moved(moved.id, moved.completion, queues)

    def _queues_for(self, address: str) -> tuple[str, ...]:
        """All multicast queues of an address, and the anycast queue with the fewest messages."""
        queues = self._core.state.queues_of(address)
        multicast = [entry for entry in queues if entry.config.routing is Routing.MULTICAST]
        anycast = [entry for entry in queues if entry.config.routing is Routing.ANYCAST]
        chosen = multicast + ([min(anycast, key=lambda entry: entry.messages)] if anycast else [])
        if not chosen:
            raise QueueMissingError(f"address {address} has no queue that could take a message")
        return tuple(entry.config.name for entry in chosen)

    def _move_at_once(
        self, message_id: int, queue: str, copy: Message, queues: tuple[str, ...], code: Reason, id: int
    ) -> Pending:
        out = Outgoing(copy, encode_message(copy))
        core = self._core
        with core.lock:
            state = core.enter()
            source = state.queue(queue)
            holder = core.reference(message_id, source).holder
            adding = self._adder.begin(state, out, queues, id)
            try:
                acknowledged = self._acknowledge.settle(state, message_id, source, holder, code, adding.operations)
            except BaseException:
                core.volatile.drop(adding.message_id)
                raise
            return self._adder.finish(state, out, adding, acknowledged.completion)

    def _move_in(
        self, message_id: int, queue: str, copy: Message, queues: tuple[str, ...], code: Reason, id: int, tx: int
    ) -> Pending:
        """Move a message in the transaction `tx`, or in a transaction of its own. First the original is locked, so that
        nobody takes it."""
        own, settled = not tx, False
        bodiless = replace(copy, body=b"")
        self._stream.open(bodiless, queues, tx, id)  # these checks raise errors here, before the original is locked
        tx = tx or self._transactions.begin()
        try:
            with self._core.lock:
                state = self._core.enter()
                source = state.queue(queue)
                holder = self._changes.holder_of(message_id, source, tx)
                self._acknowledge.settle_in(state, [HeldPart(source, [message_id], holder)], tx, code)
            settled = True
            pending = self._stream.store_stream(bodiless, self._look.body_stream(message_id), queues, tx, id=id)
            if own:
                pending.completion = self._transactions.commit(tx).completion
            return pending
        except BaseException:
            if own:
                self._transactions.abandon(tx)
            elif settled:
                with self._core.lock:
                    self._core.transactions.refuse_rest(tx, "a move")
            raise


def _copy(message_id: int, message: Message, queue: str, address: str, reason: str, *, expires: int) -> Message:
    """A message as it is stored at another address, with the queue that it came from."""
    origin = Origin(message_id, message.address, queue, reason, _expired_at(message))
    return replace(message, address=address, due=0, expires=expires, duplicate_id=b"", origin=origin)


def _expired_at(message: Message) -> int:
    """When the message expires, or would have expired where it was before it was moved; 0 means never."""
    return message.expires or (message.origin.expires if message.origin is not None else 0)
