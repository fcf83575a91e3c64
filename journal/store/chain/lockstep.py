"""Stores in lockstep: the first store is called, then the others, and one completion is done when those of all stores
are.

If the first store refuses an operation, the chain refuses it. Any later error, in any store, breaks the lockstep and is
a `ChainError`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from journal.append.completion import Completion
from journal.append.interrupted import mark_refusal
from journal.errors import (
    CallerError,
    ChainError,
    DeadlineError,
    FullError,
    JournalError,
    MessageHeldError,
    RolledBackError,
    StateError,
)
from journal.store.chain.ports import ChainedStore
from journal.store.model import Held, ids_of
from journal.store.pending import Accepted

log = logging.getLogger(__name__)

CHAINED_BIT = 1 << 62
"""The bit that is set in the ids that the chain gives to every store but the first."""

_T = TypeVar("_T")


def chained_id(chain_id: int) -> int:
    """The id that every store but the first has for an id of the chain; 0 (none) stays 0."""
    return chain_id and chain_id | CHAINED_BIT


class Joined:
    """A completion that is done when those of all stores are. Its error is that of the first store that fails."""

    def __init__(self, completions: Sequence[Completion], failed: Callable[[int, JournalError], JournalError]) -> None:
        """`failed(place, error)` turns an error of the store with the index `place` into the error of the chain."""
        self.completion = Completion()
        self.of = completions
        self._failed = failed
        self._lock = threading.Lock()
        self._left = len(completions)
        self._error: JournalError | None = None
        for place, completion in enumerate(completions):
            completion.add_callback(partial(self._told, place))

    def _told(self, place: int, error: JournalError | None) -> None:
        """Called when the completion of one store is done. Each store completes its groups in order, so joined
        completions are done in order too."""
        with self._lock:
            if error is not None and self._error is None:
                self._error = self._failed(place, error)
            self._left -= 1
            left = self._left
        if not left:
            self.completion.resolve(self._error)

    def lagging(self) -> int:
        """The index of a store whose completion is not done."""
        return next((place for place, completion in enumerate(self.of) if not completion.done), 0)


class Arrivals:
    """Messages that may differ between the stores for a while. Not thread-safe: the chain's lock guards it."""

    def __init__(self) -> None:
        self._by_message: dict[int, Joined] = {}
        self._in_order: deque[tuple[Sequence[int], Joined]] = deque()

    def expect(self, message_ids: Sequence[int], joined: Joined) -> None:
        """Add messages that are the same in all stores once `joined` is done. Earlier messages that are the same by now
        are forgotten."""
        while self._in_order and self._in_order[0][1].completion.done:
            arrived, before = self._in_order.popleft()
            for message_id in arrived:
                if self._by_message.get(message_id) is before:
                    del self._by_message[message_id]
        self._in_order.append((message_ids, joined))
        for message_id in message_ids:
            self._by_message[message_id] = joined

    def of(self, message_id: int) -> Joined | None:
        """The completion that is done when the message is in all stores; None if it is there already."""
        return self._by_message.get(message_id)


class Lockstep:
    """Calls the stores of a chain. Not thread-safe: the chain's lock guards it, except completions and methods that
    need no lock."""

    def __init__(self, stores: Sequence[ChainedStore], names: Sequence[str], lag_timeout_s: float) -> None:
        self.error: ChainError | None = None
        """The error after which the chain accepts nothing more; None while it has met none."""
        self.leads = False
        """Whether the first store has accepted an operation for which the others may not have been called yet."""
        self.arrivals = Arrivals()
        self._first = stores[0]
        self._stores = stores
        self._names = names
        self.lag_timeout_s = lag_timeout_s
        self._joined: Joined | None = None
        self._everything: Joined | None = None

    def wait_before_next(self, joined: Joined) -> None:
        """Call no store again before all stores are done with `joined`."""
        self._everything = joined

    def require_turn(self) -> None:
        """Wait until the stores may be called again. Raises ChainError."""
        if self.error is not None:
            raise self.error.again()
        if self._everything is not None:
            self._await(self._everything)
            self._everything = None

    def ask_first(self, call: Callable[[ChainedStore], _T]) -> _T:
        """Call the first store. If it refuses, the chain refuses."""
        self.require_turn()
        try:
            answer = call(self._first)
        except JournalError as error:
            self.require_refusal(error)
            raise
        self.leads = True
        return answer

    def require_refusal(self, error: JournalError) -> None:
        """Returns if an error of the first store means that nothing was changed; otherwise raises ChainError. Needs no
        lock.

        An error of a local disk is no such error, because the journal may have the operation already.
        """
        if not isinstance(error, (CallerError, FullError, DeadlineError)):
            raise self.broken(0, error) from error

    def ask_other(self, place: int, call: Callable[[ChainedStore], _T]) -> _T:
        """Do an operation that the first store has done in another store, which has the index `place`. Raises
        ChainError if that store refuses it or fails.

        Needs no lock if the order among other operations does not matter.
        """
        try:
            return call(self._stores[place])
        except JournalError as error:
            raise self.broken(place, error) from error

    def interrupted(self, error: BaseException) -> None:
        """Called when a call was interrupted after the first store had accepted an operation, and before the others
        had: the chain accepts nothing more."""
        if len(self._stores) > 1 and not isinstance(error, JournalError):
            mark_refusal(error, refused=False)  # the first store has it
            self.broken(1, StateError(f"a call was interrupted by {type(error).__name__} before this store was asked"))

    def broken(self, place: int, error: JournalError) -> ChainError:
        """The chain's error for an error of a store. Needs no lock."""
        if self.error is None:
            self.error = ChainError(self._names[place], error)
            self.error.__cause__ = error
            log.error("the chain accepts nothing more: %s", self.error)
        return self.error

    def _failed(self, place: int, error: JournalError) -> JournalError:
        """The error with which an operation fails. A failed rollback does not break the chain."""
        return error if isinstance(error, RolledBackError) else self.broken(place, error)

    def join(self, first: Accepted, call: Callable[[ChainedStore], Accepted]) -> Joined:
        """Do the operation of `first` in the other stores too. The result is done when all stores are; operations of
        the same groups share it."""
        completions = [first.completion]
        for place in range(1, len(self._stores)):
            completions.append(self.ask_other(place, call).completion)
        return self.joined(completions)

    def joined(self, completions: Sequence[Completion]) -> Joined:
        """Join the completions of all stores, given in the order of the stores."""
        joined = self._joined
        if joined is None or joined.of != completions:
            joined = self._joined = Joined(completions, self._failed)
        return joined

    def await_arrival(self, message_id: int) -> None:
        """Wait until the other stores have the message as well. Raises ChainError."""
        joined = self.arrivals.of(message_id)
        if joined is not None:
            self._await(joined)

    def _await(self, joined: Joined) -> None:
        try:
            joined.completion.wait(self.lag_timeout_s)
        except DeadlineError as error:
            raise self.broken(joined.lagging(), error) from error

    def follow(
        self,
        first: Accepted,
        held: Sequence[Held],
        call: Callable[[ChainedStore, Sequence[Held]], Accepted],
    ) -> Joined:
        """Do an operation on messages, which the first store has done, in the other stores. A message that another
        store holds for somebody, although the first store does not, is released there first."""
        for message_id in ids_of(held):
            self.await_arrival(message_id)
        its_held = [each._replace(messages=[*map(chained_id, each.messages)]) for each in held]

        def follow(store: ChainedStore) -> Accepted:
            for _ in ids_of(held):
                try:
                    return call(store, its_held)
                except MessageHeldError as error:
                    for each in its_held:
                        if error.message in each.messages:
                            store.release(error.message, each.queue, counts=False)
            return call(store, its_held)

        return self.join(first, follow)
