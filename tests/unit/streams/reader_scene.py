"""A worker whose reader is a small program of the test, and a reader whose parent is the test."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from journal.config import Settings
from journal.embedded.process import wait_until
from journal.v1.journal_pb2 import Identity
from streams.agents.agents import in_daemon_thread
from streams.reading import reader as module
from streams.reading.calls import CallsEnded, Channel, ShellAnswers
from streams.reading.group_settings import GroupSettings
from streams.reading.reader import ReaderProcess, read_for_parent
from streams.reading.shell import WorkerShell
from tests.support.build import JOURNAL
from tests.unit.streams.calls_scene import NotingShell

LIMIT_S = 30.0
NAME = "worker-3"
SHARDS = 4
SETTINGS = Settings(
    journal="orders",
    bootstrap_servers="127.0.0.1:1",
    node="one",
    session_timeout_ms=2000,
    client_properties={"sasl.mechanism": "PLAIN", "sasl.password": "secret"},
)

PROGRAM = """
import fcntl, marshal, os, signal, socket, struct, sys, termios, time

HERE = os.path.dirname(os.path.abspath(__file__))
parent = socket.socket(fileno=int(sys.argv[-1]))

def hear():
    head = parent.recv(8, socket.MSG_WAITALL)
    if not head:
        note("nobody answers")
        sys.exit(0)
    return marshal.loads(parent.recv(*struct.unpack("<Q", head), socket.MSG_WAITALL))

def say(*message):
    data = marshal.dumps(message)
    parent.sendall(struct.pack("<Q", len(data)) + data)

def call(*message):
    say(*message)
    return hear()[0]

def note(line):
    with open(os.path.join(HERE, "notes"), "a") as file:
        print(line, file=file)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def is_first():
    with open(os.path.join(HERE, "starts"), "a+") as file:
        print(os.getpid(), file=file)
        file.seek(0)
        return len(file.readlines()) == 1

def until_input_is_full():
    # a pipe is made smaller while there is little in it, so that it does not take long
    while True:
        os.read(0, 1 << 16)
        try:
            size = fcntl.fcntl(0, fcntl.F_SETPIPE_SZ, 4096)
            break
        except OSError:
            continue
    while struct.unpack("i", fcntl.ioctl(0, termios.FIONREAD, bytes(4))) < (size,):
        time.sleep(0.001)

def until_terminated():
    signal.sigwait({signal.SIGTERM})

def until_end_of_input():
    while os.read(0, 4096):
        pass

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # it is waited for, or comes for nothing
first = is_first()
"""


Serve = Callable[[asyncio.Event], Coroutine[Any, Any, None]]


class ReaderParent:
    """A worker with a reader, which a program is instead. It is stopped as by a signal."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.shell = NotingShell()
        self.reader: ReaderProcess | None = None
        self._runs = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ended: Future[None] | None = None
        monkeypatch.setattr(module, "run_until_signalled", self._run_until_stopped)
        monkeypatch.setattr(module, "PAUSE_S", 0.0)

    def _run_until_stopped(self, serve: Serve, on_signal: Callable[[], None]) -> None:
        async def run() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            self._runs.set()
            await serve(self._stop)

        asyncio.run(run())

    def start(self, does: str) -> ReaderProcess:
        """A reader that is this program."""
        program = self.directory / "program.py"
        program.write_text(PROGRAM + does)
        self.reader = ReaderProcess([sys.executable, "-I", "-S", str(program)])
        return self.reader

    def run(self, does: str) -> Future[None]:
        return self.run_reader(self.start(does))

    def run_reader(self, reader: ReaderProcess) -> Future[None]:
        self.reader = reader
        identity = Identity(journal=JOURNAL, shards=SHARDS)
        self._ended = in_daemon_thread(partial(reader.run, self.shell, SETTINGS, identity, NAME))
        return self._ended

    def stop(self) -> None:
        """Returns when all that follows at once has been done."""
        assert self._runs.wait(LIMIT_S)
        loop, stop, followed = self._loop, self._stop, threading.Event()
        assert loop is not None
        assert stop is not None
        if self._ended is not None:
            self._ended.add_done_callback(lambda _: followed.set())

        def turn(left: int) -> None:
            if left:
                loop.call_soon(turn, left - 1)
            else:
                followed.set()

        with suppress(RuntimeError):  # it has ended by itself
            loop.call_soon_threadsafe(stop.set)
            loop.call_soon_threadsafe(turn, 10)
        assert followed.wait(LIMIT_S)

    def until_called(self, *call: object) -> None:
        assert wait_until(lambda: call in self.shell.calls, LIMIT_S)

    def until_noted(self, line: str) -> None:
        assert wait_until(lambda: line in self.notes(), LIMIT_S)

    def notes(self) -> list[str]:
        return self._lines("notes")

    def pids(self) -> list[int]:
        """Process ids of all readers so far that have come to note theirs."""
        return [int(line) for line in self._lines("starts")]

    def _lines(self, name: str) -> list[str]:
        path = self.directory / name
        return path.read_text().splitlines() if path.exists() else []

    def close(self) -> None:
        if self._ended is not None and not self._ended.done():
            self.stop()
            wait([self._ended], LIMIT_S)
        if self.reader is not None:
            self.reader.close()


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReaderParent]:
    made = ReaderParent(tmp_path, monkeypatch)
    yield made
    made.close()
    for pid in made.pids():
        assert not is_alive(pid)


def is_alive(pid: int) -> bool:
    """Or dead and nobody has asked how."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


Serves = Callable[[WorkerShell, GroupSettings], Awaitable[None]]


class ReaderChild:
    """A reader in a thread, whose worker does what a test says; and its parent's side of what is between them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.exits: list[int] = []
        self.shell = NotingShell()
        ours, self._theirs = socket.socketpair()
        self.channel = Channel(ours)
        self._answering = ShellAnswers(self.shell)
        signs, self._signs = os.pipe()
        self._stdin = os.fdopen(signs, "rb", 0)
        self._monkeypatch = monkeypatch
        for name, instead in {
            "run_until_signalled": lambda serve: asyncio.run(serve(asyncio.Event())),
            "collect_seldom": lambda: None,
            "END_S": 0.0,
        }.items():
            monkeypatch.setattr(module, name, instead)
        monkeypatch.setattr(os, "_exit", self.exits.append)
        monkeypatch.setattr(sys, "stdin", self._stdin)

    def start(self, serves: Serves) -> Future[None]:
        async def serve(
            shell: WorkerShell,
            settings: GroupSettings,
            stop: asyncio.Event,
            started: Callable[[], None],
        ) -> None:
            await serves(shell, settings)

        self._monkeypatch.setattr("streams.reading.app.serve", serve)
        return in_daemon_thread(partial(read_for_parent, self._theirs.detach()))

    def tell(self, **about: Any) -> None:
        chosen = SETTINGS.model_dump(
            include={"bootstrap_servers", "journal", "node", "session_timeout_ms", "client_properties"}
        )
        self.channel.send((chosen | about, NAME, SHARDS))

    def answer(self) -> None:
        """One call. Raises CallsEnded."""
        self._answering.answer(self.channel, self.channel.receive())

    def end_of(self) -> Exception | None:
        """What it says that ended it."""
        with pytest.raises(CallsEnded) as ended:
            self.answer()
        return ended.value.error

    def sign(self) -> None:
        os.write(self._signs, b".")

    def end_signs(self) -> None:
        """The reader's signs of life end, as they do when its parent is gone."""
        if self._signs >= 0:
            os.close(self._signs)
            self._signs = -1

    def close(self) -> None:
        self.end_signs()
        self.channel.disconnect()
        for thread in threading.enumerate():
            if thread.name == "parent":
                thread.join(LIMIT_S)
        self._stdin.close()
        self._theirs.close()
        self.channel.close()


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReaderChild]:
    made = ReaderChild(monkeypatch)
    yield made
    made.close()
