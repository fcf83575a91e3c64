"""Disks that are full, copies that are damaged, a standby that was away too long, topics made anew behind a back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it re-exports them without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from journal.embedded.cluster import EmbeddedKafka
from tests.chaos.cluster import Cluster
from tests.chaos.evidence import read_topic
from tests.chaos.faults import disks
from tests.chaos.faults.disks import DamagedCopy, FullDisk, NoDiskError, small_disk
from tests.chaos.faults.fault import Choice, any_node, any_worker, named
from tests.chaos.judging import SEED, assert_sound
from tests.chaos.processes import wait_for
from tests.support.long_form import long_form

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1800), long_form]

REQUEST_TIMEOUT_S = 30.0
RETENTION_MS = 60_000
COMPACTION_TIMEOUT_S = 400.0


def test_a_full_disk_of_a_copy_stops_nobody_for_good(three_brokers: EmbeddedKafka, tmp_path: Path) -> None:
    try:
        with (
            small_disk(tmp_path / "node-1" / "data"),
            small_disk(tmp_path / "worker-1" / "data"),
            Cluster(tmp_path, seed=SEED, kafka=three_brokers) as cluster,
        ):
            for name in ("node-1", "worker-1"):
                fault = FullDisk(SEED, named(name))
                fault.inject(cluster)
                wait_for(fault.is_met, f"a full disk of {name}")
                fault.heal(cluster)
                cluster.wait_for_acknowledgements(500)
            assert_sound(cluster)
    except NoDiskError as error:
        pytest.skip(str(error))


DAMAGES = [disks.tables_flipped, disks.some_files_flipped, disks.some_files_deleted, disks.everything_deleted]


@pytest.mark.parametrize("choose", [pytest.param(any_node, id="node"), pytest.param(any_worker, id="worker")])
def test_a_damaged_copy_is_recognised_and_built_anew(
    three_brokers: EmbeddedKafka, tmp_path: Path, choose: Choice
) -> None:
    with Cluster(tmp_path, seed=SEED, kafka=three_brokers) as cluster:
        cluster.wait_for_acknowledgements(1000)
        for damage in DAMAGES:
            fault = DamagedCopy(SEED, choose, damage)
            fault.inject(cluster)
            print(fault.done)
            fault.target.start(ready=True)
            cluster.wait_for_acknowledgements(500)
            assert fault.target.running, fault.done
        cluster.wait_for_active().kill()
        cluster.wait_for_acknowledgements(200)
        cluster.mend()
        assert_sound(cluster)


def test_a_standby_away_past_the_retention_of_tombstones_brings_nothing_back(tmp_path: Path) -> None:
    """Nor does a worker that was away as long: in the end they are the only ones."""
    env = {"KAFKA_JOURNAL_DELETE_RETENTION_MS": str(RETENTION_MS), "KAFKA_JOURNAL_MIN_COMPACTION_LAG_MS": "0"}
    properties = {"log.cleaner.backoff.ms": "1000"}
    with Cluster(tmp_path, seed=SEED, env=env, properties=properties, rate=500) as cluster:
        compact_at_once(cluster)
        cluster.wait_for_acknowledgements(3000)
        away, away_worker = cluster.wait_for_standby(), cluster.workers[0]
        away.kill()
        away_worker.kill()
        left = time.time()
        cluster.wait_for_acknowledgements(3000)
        ends = [rows[-1][0] for rows in tombstones(cluster)]
        wait_for(lambda: no_tombstone_before(cluster, ends), "tombstones that go", COMPACTION_TIMEOUT_S)
        wait_for(lambda: time.time() > left + RETENTION_MS / 1000, "the retention's end")
        away.start()
        away_worker.start(ready=False)
        cluster.wait_for_acknowledgements(500)
        cluster.wait_for_active().kill()
        cluster.workers[1].kill()
        cluster.wait_for_acknowledgements(500)
        assert away.role == "active"
        cluster.mend()
        assert_sound(cluster)


def compact_at_once(cluster: Cluster) -> None:
    """The table topic's segments are short, and cleaned as soon as they are dirty."""
    wanted = {"segment.ms": "1000", "min.cleanable.dirty.ratio": "0.001", "max.compaction.lag.ms": "2000"}
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in wanted.items()]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, f"{cluster.journal}.table", incremental_configs=entries)
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(REQUEST_TIMEOUT_S)


def tombstones(cluster: Cluster) -> list[list[tuple[int, bool]]]:
    """Offset of each row of each shard, and whether it is one."""
    topic = f"{cluster.journal}.table"
    return read_topic(cluster.bootstrap, topic, lambda message: (message.offset() or 0, message.value() is None))


def no_tombstone_before(cluster: Cluster, ends: list[int]) -> bool:
    try:
        shards = tombstones(cluster)
    except KafkaException:
        return False
    return not any(is_one and offset < end for rows, end in zip(shards, ends, strict=True) for offset, is_one in rows)
