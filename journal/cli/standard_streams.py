"""Standard streams of a command: some are closed, full, or of an encoding that knows no other letters than English."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from journal.errors import OutputError

_INPUT, _OUTPUT, _ERRORS = 0, 1, 2


@contextmanager
def standard_streams() -> Iterator[None]:
    """Streams that can be used, whatever the process was started with.

    What standard output does not take is OutputError, and ends the process with 1. What standard error does not take is
    lost: there is no place to say so. Letters that an encoding does not have are written escaped.
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
        print(f"error: {error}", file=sys.stderr)
        drop_output()
        sys.exit(1)
    except BrokenPipeError:
        drop_output()
        sys.exit(1)


def drop_output() -> None:
    """Write nothing more, not even what is left in a buffer when the process ends."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, _OUTPUT)
    os.close(descriptor)


def _open_closed() -> None:
    """The next file or connection that is opened would get the number, and whatever is said there."""
    for stream, way in ((_INPUT, os.O_RDONLY), (_OUTPUT, os.O_RDONLY), (_ERRORS, os.O_WRONLY)):
        try:
            os.fstat(stream)
        except OSError:
            # the lowest free number, so it is this one; a closed output is one that cannot be written
            os.open(os.devnull, way)
            os.set_inheritable(stream, True)


def _opened(stream: TextIO | None, descriptor: int) -> io.TextIOWrapper:
    if not isinstance(stream, io.TextIOWrapper):  # None: it was closed when Python started
        stream = open(descriptor, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # as long as the process
    stream.reconfigure(errors="backslashreplace")
    return stream


class _Stream(io.TextIOWrapper):
    """In place of `stream`, which nobody can use any more."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__(
            stream.detach(), encoding=stream.encoding, errors=stream.errors, line_buffering=stream.line_buffering
        )


class _Errors(_Stream):
    """Standard error; what cannot be written is lost."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


class _Output(_Stream):
    """Standard output; what cannot be written is an error that says so."""

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
    """A reader that has ended has had enough."""
    if isinstance(error, BrokenPipeError):
        return error
    return OutputError(f"cannot write standard output: {error.strerror or error}")
