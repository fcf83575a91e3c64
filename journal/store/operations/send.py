"""Adds one message to a message store, with or without routing it to queues of its address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from journal.store.message_records import encode_message
from journal.store.model import Message
from journal.store.operations.add import MessageAdder
from journal.store.operations.core import StoreCore
from journal.store.operations.stream import StreamOperations
from journal.store.pending import Pending


class SendOperations:
    """Operations that add one message."""

    def __init__(self, core: StoreCore, adder: MessageAdder, stream: StreamOperations) -> None:
        self._core = core
        self._adder = adder
        self._stream = stream

    def store(self, message: Message, tx: int, id: int, checked: bool) -> Pending:
        return self.send(message, (), tx, id, checked)

    def send(self, message: Message, queues: Sequence[str], tx: int, id: int, checked: bool) -> Pending:
        if len(message.body) > self._core.inline_bytes_max:
            return self._send_large(message, queues, tx, id, checked)
        data = encode_message(message)
        with self._core.lock:
            return self._adder.add_whole(message, data, queues, tx, id, checked=checked)

    def _send_large(self, message: Message, queues: Sequence[str], tx: int, id: int, checked: bool) -> Pending:
        self._adder.require_size(message)
        stream = self._stream.open(replace(message, body=b""), queues, tx, id, checked)
        try:
            stream.chunks.feed(message.body)
            while stream.chunks.has_chunk(end=True):
                stream.chunks.put_chunk()
            return self._stream.close(stream)
        except BaseException:
            self._stream.cut_off(stream)
            raise
