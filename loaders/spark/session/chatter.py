"""Where the output of Spark's JVM goes: to standard error or to nowhere, and never among a command's data."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from journal.errors import MissingExtraError

_STDOUT, _STDERR = 1, 2
_KEPT_BYTES_MAX = 1 << 20
_READ_BYTES = 1 << 16
_LAST_WORDS_S = 5.0
"""How long to wait for the last output of a JVM that has ended."""


class _Listener(threading.Thread):
    """Reads all that is written to `writer`, as long as any process has it open. It keeps the last output of a start,
    and nothing later, because a job may run for months."""

    def __init__(self) -> None:
        super().__init__(name="kafka-journal-spark", daemon=True)
        self._reader, self.writer = os.pipe()
        self._kept = bytearray()
        self._keeps = True

    def run(self) -> None:
        while said := os.read(self._reader, _READ_BYTES):
            if self._keeps:
                self._kept += said
                del self._kept[:-_KEPT_BYTES_MAX]
        os.close(self._reader)

    def has_started(self) -> None:
        self._keeps = False
        self._kept.clear()

    def last_words(self) -> bytes:
        """The last output of a JVM that did not start."""
        self.join(_LAST_WORDS_S)
        return bytes(self._kept)


@contextmanager
def starting_spark(*, quiet: bool) -> Iterator[None]:
    """In this context, a JVM that is started writes to standard error for as long as it lives. If `quiet`, its output
    is dropped, and only shown if the start fails (MissingExtraError)."""
    if not quiet:
        with _written_to(_STDERR):
            yield
        return
    listener = _Listener()
    listener.start()
    try:
        try:
            with _written_to(listener.writer):
                yield
        finally:
            os.close(listener.writer)
    except MissingExtraError:
        os.write(_STDERR, listener.last_words())
        raise
    finally:
        listener.has_started()


@contextmanager
def _written_to(place: int) -> Iterator[None]:
    """Redirect both standard outputs of this process, and of the processes that it starts in this context."""
    sys.stdout.flush()
    sys.stderr.flush()
    before = {of: os.dup(of) for of in (_STDOUT, _STDERR)}
    try:
        for of in before:
            os.dup2(before.get(place, place), of)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for of, was in before.items():
            os.dup2(was, of)
            os.close(was)
