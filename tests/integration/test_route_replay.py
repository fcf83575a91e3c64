"""`routes replay` on a real Kafka: killed in the middle and run again, it has sent everything exactly once more."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Message as Record

from journal.config import Settings
from journal.kafka.clients import KafkaClients
from journal.routing.config import RoutingConfig
from journal.store.model import Message, QueueConfig
from tests.support.in_process import made_journal, running_worker
from tests.support.processes.child import program
from tests.support.processes.command import command_env, run_command
from tests.support.sources import DEADLINE_S, create_topic, new_name
from tests.support.stream_apps import active_store
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

MESSAGES = 5000
"""Several transactions of a replay for each shard."""

RANGE = ("--from", "2020-01-01T00:00:00Z", "--to", "2100-01-01T00:00:00Z")


def end_of(bootstrap: str, topic: str) -> int:
    """Where a topic of one partition ends, committed or not."""
    reader = KafkaClients(bootstrap).reader(topic, committed=False)
    try:
        return reader.start_and_end(0, DEADLINE_S)[1]
    finally:
        reader.close()


def records(bootstrap: str, topic: str) -> list[Record]:
    """All committed records of a topic with one partition, many at once."""
    config = {"bootstrap.servers": bootstrap, "group.id": topic, "isolation.level": "read_committed"}
    consumer = Consumer(config | {"enable.auto.commit": False})
    place = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(place, DEADLINE_S)
    consumer.assign([place])
    found: list[Record] = []

    def read() -> bool:
        found.extend(record for record in consumer.consume(10_000, 0.2) if record.error() is None)
        return end == 0 or consumer.position([place])[0].offset >= end

    wait_until(read)
    consumer.close()
    return found


def wait_for(bootstrap: str, topic: str, count: int) -> list[Record]:
    wait_until(lambda: end_of(bootstrap, topic) >= count)
    wait_until(lambda: len(records(bootstrap, topic)) >= count)
    return records(bootstrap, topic)


def with_route(bootstrap: str, directory: Path, topic: str) -> Settings:
    settings = made_journal(bootstrap, directory, shards=2)
    route = {"name": "out", "address": "orders.#", "targets": [{"topic": topic, "key": "header:k"}]}
    return settings.model_copy(update={"routing": RoutingConfig.model_validate({"routes": [route]})})


def env_of(settings: Settings, directory: Path) -> dict[str, str]:
    routing = json.dumps(settings.routing.model_dump(mode="json"))
    return command_env(settings.bootstrap_servers, settings.journal, directory, {"KAFKA_JOURNAL_ROUTING": routing})


def replay(env: dict[str, str], *arguments: str | int) -> dict[str, Any]:
    ended = run_command("routes", "replay", "out", *arguments, "--json", env=env)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_a_replay_that_is_killed_and_run_again_has_sent_everything_exactly_once_more(
    bootstrap: str, tmp_path: Path
) -> None:
    topic = create_topic(bootstrap, new_name())
    settings = with_route(bootstrap, tmp_path / "own", topic)
    env = env_of(settings, tmp_path / "command")
    addresses = [f"orders.{number}" for number in range(8)]
    with running_worker(settings), active_store(settings) as store:
        for address in addresses:
            store.create_address(address)
            store.create_queue(QueueConfig(f"q.{address}", address)).wait()
        for number in range(MESSAGES):
            address = addresses[number % len(addresses)]
            store.send(Message(address, b"%d" % number, properties={"k": address}), [f"q.{address}"])
        store.flush().wait()
        first = wait_for(bootstrap, topic, MESSAGES)
    end = end_of(bootstrap, topic)
    assert replay(env, *RANGE, "--dry-run")["sent"] == MESSAGES
    assert end_of(bootstrap, topic) == end

    crashing = program("crashing", "second-transaction", tmp_path, "routes", "replay", "out", *RANGE, "--json")
    killed = subprocess.run(crashing, env=env, capture_output=True, timeout=DEADLINE_S)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert end_of(bootstrap, topic) > end
    rest = replay(env, *RANGE)
    assert 0 < rest["sent"] < MESSAGES
    assert replay(env, *RANGE)["sent"] == 0

    found = records(bootstrap, topic)
    again = found[len(first) :]
    assert sorted(int(record.value() or b"") for record in again) == list(range(MESSAGES))
    for address in addresses:
        key = address.encode()
        of_worker = [record.value() for record in first if record.key() == key]
        assert [record.value() for record in again if record.key() == key] == of_worker, "in the order of the WAL"
    assert all(dict(record.headers() or [])["kafka-journal.replayed"] == b"true" for record in again)
    assert not any("kafka-journal.replayed" in dict(record.headers() or []) for record in first)


def test_a_replay_takes_ids_as_a_range_and_refuses_ranges_that_cannot_be(bootstrap: str, tmp_path: Path) -> None:
    topic = create_topic(bootstrap, new_name())
    settings = with_route(bootstrap, tmp_path / "own", topic)
    env = env_of(settings, tmp_path / "command")
    with running_worker(settings), active_store(settings) as store:
        store.create_address("orders.x")
        store.create_queue(QueueConfig("q", "orders.x")).wait()
        sent = [store.send(Message("orders.x", body, properties={"k": "x"}), ["q"]) for body in (b"a", b"b", b"c")]
        store.flush().wait()
        wait_for(bootstrap, topic, 3)
    assert replay(env, "--ids", sent[1].id)["sent"] == 1
    assert replay(env, "--ids", f"{sent[1].id}-{sent[2].id}", "--again", 1)["sent"] == 2
    assert [record.value() for record in records(bootstrap, topic)] == [b"a", b"b", b"c", b"b", b"b", b"c"]
    shown = run_command("routes", "replay", "out", "--ids", sent[1].id, env=env)
    assert (shown.returncode, "--again 1 sends it once more" in shown.stdout) == (0, True)
    for arguments, what in (
        (("no-such", "--ids", "1"), "its routes are out"),
        (("out",), "say which messages"),
        (("out", "--ids", "9-3"), "is empty"),
        (("out", "--ids", "x"), "expected an id"),
        (("out", "--ids", "3-"), "expected an id"),
        (("out", "--ids", "1", *RANGE), "of ids"),
        (("out", "--from", "2020-01-01T00:00:00", "--to", "2021-01-01T00:00:00Z"), "no time zone"),
        (("out", "--from", "2021-01-01T00:00:00Z", "--to", "2020-01-01T00:00:00Z"), "is empty"),
    ):
        ended = run_command("routes", "replay", *arguments, env=env)
        assert (ended.returncode, what in ended.stderr) == (2, True), ended.stderr
