"""What `init` says of topics that somebody else makes."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from journal.cli.main import app
from journal.config import Settings
from journal.topics.required_topics import required_topics

OPTIONS = ["init", "-j", "orders", "-b", "127.0.0.1:1", "--shards", "4", "--replication", "3", "--dry-run"]
"""Nothing answers at that address: a dry run asks no Kafka."""

REQUIRED = required_topics(
    Settings(journal="orders", bootstrap_servers="127.0.0.1:1", shards=4, replication=3), shards=4
)


def dry_run(*more: str) -> str:
    return shown([*OPTIONS, *more]).stdout


def shown(command: list[str]) -> Result:
    return CliRunner().invoke(app, command)


def test_a_dry_run_prints_a_command_of_kafkas_for_each_topic() -> None:
    lines = [shlex.split(line) for line in dry_run().splitlines()]
    for words, topic in zip(lines, REQUIRED, strict=True):
        assert words[:6] == ["kafka-topics", "--bootstrap-server", "127.0.0.1:1", "--create", "--topic", topic.name]
        assert words[6:10] == ["--partitions", str(topic.partitions), "--replication-factor", "3"]
        assert dict(each.split("=") for each in words[11::2]) == topic.config


@pytest.mark.parametrize("asked", [["--format", "json"], ["--json"]])
def test_a_dry_run_gives_topics_as_json(asked: list[str]) -> None:
    found: dict[str, Any] = json.loads(dry_run(*asked))
    assert found["journal"] == "orders"
    assert [(each["topic"], each["partitions"]) for each in found["topics"]] == [
        ("orders.wal", 4),
        ("orders.table", 4),
        ("orders.control", 1),
    ]
    assert [each["config"] for each in found["topics"]] == [topic.config for topic in REQUIRED]
    assert found["topics"][0]["required"]["min.insync.replicas"] == {
        "bound": "at least",
        "setting": "min_insync",
        "why": "what was acknowledged is on so many brokers",
    }


def test_a_dry_run_gives_topics_as_resources_of_strimzi() -> None:
    resources = dry_run("--format", "strimzi").split("---\n")[1:]
    for resource, topic in zip(resources, REQUIRED, strict=True):
        assert "kind: KafkaTopic\n" in resource
        assert f"  topicName: {topic.name}\n  partitions: {topic.partitions}\n  replicas: 3\n" in resource
        for key, value in topic.config.items():
            assert f"    {key}: {value}  # " in resource


def test_a_format_without_a_dry_run_is_refused() -> None:
    refused = shown([*OPTIONS[:-1], "--format", "json"])
    assert refused.exit_code == 2
    assert "--format is for --dry-run" in refused.stderr
