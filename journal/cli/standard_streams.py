"""Standard streams of a command. They may be closed or full, or have an encoding without some letters."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from journal.errors import OutputError

_INPUT, _OUTPUT, _ERRORS = 0, 1, 2

_done: list[str] = []
"""This says what the command has changed for good."""


def note_done(what: str) -> None:
    """Note what the command has changed for good, as `shard 3 passed offset 7`. If standard output cannot be written,
    the error says so: a script must not do it again."""
    _done.append(what)


@contextmanager
def standard_streams() -> Iterator[None]:
    """A context in which all three standard streams can be used, even if the process was started without some of them.

    If standard output cannot be written, OutputError is printed and the process ends with 1. If standard error cannot
    be written, the text is lost. Letters that an encoding lacks are written escaped.
    """
    _open_closed()
    sys.stderr = _Errors(_opened(sys.stderr, _ERRORS))
    sys.stdout = _Output(_opened(sys.stdout, _OUTPUT))
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OutputError as error:
        print("; ".join([f"error: {error}", *_done]), file=sys.stderr)
        drop_output()
        sys.exit(1)
    except BrokenPipeError:
        drop_output()
        sys.exit(1)


def drop_output() -> None:
    """Write nothing more, not even the contents of a buffer at the end of the process."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, _OUTPUT)
    os.close(descriptor)


def _open_closed() -> None:
    """Open closed streams. Otherwise the next file or connection would get the number of a stream, and with it the
    stream's text."""
    for stream, way in ((_INPUT, os.O_RDONLY), (_OUTPUT, os.O_RDONLY), (_ERRORS, os.O_WRONLY)):
        try:
            os.fstat(stream)
        except OSError:
            # open() takes the lowest free number, which is that of this stream; a closed output cannot be written
            os.open(os.devnull, way)
            os.set_inheritable(stream, True)


def _opened(stream: TextIO | None, descriptor: int) -> io.TextIOWrapper:
    if not isinstance(stream, io.TextIOWrapper):  # the stream is None if it was closed when Python started
        stream = open(descriptor, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # as long as the process
    stream.reconfigure(errors="backslashreplace")
    return stream


class _StandardStream(io.TextIOWrapper):
    """The base of a stream that takes the place of `stream`."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__(
            stream.detach(), encoding=stream.encoding, errors=stream.errors, line_buffering=stream.line_buffering
        )


class _Errors(_StandardStream):
    """Standard error. A text that cannot be written is lost."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


class _Output(_StandardStream):
    """Standard output. If it cannot be written, an error says so."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise _refusal(error) from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise _refusal(error) from error


def _refusal(error: OSError) -> Exception:
    """The error for output that cannot be written. A reader that has ended is no error."""
    if isinstance(error, BrokenPipeError):
        return error
    return OutputError(f"cannot write standard output: {error.strerror or error}")
