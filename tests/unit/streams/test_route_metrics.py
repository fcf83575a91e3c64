"""What `/metrics` tells of routes and sources: names, labels and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from journal.config import Settings
from journal.observe.exposition import exposition
from journal.routing.config import RoutingConfig
from journal.topics.control_keys import SOURCES_KEY, control_row, node_key
from journal.topics.names import control_topic
from journal.v1.journal_pb2 import NodeStatus, RouteCounts, RoutesReport, SourceReport, SourcesReport
from streams.apps.sources import KEPT_S, NodeReports
from streams.apps.web import metric_families
from tests.simulation.broker import SimulatedBroker
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline

REPORT = SourcesReport(
    node="one",
    timestamp=1000,
    state="running",
    unrouted=5,
    duplicates=6,
    sources=[
        SourceReport(source="fine", records=12, messages=11, lag=7, latency_ms=1500),
        SourceReport(source="in", refused={"not-text": 2, "no-key": 1}, dead_letters=3, error="t[0]@4: no text"),
    ],
)
ROUTES = RoutesReport(
    shard=3,
    routes=[RouteCounts(route="out", sent=9, refused={"no-key": 4}, dead_letters=2)],
    latency_ms=250,
    stopped="no key",
)


class MeteredService:
    """`Watched` with routes and sources."""

    def __init__(self, report: SourcesReport | None) -> None:
        self._report = report

    def shard_states(self) -> Mapping[int, str]:
        return {}

    def stopped_shards(self) -> Mapping[int, str]:
        return {}

    def waiting_shards(self) -> Mapping[int, str]:
        return {}

    def standstill(self) -> str:
        return ""

    def agent_troubles(self) -> list[tuple[str, int, str]]:
        return []

    def tellings(self) -> Mapping[str, int]:
        return {}

    def routes(self) -> Mapping[int, RoutesReport]:
        return {3: ROUTES}

    def sources(self) -> SourcesReport | None:
        return self._report

    def nodes(self) -> Sequence[NodeStatus]:
        return [NodeStatus(name="one", recoveries=3, checks=9, inits=4)]


def samples(report: SourcesReport | None, prefix: str) -> list[str]:
    text = exposition(metric_families(None, MeteredService(report)))
    return [line for line in text.splitlines() if line.startswith(f"kafka_journal_{prefix}")]


def test_sources_have_metrics_of_success_failure_by_reason_lag_and_latency() -> None:
    assert samples(REPORT, "source_") == [
        'kafka_journal_source_records_total{source="fine"} 12.0',
        'kafka_journal_source_records_total{source="in"} 0.0',
        'kafka_journal_source_messages_total{source="fine"} 11.0',
        'kafka_journal_source_messages_total{source="in"} 0.0',
        'kafka_journal_source_dead_letters_total{source="fine"} 0.0',
        'kafka_journal_source_dead_letters_total{source="in"} 3.0',
        'kafka_journal_source_lag_records{source="fine"} 7.0',
        'kafka_journal_source_lag_records{source="in"} 0.0',
        'kafka_journal_source_latency_seconds{source="fine"} 1.5',
        'kafka_journal_source_latency_seconds{source="in"} 0.0',
        'kafka_journal_source_stopped{source="fine"} 0.0',
        'kafka_journal_source_stopped{source="in"} 1.0',
        'kafka_journal_source_refused_total{reason="no-key",source="in"} 1.0',
        'kafka_journal_source_refused_total{reason="not-text",source="in"} 2.0',
    ]
    assert samples(REPORT, "sources_")[:3] == [
        'kafka_journal_sources_running{node="one"} 1.0',
        "kafka_journal_sources_unrouted_messages_total 5.0",
        "kafka_journal_sources_duplicate_messages_total 6.0",
    ]
    assert samples(None, "source_") == samples(None, "sources_") == []


def test_routes_have_metrics_of_success_failure_by_reason_and_latency() -> None:
    assert samples(None, "route_") + samples(None, "routes_") == [
        'kafka_journal_route_sent_records_total{route="out",shard="3"} 9.0',
        'kafka_journal_route_refused_messages_total{reason="no-key",route="out",shard="3"} 4.0',
        'kafka_journal_route_dead_letters_total{route="out",shard="3"} 2.0',
        'kafka_journal_routes_latency_seconds{shard="3"} 0.25',
        'kafka_journal_routes_stopped{shard="3"} 1.0',
    ]


def test_nodes_have_metrics_of_what_they_did_over() -> None:
    assert samples(None, "node_") == [
        'kafka_journal_node_active{node="one"} 0.0',
        'kafka_journal_node_recoveries_total{node="one"} 3.0',
        'kafka_journal_node_checks_total{node="one"} 9.0',
        'kafka_journal_node_inits_total{node="one"} 4.0',
    ]


def test_reports_of_nodes_and_sources_are_read_from_the_control_rows_now_and_then() -> None:
    timeline = Timeline()
    broker = SimulatedBroker(timeline)
    broker.create_topic(control_topic("j"), 1, 1, {})
    routing = RoutingConfig.model_validate({"sources": [{"name": "in", "topics": ["t"]}]})
    now = [0.0]
    kafka = SimulatedKafka(broker)
    reports = NodeReports(kafka, Settings(journal="j", routing=routing), lambda: now[0])
    assert reports.sources() is None
    node = NodeStatus(name="one", recoveries=3)
    rows = [control_row("j", SOURCES_KEY, REPORT), control_row("j", node_key("one"), node)]
    kafka.plain_producer().send(rows, 1.0)
    assert (reports.sources(), reports.nodes()) == (None, [])
    now[0] += KEPT_S
    assert (reports.sources(), reports.nodes()) == (REPORT, [node])
    assert NodeReports(kafka, Settings(journal="j"), lambda: now[0]).sources() is None
