"""A process that is asked to stop again ends at once, unless both signals are one request."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from journal.process.stop_requests import StopRequests

IGNORED = signal.SIGURG
"""A signal that is ignored by default, so that raising it again does nothing."""


@pytest.fixture
def handled() -> Iterator[None]:
    before = signal.signal(IGNORED, lambda number, frame: None)
    yield
    signal.signal(IGNORED, before)


@pytest.mark.usefixtures("handled")
def test_signals_within_a_second_are_one_request_and_a_later_one_ends_the_process() -> None:
    moments = iter([10.0, 10.5, 10.99, 11.0])
    requests = StopRequests(lambda: next(moments))
    for _ in range(3):
        requests.hear(IGNORED)
        assert signal.getsignal(IGNORED) is not signal.SIG_DFL
    requests.hear(IGNORED)
    assert signal.getsignal(IGNORED) is signal.SIG_DFL
