"""A shell that notes how it is called, and both sides of the calls between a reader and its worker."""

from __future__ import annotations

import marshal
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from journal.errors import (
    CorruptionError,
    GapError,
)
from streams.agents.agents import in_daemon_thread
from streams.reading.calls import BUSY_TICK_S, CalledShell, Channel, Inbox, ShellAnswers
from streams.reading.records import Record
from streams.reading.shell import WorkerShell

LIMIT_S = 20.0
LARGE_BYTES = 9 * 1024 * 1024
"""More than is received into without being asked for."""

SIZE = struct.Struct("<Q")


class NotingShell(WorkerShell):
    """Notes what it is asked to do, answers what a test says, and takes frames when it lets it."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.offsets: dict[int, int] = {}
        self.sought: dict[int, int] = {}
        self.marks: dict[int, int] = {}
        self.tick_s = 0.5
        self.fails: Exception | None = None
        self.is_busy = False
        """Whether each batch waits for `let`."""
        self._takes = threading.Semaphore(0)
        self._called = threading.Condition()

    def _note(self, *call: Any) -> None:
        with self._called:
            self.calls.append(call)
            self._called.notify_all()
        if self.fails is not None:
            raise self.fails

    def named(self, name: str) -> list[tuple[Any, ...]]:
        """What these calls took."""
        return [call[1:] for call in list(self.calls) if call[0] == name]

    def until_called(self, name: str, count: int) -> None:
        with self._called:
            assert self._called.wait_for(lambda: len(self.named(name)) >= count, LIMIT_S)

    def let(self, count: int = 1) -> None:
        self._takes.release(count)

    def assigned(self, shards: Collection[int]) -> Mapping[int, int]:
        self._note("assigned", list(shards))
        return self.offsets

    def revoked(self, shards: Collection[int]) -> None:
        self._note("revoked", list(shards))

    def frames(self, shard: int, records: Sequence[Record]) -> None:
        self._note("frames", shard, records)
        if self.is_busy:
            assert self._takes.acquire(timeout=LIMIT_S)

    def unreadable(self, shard: int, error: CorruptionError) -> None:
        self._note("unreadable", shard, error)

    def tick(self) -> float:
        self._note("tick")
        return self.tick_s

    def seeks(self) -> Mapping[int, int]:
        sought, self.sought = self.sought, {}
        return sought

    def applied(self) -> Mapping[int, int]:
        return self.marks

    def stop(self) -> None:
        self._note("stop")

    def abandon(self) -> None:
        self._note("abandon")


class Sides:
    """A shell, who calls it, and who answers in another thread, as the worker and its reader have them."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.calling, self.answering = Channel(theirs), Channel(ours)
        self.shell = NotingShell()
        self.called = CalledShell(self.calling)
        self.answers = ShellAnswers(self.shell)
        self.ended = beside(self._answer_all)

    def _answer_all(self) -> None:
        inbox = Inbox(self.answering)
        try:
            while True:
                self.answers.answer(self.answering, inbox.take())
        finally:
            self.answering.disconnect()

    def close(self) -> None:
        self.shell.let(100)
        self.calling.disconnect()
        wait([self.ended], LIMIT_S)
        self.calling.close()
        self.answering.close()

    def post(self, shard: int, *offsets: int) -> None:
        """Frames of which only these are known."""
        self.called.frames(shard, [(offset, 1, b"raw") for offset in offsets])

    def settle(self) -> None:
        """All that is on its way is there, and answered."""
        while self.called.tick() == BUSY_TICK_S:
            time.sleep(0.001)

    def applied(self) -> list[tuple[int, int]]:
        """Shard and offset of each record that the shell was given, in this order."""
        return [(shard, offset) for shard, records in self.shell.named("frames") for offset, _, _ in records]

    def received(self, *values: bytes) -> list[bytes]:
        """These, the values of a shard's records, as they come to the shell."""
        self.called.frames(3, [(2 * n, 100 + n, value) for n, value in enumerate(values)])
        self.settle()
        shard, records = self.shell.named("frames")[-1]
        assert shard == 3
        assert [each[:2] for each in records] == [(2 * n, 100 + n) for n in range(len(values))]
        return [value for _, _, value in records]


def beside(function: Callable[..., Any], *arguments: object) -> Future[Any]:
    """In a thread that a test which fails need not wait for."""
    return in_daemon_thread(partial(function, *arguments))


@pytest.fixture
def sides() -> Iterator[Sides]:
    made = Sides()
    yield made
    made.close()


@contextmanager
def connected() -> Iterator[tuple[socket.socket, Channel]]:
    """A channel, and the bare socket of its other side."""
    theirs, ours = socket.socketpair()
    with theirs, ours:
        try:
            yield theirs, Channel(ours)
        finally:
            for each in (theirs, ours):
                Channel(each).disconnect()


def message(*content: Any) -> bytes:
    data = marshal.dumps(content)
    return SIZE.pack(len(data)) + data


CALLS: dict[str, Callable[[CalledShell], object]] = {
    "assigned": lambda called: called.assigned([0]),
    "revoked": lambda called: called.revoked([0]),
    "unreadable": lambda called: called.unreadable(0, GapError("gone", topic="wal", partition=0, offset=1)),
    "tick": lambda called: called.tick(),
    "stop": lambda called: called.stop(),
}
"""Those that wait for their answer."""
