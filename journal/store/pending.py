"""What an operation of the message store returns: the id it made or touched, and the completion of its group.

Hot path: one small object an operation; the completion is shared by all operations of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from journal.append.completion import Completion, completed
from journal.errors import JournalError

COMPLETED = completed()
"""The completion of everything that needs no append. It can be shared, as a completion that is done never changes."""


class Accepted:
    """An accepted operation, whatever else it returns."""

    __slots__ = ("completion",)

    def __init__(self, completion: Completion) -> None:
        self.completion = completion

    @property
    def done(self) -> bool:
        return self.completion.done

    @property
    def error(self) -> JournalError | None:
        """Why it failed; None while pending and after success."""
        return self.completion.error

    def add_callback(self, callback: Callable[[JournalError | None], None]) -> None:
        """Call `callback(error)` once done: in the writer's thread, or now.

        It must be quick; a call of the store is refused there (CallbackError).
        """
        self.completion.add_callback(callback)


class Pending(Accepted):
    """An accepted operation. `id` is known at once; awaiting it, or `wait`, gives the id when it is durable.

    Raises what its completion raises: nothing was stored, or (OutcomeUnknownError) only the next load can tell.
    """

    __slots__ = ("id",)

    def __init__(self, id: int, completion: Completion = COMPLETED) -> None:
        """Without a completion the operation is done already: what is not durable never reaches the journal."""
        self.id = id
        self.completion = completion

    def wait(self, timeout_s: float | None = None) -> int:
        """Block until done; the id. Raises the completion's error, or DeadlineError when `timeout_s` passes first."""
        self.completion.wait(timeout_s)
        return self.id

    def __await__(self) -> Generator[object, None, int]:
        yield from self.completion.__await__()
        return self.id


class Moved(Pending):
    """An accepted move, expiry or dead letter: `id` is the copy's (0: there is none), `queues` are its queues."""

    __slots__ = ("queues",)

    def __init__(self, id: int, completion: Completion, queues: Sequence[str] = ()) -> None:
        super().__init__(id, completion)
        self.queues = tuple(queues)


class PendingAll(Accepted):
    """Accepted messages of one call. `ids` are known at once, in the call's order.

    Awaiting it, or `wait`, gives the ids when all messages are durable. It raises as a `Pending` does, for all or none.
    """

    __slots__ = ("ids",)

    def __init__(self, ids: Sequence[int], completion: Completion = COMPLETED) -> None:
        """Without a completion the operations are done already."""
        super().__init__(completion)
        self.ids = tuple(ids)

    def wait(self, timeout_s: float | None = None) -> tuple[int, ...]:
        """Block until done; the ids. Raises the completion's error, or DeadlineError when `timeout_s` passes first."""
        self.completion.wait(timeout_s)
        return self.ids

    def __await__(self) -> Generator[object, None, tuple[int, ...]]:
        yield from self.completion.__await__()
        return self.ids
