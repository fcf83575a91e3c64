"""The roles of a journal's node, and the one table of the transitions that are allowed between them."""

from __future__ import annotations

from enum import Enum

from journal.errors import StateError


class Role(Enum):
    """The role of a node. A node has one role at a time."""

    STARTING = "starting"
    STANDBY = "standby"  # the node follows the tables and appends nothing
    ACTIVATING = "activating"  # the node is about to be active: it fences, waits at the gate, loads, and commits READY
    ACTIVE = "active"  # the node's owner may append, and hand messages out
    STOPPING = "stopping"  # the node gives up being active in an orderly way, or ends
    FENCED = "fenced"  # the node has lost being active without having chosen to, and hands nothing out
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
    """Returns `then`. Raises StateError if a node with the role `now` cannot take the role `then`."""
    if not valid_role_transition(now, then):
        raise StateError(f"a node that is {now.value} cannot become {then.value}")
    return then
