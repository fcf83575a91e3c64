"""How messages go from a queue to another address: because they are moved, have expired, or are dead. The copy says
where it came from.

A copy and the acknowledgement of its original are in one group, or in one transaction if the body is large. So after a
crash the message is at exactly one of the two places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from journal.errors import QueueMissingError, StoreError
from journal.store.message_records import encode_message
from journal.store.model import Message, Origin, Routing
from journal.store.operations.acknowledge import AcknowledgeOperations, HeldPart, Reason
from journal.store.operations.add import MessageAdder, Outgoing
from journal.store.operations.change import ReferenceChanges
from journal.store.operations.core import StoreCore
from journal.store.operations.look import LookOperations
from journal.store.operations.stream import StreamOperations
from journal.store.operations.transactions import TransactionOperations
from journal.store.pending import Moved, Pending
from journal.v1.store_pb2 import Acknowledgement


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
    ) -> None:
        self._core = core
        self._adder = adder
        self._stream = stream
        self._acknowledge = acknowledge
        self._changes = changes
        self._transactions = transactions
        self._look = look

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
        self, message_id: int, queue: str, *, queues: Sequence[str] = (), id: int = 0, tx: int = 0
    ) -> Moved:
        with self._core.lock:
            config = self._core.enter().queue(queue).config
            address = config.dead_letter_address or self._core.address_settings.of(config.address).dead_letter_address
        return self._dispose(message_id, queue, address, queues, "dead", Acknowledgement.DEAD, id, tx)

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
        copy = replace(
            message,
            address=address,
            due=0,
            expires=message.expires if code == Acknowledgement.MOVED else 0,
            duplicate_id=b"",
            origin=Origin(message_id, message.address, queue, reason, _expired_at(message)),
        )
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


def _expired_at(message: Message) -> int:
    """When the message expires, or would have expired where it was before it was moved; 0 means never."""
    return message.expires or (message.origin.expires if message.origin is not None else 0)
