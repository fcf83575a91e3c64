"""The back-off of the next producer follows how long commits take."""

from __future__ import annotations

import pytest

from journal.kafka.commit_times import BACKOFF_MS_MAX, CommitTimes
from journal.kafka.settings import RETRY_BACKOFF_MS, repeated_after_s

FAST_S, SLOW_S = 0.003, 0.21


def times(*took_s: float) -> CommitTimes:
    found = CommitTimes()
    for each in took_s:
        found.took("commit", each)
    return found


def test_after_quick_commits_requests_are_repeated_soon() -> None:
    assert times().backoff_ms == times(FAST_S, FAST_S).backoff_ms == RETRY_BACKOFF_MS


@pytest.mark.parametrize("took_s", [0.1, SLOW_S, 0.5, 1.0])
def test_after_slow_commits_the_next_producer_repeats_no_commit_that_takes_as_long(took_s: float) -> None:
    backoff_ms = times(took_s).backoff_ms
    assert took_s < repeated_after_s(backoff_ms)
    assert backoff_ms <= BACKOFF_MS_MAX


def test_one_commit_that_a_failure_delayed_says_nothing_of_the_others() -> None:
    assert times(FAST_S, 8.0, FAST_S).backoff_ms == RETRY_BACKOFF_MS
    assert times(8.0, FAST_S).backoff_ms == RETRY_BACKOFF_MS


def test_commits_that_become_slow_or_quick_are_followed_after_a_few() -> None:
    assert times(FAST_S, *[SLOW_S] * 4).backoff_ms == times(SLOW_S).backoff_ms > RETRY_BACKOFF_MS
    assert times(*[SLOW_S] * 9, FAST_S).backoff_ms == RETRY_BACKOFF_MS


def test_the_slowest_kind_of_call_counts() -> None:
    found = times(SLOW_S)
    found.took("offsets", 2 * SLOW_S)
    assert found.backoff_ms == times(2 * SLOW_S).backoff_ms


def test_the_back_off_stays_below_the_time_for_delivering_a_record() -> None:
    assert times(30.0).backoff_ms == BACKOFF_MS_MAX
