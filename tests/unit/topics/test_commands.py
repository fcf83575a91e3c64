"""The commands that messages name for topics: Kafka's own, and ours where the embedded Kafka runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from journal.config import Settings
from journal.embedded.config import ClusterConfig
from journal.embedded.process import write_pid_file
from journal.topics.commands import config_command, create_command, partitions_command, remake_command
from journal.topics.foreign import fault_of_topic

EMBEDDED, OTHERS = "127.0.0.1:20001", "kafka-1:9092"
CONFIG = {"retention.ms": "-1", "cleanup.policy": "delete"}
OWN_CONFIG = " --config retention.ms=-1 --config cleanup.policy=delete"


@pytest.fixture(autouse=True)
def embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An embedded Kafka, whose only broker is taken to be this process."""
    monkeypatch.setenv("KAFKA_JOURNAL_KAFKA_DIR", str(tmp_path))
    (tmp_path / "cluster.json").write_text(ClusterConfig("cluster", (20001,), (20002,)).to_json())
    pid_file = tmp_path / "broker-1" / "broker.pid"
    pid_file.parent.mkdir()
    write_pid_file(pid_file, os.getpid())


def test_the_embedded_kafka_gets_a_command_of_ours() -> None:
    own = "kafka-journal kafka topic t"
    assert create_command(EMBEDDED, "t", partitions=4, replication=1, config=CONFIG) == (
        f"{own} --partitions 4 --replication 1{OWN_CONFIG}"
    )
    assert config_command(EMBEDDED, "t", CONFIG) == own + OWN_CONFIG
    assert partitions_command(EMBEDDED, "t", 4) == f"{own} --partitions 4"
    assert remake_command(EMBEDDED, "t", partitions=2, replication=1, config={}) == (
        f"{own} --delete && {own} --partitions 2 --replication 1"
    )


def test_other_brokers_get_commands_of_kafkas() -> None:
    create = f"kafka-topics --bootstrap-server {OTHERS} --create --topic t"
    assert create_command(OTHERS, "t") == create
    assert create_command(OTHERS, "t", partitions=4, replication=3, config=CONFIG) == (
        f"{create} --partitions 4 --replication-factor 3{OWN_CONFIG}"
    )
    assert config_command(OTHERS, "t", CONFIG) == (
        f"kafka-configs --bootstrap-server {OTHERS} --alter --entity-type topics --entity-name t "
        "--add-config retention.ms=-1,cleanup.policy=delete"
    )


def test_a_target_that_is_missing_on_the_embedded_kafka_is_made_by_a_command_of_ours() -> None:
    settings = Settings(bootstrap_servers=EMBEDDED)
    assert fault_of_topic(settings, "landed", None).endswith("kafka-journal kafka topic landed --replication 1")
