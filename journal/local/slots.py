"""Directories for local copies: each process takes the first one that no other process holds, so that a restarted one
finds its copy again, and several on one machine do not meet."""

from __future__ import annotations

import fcntl
import os
from itertools import count
from pathlib import Path

from journal.errors import LocalStorageError


class Slot:
    """A directory held by this process until `release` or its end."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def release(self) -> None:
        os.close(self._descriptor)


def hold(path: Path) -> Slot | None:
    """The directory `path`, if no other process holds it. Raises LocalStorageError."""
    lock = path.parent / f"{path.name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise LocalStorageError(f"cannot use {path.parent} for local copies: {error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError as error:
        os.close(descriptor)
        raise LocalStorageError(f"cannot lock {lock}: {error}") from error
    return Slot(path, descriptor)


def take_slot(parent: Path, prefix: str) -> Slot:
    """The first of `parent/prefix-0`, `parent/prefix-1`, … that is free. Raises LocalStorageError."""
    return next(slot for number in count() if (slot := hold(parent / f"{prefix}-{number}")) is not None)
