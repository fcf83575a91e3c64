"""The roles of a node of a journal, and the one table of transitions between them."""

from __future__ import annotations

from enum import Enum

from journal.errors import StateError


class Role(Enum):
    """The roles that a node has in turn."""

    STARTING = "starting"
    STANDBY = "standby"  # follows the tables; appends nothing
    ACTIVATING = "activating"  # is about to be active: fence, gate, load, READY
    ACTIVE = "active"  # its owner may append and hand out
    STOPPING = "stopping"  # stops being active in order, or ends
    FENCED = "fenced"  # stopped being active without having chosen to; hands out nothing
    STOPPED = "stopped"


_NEXT: dict[Role, frozenset[Role]] = {
    Role.STARTING: frozenset({Role.STANDBY, Role.STOPPING}),
    Role.STANDBY: frozenset({Role.ACTIVATING, Role.STOPPING}),
    Role.ACTIVATING: frozenset({Role.ACTIVE, Role.STANDBY, Role.FENCED, Role.STOPPING}),
    Role.ACTIVE: frozenset({Role.STOPPING, Role.FENCED}),
    Role.STOPPING: frozenset({Role.STANDBY, Role.FENCED, Role.STOPPED}),
    Role.FENCED: frozenset({Role.STANDBY, Role.STOPPING}),
    Role.STOPPED: frozenset(),
}


def valid_role_transition(now: Role, then: Role) -> bool:
    return then in _NEXT[now]


def require_role_transition(now: Role, then: Role) -> Role:
    """Returns `then`. Raises StateError if a node that is `now` cannot become it."""
    if not valid_role_transition(now, then):
        raise StateError(f"a node that is {now.value} cannot become {then.value}")
    return then
