"""Dead letters of sources that a real Kafka does not take: the one letter stops its source, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it re-exports them
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from journal.config import Settings
from tests.integration.test_sources import queue, with_sources
from tests.support.in_process import made_journal, running_worker
from tests.support.sources import (
    DEADLINE_S,
    committed,
    create_topic,
    new_name,
    produce,
    taking,
    wait_until,
)
from tests.support.stores import bodies

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

SEGMENT_BYTES = "internal.segment.bytes"
"""Kafka's own tests set it. A batch above it is refused, the marker that ends a transaction is not, and no limit that
anybody may read says so: what is in store for a letter shows when it is sent."""

PARTITIONS = 3


def no_text(size: int) -> bytes:
    """Random bytes that are not UTF-8, and that no compression makes shorter."""
    return b"\xff" + os.urandom(size)


@pytest.fixture(scope="module")
def journal(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    settings = made_journal(bootstrap, tmp_path_factory.mktemp("letters"), shards=2)
    with running_worker(settings):
        yield settings


def with_letters(settings: Settings, topic: str, letters: str, other: str) -> Settings:
    """A source with dead letters, and one that needs none."""
    into: dict[str, Any] = {"address": letters}
    return with_sources(
        settings,
        {"name": "in", "topics": [topic], "value": "text", "on_error": "dead-letter", **into},
        {"name": "other", "topics": [other], **into},
        dead_letter_topic=letters,
    )


def test_a_dead_letter_that_kafka_refuses_among_those_for_other_partitions_stops_its_source_at_its_place(
    bootstrap: str, journal: Settings
) -> None:
    topic, other = (create_topic(bootstrap, new_name()) for _ in range(2))
    letters = create_topic(bootstrap, new_name(), PARTITIONS, {SEGMENT_BYTES: "16384"})
    produce(bootstrap, topic, [no_text(100)] * 5 + [no_text(40_000)] + [no_text(100)] * 5)
    produce(bootstrap, other, [b"before"])
    settings = with_letters(journal, topic, letters, other)
    with taking(settings, [queue(letters)]) as node:
        why = node.wait_stopped("in")
        assert why.startswith(f"{topic}[0]@5: ")
        assert why.endswith(f": Kafka refuses its dead letter for topic {letters}")
        assert node.source("in")["dead_letters"] == 5
        produce(bootstrap, other, [b"behind"])
        node.wait_for(letters, 2)
        assert bodies(node.store, letters) == [b"before", b"behind"]
        assert committed(settings).get((topic, 0)) == 5
        node.sources.resume("in", skip=True)
        wait_until(lambda: committed(settings).get((topic, 0)) == 11, node.sources.status)
        assert node.source("in")["error"] == ""


def test_a_dead_letter_topic_that_would_refuse_the_end_of_transactions_is_never_written_to(
    bootstrap: str, journal: Settings
) -> None:
    topic, other = (create_topic(bootstrap, new_name()) for _ in range(2))
    letters = create_topic(bootstrap, new_name(), PARTITIONS, {"message.timestamp.before.max.ms": "0"})
    produce(bootstrap, topic, [no_text(1), b"fine"])
    produce(bootstrap, other, [b"other"])
    settings = with_letters(journal, topic, letters, other)
    with taking(settings, [queue(letters)]) as node:
        assert "message.timestamp.before.max.ms=0" in node.wait_stopped("in")
        node.wait_for(letters, 1)
        assert (topic, 0) not in committed(settings)
        allow_late_markers(bootstrap, letters)
        node.wait_for(letters, 2)
        assert (bodies(node.store, letters), node.source("in")["dead_letters"]) == ([b"other", b"fine"], 1)


def allow_late_markers(bootstrap: str, topic: str) -> None:
    entry = ConfigEntry("message.timestamp.before.max.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
