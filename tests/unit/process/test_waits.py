"""A long wait is said, with what would end it; a short one is not."""

from __future__ import annotations

import pytest

from journal.process.waits import SAY_AFTER_S, LongWait, waited
from tests.simulation.timeline import Timeline


def test_a_wait_is_said_when_it_is_long_and_each_time_that_it_has_lasted_twice_as_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    timeline = Timeline()
    wait, said_at = LongWait(timeline.now), []
    began = timeline.now()
    for second in range(30):
        timeline.pass_to(began + second)
        wait.look("rain", "an umbrella ends it")
        if caplog.messages:
            said_at.append(second)
            assert caplog.messages == [f"waiting for rain, {second} s so far: an umbrella ends it"]
            caplog.clear()
    assert said_at == [SAY_AFTER_S, 2 * SAY_AFTER_S, 4 * SAY_AFTER_S, 8 * SAY_AFTER_S]


@pytest.mark.parametrize(("timeout_s", "asked"), [(1.0, [1.0]), (60.0, [3.0, 57.0]), (None, [3.0, None])])
def test_a_blocking_wait_is_said_once_and_takes_no_longer_than_asked(
    timeout_s: float | None, asked: list[float | None], caplog: pytest.LogCaptureFixture
) -> None:
    waits: list[float | None] = []

    def wait(seconds: float | None) -> bool:
        waits.append(seconds)
        return False

    assert not waited(wait, timeout_s, "rain", "an umbrella ends it")
    assert waits == asked
    assert len(caplog.messages) == len(asked) - 1


def test_a_short_wait_is_not_said(caplog: pytest.LogCaptureFixture) -> None:
    assert waited(lambda _: True, None, "rain", "an umbrella ends it")
    assert not caplog.messages
