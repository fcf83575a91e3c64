"""A body on its way into the stores of a chain: it comes once, and each store gets it, one after the other.

The first store takes it as it comes and issues the message's id, which the others need before their own part. So
meanwhile it is kept for them: in memory while it is small, then in a temporary file.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import TypeVar

from journal.append.completion import Completion
from journal.errors import FullError, JournalError, LocalStorageError
from journal.store.chain.lockstep import chained_id
from journal.store.chain.transactions import ChainSettling
from journal.store.model import Message
from journal.store.pending import Pending

MEMORY_BYTES_MAX = 1024 * 1024
"""Of a body that is kept; what is larger goes to the file."""

_PIECE_BYTES = 256 * 1024

_T = TypeVar("_T")


class KeptBody:
    """A body that can be read again once it has passed."""

    def __init__(self) -> None:
        self.raised: JournalError | None = None
        """By whoever gives the body."""
        self._file = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES_MAX)  # noqa: SIM115 (closed by __exit__)

    def passing(self, body: Iterable[bytes]) -> Iterator[bytes]:
        """Its pieces as they come. Raises LocalStorageError where the temporary file cannot take them, at the latest
        behind the last one: so before whoever takes them has the whole body."""
        with self._noting():
            for piece in body:
                self._keep(piece)
                yield piece
        self._keep_all()

    async def passing_async(self, body: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        """The same in an event loop."""
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
        """What the file still buffers."""
        try:
            self._file.flush()
        except OSError as error:
            raise _not_kept(error) from error

    def again(self) -> Iterator[bytes]:
        """All of it. Raises LocalStorageError."""
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
        # it writes what is buffered, which nobody reads any more
        with suppress(OSError):
            self._file.close()


def _not_kept(error: OSError) -> LocalStorageError:
    return LocalStorageError(f"cannot keep a body in {tempfile.gettempdir()}: {error}")


async def _in_thread(call: Callable[[], _T]) -> _T:
    """Let a thread do what may block. Whoever is cancelled meanwhile goes on only when that is over."""
    running = asyncio.get_running_loop().run_in_executor(None, call)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        running.exception()  # the cancellation is told instead
        raise


class ChainStreaming(ChainSettling):
    """Operations that store a message whose body comes in pieces."""

    def store_stream(self, message: Message, body: Iterable[bytes], queues: Sequence[str] = (), tx: int = 0) -> Pending:
        """As a store's. The others get the body once the first has all of it; it is kept for them meanwhile.

        In a transaction, of the chain's own without `tx`, so that other operations go on while it comes.
        """
        own = self._streaming(tx)
        try:
            with KeptBody() as kept:
                try:
                    first = self._first.store_stream(message, kept.passing(body), queues, own)
                except JournalError as error:
                    self._require_refusal(error, kept)
                    raise
                completions = self._to_others(first, message, kept, queues, own)
            return self._streamed(first.id, completions, own, commit=not tx)
        except BaseException:
            if not tx:
                self._abandon(own)
            raise

    async def store_stream_async(
        self, message: Message, body: AsyncIterable[bytes], queues: Sequence[str] = (), tx: int = 0
    ) -> Pending:
        """`store_stream` in an event loop, which bodies and full journals do not block. Accepted when it returns.

        The first store takes the body in the event loop, so its journal must not wait for room by itself
        (`room_timeout_ms` 0); the others may, in a thread. A caller that is cancelled waits for what that does.
        """
        begun: list[int] = []
        try:
            await _in_thread(lambda: begun.append(self._streaming(tx)))
            (own,) = begun
            with KeptBody() as kept:
                try:
                    first = await self._first.store_stream_async(message, kept.passing_async(body), queues, own)
                except JournalError as error:
                    self._require_refusal(error, kept)
                    raise
                completions = await _in_thread(partial(self._to_others, first, message, kept, queues, own))
            return await _in_thread(partial(self._streamed, first.id, completions, own, commit=not tx))
        except (Exception, asyncio.CancelledError):
            if begun and not tx:
                await _in_thread(partial(self._abandon, *begun))
            raise

    def _streaming(self, tx: int) -> int:
        """The transaction that a body comes in: `tx`, or one of the chain's own."""
        if not tx:
            return self.begin()
        with self._lock:
            self._steps.require_turn()
        return tx

    def _require_refusal(self, error: JournalError, kept: KeptBody) -> None:
        """Returns if the first store's error has changed nothing, or has cut the body off: the body's own, or that of a
        local disk. Raises ChainError.
        """
        if error is not kept.raised and not isinstance(error, LocalStorageError):
            self._steps.require_refusal(error)

    def _to_others(
        self, first: Pending, message: Message, kept: KeptBody, queues: Sequence[str], tx: int
    ) -> list[Completion]:
        """What the first store has got; completions of all. Noted first, as its caller may not wait for the rest."""
        with self._lock:
            self._note_touched([first.id], tx)
        its_id, its_tx = chained_id(first.id), chained_id(tx)
        completions = [first.completion]
        for place in range(1, len(self._stores)):
            pending = self._steps.ask_other(
                place,
                lambda store: store.store_stream(message, kept.again(), queues, its_tx, id=its_id, checked=True),
            )
            completions.append(pending.completion)
        return completions

    def _streamed(self, message_id: int, completions: Sequence[Completion], tx: int, *, commit: bool) -> Pending:
        """All stores have the body, in their transactions."""
        with self._lock:
            joined = self._steps.joined(completions)
        return Pending(message_id, self._commit_own(tx).completion if commit else joined.completion)

    def _commit_own(self, tx: int) -> Pending:
        """A body does not come again: it waits for room in the first store's journal, too."""
        try:
            return self.commit(tx)
        except FullError:
            with self._lock:
                room = self._steps.ask_first(lambda store: store.room())
            try:
                room.wait(self._steps.lag_timeout_s)
            except JournalError as error:
                self._steps.require_refusal(error)
                raise
            return self.commit(tx)
