"""The gap of a hand-over, as `bench failover` finds it."""

from __future__ import annotations

from bench.failover import longest_gap


def test_the_longest_gap_is_between_neighbours_in_time_whoever_told_them() -> None:
    assert longest_gap([1.0, 2.0, 5.0, 4.5, 2.5], after=0.0) == 2.0


def test_a_gap_that_ended_before_is_of_no_interest() -> None:
    assert longest_gap([1.0, 4.0, 4.5, 5.5], after=4.2) == 1.0


def test_a_gap_that_had_begun_before_counts_whole() -> None:
    assert longest_gap([1.0, 4.0], after=3.0) == 3.0


def test_there_is_no_gap_without_two_times() -> None:
    assert longest_gap([], after=0.0) == longest_gap([1.0], after=0.0) == 0.0
