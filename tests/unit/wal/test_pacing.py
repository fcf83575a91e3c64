"""The pause between transactions: as long as the last one's markers seem to take, between its bounds."""

from __future__ import annotations

import pytest

from journal.wal.pacing import Pace


def test_the_first_transaction_waits_for_nothing_and_the_next_until_the_pause_is_over() -> None:
    pace = Pace(0.25, 4)
    assert pace.next_at < 0
    pace.answered(100.0)
    assert pace.next_at == pytest.approx(100.25)


def test_the_pause_grows_up_to_its_bound_while_transactions_meet_markers_and_shrinks_back_while_none_does() -> None:
    pace = Pace(0.00025, 0.004)
    longer = []
    for _ in range(6):
        pace.sent(0.021)
        longer.append(pace.pause_s)
    assert longer == sorted(longer)
    assert longer[0] > 0.001
    assert longer[-1] == 0.004
    pace.sent(0.003)
    assert 0.0039 < pace.pause_s < 0.004
    for _ in range(1000):
        pace.sent(0.003)
    assert pace.pause_s == 0.00025


def test_brokers_whose_markers_take_long_now_and_then_get_a_pause_that_meets_them_seldom() -> None:
    pace = Pace(0.00025, 0.004)
    met = 0
    for number in range(2000):
        markers_s = 0.003 if number % 3 else 0.0001
        waits = pace.pause_s < markers_s
        met += waits
        pace.sent(0.022 if waits else 0.002)
    assert met < 60


def test_a_largest_pause_below_the_least_is_the_least() -> None:
    pace = Pace(0.005, 0.004)
    pace.sent(0.05)
    assert pace.pause_s == 0.005
