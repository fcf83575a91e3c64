"""Keeps a body while the first store takes its pieces, so that the other stores can read it again. A small body is kept
in memory, a larger one in a temporary file."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

from journal.errors import JournalError, LocalStorageError

MEMORY_BYTES_MAX = 1024 * 1024
"""The most bytes of a body that are kept in memory; a larger body goes to a file."""

_PIECE_BYTES = 256 * 1024


class KeptBody:
    """Keeps each piece of a body while somebody consumes the pieces, so that the whole body can be read again."""

    def __init__(self) -> None:
        self.raised: JournalError | None = None
        """The error of the caller's iterator, which has cut the body off."""
        self._file = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES_MAX)  # noqa: SIM115 (closed by __exit__)

    def passing(self, body: Iterable[bytes]) -> Iterator[bytes]:
        """Give the pieces of `body` to a consumer as they come, and keep each.

        Raises LocalStorageError if the temporary file cannot take the pieces, at the latest after the last piece,
        before the consumer knows that the body is complete.
        """
        with self._noting():
            for piece in body:
                self._keep(piece)
                yield piece
        self._keep_all()

    async def passing_async(self, body: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        """Do what `passing` does, in an event loop."""
        with self._noting():
            async for piece in body:
                self._keep(piece)
                yield piece
        self._keep_all()

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except JournalError as error:
            self.raised = error
            raise

    def _keep(self, piece: bytes) -> None:
        try:
            self._file.write(piece)
        except OSError as error:
            raise _not_kept(error) from error

    def _keep_all(self) -> None:
        """Write the bytes that the file object still buffers."""
        try:
            self._file.flush()
        except OSError as error:
            raise _not_kept(error) from error

    def again(self) -> Iterator[bytes]:
        """The whole body, in pieces. Raises LocalStorageError."""
        try:
            self._file.seek(0)
            while piece := self._file.read(_PIECE_BYTES):
                yield piece
        except OSError as error:
            raise LocalStorageError(f"cannot read a body in {tempfile.gettempdir()}: {error}") from error

    def __enter__(self) -> KeptBody:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # closing the file writes its buffer, which nobody reads any more
        with suppress(OSError):
            self._file.close()


def _not_kept(error: OSError) -> LocalStorageError:
    return LocalStorageError(f"cannot keep a body in {tempfile.gettempdir()}: {error}")
