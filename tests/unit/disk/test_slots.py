"""Directories for local copies: which process gets which, and when a process waits for another's end."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from journal.disk.slots import announce_end, take_slot
from journal.errors import LocalStorageError

LONG_S = 60.0

_HOLDER = """
import logging, sys
from pathlib import Path
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
from journal.disk.slots import announce_end, take_slot
slot = take_slot(Path(sys.argv[1]), "worker")
print(slot.path.name, flush=True)
for line in sys.stdin:
    if line == "announce\\n":
        announce_end()
    print("done", flush=True)
"""

Holder = subprocess.Popen[str]
Start = Callable[[], Holder]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts processes that take a directory each and hold it until their input ends."""
    with ExitStack() as ending:

        def started() -> Holder:
            command = [sys.executable, "-c", _HOLDER, str(tmp_path)]
            holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            ending.enter_context(holder)
            ending.callback(holder.kill)
            return holder

        yield started


def told(holder: Holder) -> str:
    assert holder.stdout is not None
    return holder.stdout.readline().strip()


def announce(holder: Holder) -> None:
    assert holder.stdin is not None
    holder.stdin.write("announce\n")
    holder.stdin.flush()
    assert told(holder) == "done"


def test_processes_do_not_meet_and_a_restarted_one_finds_its_directory_again(start: Start, tmp_path: Path) -> None:
    first = start()
    assert told(first) == "worker-0"
    assert told(start()) == "worker-1"
    first.kill()
    first.wait()
    assert told(start()) == "worker-0"
    slot = take_slot(tmp_path, "worker", ending_wait_s=LONG_S)
    assert slot.path == tmp_path / "worker-2"
    slot.release()


def test_the_directory_of_a_process_that_is_ending_is_waited_for(start: Start) -> None:
    ending = start()
    assert told(ending) == "worker-0"
    announce(ending)
    successor = start()
    assert told(successor).startswith("waits for")
    ending.communicate()
    assert told(successor) == "worker-0"


def test_the_wait_for_a_directory_whose_holder_does_not_end_is_bounded(start: Start, tmp_path: Path) -> None:
    ending = start()
    assert told(ending) == "worker-0"
    announce(ending)
    slot = take_slot(tmp_path, "worker", ending_wait_s=0.2)
    assert slot.path == tmp_path / "worker-1"
    slot.release()


def test_the_note_of_an_ending_process_does_not_count_for_its_successor(start: Start, tmp_path: Path) -> None:
    slot = take_slot(tmp_path, "worker")
    announce_end()
    slot.release()
    successor = start()
    assert told(successor) == "worker-0"
    slot = take_slot(tmp_path, "worker", ending_wait_s=LONG_S)
    assert slot.path == tmp_path / "worker-1"
    slot.release()
    announce_end()


def test_a_directory_that_was_deleted_is_lost_and_is_held_again_if_nobody_else_has_it(
    start: Start, tmp_path: Path
) -> None:
    slot = take_slot(tmp_path / "state", "worker")
    slot.require()
    shutil.rmtree(tmp_path / "state")
    assert slot.is_lost
    with pytest.raises(LocalStorageError, match=r"worker-0.lock was deleted while it ran: start it again"):
        slot.require()
    slot.renew()
    slot.require()
    again = take_slot(tmp_path / "state", "worker")
    assert again.path.name == "worker-1"
    again.release()
    slot.release()


def test_a_directory_that_another_process_made_again_stays_with_that_process(start: Start, tmp_path: Path) -> None:
    slot = take_slot(tmp_path, "worker")
    (tmp_path / "worker-0.lock").unlink()
    assert told(start()) == "worker-0"
    with pytest.raises(LocalStorageError, match="another process has it now"):
        slot.renew()
    assert slot.is_lost
    slot.release()
    assert told(start()) == "worker-1"


def test_a_lock_that_is_deleted_just_before_it_is_taken_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deletes a file between its opening and its lock, so that the next process makes another one."""
    flock, deleted = fcntl.flock, []

    def delete_before(descriptor: int, how: int) -> None:
        if not deleted:
            deleted.append(True)
            (tmp_path / "worker-0.lock").unlink()
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", delete_before)
    slot = take_slot(tmp_path, "worker")
    slot.require()
    assert take_slot(tmp_path, "worker").path.name == "worker-1"
