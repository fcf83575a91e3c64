"""The states of a journal and the one table of transitions between them."""

from __future__ import annotations

from enum import Enum

from journal.errors import ClosedError, StateError


class JournalState(Enum):
    """What a `Journal` may do."""

    CREATED = "created"
    STARTED = "started"  # connected; nothing fenced, nothing loaded
    LOADING = "loading"  # activating: appends are refused
    ACTIVE = "active"  # appends are accepted
    FENCED = "fenced"  # another node took over
    FAILED = "failed"  # an outcome is unknown, or Kafka was away too long
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


def refusal(state: JournalState, mend: str = "", *, closed: bool) -> StateError:
    """What a call raises that a journal refuses in this state: ClosedError from its close on. `mend` is what to do, or
    what else keeps it."""
    return ClosedError("the journal was closed") if closed else StateError(f"the journal is {state.value}{mend}")


def valid_transition(now: JournalState, then: JournalState) -> bool:
    return then in _NEXT[now]


def require_transition(now: JournalState, then: JournalState) -> JournalState:
    """`then`; raises StateError if a journal that is `now` cannot become it."""
    if not valid_transition(now, then):
        raise StateError(f"a journal that is {now.value} cannot become {then.value}")
    return then
