"""The states of a journal, the one table of transitions between them, and the one place that changes a state."""

from __future__ import annotations

from enum import Enum
from typing import NoReturn

from journal.append.completion import Completion
from journal.errors import ClosedError, FencedError, JournalError, StateError


class JournalState(Enum):
    """The states of a journal."""

    CREATED = "created"
    STARTED = "started"  # connected to Kafka; it has fenced nobody and loaded nothing
    LOADING = "loading"  # activating: appends are refused
    ACTIVE = "active"  # appends are accepted
    FENCED = "fenced"  # another node took over
    FAILED = "failed"  # an outcome is unknown, or Kafka did not answer for too long
    CLOSED = "closed"


_NEXT: dict[JournalState, frozenset[JournalState]] = {
    JournalState.CREATED: frozenset({JournalState.STARTED, JournalState.FAILED, JournalState.CLOSED}),
    JournalState.STARTED: frozenset({JournalState.LOADING, JournalState.FAILED, JournalState.CLOSED}),
    JournalState.LOADING: frozenset(
        {JournalState.ACTIVE, JournalState.STARTED, JournalState.FENCED, JournalState.FAILED, JournalState.CLOSED}
    ),
    JournalState.ACTIVE: frozenset({JournalState.FENCED, JournalState.FAILED, JournalState.CLOSED}),
    JournalState.FENCED: frozenset({JournalState.CLOSED}),
    JournalState.FAILED: frozenset({JournalState.CLOSED}),
    JournalState.CLOSED: frozenset(),
}


_MENDS = {JournalState.CREATED: ": start or activate it first", JournalState.STARTED: ": activate it first"}


def refusal(state: JournalState, mend: str = "", *, closed: bool) -> StateError:
    """The error of a call that a journal refuses in this state; ClosedError if it is `closed`. `mend` says how to make
    the call possible, or what else prevents it."""
    return (
        ClosedError("the journal was closed")
        if closed
        else StateError(f"the journal is {state.value}{mend or _MENDS.get(state, '')}")
    )


def valid_transition(now: JournalState, then: JournalState) -> bool:
    return then in _NEXT[now]


def require_transition(now: JournalState, then: JournalState) -> JournalState:
    """Returns `then`. Raises StateError if a journal in the state `now` cannot become `then`."""
    if not valid_transition(now, then):
        raise StateError(f"a journal that is {now.value} cannot become {then.value}")
    return then


class Life:
    """The state of a journal, and the error that ended it. The lock of the journal's core guards this object."""

    def __init__(self) -> None:
        self.state = JournalState.CREATED
        self.closing = False
        self.error: JournalError | None = None
        """The error for which the journal was fenced or has failed."""
        self.ended = Completion()
        """A future that is done, with the reason, when this node stops being active; it is done before anything fails
        for that reason."""

    def become(self, state: JournalState) -> None:
        """Change the state. Raises StateError if the table of transitions does not have this one."""
        self.state = require_transition(self.state, state)

    def fail(self, error: JournalError) -> bool:
        """Become fenced or failed for `error`; False if the journal has ended already."""
        if self.state not in (JournalState.ACTIVE, JournalState.LOADING):
            return False
        self.become(JournalState.FENCED if isinstance(error, FencedError) else JournalState.FAILED)
        self.error = error
        return True

    def refuse(self) -> NoReturn:
        """Raises the error that every append gets in this state."""
        raise (self.error or refusal(self.state, closed=self.closing)).again()
