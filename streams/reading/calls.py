"""Calls of the worker's shell from another process: the reader process calls, and the process with the shell answers.

Messages are marshalled (both sides run the same installation, started together) and go through a socket pair. Calls are
answered one after the other, as the shell requires. Only calls of `frames` are sent without waiting for earlier
answers, so that the shell always has the next frames ready. When the shell asks to read a shard from another offset,
frames sent before that are not applied.
"""

from __future__ import annotations

import marshal
import select
import socket
import struct
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from journal import errors
from journal.errors import CorruptionError, DisconnectedError, JournalError
from streams.reading.records import Record
from streams.reading.shell import WorkerShell

_SIZE = struct.Struct("<Q")
_BUFFER_BYTES = 1 << 23

POSTED_MAX = 2
"""The most batches that are sent but not applied yet."""

BUSY_TICK_S = 0.025
"""How soon to look for answers again while batches are being applied. An answer may wait for as long."""

_TICKED = ("frames", "tick")

_ENDED = "ended"
"""The name of the message that ends the calls, and gives the reason."""


def is_readable(descriptor: int, timeout_s: float) -> bool:
    """Whether a message, or the end of the channel, can be read within the time. It does not use `select.select`, which
    takes no descriptor above 1023."""
    looking = select.poll()
    looking.register(descriptor, select.POLLIN)
    return bool(looking.poll(int(timeout_s * 1000)))


class Channel:
    """A channel for messages to and from the other process. Each side has one thread that sends and one that
    receives."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._buffer = bytearray(_BUFFER_BYTES)

    def send(self, message: Any) -> None:
        """Send a message. Raises DisconnectedError."""
        data = marshal.dumps(message)
        try:
            self._socket.sendall(_SIZE.pack(len(data)))
            self._socket.sendall(data)
        except OSError as error:
            raise DisconnectedError(f"the other process is gone: {error}") from error

    def receive(self) -> Any:
        """The next message. Raises DisconnectedError.

        Hot path: it reads with one system call, so that it asks for the interpreter's lock only once.
        """
        (size,) = _SIZE.unpack(self._receive(_SIZE.size))
        return marshal.loads(self._receive(size))

    def _receive(self, size: int) -> memoryview:
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        view = memoryview(self._buffer)[:size]
        received = 0
        while received < size:
            try:
                count = self._socket.recv_into(view[received:], size - received, socket.MSG_WAITALL)
            except OSError as error:
                raise DisconnectedError(f"the other process is gone: {error}") from error
            if not count:
                raise DisconnectedError("the other process is gone")
            received += count
        return view

    def has_message(self) -> bool:
        """Whether a message, or a part of one, has arrived."""
        return is_readable(self._socket.fileno(), 0.0)

    def disconnect(self) -> None:
        """Close the channel. Every thread that waits for a message, on either side, gets DisconnectedError. Any thread
        may call this."""
        with suppress(OSError):  # the channel is disconnected already
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


class Inbox:
    """Messages that a thread receives and unpacks while their owner is busy."""

    def __init__(self, channel: Channel) -> None:
        self._messages: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        """The messages that have arrived, at most `POSTED_MAX`; the last one is the error that ended the channel."""
        threading.Thread(target=self._receive, args=(channel,), name="worker-inbox", daemon=True).start()

    def _receive(self, channel: Channel) -> None:
        try:
            while True:
                self._messages.put((channel.receive(), None))
        except BaseException as error:  # noqa: BLE001  # whoever takes messages is told
            self._messages.put((None, error))

    def take(self) -> Any:
        """The next message. Raises DisconnectedError when the channel has ended."""
        message, error = self._messages.get()
        if error is not None:
            raise error
        return message


class CalledShell(WorkerShell):
    """A shell in another process. Raises DisconnectedError when that process has ended, or an error has ended the shell
    there."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._posted = 0
        """The number of calls of `frames` that are not answered yet."""
        self._answers = 0
        self._applied: Mapping[int, int] = {}
        self._seeks: dict[int, int] = {}
        """WAL offsets to seek to, by shard, that an answer has given and `seeks` has not returned yet."""
        self._tick_s: float | None = None
        """Seconds until the shell wants its next tick, if the last answer gave them."""

    def _call(self, name: str, *arguments: object) -> Any:
        self._await_posted(0)
        self._tick_s = None
        self._channel.send((name, *arguments))
        return self._take_answer()

    def _await_posted(self, left: int) -> None:
        while self._posted > left:
            self._take_answer()
            self._posted -= 1

    def _take_answer(self) -> Any:
        answer, ticked, self._applied = self._channel.receive()
        self._answers += 1
        if ticked is not None:
            self._tick_s, seeks = ticked
            self._seeks |= seeks
        return answer

    def assigned(self, shards: Collection[int]) -> Mapping[int, int]:
        offsets: Mapping[int, int] = self._call("assigned", list(shards))
        self._seeks.clear()
        return offsets

    def revoked(self, shards: Collection[int]) -> None:
        self._call("revoked", list(shards))
        self._seeks.clear()

    def frames(self, shard: int, records: Sequence[Record]) -> None:
        """Send frames. It returns before they are applied."""
        self._await_posted(POSTED_MAX - 1)
        if shard in self._seeks:
            return  # the shell asked for another offset, from which these records will be read again
        self._channel.send(("frames", self._answers, shard, list(records)))
        self._posted += 1

    def unreadable(self, shard: int, error: CorruptionError) -> None:
        self._await_posted(0)
        if shard not in self._seeks:
            place = (error.topic, error.partition, error.offset)
            self._call("unreadable", shard, type(error).__name__, error.reason, *place)

    def tick(self) -> float:
        """Tick, unless frames are being applied, because the shell ticks after every call anyway."""
        given_s = 0.0
        while self._posted and self._channel.has_message():
            self._await_posted(self._posted - 1)
            given_s = BUSY_TICK_S
        if self._posted:
            return BUSY_TICK_S
        if self._tick_s is None:
            self._call("tick")
        wanted, self._tick_s = self._tick_s, None
        assert wanted is not None
        return max(0.0, wanted - given_s)

    def seeks(self) -> Mapping[int, int]:
        seeks, self._seeks = self._seeks, {}
        return seeks

    def applied(self) -> Mapping[int, int]:
        return self._applied

    def stop(self) -> None:
        self._call("stop")

    def abandon(self) -> None:
        """Do nothing: the shell is in the other process, which calls `abandon` itself."""

    def ended(self, error: BaseException | None) -> None:
        """Tell the other side that no more calls follow, because of `error` or because all is done. It does not wait
        for an answer."""
        self._channel.send((_ENDED, *(("", "") if error is None else (type(error).__name__, str(error)))))


class CallsEnded(Exception):
    """The other process has said that it makes no more calls; `error` is the reason, if there was an error."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error


class ShellAnswers:
    """The side of the channel that has the shell, and answers calls."""

    def __init__(self, shell: WorkerShell) -> None:
        self._shell = shell
        self._given: list[int] = []
        """Shards that were given to the shell and not taken back."""
        self.is_stopped = False
        """Whether the shell was told to stop. No call follows that."""
        self._answers = 0
        self._sought: dict[int, int] = {}
        """The number of the last answer, by shard, that gave an offset to read the shard from."""

    def answer(self, channel: Channel, message: Any) -> None:
        """Make a call and answer it. Raises CallsEnded, and the errors of the shell."""
        name, *arguments = message
        if name == _ENDED:
            raise CallsEnded(_error(*arguments))
        answer = getattr(self, f"_{name}")(*arguments)
        ticked = None
        if name in _TICKED:
            ticked = self._shell.tick(), dict(self._shell.seeks())
            self._sought.update(dict.fromkeys(ticked[1], self._answers + 1))
        self._answers += 1
        with suppress(DisconnectedError):  # calls that the other side made before it ended come first
            channel.send((answer, ticked, dict(self._shell.applied())))

    def revoke(self) -> Collection[int]:
        """Revoke all shards, because the other side has ended; returns these shards. A new reader has had no answer
        yet."""
        self._answers = 0
        self._sought.clear()
        given = self._given
        if given and not self.is_stopped:
            self._revoked(given)
        return given

    def stop(self) -> None:
        """Stop the shell, unless the other side has asked for it already."""
        if not self.is_stopped:
            self._stop()

    def _assigned(self, shards: list[int]) -> dict[int, int]:
        self._given = shards
        return dict(self._shell.assigned(shards))

    def _revoked(self, shards: list[int]) -> None:
        self._given = []
        self._shell.revoked(shards)

    def _frames(self, answers: int, shard: int, records: Sequence[tuple[int, int, Any]]) -> None:
        """Apply records, unless the shell has asked meanwhile to read the shard from another offset."""
        if self._sought.get(shard, 0) > answers:
            return
        self._shell.frames(shard, records)

    def _unreadable(self, shard: int, kind: str, reason: str, topic: str, partition: int, offset: int) -> None:
        error: CorruptionError = getattr(errors, kind)(reason, topic=topic, partition=partition, offset=offset)
        self._shell.unreadable(shard, error)

    def _tick(self) -> None:
        """Answer the call `tick` of the other process: there is nothing to do, because `answer` ticks the shell after
        this call."""

    def _stop(self) -> None:
        self.is_stopped = True
        self._shell.stop()


def _error(kind: str, reason: str) -> Exception | None:
    """The error that ended the other process. It has the same class if that is one of ours and takes only a reason."""
    if not kind:
        return None
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, JournalError) and found.__init__ is Exception.__init__:
        return found(reason)
    return RuntimeError(f"the process that reads the WAL ended: {kind}: {reason}")
