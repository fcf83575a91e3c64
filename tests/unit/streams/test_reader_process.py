"""The process that reads for a worker: what its parent tells it, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from journal.cli.worker.reader import reader_command
from journal.embedded.process import wait_until
from journal.errors import KafkaRefusedError, KafkaUnavailableError
from streams.reading import reader as module
from streams.reading.group_settings import GroupSettings, group_settings
from streams.reading.reader import NICE, ReaderProcess
from streams.reading.shell import WorkerShell
from tests.unit.streams.reader_scene import LIMIT_S, NAME, SETTINGS, SHARDS, ReaderChild, ReaderParent

pytestmark = pytest.mark.timeout(60)


async def nothing(shell: WorkerShell, settings: GroupSettings) -> None: ...


def test_a_reader_reads_what_its_parent_has_told_it_and_says_when_it_is_done(child: ReaderChild) -> None:
    found: list[GroupSettings] = []

    async def serves(shell: WorkerShell, settings: GroupSettings) -> None:
        found.append(settings)

    reading = child.start(serves)
    child.tell()
    assert child.end_of() is None
    reading.result(LIMIT_S)
    (settings,) = found
    assert settings == group_settings(SETTINGS, NAME, SHARDS)
    assert (settings.topic, settings.session_timeout_ms) == ("orders.wal", 2000)
    assert settings.client_id.endswith(".one.worker-3")


def test_a_reader_calls_its_parents_shell(child: ReaderChild) -> None:
    async def serves(shell: WorkerShell, settings: GroupSettings) -> None:
        shell.assigned([1, 3])
        assert shell.tick() == child.shell.tick_s
        shell.stop()

    reading = child.start(serves)
    child.tell()
    for _ in range(3):
        child.answer()
    assert child.end_of() is None
    reading.result(LIMIT_S)
    assert child.shell.calls == [("assigned", [1, 3]), ("tick",), ("stop",)]


@pytest.mark.parametrize("error", [KafkaRefusedError("not authorised"), KafkaUnavailableError("no broker")])
def test_a_reader_tells_its_parent_what_ended_it(child: ReaderChild, error: Exception) -> None:
    async def serves(shell: WorkerShell, settings: GroupSettings) -> None:
        raise error

    reading = child.start(serves)
    child.tell()
    found = child.end_of()
    assert (type(found), str(found)) == (type(error), str(error))
    reading.result(LIMIT_S)


def test_a_reader_whose_parent_is_gone_before_it_was_told_anything_ends(child: ReaderChild) -> None:
    reading = child.start(nothing)
    child.channel.disconnect()
    reading.result(LIMIT_S)
    assert child.exits == []


def test_a_reader_whose_parent_is_gone_calls_in_vain_and_ends_at_the_latest_after_a_while(child: ReaderChild) -> None:
    async def serves(shell: WorkerShell, settings: GroupSettings) -> None:
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
    child: ReaderChild, monkeypatch: pytest.MonkeyPatch
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

    async def serves(shell: WorkerShell, settings: GroupSettings) -> None:
        await asyncio.to_thread(shell.tick)

    monkeypatch.setattr(module, "is_readable", signed)
    reading = child.start(serves)
    child.tell()
    reading.result(LIMIT_S)
    assert wait_until(lambda: child.exits == [1], LIMIT_S)
    assert asked == [2.0] * 4


def test_a_reader_tells_its_parent_of_a_mistake_in_the_client_properties(child: ReaderChild) -> None:
    """Or the parent starts one reader after the other, for ever."""
    reading = child.start(nothing)
    child.tell(client_properties={"sasl.kerberos.keytab": "/k"})
    reading.result(LIMIT_S)
    assert child.end_of() is not None


def test_settings_that_are_right_together_with_its_parents_file_are_no_mistake(
    child: ReaderChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MIN_INSYNC = 2 is right only together with `replication = 3` in the parent's file."""
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


def test_without_a_broker_the_worker_says_what_its_reader_says(worker: ReaderParent) -> None:
    running = worker.run_reader(ReaderProcess(reader_command(as_json=False, verbose=False)))
    with pytest.raises(KafkaUnavailableError, match="no broker accepts this client at"):
        running.result(LIMIT_S)
