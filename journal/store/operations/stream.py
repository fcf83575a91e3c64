"""What a broker calls to send: messages of any size, whole or as streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Iterable, Sequence
from dataclasses import replace

from journal.append.completion import Completion
from journal.errors import (
    DeadlineError,
    InvalidOperationError,
    QueueFullError,
    StoreError,
    TransactionUnknownError,
)
from journal.store.bodies.chunks import Chunks
from journal.store.model import Message
from journal.store.operations.send import Outgoing, Sending, require_routable
from journal.store.pending import Pending
from journal.store.records import encode_message
from journal.store.transactions import StoreTransaction
from journal.v1.store_pb2 import CHUNK
from journal.wire.ids import SHARD_MASK

_LARGE_FIELDS_BYTES = 32
"""More than a large message's record has of other fields than a small one's: the body's size, the ids' length."""


class _Stream:
    """A message whose body is on its way into the store."""

    __slots__ = ("address_id", "checked", "chunks", "id", "message", "own", "place", "queues", "txn")

    def __init__(self, message: Message, queues: Sequence[str], id: int, checked: bool) -> None:
        self.message = message
        self.queues = tuple(queues)
        self.txn: StoreTransaction | None = None
        """Not its number: that may be begun again while the body comes."""
        self.id = id
        self.checked = checked
        self.own = False
        """Whether the transaction is the stream's own."""
        self.address_id = 0
        self.place = 0
        """Whose swap file its chunks go to, if it is not durable."""
        self.chunks: Chunks


class Streaming(Sending):
    """Public operations that store messages."""

    def store(self, message: Message, tx: int = 0, *, id: int = 0, checked: bool = False) -> Pending:
        """Store a message without routing it yet, as `id` if it is given. A load deletes one that no queue ever got.

        `checked`: another store that gets the same has found its duplicate-detection id new. That holds here too: it
        enters the window whatever is there.

        Raises AddressMissingError, StoreError (the id is in use, or of another virtual shard than the address),
        MessageTooLargeError, InvalidOperationError, FullError, and DuplicateMessageError: if it is of a transaction,
        that can then only be rolled back.
        """
        return self.send(message, (), tx, id=id, checked=checked)

    def send(
        self, message: Message, queues: Sequence[str], tx: int = 0, *, id: int = 0, checked: bool = False
    ) -> Pending:
        """Store a message and route it to queues of its address, in one group. Not delivered before `message.due`.

        Raises QueueMissingError, StoreError (a queue of another address), and what `store` raises.
        """
        if len(message.body) > self.inline_bytes_max:
            return self._send_large(message, queues, tx, id, checked)
        data = encode_message(message)
        with self._lock:
            if not (tx or id or message.duplicate_id or self._chosen) and message.durable and len(queues) == 1:
                state = self._enter()
                address, queue = state.address(message.address), state.queue(queues[0])
                if queue.config.durable:
                    return self._send_to_one(message, data, address, queue)
            return self._send(Outgoing(message, data, checked=checked), queues, tx, id)

    def _send_large(self, message: Message, queues: Sequence[str], tx: int, id: int, checked: bool) -> Pending:
        self._require_size(message)
        stream = self._open_stream(replace(message, body=b""), queues, tx, id, checked)
        try:
            stream.chunks.feed(message.body)
            while stream.chunks.has_chunk(end=True):
                stream.chunks.put_chunk()
            return self._close_stream(stream)
        except BaseException:
            self._cut_off(stream)
            raise

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
        """`send` with a body in pieces of any size, the message's own being empty. Waits for room in a full journal.

        What `body` raises cuts it off: nothing is left of it, and a transaction `tx` can only be rolled back.
        """
        stream = self._open_stream(message, queues, tx, id, checked)
        wait_s = self._settings.read_timeout_ms / 1000
        try:
            for piece in body:
                stream.chunks.feed(piece)
                while stream.chunks.has_chunk():
                    while (room := self._put_chunk(stream)) is not None:
                        room.wait(wait_s)
            while self._has_rest(stream):
                while (room := self._put_chunk(stream)) is not None:
                    room.wait(wait_s)
            self._journal.room().wait(wait_s)
            return self._close_stream(stream)
        except BaseException:
            self._cut_off(stream)
            raise

    async def store_stream_async(
        self, message: Message, body: AsyncIterable[bytes], queues: Sequence[str] = (), tx: int = 0, *, id: int = 0
    ) -> Pending:
        """`store_stream` in an event loop. Accepted when it returns.

        It does not block the loop on a journal whose appends do not wait (`Journal`, or `room_timeout_ms` 0); on
        another each chunk may, for as long as that says.
        """
        stream = self._open_stream(message, queues, tx, id)
        try:
            async for piece in body:
                stream.chunks.feed(piece)
                while stream.chunks.has_chunk():
                    while (room := self._put_chunk(stream)) is not None:
                        await self._within(room)
            while self._has_rest(stream):
                while (room := self._put_chunk(stream)) is not None:
                    await self._within(room)
            await self._within(self._journal.room())
            return self._close_stream(stream)
        except BaseException:
            self._cut_off(stream)
            raise

    async def _within(self, room: Completion) -> None:
        wait_s = self._settings.read_timeout_ms / 1000
        try:
            async with asyncio.timeout(wait_s):
                await room
        except TimeoutError:
            raise DeadlineError(f"the journal had no room within {wait_s} s") from None

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _open_stream(self, message: Message, queues: Sequence[str], tx: int, id: int, checked: bool = False) -> _Stream:
        """Check what can be checked before the body comes."""
        if message.body:
            raise InvalidOperationError("a message whose body is streamed has none of its own")
        record_bytes = len(encode_message(message)) + _LARGE_FIELDS_BYTES
        stream = _Stream(message, queues, id, checked)
        with self._lock:
            state = self._enter()
            txn = stream.txn = self._transaction(tx) if tx else None
            address = state.address(message.address)
            targets = [state.queue(name) for name in stream.queues]
            require_routable(message.address, targets)
            if id:
                self._new_id(address, id)
            self._slot(address, message, txn, checked=checked)
            stream.address_id = address.record_id
            stream.place = targets[0].record_id if targets else stream.address_id
        settings = self._settings
        bytes_max = settings.message_bytes_max
        if message.durable:
            bytes_max = settings.body_bytes_max(self._journal.limits, record_bytes)
        stream.chunks = Chunks(
            lambda chunk: self._keep_chunk(stream, chunk), chunk_bytes=settings.chunk_bytes, bytes_max=bytes_max
        )
        return stream

    def _keep_chunk(self, stream: _Stream, chunk: bytes) -> int:
        with self._lock:
            self._enter()
            self._require_begun_in(stream)
            chunk_id = self._chunk_id(stream)
            if not stream.message.durable:
                self._volatile.put(stream.place, chunk_id, chunk)
                return chunk_id
            txn = stream.txn
            if txn is None:
                txn = stream.txn = self._transactions[self.begin()]
                stream.own = True
            self._journal.add(chunk_id, CHUNK, chunk, tx=txn.tx)
            if not stream.chunks.ids:
                txn.streams += 1
            return chunk_id

    def _chunk_id(self, stream: _Stream) -> int:
        chunk_id = 0
        while chunk_id in (0, stream.id):
            chunk_id = self._issued_id(stream.address_id & SHARD_MASK, durable=stream.message.durable)
        return chunk_id

    def _is_open(self, stream: _Stream) -> bool:
        """Whether the transaction that it was begun in is there."""
        return stream.txn is not None and self._transactions.get(stream.txn.tx) is stream.txn

    def _require_begun_in(self, stream: _Stream) -> None:
        """Raises TransactionUnknownError if its transaction is gone, and what refuses operations in it."""
        if stream.txn is None:
            return
        tx = stream.txn.tx
        if not self._is_open(stream):
            raise TransactionUnknownError(f"the transaction {tx} in which the large message was begun is over")
        self._transaction(tx)

    def _put_chunk(self, stream: _Stream) -> Completion | None:
        """Put the next chunk; or what is done once the journal has room for it."""
        try:
            stream.chunks.put_chunk()
        except QueueFullError:
            room = self._journal.room()
            if not room.done:
                return room
            stream.chunks.put_chunk()  # it has just got room; or no queue has room for it
        return None

    def _has_rest(self, stream: _Stream) -> bool:
        """Whether the body's end is a chunk of its own; a small one is in the message's record."""
        chunks = stream.chunks
        return chunks.has_chunk(end=bool(chunks.ids) or chunks.bytes > self._settings.inline_bytes_max)

    def _close_stream(self, stream: _Stream) -> Pending:
        """The message behind its chunks, and the commit of a transaction of its own."""
        message, chunks = stream.message, stream.chunks
        with self._lock:
            self._enter()
            self._require_begun_in(stream)
            tx = 0 if stream.txn is None else stream.txn.tx
            if not chunks.ids:
                whole = replace(message, body=chunks.rest())
                return self.send(whole, stream.queues, tx, id=stream.id, checked=stream.checked)
            data = encode_message(message, chunks=chunks.ids, body_bytes=chunks.bytes)
            out = Outgoing(message, data, chunks.ids, chunks.bytes, checked=stream.checked)
            pending = self._send(out, stream.queues, tx, stream.id)
            if stream.txn is not None and message.durable:
                stream.txn.streams -= 1
            if stream.own:
                pending.completion = self.commit(tx).completion
            return pending

    def _cut_off(self, stream: _Stream) -> None:
        """Leave nothing of it."""
        with self._lock:
            if not stream.message.durable:
                for chunk_id in stream.chunks.ids:
                    self._volatile.drop(chunk_id)
            elif stream.txn is not None and self._is_open(stream):
                if stream.own:
                    self._abandon(stream.txn.tx)
                elif stream.chunks.ids:
                    self._refuse_rest(stream.txn.tx, "a large message")

    def _refuse_rest(self, tx: int, what: str) -> None:
        """A transaction that has a part of an operation can only be rolled back."""
        with self._lock:
            txn = self._transactions.get(tx)
            if txn is not None and txn.refused is None and not txn.prepared:
                txn.refused = StoreError(f"{what} was cut off: roll the transaction back")
