"""The worker's shell, called from another process: who reads the WAL calls, who applies it answers.

Messages are marshalled (both sides are of one installation and one start) and go through a socket pair. Calls are
answered one after the other, as the shell's calls are made anyway. Frames alone are sent without waiting for the answer
to those before, so that the shell finds the next ones there when it is done; what it has not asked to be read from
elsewhere meanwhile is applied.
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
from journal.fold.sorted_frame import SortedFrame
from streams.reading.records import Prepared
from streams.reading.shell import WorkerShell

_SIZE = struct.Struct("<Q")
_BUFFER_BYTES = 1 << 23

POSTED_MAX = 2
"""Most batches that are sent and not applied yet."""

BUSY_TICK_S = 0.025
"""How soon to look again for answers. One may have been there for as long."""

_TICKED = ("frames", "tick")

_ENDED = "ended"
"""The name of the message that says that there are no more calls, and why."""


def is_readable(descriptor: int, timeout_s: float) -> bool:
    """Whether something, or the end, can be read in time. `select.select` takes no descriptor from 1024 on."""
    looking = select.poll()
    looking.register(descriptor, select.POLLIN)
    return bool(looking.poll(int(timeout_s * 1000)))


class Channel:
    """Messages to and from the other process. Each side has one thread that sends and one that receives."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._buffer = bytearray(_BUFFER_BYTES)

    def send(self, message: Any) -> None:
        """Raises DisconnectedError."""
        data = marshal.dumps(message)
        try:
            self._socket.sendall(_SIZE.pack(len(data)))
            self._socket.sendall(data)
        except OSError as error:
            raise DisconnectedError(f"the other process is gone: {error}") from error

    def receive(self) -> Any:
        """The next message. Raises DisconnectedError.

        Hot path: one call of the kernel for all of it, so that the interpreter's lock is asked for once.
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
        """Whether a message, or a part of one, has come."""
        return is_readable(self._socket.fileno(), 0.0)

    def disconnect(self) -> None:
        """Close the channel: whoever waits for a message, on either side, gets DisconnectedError. For any thread."""
        with suppress(OSError):  # it is disconnected already
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


class Inbox:
    """Messages as they come, received and unpacked by a thread while the owner is busy."""

    def __init__(self, channel: Channel) -> None:
        self._messages: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        """Messages that have come, at most `POSTED_MAX`, and last the error that ended the channel."""
        threading.Thread(target=self._receive, args=(channel,), name="worker-inbox", daemon=True).start()

    def _receive(self, channel: Channel) -> None:
        try:
            while True:
                self._messages.put((channel.receive(), None))
        except BaseException as error:  # noqa: BLE001  # whoever takes messages is told
            self._messages.put((None, error))

    def take(self) -> Any:
        """The next message. Raises DisconnectedError, which is the last."""
        message, error = self._messages.get()
        if error is not None:
            raise error
        return message


class CalledShell(WorkerShell):
    """A shell in another process. Raises DisconnectedError once that is gone, or an error has ended the shell there."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._posted = 0
        """Number of calls of `frames` that are not answered yet."""
        self._answers = 0
        self._applied: Mapping[int, int] = {}
        self._seeks: dict[int, int] = {}
        """By shard, the WAL offset to seek to that an answer has said, and `seeks` has not told yet."""
        self._tick_s: float | None = None
        """When the shell wants its next tick, if the last answer said so."""
        self._unsorted: Collection[int] = frozenset()

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
        answer, ticked, self._applied, unsorted = self._channel.receive()
        self._answers += 1
        self._unsorted = frozenset(unsorted)
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

    def frames(self, shard: int, records: Sequence[Prepared]) -> None:
        """Send frames. Returns before they are applied."""
        self._await_posted(POSTED_MAX - 1)
        if shard in self._seeks:
            return  # they come again, from where it wants to be read
        plain = [(offset, timestamp, _plain(value)) for offset, timestamp, value in records]
        self._channel.send(("frames", self._answers, shard, plain))
        self._posted += 1

    def unsorted(self) -> Collection[int]:
        """The shards that wanted their records unsorted in the last answer. Thread-safe."""
        return self._unsorted

    def unreadable(self, shard: int, error: CorruptionError) -> None:
        self._await_posted(0)
        if shard not in self._seeks:
            place = (error.topic, error.partition, error.offset)
            self._call("unreadable", shard, type(error).__name__, error.reason, *place)

    def tick(self) -> float:
        """Tick, unless frames are being applied: the shell ticks behind every call anyway."""
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
        """Do nothing. The worker's shell lives in the other process, which calls `abandon` of the shell itself."""

    def ended(self, error: BaseException | None) -> None:
        """Say that this side calls no more, because of an error or because it is done. Does not wait for an answer."""
        self._channel.send((_ENDED, *(("", "") if error is None else (type(error).__name__, str(error)))))


class CallsEnded(Exception):
    """The other process has said that it calls no more; `error` is why, if something is wrong."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error


class ShellAnswers:
    """The side that has the shell."""

    def __init__(self, shell: WorkerShell) -> None:
        self._shell = shell
        self._given: list[int] = []
        """Shards that the shell was given and that were not taken back."""
        self.is_stopped = False
        """Whether the shell was told to stop; nothing is called after that."""
        self._answers = 0
        self._sought: dict[int, int] = {}
        """By shard, the number of the answer that last said from where to read it."""

    def answer(self, channel: Channel, message: Any) -> None:
        """Make a call and answer it. Raises CallsEnded, what the shell raises."""
        name, *arguments = message
        if name == _ENDED:
            raise CallsEnded(_error(*arguments))
        answer = getattr(self, f"_{name}")(*arguments)
        ticked = None
        if name in _TICKED:
            ticked = self._shell.tick(), dict(self._shell.seeks())
            self._sought.update(dict.fromkeys(ticked[1], self._answers + 1))
        self._answers += 1
        with suppress(DisconnectedError):  # what it said before it went comes first
            channel.send((answer, ticked, dict(self._shell.applied()), list(self._shell.unsorted())))

    def revoke(self) -> Collection[int]:
        """Revoke all shards, as nobody calls for now; the shards taken back. Whoever calls next has had no answer
        yet."""
        self._answers = 0
        self._sought.clear()
        given = self._given
        if given and not self.is_stopped:
            self._revoked(given)
        return given

    def stop(self) -> None:
        """Stop the shell, unless its other side has called for that."""
        if not self.is_stopped:
            self._stop()

    def _assigned(self, shards: list[int]) -> dict[int, int]:
        self._given = shards
        return dict(self._shell.assigned(shards))

    def _revoked(self, shards: list[int]) -> None:
        self._given = []
        self._shell.revoked(shards)

    def _frames(self, answers: int, shard: int, records: Sequence[tuple[int, int, Any]]) -> None:
        """Apply records, unless the shell has asked since for the shard to be read from elsewhere."""
        if self._sought.get(shard, 0) > answers:
            return
        self._shell.frames(shard, [(offset, timestamp, _sorted(value)) for offset, timestamp, value in records])

    def _unreadable(self, shard: int, kind: str, reason: str, topic: str, partition: int, offset: int) -> None:
        error: CorruptionError = getattr(errors, kind)(reason, topic=topic, partition=partition, offset=offset)
        self._shell.unreadable(shard, error)

    def _tick(self) -> None:
        """Do nothing: the shell ticks behind every call."""

    def _stop(self) -> None:
        self.is_stopped = True
        self._shell.stop()


def _plain(value: bytes | SortedFrame) -> bytes | tuple[object, ...]:
    """The value as a plain tuple, which `marshal` takes."""
    return value if isinstance(value, bytes) else (*value[:-1], [tuple(run) for run in value.runs])


def _sorted(value: Any) -> bytes | SortedFrame:
    return value if isinstance(value, bytes) else SortedFrame._make(value)


def _error(kind: str, reason: str) -> Exception | None:
    """The error that ended the other process, of the same kind if that is one of ours and takes only a reason."""
    if not kind:
        return None
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, JournalError) and found.__init__ is Exception.__init__:
        return found(reason)
    return RuntimeError(f"the process that reads the WAL ended: {kind}: {reason}")
