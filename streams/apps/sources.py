"""Reports of a journal's nodes and sources, for a service's metrics. Nodes write these reports to the control rows."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from journal.config import Settings
from journal.errors import JournalError
from journal.kafka.ports import Kafka
from journal.observe.exposition import Family, Sample
from journal.process.clocks import Clock
from journal.topics.control_reading import read_control
from journal.topics.control_rows import ControlRows
from journal.v1.journal_pb2 import NodeStatus, SourceReport, SourcesReport

log = logging.getLogger(__name__)

KEPT_S = 2.0
"""How long a report is kept before it is read again. It is the time that a node waits between two reports."""

_READ_S = 5.0
"""How long a request for metrics waits for the control rows."""


class NodeReports:
    """Reads the reports, and keeps each for a short time. Thread-safe."""

    def __init__(self, kafka: Kafka, settings: Settings, clock: Clock = time.monotonic) -> None:
        self._kafka = kafka
        self._journal = settings.journal
        self._has_sources = bool(settings.routing.sources)
        self._clock = clock
        self._lock = threading.Lock()
        self._rows = ControlRows()
        self._read_at = float("-inf")

    def sources(self) -> SourcesReport | None:
        """The last report about the sources. None if the configuration has no sources, no node has reported any, or the
        report cannot be read now."""
        return self._newest().sources if self._has_sources else None

    def nodes(self) -> list[NodeStatus]:
        """The last report of each node; empty if the reports cannot be read now."""
        return [row.status for _, row in sorted(self._newest().nodes.items())]

    def awaited_node(self) -> str:
        """The node that should be writing: that of the newest epoch. Empty if it left in order, or is not known now."""
        rows = self._newest()
        left = rows.released is not None and rows.released.epoch == rows.epoch.epoch
        return "" if left else rows.epoch.node

    def _newest(self) -> ControlRows:
        with self._lock:
            if self._clock() - self._read_at >= KEPT_S:
                self._rows = self._read()
                self._read_at = self._clock()
            return self._rows

    def _read(self) -> ControlRows:
        try:
            return read_control(self._kafka, self._journal, self._clock, _READ_S)
        except JournalError as error:
            log.warning("metrics without nodes and sources: %s", error)
            return ControlRows()


# ---- for Prometheus ------------------------------------------------------------------------------------------------

_SOURCE_METRICS: tuple[tuple[str, str, str, Callable[[SourceReport], float]], ...] = (
    ("records_total", "counter", "Records whose offsets are committed.", lambda row: row.records),
    ("messages_total", "counter", "Messages that they became.", lambda row: row.messages),
    ("dead_letters_total", "counter", "Refused ones that went to a dead-letter topic.", lambda row: row.dead_letters),
    ("lag_records", "gauge", "Records not consumed yet.", lambda row: row.lag),
    (
        "latency_seconds",
        "gauge",
        "From the timestamp of the last batch's oldest record to its commit.",
        lambda row: row.latency_ms / 1000,
    ),
    (
        "stopped",
        "gauge",
        "1 while a record, a partition or a topic has stopped the source.",
        lambda row: bool(row.error),
    ),
)


_NODE_METRICS: tuple[tuple[str, str, Callable[[NodeStatus], int]], ...] = (
    ("recoveries_total", "Times that check, init, check followed a commit.", lambda node: node.recoveries),
    ("checks_total", "Times that the epoch counter was read.", lambda node: node.checks),
    ("inits_total", "Producers that were initialised: all but the newest are lost.", lambda node: node.inits),
)


def reported_families(nodes: Sequence[NodeStatus], now_ms: float) -> Iterator[Family]:
    """Metrics of nodes, from their reports. Counts are since the node's last activation began."""
    active: list[Sample] = [
        ({"node": node.name}, float(node.role == "active" and now_ms - node.timestamp <= 2 * node.report_ms))
        for node in nodes
    ]
    about = "1 while the node reports that it is active, and its report is not late."
    yield Family("node_active", "gauge", about, active)
    for name, about, value in _NODE_METRICS:
        samples = [({"node": node.name}, float(value(node))) for node in nodes]
        yield Family(f"node_{name}", "counter", about, samples)


def source_families(report: SourcesReport, now_ms: float) -> Iterator[Family]:
    """Metrics of sources. They are of the whole journal, so every service shows
    the same.

    Counts are since the node became active.
    """
    for name, kind, about, value in _SOURCE_METRICS:
        samples: list[Sample] = [({"source": row.source}, float(value(row))) for row in report.sources]
        yield Family(f"source_{name}", kind, about, samples)
    refused: list[Sample] = [
        ({"source": row.source, "reason": reason}, count)
        for row in report.sources
        for reason, count in sorted(row.refused.items())
    ]
    about = "Records, and requests without a reply, that were refused."
    yield Family("source_refused_total", "counter", about, refused)
    running = float(report.state == "running")
    yield Family(
        "sources_running",
        "gauge",
        "1 while sources are consumed; 0 if the journal is full or Kafka does not answer.",
        [({"node": report.node}, running)],
    )
    unrouted: list[Sample] = [({}, report.unrouted)]
    yield Family("sources_unrouted_messages_total", "counter", "Messages that no queue took.", unrouted)
    yield Family(
        "sources_duplicate_messages_total",
        "counter",
        "Messages whose duplicate-detection id was seen.",
        [({}, report.duplicates)],
    )
    age_s = max(0.0, now_ms - report.timestamp) / 1000
    yield Family("sources_report_age_seconds", "gauge", "How long a node has reported no change.", [({}, age_s)])
