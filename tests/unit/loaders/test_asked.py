"""What was asked for last counts, here or by a control row; what is withdrawn does not, and nothing else with it."""

from __future__ import annotations

import pytest

from loaders.node.asked_handover import AskedHandOver
from loaders.node.duty import HandOverRequest


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_newer_of_two_requests_to_hand_over_counts(clock: Clock) -> None:
    asked = AskedHandOver(clock)
    assert asked.or_newer(None) is None
    asked.ask(7, "one", awaited=True)
    clock.now += 2.0
    assert asked.or_newer(None) == HandOverRequest(7, "one", 2.0, awaited=True)
    assert asked.or_newer(HandOverRequest(7, "row", 1.0)) == HandOverRequest(7, "row", 1.0)
    assert asked.or_newer(HandOverRequest(7, "row", 3.0)) == HandOverRequest(7, "one", 2.0, awaited=True)


def test_a_request_that_is_withdrawn_counts_no_more(clock: Clock) -> None:
    asked = AskedHandOver(clock)
    asked.withdraw(asked.ask(7, "one", awaited=True))
    assert asked.or_newer(None) is None
    assert asked.or_newer(HandOverRequest(7, "row", 3.0)) == HandOverRequest(7, "row", 3.0)


def test_whoever_withdraws_leaves_what_another_has_asked_for_since(clock: Clock) -> None:
    asked = AskedHandOver(clock)
    first = asked.ask(7, "one", awaited=True)
    asked.ask(7, "two", awaited=True)
    asked.withdraw(first)
    assert asked.or_newer(None) == HandOverRequest(7, "two", 0.0, awaited=True)
