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


def take_slot(parent: Path, prefix: str) -> Slot:
    """The first of `parent/prefix-0`, `parent/prefix-1`, … that is free. Raises LocalStorageError."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in count():
            path = parent / f"{prefix}-{number}"
            descriptor = os.open(parent / f"{prefix}-{number}.lock", os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            return Slot(path, descriptor)
    except OSError as error:
        raise LocalStorageError(f"cannot use {parent} for local copies: {error}") from error
    raise AssertionError("unreachable")
