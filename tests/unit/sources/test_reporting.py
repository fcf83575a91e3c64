"""The sources' reports to the control rows: one that fails is not the last."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest

from journal.errors import KafkaUnavailableError
from journal.kafka.ports import Kafka, Sent
from journal.sources import reporting
from journal.sources.reporting import SourcesReporter
from journal.v1.journal_pb2 import SourcesReport

DEADLINE_S = 10.0


class _Reports:
    """A producer, and what makes it: what was sent, and what it meets before."""

    def __init__(self, *meets: Exception) -> None:
        self.sent: list[Sent] = []
        self.some = threading.Event()
        self._meets = list(meets)

    def plain_producer(self) -> _Reports:
        return self

    def send(self, records: Sequence[Sent], timeout_s: float) -> list[int]:
        if self._meets:
            raise self._meets.pop(0)
        self.sent += records
        self.some.set()
        return [0]

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("statuses", "meets"),
    [
        ([{"error": "\ud800"}, {"colour": 1}, {"error": "mended"}], []),
        ([{"error": "mended"}], [KafkaUnavailableError("away")]),
        ([{"error": "mended"}], [RuntimeError("of a client")]),
    ],
    ids=["what no row can say", "Kafka is away", "any error"],
)
def test_a_report_that_fails_is_followed_by_the_next(
    monkeypatch: pytest.MonkeyPatch, statuses: list[dict[str, Any]], meets: list[Exception]
) -> None:
    monkeypatch.setattr(reporting, "REPORT_EVERY_S", 0.001)
    reports, left = _Reports(*meets), list(statuses)
    reporter = SourcesReporter(
        cast(Kafka, reports), "flights", "first", lambda: left.pop(0) if len(left) > 1 else left[0], DEADLINE_S
    )
    reporter.start()
    try:
        assert reports.some.wait(DEADLINE_S)
    finally:
        reporter.close()
    (sent,) = reports.sent
    assert SourcesReport.FromString(sent.value or b"").error == "mended"
