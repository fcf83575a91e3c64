"""Directories for local copies. Each process takes the first one that no other process holds. So a restarted process
finds its copy again, and several processes on one machine use different ones.

A process that is about to end notes that in the directories that it holds (`announce_end`). A process that looks for a
directory waits for such a holder to end, instead of making a copy from nothing.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from journal.errors import LocalStorageError, NoJournalError

log = logging.getLogger(__name__)

ENDING_WAIT_S = 12.0
"""The longest time that a process waits for a directory whose holder is about to end. A worker whose node was killed
has 10 s to end in order (`journal.cli.child`)."""

_LOOK_S = 0.05
_ENDING = b"ending\n"

_lock = threading.Lock()
_held: set[Slot] = set()
"""The slots that this process holds."""


class Slot:
    """A directory that this process holds until `release` or until the process ends. It holds the directory by a lock
    on a file beside it. If somebody deletes that file, the lock protects nothing, and any process may take the
    directory."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        with _lock:
            _held.add(self)

    @property
    def is_lost(self) -> bool:
        """Whether this process has lost the directory."""
        return not is_at(self._descriptor, _lock_of(self.path))

    def require(self) -> None:
        """Raises LocalStorageError if the slot is lost."""
        if self.is_lost:
            raise LocalStorageError(f"{self._loss()}: start it again")

    def renew(self) -> None:
        """Hold the directory again if the slot is lost. Raises LocalStorageError if another process has it by now."""
        if not self.is_lost:
            return
        descriptor = _locked(self.path)
        if descriptor is None:
            raise LocalStorageError(f"{self._loss()}, and another process has it now: start this one again")
        with _lock:
            self._descriptor, lost = descriptor, self._descriptor
            os.close(lost)

    def _loss(self) -> str:
        return f"{self.path} is no longer this process': {_lock_of(self.path)} was deleted while it ran"

    def mark(self, note: bytes) -> None:
        """Leave a note in the lock file for a process that finds the directory held."""
        os.pwrite(self._descriptor, note, 0)

    def release(self) -> None:
        with _lock:
            _held.discard(self)
            os.close(self._descriptor)


def lock_file(path: Path, *, mode: int = 0o644) -> int | None:
    """Lock the file at `path` and return its descriptor; None if another process has the lock. Raises OSError."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, mode)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_at(descriptor, path):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the file was deleted before it was locked


def is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one at `path`. If that cannot be checked, the answer is True: there is no proof of
    the contrary."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def announce_end() -> None:
    """Note in all held directories that this process ends soon. Thread-safe."""
    with _lock:
        for slot in _held:
            try:
                slot.mark(_ENDING)
            except OSError as error:
                log.warning("other processes will not wait for %s: %s", slot.path, error)


def hold(path: Path) -> Slot | None:
    """Hold the directory `path`; None if another process holds it. Raises LocalStorageError."""
    descriptor = _locked(path)
    return None if descriptor is None else Slot(path, descriptor)


def _locked(path: Path) -> int | None:
    lock = _lock_of(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = lock_file(lock)
        if descriptor is not None:
            os.ftruncate(descriptor, 0)  # removes the last holder's note
    except OSError as error:
        raise LocalStorageError(f"cannot use {path.parent} for local copies: {error}") from error
    return descriptor


def take_slot(parent: Path, prefix: str, *, ending_wait_s: float = ENDING_WAIT_S) -> Slot:
    """Take the first free directory of `parent/prefix-0`, `parent/prefix-1`, …. If the process that holds a directory
    is about to end, wait for its end; all waits together last at most `ending_wait_s`. Raises LocalStorageError."""
    until = time.monotonic() + ending_wait_s
    paths = (parent / f"{prefix}-{number}" for number in count())
    return next(slot for path in paths if (slot := _hold_in_time(path, until)) is not None)


@contextmanager
def leaving_nothing_of_no_journal(directory: Path) -> Iterator[None]:
    """Delete the directory of a journal that there is not, if it was made meanwhile: its name may be mistyped."""
    was_there = directory.exists()
    try:
        yield
    except NoJournalError:
        if not was_there:
            shutil.rmtree(directory, ignore_errors=True)
        raise


def _hold_in_time(path: Path, until: float) -> Slot | None:
    """Hold a directory as `hold` does, but wait for a holder that is ending."""
    told = False
    while (slot := hold(path)) is None and _is_ending(path) and time.monotonic() < until:
        if not told:
            log.info("waits for %s, which a process that is ending has", path)
            told = True
        time.sleep(_LOOK_S)
    return slot


def _is_ending(path: Path) -> bool:
    try:
        return _lock_of(path).read_bytes() == _ENDING
    except FileNotFoundError:
        return False
    except OSError as error:
        raise LocalStorageError(f"cannot read {_lock_of(path)}: {error}") from error


def _lock_of(path: Path) -> Path:
    return path.parent / f"{path.name}.lock"
