"""Adds a message whose body comes in pieces to the stores of a chain.

The body comes once, and the stores get it one after the other. The first store takes each piece as it comes, and issues
the message's id, which the other stores need before they begin. So the body is kept for them meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from journal.append.completion import Completion
from journal.errors import FullError, JournalError, LocalStorageError
from journal.store.chain.core import ChainCore
from journal.store.chain.kept_body import KeptBody
from journal.store.chain.lockstep import chained_id
from journal.store.chain.transactions import ChainTransactions
from journal.store.model import Message
from journal.store.pending import Pending

_T = TypeVar("_T")


async def _in_thread(call: Callable[[], _T]) -> _T:
    """Make a call that may block in a thread. A caller that is cancelled waits until the call has ended."""
    running = asyncio.get_running_loop().run_in_executor(None, call)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        running.exception()  # the cancellation is raised instead
        raise


class ChainStreams:
    """Operations that store a message whose body comes in pieces.

    The body is stored in a transaction, one of the chain's own if the caller has none, so that other operations can go
    on meanwhile.
    """

    def __init__(self, core: ChainCore, transactions: ChainTransactions) -> None:
        self._core = core
        self._transactions = transactions

    def store_stream(self, message: Message, body: Iterable[bytes], queues: Sequence[str] = (), tx: int = 0) -> Pending:
        own = self._streaming(tx)
        first: Pending | None = None
        try:
            with KeptBody() as kept:
                try:
                    first = self._core.first.store_stream(message, kept.passing(body), queues, own)
                except JournalError as error:
                    self._require_refusal(error, kept)
                    raise
                completions = self._to_others(first, message, kept, queues, own)
            return self._streamed(first.id, completions, own, commit=not tx)
        except BaseException as error:
            if not tx:
                self._transactions.abandon(own)
            elif first is not None:
                self._core.steps.interrupted(error)
            raise

    async def store_stream_async(
        self, message: Message, body: AsyncIterable[bytes], queues: Sequence[str] = (), tx: int = 0
    ) -> Pending:
        begun: list[int] = []
        try:
            await _in_thread(lambda: begun.append(self._streaming(tx)))
            (own,) = begun
            with KeptBody() as kept:
                try:
                    first = await self._core.first.store_stream_async(message, kept.passing_async(body), queues, own)
                except JournalError as error:
                    self._require_refusal(error, kept)
                    raise
                completions = await _in_thread(partial(self._to_others, first, message, kept, queues, own))
            return await _in_thread(partial(self._streamed, first.id, completions, own, commit=not tx))
        except (Exception, asyncio.CancelledError):
            if begun and not tx:
                await _in_thread(partial(self._transactions.abandon, *begun))
            raise

    def _streaming(self, tx: int) -> int:
        """The transaction in which a body is stored: `tx`, or one of the chain's own."""
        if not tx:
            return self._transactions.begin()
        with self._core.lock:
            self._core.steps.require_turn()
        return tx

    def _require_refusal(self, error: JournalError, kept: KeptBody) -> None:
        """Returns if the first store's error means that nothing was changed, or that only the body was cut off;
        otherwise raises ChainError.

        A body is cut off by an error of the caller's iterator, or of the local disk that must keep it.
        """
        if error is not kept.raised and not isinstance(error, LocalStorageError):
            self._core.steps.require_refusal(error)

    def _to_others(
        self, first: Pending, message: Message, kept: KeptBody, queues: Sequence[str], tx: int
    ) -> list[Completion]:
        """Give the other stores the message that the first store has accepted; returns the completions of all."""
        # this is done first, because a caller that is cancelled does not wait for the rest
        with self._core.lock:
            self._core.note_touched([first.id], tx)
        its_id, its_tx = chained_id(first.id), chained_id(tx)
        completions = [first.completion]
        for place in range(1, len(self._core.stores)):
            pending = self._core.steps.ask_other(
                place,
                lambda store: store.store_stream(message, kept.again(), queues, its_tx, id=its_id, checked=True),
            )
            completions.append(pending.completion)
        return completions

    def _streamed(self, message_id: int, completions: Sequence[Completion], tx: int, *, commit: bool) -> Pending:
        """Called when all stores have the body in their transactions: commit the transaction if it is the chain's
        own."""
        with self._core.lock:
            joined = self._core.steps.joined(completions)
        return Pending(message_id, self._commit_own(tx).completion if commit else joined.completion)

    def _commit_own(self, tx: int) -> Pending:
        """Commit. If the first store's journal has no room, it waits, because the body cannot be sent again."""
        try:
            return self._transactions.commit(tx)
        except FullError:
            with self._core.lock:
                room = self._core.steps.ask_first(lambda store: store.room())
            try:
                room.wait(self._core.steps.lag_timeout_s)
            except JournalError as error:
                self._core.steps.require_refusal(error)
                raise
            return self._transactions.commit(tx)
