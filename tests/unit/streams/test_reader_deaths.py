"""The reader of a worker: it is replaced when it dies, and it ends with its worker."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from journal.errors import OperatingError
from streams.reading import reader as module
from streams.reading.reader import ReaderProcess
from tests.unit.streams.reader_scene import LIMIT_S, PROGRAM, ReaderParent, is_alive

pytestmark = pytest.mark.timeout(60)


# ---- the parent: readers that die --------------------------------------------------------------------------------

THEN_ENDS = "call('assigned', [2]); call('stop'); say('ended', '', '')"


@pytest.mark.parametrize(
    ("dies", "how"), [("die()", "was killed by signal 9"), ("sys.exit(3)", "ended with 3"), ("1 / 0", "ended with 1")]
)
def test_a_reader_that_dies_is_replaced_by_one_that_is_told_the_same_when_its_shards_are_revoked(
    worker: ReaderParent, caplog: pytest.LogCaptureFixture, dies: str, how: str
) -> None:
    does = f"if first: call('assigned', [0, 2]); {dies}\n{THEN_ENDS}"
    worker.run(f"note(hear())\n{does}").result(LIMIT_S)
    assert worker.shell.calls == [("assigned", [0, 2]), ("revoked", [0, 2]), ("assigned", [2]), ("stop",)]
    first, second = worker.notes()
    assert first == second
    assert f"the worker's reader {how}; another one is started in 0 s" in caplog.text
    assert len(set(worker.pids())) == 2


@pytest.mark.parametrize("before", ["", "hear();", "hear(); call('assigned', [0]); call('revoked', [0]);"])
def test_nothing_is_revoked_where_a_reader_dies_that_had_no_shards(worker: ReaderParent, before: str) -> None:
    worker.run(f"if first: {before} die()\nhear(); {THEN_ENDS}").result(LIMIT_S)
    assert worker.shell.calls[-2:] == [("assigned", [2]), ("stop",)]
    assert [call for call in worker.shell.calls if call[0] == "revoked"] == [("revoked", [0])] * ("revoked" in before)


def test_calls_that_a_reader_had_on_their_way_when_it_died_are_made_for_no_other(worker: ReaderParent) -> None:
    """The next one begins with its own."""
    dies = "call('assigned', [0]); say('tick'); say('assigned', [0, 1, 2])"
    worker.run(f"hear()\nif first: {dies}; die()\n{THEN_ENDS}").result(LIMIT_S)
    calls = worker.shell.calls
    assert calls[-2:] == [("assigned", [2]), ("stop",)]
    given = [call[1] for call in calls if call[0] == "assigned"][-2]
    assert calls[-3] == ("revoked", given)


def test_a_reader_that_is_gone_but_does_not_end_is_killed_before_it_is_replaced(
    worker: ReaderParent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "END_S", 0.05)
    stuck = "parent.shutdown(socket.SHUT_RDWR); time.sleep(60)"
    worker.run(f"hear()\nif first: call('assigned', [0]); {stuck}\n{THEN_ENDS}").result(LIMIT_S)
    assert worker.shell.calls == [("assigned", [0]), ("revoked", [0]), ("assigned", [2]), ("stop",)]
    assert "was killed by signal 9" in caplog.text


def test_a_shell_that_cannot_be_revoked_ends_the_worker(worker: ReaderParent) -> None:
    shell = worker.shell
    running = worker.run("hear(); call('assigned', [0]); until_terminated()")
    worker.until_called("assigned", [0])
    shell.fails = LookupError("of the shell")
    os.kill(worker.pids()[0], signal.SIGKILL)
    with pytest.raises(LookupError, match="of the shell"):
        running.result(LIMIT_S)
    assert shell.calls == [("assigned", [0]), ("revoked", [0])]


def test_a_shell_that_a_reader_has_stopped_by_itself_is_called_no_more_when_the_reader_dies(
    worker: ReaderParent,
) -> None:
    """Nobody has asked the worker to stop, so that is an error."""
    running = worker.run(f"hear()\nif first: call('assigned', [0]); call('stop'); die()\n{THEN_ENDS}")
    with pytest.raises(OperatingError, match="the worker's reader was killed by signal 9"):
        running.result(LIMIT_S)
    assert worker.shell.calls == [("assigned", [0]), ("stop",)]


# ---- the parent: its reader's start and end ----------------------------------------------------------------------


def test_a_command_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OperatingError, match=r"the worker's reader cannot be started: .*No such file .*none"):
        ReaderProcess([str(tmp_path / "none")])


def test_a_reader_that_cannot_be_started_again_ends_the_worker(worker: ReaderParent) -> None:
    program, command = worker.directory / "program.py", worker.directory / "command"
    program.write_text(f"{PROGRAM}\nhear(); call('assigned', [0]); os.unlink({str(command)!r}); die()")
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {program} "$@"\n')
    command.chmod(0o700)
    with pytest.raises(OperatingError, match="the worker's reader cannot be started"):
        worker.run_reader(ReaderProcess([str(command)])).result(LIMIT_S)
    assert worker.shell.calls == [("assigned", [0]), ("revoked", [0])]


def test_a_reader_that_was_told_nothing_yet_is_killed_at_once(
    worker: ReaderParent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "END_S", 50.0)
    reader = worker.start("note('runs'); time.sleep(60)")
    worker.until_noted("runs")
    began = time.monotonic()
    reader.close()
    assert time.monotonic() - began < 10
    assert not is_alive(worker.pids()[0])


def test_a_reader_that_was_told_to_end_has_its_time_to_leave_and_is_killed_when_that_is_over(
    worker: ReaderParent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "END_S", 0.05)
    worker.run("hear(); call('stop'); say('ended', '', ''); time.sleep(60)").result(LIMIT_S)
    assert not is_alive(worker.pids()[0])


def test_a_signal_for_the_parents_group_is_not_for_its_reader(worker: ReaderParent) -> None:
    worker.run("hear(); note(os.getpgid(0) == os.getpid()); call('stop'); say('ended', '', '')").result(LIMIT_S)
    assert worker.notes() == ["True"]


def test_a_reader_is_of_its_parents_session_so_that_their_niceness_counts(worker: ReaderParent) -> None:
    worker.run("hear(); note(os.getsid(0)); call('stop'); say('ended', '', '')").result(LIMIT_S)
    assert worker.notes() == [str(os.getsid(0))]
