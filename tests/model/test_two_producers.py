"""Two transactional ids are safe by one rule only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from .two_producers import GUARD, OTHER, Rule, shortest_violation


@pytest.mark.parametrize(("nodes", "groups", "timeouts"), [(2, 2, 1), (2, 3, 3), (3, 2, 1)])
def test_two_ids_are_safe_when_the_guard_writes_the_marker_and_is_the_last_to_be_recovered(
    nodes: int, groups: int, timeouts: int
) -> None:
    assert shortest_violation(Rule(), nodes=nodes, groups=groups, timeouts=timeouts) is None


@pytest.mark.parametrize(
    "rule",
    [
        replace(Rule(), recovery=(GUARD, OTHER)),
        replace(Rule(), marker_through=OTHER),
        replace(Rule(), activation=(OTHER, GUARD)),
    ],
    ids=["recovers_the_guard_first", "writes_the_marker_through_the_other", "activates_the_other_first"],
)
def test_two_ids_let_a_zombie_write_behind_a_newer_marker_when_a_node(rule: Rule) -> None:
    assert shortest_violation(rule) is not None
