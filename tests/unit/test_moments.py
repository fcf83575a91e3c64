"""How long ago something was, on a machine that was suspended, or whose clock was set."""

from __future__ import annotations

import time

from journal.moments import LONG_AGO, Moment

HOUR_S = 3600.0


def test_the_time_in_which_the_machine_was_suspended_counts() -> None:
    assert Moment(time.monotonic(), time.time() - HOUR_S).age_s >= HOUR_S


def test_a_clock_that_was_set_back_makes_nothing_younger() -> None:
    assert Moment(time.monotonic() - HOUR_S, time.time() + HOUR_S).age_s >= HOUR_S


def test_what_is_now_is_not_long_ago_and_what_never_was_is() -> None:
    assert 0.0 <= Moment.now().age_s < HOUR_S < LONG_AGO.age_s
