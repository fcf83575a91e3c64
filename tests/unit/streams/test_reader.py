"""The worker's reader: what it is told and tells, one that dies replaced, and the end of it and of its parent.

In its place runs a small program that says what a reader says; what a reader itself does runs in a thread here.
"""

from __future__ import annotations

import ast
import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from journal.cli.worker.reader import reader_command
from journal.config import Settings
from journal.embedded.process import wait_until
from journal.errors import CorruptionError, KafkaRefusedError, KafkaUnavailableError, OperatingError
from journal.fold.sorted_frame import SortedFrame
from journal.fold.sorting import sort_frame
from journal.v1.journal_pb2 import Identity
from streams.agents.agents import in_daemon_thread
from streams.reading import reader as module
from streams.reading.app import Prepare
from streams.reading.calls import CallsEnded, Channel, ShellAnswers
from streams.reading.group_settings import GroupSettings, group_settings
from streams.reading.reader import NICE, ReaderProcess, read_for_parent
from streams.reading.records import Prepared
from streams.reading.shell import WorkerShell
from tests.support.build import JOURNAL, add, marker, wal

pytestmark = pytest.mark.timeout(60)

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


class Shell(WorkerShell):
    """Notes what it is asked to do."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.fails: Exception | None = None
        self.wanted: set[int] = set()

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        if self.fails is not None:
            raise self.fails

    def assigned(self, shards: Collection[int]) -> Mapping[int, int]:
        self._note("assigned", *shards)
        return {}

    def revoked(self, shards: Collection[int]) -> None:
        self._note("revoked", *shards)

    def frames(self, shard: int, records: Sequence[Prepared]) -> None: ...

    def unsorted(self) -> Collection[int]:
        return self.wanted

    def unreadable(self, shard: int, error: CorruptionError) -> None: ...

    def tick(self) -> float:
        self._note("tick")
        return 1.0

    def seeks(self) -> Mapping[int, int]:
        return {}

    def applied(self) -> Mapping[int, int]:
        return {}

    def stop(self) -> None:
        self._note("stop")

    def abandon(self) -> None:
        self._note("abandon")


Serve = Callable[[asyncio.Event], Coroutine[Any, Any, None]]


class Worker:
    """A worker with a reader, which a program is instead. It is stopped as by a signal."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.shell = Shell()
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
        """Of all readers there were, or of those that came so far as to say it."""
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
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    made = Worker(tmp_path, monkeypatch)
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


# ---- the parent: what its reader calls and says ------------------------------------------------------------------


def test_a_reader_is_told_what_it_needs_to_know_and_nothing_else(worker: Worker) -> None:
    worker.run("note(hear()); call('stop'); say('ended', '', '')").result(LIMIT_S)
    (line,) = worker.notes()
    chosen, name, journal, shards = ast.literal_eval(line)
    assert (name, journal, shards) == (NAME, JOURNAL, SHARDS)
    assert chosen == {
        "bootstrap_servers": "127.0.0.1:1",
        "journal": "orders",
        "node": "one",
        "session_timeout_ms": 2000,
        "client_properties": {"sasl.mechanism": "PLAIN", "sasl.password": "secret"},
    }


def test_what_it_calls_is_done_until_it_ends(worker: Worker) -> None:
    worker.run("hear(); call('assigned', [0, 2]); call('tick'); call('stop'); say('ended', '', '')").result(LIMIT_S)
    assert worker.shell.calls == [("assigned", 0, 2), ("tick",), ("stop",)]
    assert len(worker.pids()) == 1


def test_an_error_that_it_says_is_raised_and_the_shell_is_left_as_it_is(worker: Worker) -> None:
    running = worker.run("hear(); call('assigned', [0]); say('ended', 'KafkaRefusedError', 'not authorised')")
    with pytest.raises(KafkaRefusedError, match="not authorised"):
        running.result(LIMIT_S)
    assert worker.shell.calls == [("assigned", 0)]


def test_an_error_of_the_shell_is_raised_and_a_reader_that_waits_for_its_answer_ends_with_the_worker(
    worker: Worker,
) -> None:
    worker.shell.fails = LookupError("of the shell")
    running = worker.run("hear(); call('assigned', [0])")
    with pytest.raises(LookupError, match="of the shell"):
        running.result(LIMIT_S)
    assert worker.shell.calls == [("assigned", 0)]
    assert worker.notes() == ["nobody answers"]


def test_it_hears_that_its_parent_lives_and_when_that_has_no_more_for_it_to_do(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SIGN_EVERY_S", 0.001)
    does = "hear(); note([os.read(0, 1) for _ in range(3)]); call('stop'); say('ended', '', ''); until_end_of_input()"
    worker.run(f"{does}; note('closed')").result(LIMIT_S)
    assert worker.notes() == [str([b"."] * 3), "closed"]


def test_one_that_hears_nothing_holds_up_nobody(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SIGN_EVERY_S", 0.0)
    running = worker.run("""
hear()
until_input_is_full()
call("assigned", [0])
until_terminated()
call("stop")
say("ended", "", "")
""")
    worker.until_called("assigned", 0)
    worker.stop()
    running.result(LIMIT_S)
    assert worker.shell.calls == [("assigned", 0), ("stop",)]
    assert len(worker.pids()) == 1


# ---- the parent: stops -------------------------------------------------------------------------------------------

STOPS_IN_ORDER = """
hear()
call("assigned", [0, 2])
until_terminated()
call("revoked", [0, 2])
call("stop")
say("ended", "", "")
note("left")
"""


def test_a_stop_is_the_readers_to_make_which_leaves_in_order(worker: Worker) -> None:
    running = worker.run(STOPS_IN_ORDER)
    worker.until_called("assigned", 0, 2)
    assert not running.done()
    worker.stop()
    running.result(LIMIT_S)
    worker.close()
    assert worker.shell.calls == [("assigned", 0, 2), ("revoked", 0, 2), ("stop",)]
    assert worker.notes() == ["left"]
    assert len(worker.pids()) == 1


def test_an_error_that_it_says_while_it_stops_is_raised_too(worker: Worker) -> None:
    running = worker.run("hear(); call('assigned', [0]); until_terminated(); say('ended', 'ValueError', 'odd')")
    worker.until_called("assigned", 0)
    worker.stop()
    with pytest.raises(RuntimeError, match="ValueError: odd"):
        running.result(LIMIT_S)


@pytest.mark.parametrize(
    "does",
    [
        pytest.param("die()", id="before it has called for it"),
        pytest.param("call('stop'); die()", id="when it has called for it"),
        pytest.param("say('stop'); die()", id="before it had the answer"),
    ],
)
def test_one_that_dies_as_it_stops_is_not_replaced_and_the_shell_stops_once(worker: Worker, does: str) -> None:
    running = worker.run(f"hear(); call('assigned', [0]); until_terminated(); {does}")
    worker.until_called("assigned", 0)
    worker.stop()
    running.result(LIMIT_S)
    assert worker.shell.calls == [("assigned", 0), ("stop",)]
    assert len(worker.pids()) == 1


def test_one_that_is_not_ready_to_be_told_to_stop_dies_of_it_and_the_shell_stops_once(worker: Worker) -> None:
    does = "signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM}); note('starts'); time.sleep(60)"
    running = worker.run(does)
    worker.until_noted("starts")
    worker.stop()
    running.result(LIMIT_S)
    assert worker.shell.calls == [("stop",)]
    assert len(worker.pids()) == 1


def test_shards_are_given_back_at_once_and_a_stop_while_there_is_no_reader_starts_none(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 2 * LIMIT_S)
    running = worker.run("hear(); call('assigned', [0]); die()")
    assert wait_until(lambda: "another one is started" in caplog.text, LIMIT_S)
    assert worker.shell.calls == [("assigned", 0), ("revoked", 0)]
    worker.stop()
    running.result(LIMIT_S)
    assert worker.shell.calls == [("assigned", 0), ("revoked", 0), ("stop",)]
    assert len(worker.pids()) == 1


def test_so_does_one_while_a_reader_that_is_no_longer_answered_ends(worker: Worker) -> None:
    does = "parent.shutdown(socket.SHUT_RDWR); until_end_of_input(); note('ends'); until_terminated()"
    running = worker.run(f"hear(); call('assigned', [0]); {does}")
    worker.until_noted("ends")
    worker.stop()
    running.result(LIMIT_S)
    assert worker.shell.calls == [("assigned", 0), ("stop",)]
    assert len(worker.pids()) == 1


def test_an_error_of_the_shell_as_it_stops_without_a_reader_is_raised(worker: Worker) -> None:
    running = worker.run("hear(); call('assigned', [0]); until_terminated(); die()")
    worker.until_called("assigned", 0)
    worker.shell.fails = LookupError("of the shell")
    worker.stop()
    with pytest.raises(LookupError, match="of the shell"):
        running.result(LIMIT_S)
    assert worker.shell.calls == [("assigned", 0), ("stop",)]


# ---- the parent: readers that die --------------------------------------------------------------------------------

THEN_ENDS = "call('assigned', [2]); call('stop'); say('ended', '', '')"


@pytest.mark.parametrize(
    ("dies", "how"), [("die()", "was killed by signal 9"), ("sys.exit(3)", "ended with 3"), ("1 / 0", "ended with 1")]
)
def test_one_that_dies_is_replaced_by_one_that_is_told_the_same_when_its_shards_are_revoked(
    worker: Worker, caplog: pytest.LogCaptureFixture, dies: str, how: str
) -> None:
    does = f"if first: call('assigned', [0, 2]); {dies}\n{THEN_ENDS}"
    worker.run(f"note(hear())\n{does}").result(LIMIT_S)
    assert worker.shell.calls == [("assigned", 0, 2), ("revoked", 0, 2), ("assigned", 2), ("stop",)]
    first, second = worker.notes()
    assert first == second
    assert f"the worker's reader {how}; another one is started in 0 s" in caplog.text
    assert len(set(worker.pids())) == 2


@pytest.mark.parametrize("before", ["", "hear();", "hear(); call('assigned', [0]); call('revoked', [0]);"])
def test_nothing_is_revoked_where_one_dies_that_had_no_shards(worker: Worker, before: str) -> None:
    worker.run(f"if first: {before} die()\nhear(); {THEN_ENDS}").result(LIMIT_S)
    assert worker.shell.calls[-2:] == [("assigned", 2), ("stop",)]
    assert [call for call in worker.shell.calls if call[0] == "revoked"] == [("revoked", 0)] * ("revoked" in before)


def test_calls_that_were_on_their_way_when_it_died_are_made_for_nobody_else(worker: Worker) -> None:
    """The next one begins with its own."""
    dies = "call('assigned', [0]); say('tick'); say('assigned', [0, 1, 2])"
    worker.run(f"hear()\nif first: {dies}; die()\n{THEN_ENDS}").result(LIMIT_S)
    calls = worker.shell.calls
    assert calls[-2:] == [("assigned", 2), ("stop",)]
    given = [call[1:] for call in calls if call[0] == "assigned"][-2]
    assert calls[-3] == ("revoked", *given)


def test_one_that_is_gone_but_does_not_end_is_killed_before_it_is_replaced(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "END_S", 0.05)
    stuck = "parent.shutdown(socket.SHUT_RDWR); time.sleep(60)"
    worker.run(f"hear()\nif first: call('assigned', [0]); {stuck}\n{THEN_ENDS}").result(LIMIT_S)
    assert worker.shell.calls == [("assigned", 0), ("revoked", 0), ("assigned", 2), ("stop",)]
    assert "was killed by signal 9" in caplog.text


def test_a_shell_that_cannot_be_revoked_ends_the_worker(worker: Worker) -> None:
    shell = worker.shell
    running = worker.run("hear(); call('assigned', [0]); until_terminated()")
    worker.until_called("assigned", 0)
    shell.fails = LookupError("of the shell")
    os.kill(worker.pids()[0], signal.SIGKILL)
    with pytest.raises(LookupError, match="of the shell"):
        running.result(LIMIT_S)
    assert shell.calls == [("assigned", 0), ("revoked", 0)]


def test_a_shell_that_one_has_stopped_by_itself_is_called_no_more_when_that_dies(worker: Worker) -> None:
    """Nobody has asked the worker to stop, so that is an error."""
    running = worker.run(f"hear()\nif first: call('assigned', [0]); call('stop'); die()\n{THEN_ENDS}")
    with pytest.raises(OperatingError, match="the worker's reader was killed by signal 9"):
        running.result(LIMIT_S)
    assert worker.shell.calls == [("assigned", 0), ("stop",)]


# ---- the parent: its reader's start and end ----------------------------------------------------------------------


def test_a_command_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OperatingError, match=r"the worker's reader cannot be started: .*No such file .*none"):
        ReaderProcess([str(tmp_path / "none")])


def test_one_that_cannot_be_started_again_ends_the_worker(worker: Worker) -> None:
    program, command = worker.directory / "program.py", worker.directory / "command"
    program.write_text(f"{PROGRAM}\nhear(); call('assigned', [0]); os.unlink({str(command)!r}); die()")
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {program} "$@"\n')
    command.chmod(0o700)
    with pytest.raises(OperatingError, match="the worker's reader cannot be started"):
        worker.run_reader(ReaderProcess([str(command)])).result(LIMIT_S)
    assert worker.shell.calls == [("assigned", 0), ("revoked", 0)]


def test_one_that_was_told_nothing_yet_is_killed_at_once(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "END_S", 50.0)
    reader = worker.start("note('runs'); time.sleep(60)")
    worker.until_noted("runs")
    began = time.monotonic()
    reader.close()
    assert time.monotonic() - began < 10
    assert not is_alive(worker.pids()[0])


def test_one_that_was_told_has_its_time_to_leave_and_is_killed_when_that_is_over(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "END_S", 0.05)
    worker.run("hear(); call('stop'); say('ended', '', ''); time.sleep(60)").result(LIMIT_S)
    assert not is_alive(worker.pids()[0])


def test_a_signal_for_the_parents_group_is_not_for_its_reader(worker: Worker) -> None:
    worker.run("hear(); note(os.getpgid(0) == os.getpid()); call('stop'); say('ended', '', '')").result(LIMIT_S)
    assert worker.notes() == ["True"]


def test_a_reader_is_of_its_parents_session_so_that_their_niceness_counts(worker: Worker) -> None:
    worker.run("hear(); note(os.getsid(0)); call('stop'); say('ended', '', '')").result(LIMIT_S)
    assert worker.notes() == [str(os.getsid(0))]


# ---- the reader itself -------------------------------------------------------------------------------------------

Serves = Callable[[WorkerShell, GroupSettings, Prepare], Awaitable[None]]


class Child:
    """A reader in a thread, whose worker does what a test says; and its parent's side of what is between them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.exits: list[int] = []
        self.shell = Shell()
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
            prepare: Prepare,
        ) -> None:
            await serves(shell, settings, prepare)

        self._monkeypatch.setattr("streams.reading.app.serve", serve)
        return in_daemon_thread(partial(read_for_parent, self._theirs.detach()))

    def tell(self, **about: Any) -> None:
        chosen = SETTINGS.model_dump(
            include={"bootstrap_servers", "journal", "node", "session_timeout_ms", "client_properties"}
        )
        self.channel.send((chosen | about, NAME, JOURNAL, SHARDS))

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
        """As when the parent is gone."""
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
def child(monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    made = Child(monkeypatch)
    yield made
    made.close()


async def nothing(shell: WorkerShell, settings: GroupSettings, prepare: Prepare) -> None: ...


def test_a_reader_reads_what_its_parent_has_told_it_and_says_when_it_is_done(child: Child) -> None:
    found: list[GroupSettings] = []

    async def serves(shell: WorkerShell, settings: GroupSettings, prepare: Prepare) -> None:
        found.append(settings)

    reading = child.start(serves)
    child.tell()
    assert child.end_of() is None
    reading.result(LIMIT_S)
    (settings,) = found
    assert settings == group_settings(SETTINGS, NAME, SHARDS)
    assert (settings.topic, settings.session_timeout_ms) == ("orders.wal", 2000)
    assert settings.client_id.endswith(".one.worker-3")


def test_it_calls_its_parents_shell(child: Child) -> None:
    async def serves(shell: WorkerShell, settings: GroupSettings, prepare: Prepare) -> None:
        shell.assigned([1, 3])
        assert shell.tick() == 1.0
        shell.stop()

    reading = child.start(serves)
    child.tell()
    for _ in range(3):
        child.answer()
    assert child.end_of() is None
    reading.result(LIMIT_S)
    assert child.shell.calls == [("assigned", 1, 3), ("tick",), ("stop",)]


@pytest.mark.parametrize("error", [KafkaRefusedError("not authorised"), KafkaUnavailableError("no broker")])
def test_it_tells_its_parent_what_ended_it(child: Child, error: Exception) -> None:
    async def serves(shell: WorkerShell, settings: GroupSettings, prepare: Prepare) -> None:
        raise error

    reading = child.start(serves)
    child.tell()
    found = child.end_of()
    assert (type(found), str(found)) == (type(error), str(error))
    reading.result(LIMIT_S)


def test_frames_are_sorted_but_those_of_shards_that_want_them_as_they_are_and_what_is_none(child: Child) -> None:
    given = [(offset, stamp, each.SerializeToString()) for offset, stamp, each in wal([marker()], [add(SHARDS)])]
    garbage = (9, 1, b"garbage")
    found: list[Sequence[Prepared]] = []

    async def serves(shell: WorkerShell, settings: GroupSettings, prepare: Prepare) -> None:
        found.append(prepare(0, [*given, garbage]))
        shell.tick()
        found.append(prepare(0, given))
        found.append(prepare(1, given[:1]))

    reading = child.start(serves)
    child.tell()
    child.shell.wanted = {0}
    child.answer()
    assert child.end_of() is None
    reading.result(LIMIT_S)
    in_order = [(offset, stamp, sort_frame(value, offset, JOURNAL, 0, SHARDS)) for offset, stamp, value in given]
    assert found[0] == [*in_order, garbage]
    assert found[1] == given
    ((_, _, other),) = found[2]
    assert isinstance(other, SortedFrame)


def test_a_frame_of_another_shard_is_none(child: Child) -> None:
    given = [(offset, stamp, each.SerializeToString()) for offset, stamp, each in wal([add(SHARDS)])]
    found: list[Sequence[Prepared]] = []

    async def serves(shell: WorkerShell, settings: GroupSettings, prepare: Prepare) -> None:
        found.append(prepare(1, given))

    reading = child.start(serves)
    child.tell()
    assert child.end_of() is None
    reading.result(LIMIT_S)
    assert found == [given]


def test_one_whose_parent_is_gone_before_it_was_told_anything_ends(child: Child) -> None:
    reading = child.start(nothing)
    child.channel.disconnect()
    reading.result(LIMIT_S)
    assert child.exits == []


def test_one_whose_parent_is_gone_calls_in_vain_and_ends_at_the_latest_after_a_while(child: Child) -> None:
    async def serves(shell: WorkerShell, settings: GroupSettings, prepare: Prepare) -> None:
        await asyncio.to_thread(shell.tick)

    reading = child.start(serves)
    child.tell()
    child.sign()
    child.channel.receive()
    assert not reading.done()
    child.end_signs()
    reading.result(LIMIT_S)
    assert wait_until(lambda: child.exits == [1], LIMIT_S)


def test_a_parent_that_stands_still_is_gone_and_one_that_gives_signs_is_not(
    child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def signed(descriptor: int, wait_s: float) -> bool:
        """The parent gives three signs, as soon as it is waited for them, and no more."""
        asked.append(wait_s)
        if len(asked) > 3:
            return False
        assert child.exits == []
        child.sign()
        return True

    async def serves(shell: WorkerShell, settings: GroupSettings, prepare: Prepare) -> None:
        await asyncio.to_thread(shell.tick)

    monkeypatch.setattr(module, "is_readable", signed)
    reading = child.start(serves)
    child.tell()
    reading.result(LIMIT_S)
    assert wait_until(lambda: child.exits == [1], LIMIT_S)
    assert asked == [2.0] * 4


def test_a_mistake_in_the_client_properties_is_told_too(child: Child) -> None:
    """Or the parent starts one reader after the other, for ever."""
    reading = child.start(nothing)
    child.tell(client_properties={"sasl.kerberos.keytab": "/k"})
    reading.result(LIMIT_S)
    assert child.end_of() is not None


def test_settings_that_are_right_together_with_its_parents_file_are_no_mistake(
    child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `replication = 3` in the file is."""
    monkeypatch.setenv("KAFKA_JOURNAL_MIN_INSYNC", "2")
    reading = child.start(nothing)
    child.tell()
    reading.result(LIMIT_S)
    assert child.end_of() is None


# ---- both, as they are -------------------------------------------------------------------------------------------


def test_a_reader_whose_parent_ends_before_it_tells_it_anything_ends_in_order() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [*reader_command(as_json=False, verbose=False), str(theirs.fileno())]
        with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[theirs.fileno()]) as process:
            ours.close()
            theirs.close()
            assert process.wait(LIMIT_S) == 0


def ignored_by(pid: int) -> set[int]:
    """Numbers of the signals that a process ignores."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    mask = int(status["SigIgn"], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


def test_a_reader_is_nicer_than_its_parent_and_may_log_from_a_terminals_background() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [*reader_command(as_json=False, verbose=False), str(theirs.fileno())]
        with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[theirs.fileno()]) as process:
            expected = min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICE)
            assert wait_until(lambda: os.getpriority(os.PRIO_PROCESS, process.pid) == expected, LIMIT_S)
            assert wait_until(lambda: signal.SIGTTOU in ignored_by(process.pid), LIMIT_S)
            ours.close()
            theirs.close()
            assert process.wait(LIMIT_S) == 0


def test_without_a_broker_the_worker_says_what_its_reader_says(worker: Worker) -> None:
    running = worker.run_reader(ReaderProcess(reader_command(as_json=False, verbose=False)))
    with pytest.raises(KafkaUnavailableError, match="no broker lets us in at"):
        running.result(LIMIT_S)
