"""The judge is judged: a good history passes, and one planted fault of each kind is caught as what it is."""

from __future__ import annotations

import pytest

from tests.chaos.checker import Kind, check
from tests.chaos.plants import PLANTS, Run
from tests.chaos.synthetic import made_up


def good() -> Run:
    story = made_up()
    return Run(story.evidence(), story.activations)


def test_a_history_without_a_fault_passes() -> None:
    run = good()
    verdict = check(run.evidence, run.activations)
    assert verdict.faults == []
    assert verdict.activations == 3
    assert verdict.acknowledged == 40


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_fault_is_caught_as_what_it_is(plant: str) -> None:
    change, kind = PLANTS[plant]
    run = good().copy()
    change(run)
    verdict = check(run.evidence, run.activations)
    assert verdict.counts[kind], [str(fault) for fault in verdict.faults]


def test_every_kind_of_fault_is_planted() -> None:
    assert {kind for _, kind in PLANTS.values()} == set(Kind)


def test_unacknowledged_operations_may_be_there_or_not() -> None:
    story = made_up()
    for activation in story.activations.values():
        activation.done.clear()
    assert check(story.evidence(), story.activations).faults == []


def test_a_staged_operation_that_was_acknowledged_is_in_the_wal() -> None:
    story = made_up()
    number = story.submit("add", 999, tx=99, written=False)
    assert check(story.evidence(), story.activations).faults == []
    story.activations[3].done.add(number)
    assert check(story.evidence(), story.activations).counts == {Kind.LOST: 1}
