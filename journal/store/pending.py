"""The result of an operation of the message store: the id that it made or touched, and the completion of its group.

Hot path: one small object for each operation; the completion is shared by all operations of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from journal.append.completion import Completion, completed
from journal.errors import JournalError

COMPLETED = completed()
"""The completion of operations that append nothing. It is shared, because a completion that is done never changes."""


class Accepted:
    """An accepted operation. Its subclasses add further results."""

    __slots__ = ("completion",)

    def __init__(self, completion: Completion) -> None:
        self.completion = completion

    @property
    def done(self) -> bool:
        return self.completion.done

    @property
    def error(self) -> JournalError | None:
        """The reason for which the operation failed; None while it is pending, and after success."""
        return self.completion.error

    def add_callback(self, callback: Callable[[JournalError | None], None]) -> None:
        """Call `callback(error)` when the operation is done: in the writer's thread, or now if it is done already.

        The callback must be quick, and may not call the store (CallbackError).
        """
        self.completion.add_callback(callback)


class Pending(Accepted):
    """An accepted operation. `id` is known at once; awaiting it, or `wait`, gives the id when it is durable.

    Both raise the error of its completion: nothing was stored, or (OutcomeUnknownError) only the next load shows the
    outcome.
    """

    __slots__ = ("id",)

    def __init__(self, id: int, completion: Completion = COMPLETED) -> None:
        """Without a completion the operation is done already, because it concerns nothing durable."""
        self.id = id
        self.completion = completion

    def wait(self, timeout_s: float | None = None) -> int:
        """Block until done; returns the id. Raises the completion's error, or DeadlineError when `timeout_s` passes
        first."""
        self.completion.wait(timeout_s)
        return self.id

    def __await__(self) -> Generator[object, None, int]:
        yield from self.completion.__await__()
        return self.id


class Moved(Pending):
    """An accepted move, expiry or dead letter. `id` is the id of the copy (0 if there is none), `queues` are the queues
    of the copy."""

    __slots__ = ("queues",)

    def __init__(self, id: int, completion: Completion, queues: Sequence[str] = ()) -> None:
        super().__init__(id, completion)
        self.queues = tuple(queues)


class PendingAll(Accepted):
    """Accepted messages of one call. `ids` are known at once, in the call's order.

    Awaiting it, or `wait`, gives the ids when all messages are durable. An error, as in `Pending`, concerns all of
    them.
    """

    __slots__ = ("ids",)

    def __init__(self, ids: Sequence[int], completion: Completion = COMPLETED) -> None:
        """Without a completion the operations are done already."""
        super().__init__(completion)
        self.ids = tuple(ids)

    def wait(self, timeout_s: float | None = None) -> tuple[int, ...]:
        """Block until done; returns the ids. Raises the completion's error, or DeadlineError when `timeout_s` passes
        first."""
        self.completion.wait(timeout_s)
        return self.ids

    def __await__(self) -> Generator[object, None, tuple[int, ...]]:
        yield from self.completion.__await__()
        return self.ids
