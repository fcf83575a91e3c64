"""Processes under test: how one ended is known, and what a worker reads; plain children, no Kafka."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.processes import ChildProcess, Place, WorkerProcess, wait_for

pytestmark = pytest.mark.timeout(60)

REACHES = """
import pathlib, signal, sys
from tests.chaos.crash_points import CrashPoints
CrashPoints(pathlib.Path(sys.argv[1])).reached("applied")
signal.pause()
"""
REACH_TOGETHER = """
import pathlib, sys, threading
from tests.chaos.crash_points import CrashPoints
points, begun = CrashPoints(pathlib.Path(sys.argv[1])), threading.Barrier(8)
def reach():
    begun.wait()
    points.reached("applied")
for _ in range(8):
    threading.Thread(target=reach).start()
"""
FAILS = "import sys; print('in vain'); sys.exit(3)"
WAITS = "import signal; signal.pause()"


class Child(ChildProcess):
    """Some code that is a process of its own."""

    def __init__(self, directory: Path, code: str) -> None:
        super().__init__(
            "child-1", Place(), directory, [sys.executable, "-c", code, str(directory / "child-1")], os.environ
        )

    def progress(self) -> int:
        return 0


@pytest.fixture
def made(tmp_path: Path) -> Iterator[list[Child]]:
    """Children to be ended."""
    children: list[Child] = []
    yield children
    for child in children:
        child.kill()


def started(made: list[Child], directory: Path, code: str, point: str = "") -> Child:
    child = Child(directory, code)
    made.append(child)
    if point:
        child.crash_points.arm(point)
    child.start(ready=False)
    return child


def test_a_point_that_several_shards_reach_at_once_is_one_crash(made: list[Child], tmp_path: Path) -> None:
    """One alone begins the file that says so: of ten processes some would have left it empty."""
    for number in range(10):
        child = started(made, tmp_path / str(number), REACH_TOGETHER, "applied")
        child.wait_for_crash("applied")
        child.note_end()


def test_an_end_at_the_armed_point_is_the_awaited_crash(made: list[Child], tmp_path: Path) -> None:
    child = started(made, tmp_path, REACHES, "applied")
    child.wait_for_crash("applied")
    child.note_end()
    assert child.ended_by_itself == []
    assert not child.crash_points.armed("applied")


def test_an_end_at_no_point_is_not_the_awaited_crash(made: list[Child], tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="child-1 ended with 3, at no point instead of 'applied'"):
        started(made, tmp_path / "failed", FAILS, "applied").wait_for_crash("applied")
    killed = started(made, tmp_path / "killed", WAITS, "applied")
    assert killed.pid is not None
    os.kill(killed.pid, signal.SIGKILL)
    with pytest.raises(AssertionError, match="child-1 ended with -9, at no point instead of 'applied'"):
        killed.wait_for_crash("applied")


def test_an_end_at_another_point_is_not_the_awaited_crash(made: list[Child], tmp_path: Path) -> None:
    child = started(made, tmp_path, REACHES, "applied")
    with pytest.raises(AssertionError, match="at applied instead of 'produced'"):
        child.wait_for_crash("produced")


def test_what_an_earlier_crash_left_counts_for_none(made: list[Child], tmp_path: Path) -> None:
    child = started(made, tmp_path, REACHES, "applied")
    child.wait_for_crash("applied")
    assert child.crash_points.crashed_at == "applied"
    child.crash_points.arm("applied")
    assert child.crash_points.crashed_at == ""


def test_an_end_by_itself_is_noted_and_one_that_was_asked_for_is_not(
    made: list[Child], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    child = started(made, tmp_path, FAILS)
    wait_for(lambda: not child.running, "its end")
    child.start(ready=False)
    assert child.ended_by_itself == ["child-1 ended with 3"]
    assert caplog.messages == ["child-1 ended with 3 by itself, having logged last:\nin vain\n"]
    wait_for(lambda: not child.running, "its end")
    child.kill()
    assert child.ended_by_itself == ["child-1 ended with 3"] * 2
    asked = started(made, tmp_path / "asked", WAITS)
    asked.kill()
    asked.note_end()
    assert asked.ended_by_itself == []


def test_a_workers_shards_are_what_its_log_says_of_this_life(tmp_path: Path) -> None:
    worker = WorkerProcess("worker-1", Place(), tmp_path, [sys.executable, "-c", ""], os.environ)
    log = tmp_path / "worker-1" / "log"
    log.write_text("INFO streams.reading.app: j.wal: reading from {7: 1}\n")
    worker.start(ready=False)
    wait_for(lambda: not worker.running, "its end")
    assert worker.shards == set()
    with log.open("a") as lines:
        lines.write("INFO streams.reading.app: j.wal: reading from {0: 12, 2: 0}\n")
        lines.write("INFO streams.reading.app: j.wal: reading from {3: 5}\n")
    assert worker.shards == {0, 2, 3}
    with log.open("a") as lines:
        lines.write("INFO streams.reading.app: j.wal: gave back [0, 3]\n")
        lines.write("INFO streams.reading.app: j.wal: reading from {1: 12")
    assert worker.shards == {2}
