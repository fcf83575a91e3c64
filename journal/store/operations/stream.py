"""Adds messages whose bodies come in pieces, of any size. They are stored in chunks, each as soon as its bytes have
come.

The chunks of a durable message are appended in a transaction: the caller's, or one of the message's own, which is
committed together with the message's record. So if the body is cut off, nothing of the message remains.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Iterable, Sequence
from dataclasses import replace

from journal.append.completion import Completion
from journal.errors import DeadlineError, InvalidOperationError, QueueFullError, TransactionUnknownError
from journal.store.bodies.chunks import Chunks
from journal.store.message_records import encode_message
from journal.store.model import Message
from journal.store.operations.add import MessageAdder, Outgoing, require_routable
from journal.store.operations.core import StoreCore
from journal.store.operations.ids import StoreIds
from journal.store.operations.transactions import TransactionOperations
from journal.store.pending import Pending
from journal.store.transactions import StoreTransaction
from journal.v1.store_pb2 import CHUNK
from journal.wire.ids import SHARD_MASK

_LARGE_FIELDS_BYTES = 32
"""An upper bound for the fields that only a large message's record has: the body's size and the length of the chunks'
ids."""


class MessageStream:
    """A message that is being added while its body comes in pieces."""

    __slots__ = ("address_id", "checked", "chunks", "id", "message", "own", "place", "queues", "txn")

    def __init__(self, message: Message, queues: Sequence[str], id: int, checked: bool) -> None:
        self.message = message
        self.queues = tuple(queues)
        self.txn: StoreTransaction | None = None
        """The transaction object itself, because its number may be used again while the body comes."""
        self.id = id
        self.checked = checked
        self.own = False
        """Whether the transaction belongs to the stream only."""
        self.address_id = 0
        self.place = 0
        """The queue or address whose swap file holds the chunks, if the message is not durable."""
        self.chunks: Chunks


class StreamOperations:
    """Operations that add a message whose body comes in pieces."""

    def __init__(
        self, core: StoreCore, ids: StoreIds, adder: MessageAdder, transactions: TransactionOperations
    ) -> None:
        self._core = core
        self._ids = ids
        self._adder = adder
        self._transactions = transactions

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
        stream = self.open(message, queues, tx, id, checked)
        wait_s = self._core.settings.read_timeout_ms / 1000
        try:
            for piece in body:
                stream.chunks.feed(piece)
                while stream.chunks.has_chunk():
                    while (room := self._put_chunk(stream)) is not None:
                        room.wait(wait_s)
            while self._has_rest(stream):
                while (room := self._put_chunk(stream)) is not None:
                    room.wait(wait_s)
            self._core.journal.room().wait(wait_s)
            return self.close(stream)
        except BaseException:
            self.cut_off(stream)
            raise

    async def store_stream_async(
        self, message: Message, body: AsyncIterable[bytes], queues: Sequence[str] = (), tx: int = 0, *, id: int = 0
    ) -> Pending:
        stream = self.open(message, queues, tx, id)
        try:
            async for piece in body:
                stream.chunks.feed(piece)
                while stream.chunks.has_chunk():
                    while (room := self._put_chunk(stream)) is not None:
                        await self._within(room)
            while self._has_rest(stream):
                while (room := self._put_chunk(stream)) is not None:
                    await self._within(room)
            await self._within(self._core.journal.room())
            return self.close(stream)
        except BaseException:
            self.cut_off(stream)
            raise

    async def _within(self, room: Completion) -> None:
        wait_s = self._core.settings.read_timeout_ms / 1000
        try:
            async with asyncio.timeout(wait_s):
                await room
        except TimeoutError:
            raise DeadlineError(f"the journal had no room within {wait_s} s") from None

    # ---- inside ----------------------------------------------------------------------------------------------------

    def open(self, message: Message, queues: Sequence[str], tx: int, id: int, checked: bool = False) -> MessageStream:
        """Begin a message, after all checks that are possible before the body comes."""
        if message.body:
            raise InvalidOperationError("a message whose body is streamed has none of its own")
        record_bytes = len(encode_message(message)) + _LARGE_FIELDS_BYTES
        stream = MessageStream(message, queues, id, checked)
        core = self._core
        with core.lock:
            state = core.enter()
            txn = stream.txn = core.transactions.accepting(tx) if tx else None
            address = state.address(message.address)
            targets = [state.queue(name) for name in stream.queues]
            require_routable(message.address, targets)
            if id:
                self._ids.new(address, id)
            self._adder.slot(address, message, txn, checked=checked)
            stream.address_id = address.record_id
            stream.place = targets[0].record_id if targets else stream.address_id
        settings = core.settings
        bytes_max = settings.message_bytes_max
        if message.durable:
            bytes_max = settings.body_bytes_max(core.journal.limits, record_bytes)
        stream.chunks = Chunks(
            lambda chunk: self._keep_chunk(stream, chunk), chunk_bytes=settings.chunk_bytes, bytes_max=bytes_max
        )
        return stream

    def _keep_chunk(self, stream: MessageStream, chunk: bytes) -> int:
        core = self._core
        with core.lock:
            core.enter()
            self._require_begun_in(stream)
            chunk_id = self._chunk_id(stream)
            if not stream.message.durable:
                core.volatile.put(stream.place, chunk_id, chunk)
                return chunk_id
            txn = stream.txn
            if txn is None:
                txn = stream.txn = core.transactions.open[self._transactions.begin()]
                stream.own = True
            core.journal.add(chunk_id, CHUNK, chunk, tx=txn.tx)
            if not stream.chunks.ids:
                txn.streams += 1
            return chunk_id

    def _chunk_id(self, stream: MessageStream) -> int:
        chunk_id = 0
        while chunk_id in (0, stream.id):
            chunk_id = self._ids.issue(stream.address_id & SHARD_MASK, durable=stream.message.durable)
        return chunk_id

    def _is_open(self, stream: MessageStream) -> bool:
        """Whether the transaction in which the message was begun is still open."""
        return stream.txn is not None and self._core.transactions.open.get(stream.txn.tx) is stream.txn

    def _require_begun_in(self, stream: MessageStream) -> None:
        """Raises TransactionUnknownError if the message's transaction is gone, and the error that refuses operations in
        it."""
        if stream.txn is None:
            return
        tx = stream.txn.tx
        if not self._is_open(stream):
            raise TransactionUnknownError(f"the transaction {tx} in which the large message was begun is over")
        self._core.transactions.accepting(tx)

    def _put_chunk(self, stream: MessageStream) -> Completion | None:
        """Store the next chunk and return None. If the journal has no room for it, return a future that is done when
        there is room."""
        try:
            stream.chunks.put_chunk()
        except QueueFullError:
            room = self._core.journal.room()
            if not room.done:
                return room
            stream.chunks.put_chunk()  # there is room now, or the chunk is too large for any queue
        return None

    def _has_rest(self, stream: MessageStream) -> bool:
        """Whether the rest of the body becomes a chunk. A small body is in the message's record instead."""
        chunks = stream.chunks
        return chunks.has_chunk(end=bool(chunks.ids) or chunks.bytes > self._core.settings.inline_bytes_max)

    def close(self, stream: MessageStream) -> Pending:
        message, chunks = stream.message, stream.chunks
        with self._core.lock:
            self._core.enter()
            self._require_begun_in(stream)
            tx = 0 if stream.txn is None else stream.txn.tx
            if not chunks.ids:
                whole = replace(message, body=chunks.rest())
                data = encode_message(whole)
                return self._adder.add_whole(whole, data, stream.queues, tx, stream.id, checked=stream.checked)
            data = encode_message(message, chunks=chunks.ids, body_bytes=chunks.bytes)
            out = Outgoing(message, data, chunks.ids, chunks.bytes, checked=stream.checked)
            pending = self._adder.add(out, stream.queues, tx, stream.id)
            if stream.txn is not None and message.durable:
                stream.txn.streams -= 1
            if stream.own:
                pending.completion = self._transactions.commit(tx).completion
            return pending

    def cut_off(self, stream: MessageStream) -> None:
        """Remove all parts of the message. If the caller's transaction contains a part, it can then only be rolled
        back."""
        with self._core.lock:
            if not stream.message.durable:
                for chunk_id in stream.chunks.ids:
                    self._core.volatile.drop(chunk_id)
            elif stream.txn is not None and self._is_open(stream):
                if stream.own:
                    self._transactions.abandon(stream.txn.tx)
                elif stream.chunks.ids:
                    self._core.transactions.refuse_rest(stream.txn.tx, "a large message")
