"""The age of moments on a machine that was suspended, or whose clock was set."""

from __future__ import annotations

import math
import time

from journal.process.clocks import LONG_AGO, AgreedTime, Moment

HOUR_S = 3600.0


def test_the_time_in_which_the_machine_was_suspended_counts() -> None:
    assert Moment(time.monotonic(), time.time() - HOUR_S).age_s >= HOUR_S


def test_a_clock_that_was_set_back_makes_nothing_younger() -> None:
    assert Moment(time.monotonic() - HOUR_S, time.time() + HOUR_S).age_s >= HOUR_S


def test_a_moment_now_is_not_long_ago_and_one_that_never_was_is() -> None:
    assert 0.0 <= Moment.now().age_s < HOUR_S < LONG_AGO.age_s


class Clocks:
    """Both clocks of a machine, at one o'clock, and an `AgreedTime` over a minute that reads them."""

    def __init__(self) -> None:
        self.wall_ms = 3_600_000.0
        self.elapsed_ms = 5.0
        self.agreed = AgreedTime(lambda: self.wall_ms, lambda: self.elapsed_ms, 60_000)

    def passes(self, ms: float, *, slower_ms: float = 0.0) -> float:
        """Let time pass, by the wall clock `slower_ms` less; returns the agreed time then."""
        self.elapsed_ms += ms
        self.wall_ms += ms - slower_ms
        return self.agreed() - self.wall_ms


def test_clocks_that_were_never_seen_to_agree_for_long_enough_have_no_agreed_time() -> None:
    clocks = Clocks()
    assert [clocks.passes(0), clocks.passes(59_999)] == [-math.inf, -math.inf]
    assert clocks.passes(1) == 0
    assert clocks.passes(10**9) == 0


def test_a_step_forward_is_believed_once_it_has_lasted() -> None:
    clocks = Clocks()
    for ms in (0, 60_000):
        clocks.passes(ms)
    clocks.wall_ms += 10**7
    assert [clocks.passes(0), clocks.passes(59_999), clocks.passes(1)] == [-(10**7), -(10**7), 0]


def test_a_step_forward_that_is_taken_back_was_never_believed() -> None:
    clocks = Clocks()
    for ms in (0, 60_000):
        clocks.passes(ms)
    clocks.wall_ms += 10**7
    assert clocks.passes(59_000) == -(10**7)
    clocks.wall_ms -= 10**7
    assert [clocks.passes(0), clocks.passes(2_000)] == [0, 0]


def test_a_clock_that_is_set_back_counts_at_once() -> None:
    clocks = Clocks()
    for ms in (0, 60_000):
        clocks.passes(ms)
    clocks.wall_ms -= 10**6
    assert [clocks.passes(0), clocks.passes(60_000)] == [0, 0]


def test_a_wall_clock_that_drifts_stays_within_a_second_of_the_agreed_time() -> None:
    clocks = Clocks()
    for ms in (0, 60_000):
        clocks.passes(ms)
    behind = [clocks.passes(60_000, slower_ms=slower_ms) for slower_ms in (30, -30) for _ in range(1000)]
    assert all(-1100 <= each <= 0 for each in behind)
