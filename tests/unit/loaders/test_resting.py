"""How long a node holds back, by a clock that the test moves."""

from __future__ import annotations

import pytest

from journal.activate.copy_thread import Fitness
from loaders.node.resting import Resting

REST_S, ASK_S = 1.0, 10.0
FIT = Fitness(True, "", 0, 0, built=True)
BEHIND = Fitness(False, "the copy is 1 offset and 20000 ms behind", 1, 20_000, built=True)


class Life:
    def __init__(self) -> None:
        self.now = 100.0
        self.resting = Resting(rest_s=REST_S, ask_s=ASK_S, clock=lambda: self.now)


@pytest.fixture
def life() -> Life:
    return Life()


def test_a_node_that_has_not_failed_rests_for_nothing(life: Life) -> None:
    assert (life.resting.rested, life.resting.may_ask, life.resting.told_of(FIT)) == (True, True, FIT)


def test_each_failure_in_a_row_doubles_the_rest_up_to_a_bound(life: Life) -> None:
    assert [life.resting.failed() for _ in range(8)] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 32.0, 32.0]
    life.resting.activated()
    assert life.resting.failed() == REST_S


def test_a_node_that_rests_tells_that_it_is_not_fit_and_why(life: Life) -> None:
    life.now += life.resting.failed() / 2
    told = life.resting.told_of(FIT)
    assert (told.fit, told.why_not, told.built) == (False, "its activation has just failed", True)
    assert life.resting.told_of(BEHIND) == BEHIND
    life.now += REST_S / 2
    assert life.resting.told_of(FIT) == FIT


def test_a_node_that_fails_again_and_again_asks_for_the_journal_ever_less(life: Life) -> None:
    for expected_s in (20.0, 40.0, 80.0):
        life.resting.failed()
        life.now += expected_s - 0.1
        assert life.resting.rested
        assert not life.resting.may_ask
        life.now += 0.1
        assert life.resting.may_ask


def test_a_node_that_handed_over_asks_again_only_after_it_was_active(life: Life) -> None:
    life.resting.handed_over()
    life.now += 1e9
    assert not life.resting.may_ask
    life.resting.activated()
    assert life.resting.may_ask
