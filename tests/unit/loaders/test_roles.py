"""The roles of a node: every pair of them."""

from __future__ import annotations

import itertools

import pytest

from journal.errors import StateError
from loaders.node.roles import Role, require_role_transition, valid_role_transition

ALLOWED = {
    ("starting", "standby"),
    ("starting", "stopping"),
    ("standby", "activating"),
    ("standby", "stopping"),
    ("activating", "active"),
    ("activating", "standby"),
    ("activating", "fenced"),
    ("activating", "stopping"),
    ("active", "stopping"),
    ("active", "fenced"),
    ("stopping", "standby"),
    ("stopping", "fenced"),
    ("stopping", "stopped"),
    ("fenced", "standby"),
    ("fenced", "stopping"),
}


@pytest.mark.parametrize(("now", "then"), list(itertools.product(Role, Role)))
def test_a_node_takes_the_transitions_of_the_table_and_no_others(now: Role, then: Role) -> None:
    allowed = (now.value, then.value) in ALLOWED
    assert valid_role_transition(now, then) is allowed
    if allowed:
        assert require_role_transition(now, then) is then
    else:
        with pytest.raises(StateError, match=f"{now.value} cannot become {then.value}"):
            require_role_transition(now, then)
