"""The demo's two Kafka topics: their configuration, their creation, and their comparison at the end."""

from __future__ import annotations

from pathlib import Path

from journal.cli.flights.corrections import PARTITIONS, corrections_source, corrections_topic
from journal.cli.flights.data import read_in_order
from journal.cli.flights.landed import (
    RoutedFlights,
    compare_landings,
    expected_landings,
    landed_route,
    landed_topic,
    landings_in,
    read_committed,
)
from journal.config import Settings
from journal.errors import DemoError
from journal.kafka.ports import Kafka
from journal.routing.config import RoutingConfig


def with_routing(settings: Settings) -> Settings:
    """The settings with the demo's route and source added to theirs. Raises ConfigError."""
    routing = settings.routing.model_dump(mode="json")
    routing["routes"] = [*routing["routes"], landed_route(settings.journal)]
    routing["sources"] = [*routing["sources"], corrections_source(settings.journal)]
    return settings.model_copy(update={"routing": RoutingConfig.model_validate(routing)})


def make_topics(kafka: Kafka, settings: Settings) -> None:
    """Create the topics. Raises DemoError if one has records of an earlier demo."""
    config = {"min.insync.replicas": str(settings.min_insync_replicas)}
    timeout_s = settings.request_timeout_ms / 1000
    cluster = kafka.cluster()
    try:
        for topic in (landed_topic(settings.journal), corrections_topic(settings.journal)):
            cluster.create(topic, PARTITIONS, settings.replication, config, timeout_s)
            reader = kafka.reader(topic, committed=False)
            try:
                if any(end for _, end in reader.bounds(range(PARTITIONS), timeout_s).values()):
                    raise DemoError(f"topic {topic} has records already: name a new journal with -j")
            finally:
                reader.close()
    finally:
        cluster.close()


def compare_routed(kafka: Kafka, settings: Settings, flights: Path) -> RoutedFlights:
    """Compare the topic of landed flights with the flights. A worker must have applied the whole WAL."""
    topic = landed_topic(settings.journal)
    records = read_committed(kafka, topic, PARTITIONS, settings.request_timeout_ms / 1000)
    return compare_landings(topic, len(records), expected_landings(read_in_order(flights)), landings_in(records))
