"""The control topic on a real Kafka: what nodes report goes again with its segments, so that it is read in no time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it re-exports them without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from journal.config import Settings
from journal.errors import TopicError
from journal.kafka.clients import kafka_of
from journal.topics.control_keys import control_row, node_key
from journal.topics.control_reading import read_control
from journal.topics.made_and_checked import open_journal
from journal.topics.marks import records_between
from journal.topics.names import control_topic
from journal.topics.required_topics import CONTROL_SEGMENT_MS
from journal.v1.journal_pb2 import NodeStatus
from tests.support.in_process import made_journal

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

LIMIT_S = 60.0
CLEANED_S = 200.0
NODES = ("one", "two")
REPORTS = 720
"""The number of reports that one node writes in an hour."""


def configure(settings: Settings, **wanted: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in wanted.items()
    ]
    topic = control_topic(settings.journal)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(LIMIT_S)


def report(settings: Settings, times: int) -> None:
    """Each node reports so many times, one after the other."""
    row = {name: NodeStatus(name=name, role="standby", fit=True, host="machine-1", reason="started") for name in NODES}
    producer = kafka_of(settings).plain_producer()
    for number in range(times):
        for status in row.values():
            status.timestamp = number
        producer.send([control_row(settings.journal, node_key(name), row[name]) for name in NODES], LIMIT_S)
    producer.close()


def records_left(settings: Settings) -> int:
    reader = kafka_of(settings).reader(control_topic(settings.journal))
    start, end = reader.start_and_end(0, LIMIT_S)
    left = sum(1 for _ in records_between(reader, 0, start, end, clock=time.monotonic, stall_s=LIMIT_S, name="control"))
    reader.close()
    return left


def read_ms(settings: Settings) -> float:
    kafka = kafka_of(settings)
    began = time.monotonic()
    rows = read_control(kafka, settings.journal, time.monotonic, LIMIT_S)
    took_ms = (time.monotonic() - began) * 1000
    assert rows.nodes.keys() == set(NODES)
    return took_ms


def test_reports_of_an_hour_go_with_their_segments(bootstrap: str, tmp_path: Path) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=1, min_compaction_lag_ms=0)
    report(settings, REPORTS)
    whole, whole_ms = records_left(settings), read_ms(settings)
    assert whole > len(NODES) * REPORTS
    configure(settings, segment_ms="1000")
    until = time.monotonic() + CLEANED_S
    while records_left(settings) > REPORTS:
        assert time.monotonic() < until, "nothing was cleaned"
        time.sleep(1.0)
        report(settings, 1)
    print(
        f"{whole} control rows read in {whole_ms:.0f} ms; cleaned, {records_left(settings)} in {read_ms(settings):.0f}"
    )
    open_journal(kafka_of(settings), settings, clock=time.monotonic, timeout_s=LIMIT_S)


def test_a_control_topic_that_would_keep_old_reports_is_refused(bootstrap: str, tmp_path: Path) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=1)
    configure(settings, segment_ms="604800000")
    with pytest.raises(TopicError, match=f"segment.ms=604800000 and needs {CONTROL_SEGMENT_MS}: kafka-configs"):
        open_journal(kafka_of(settings), settings, clock=time.monotonic, timeout_s=LIMIT_S)
