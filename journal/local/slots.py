"""Directories for local copies: each process takes the first one that no other process holds, so that a restarted one
finds its copy again, and several on one machine do not meet.

A process that is about to end says so of what it holds (`announce_end`): whoever looks for a directory then waits for
that one, instead of making a copy of its own from nothing.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from itertools import count
from pathlib import Path

from journal.errors import LocalStorageError

log = logging.getLogger(__name__)

ENDING_WAIT_S = 12.0
"""A worker whose node was killed has 10 s to end in order (`journal.cli.child`)."""

_LOOK_S = 0.05
_ENDING = b"ending\n"

_lock = threading.Lock()
_held: set[Slot] = set()
"""Those of this process."""


class Slot:
    """A directory held by this process until `release` or its end."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        with _lock:
            _held.add(self)

    def mark(self, note: bytes) -> None:
        """Leave a note for whoever finds it held."""
        os.pwrite(self._descriptor, note, 0)

    def release(self) -> None:
        with _lock:
            _held.discard(self)
            os.close(self._descriptor)


def announce_end() -> None:
    """Say that this process ends soon, and then lets go of all that it holds. Thread-safe."""
    with _lock:
        for slot in _held:
            try:
                slot.mark(_ENDING)
            except OSError as error:
                log.warning("others will not wait for %s: %s", slot.path, error)


def hold(path: Path) -> Slot | None:
    """The directory `path`, if no other process holds it. Raises LocalStorageError."""
    lock = _lock_of(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise LocalStorageError(f"cannot use {path.parent} for local copies: {error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)  # what the last holder said of its end
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError as error:
        os.close(descriptor)
        raise LocalStorageError(f"cannot lock {lock}: {error}") from error
    return Slot(path, descriptor)


def take_slot(parent: Path, prefix: str, *, ending_wait_s: float = ENDING_WAIT_S) -> Slot:
    """The first of `parent/prefix-0`, `parent/prefix-1`, … that is free, or will be as its holder is ending: that is
    waited for, at most `ending_wait_s` in all. Raises LocalStorageError.
    """
    until = time.monotonic() + ending_wait_s
    paths = (parent / f"{prefix}-{number}" for number in count())
    return next(slot for path in paths if (slot := _hold_in_time(path, until)) is not None)


def _hold_in_time(path: Path, until: float) -> Slot | None:
    """`hold`, but one whose holder is ending is waited for."""
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
