"""The broker that coordinates a consumer group dies while a transaction commits offsets of that group."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from journal.embedded.cluster import EmbeddedKafka
from journal.errors import OperatingError
from journal.kafka.clients import KafkaClients
from journal.kafka.ports import Consumed, Sent, TransactionalProducer
from tests.support.brokers import JVM_OPTIONS
from tests.support.processes.child import program

pytestmark = pytest.mark.kafka
TIMEOUT_S = 30.0
CALL_S = 12.0
LATE_S = 20.0
TOPIC = "orders"


def leaders(kafka: EmbeddedKafka, topic: str) -> list[int]:
    """The leaders of the topic's partitions, in the partitions' order."""
    told = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(topic, timeout=TIMEOUT_S)
    return [each.leader for _, each in sorted(told.topics[topic].partitions.items())]


def coordinator(name: str, led_by: list[int]) -> int:
    """The coordinator of a group or a transactional id leads the partition that Java's hash of the name gives."""
    code = 0
    for char in name.encode():
        code = (code * 31 + char) % 2**32
    return led_by[min(code, 2**32 - code) % len(led_by)]


def described_coordinator(kafka: EmbeddedKafka, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    found: int = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S).coordinator.id
    return found


class Scene:
    """A cluster with a topic, and names for which one broker coordinates the group and nothing else that is needed."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self._clients = KafkaClients(kafka.bootstrap_servers)
        self._clients.cluster().create(TOPIC, 1, 3, {}, TIMEOUT_S)
        self.group, self._id = "first", "first"
        self.commit(self.producer(), 1)  # now the topics of groups and of transactions are there
        leader = leaders(kafka, TOPIC)[0]
        groups, transactions = leaders(kafka, "__consumer_offsets"), leaders(kafka, "__transaction_state")
        names = [f"name-{n}" for n in range(100)]
        self.group = next(name for name in names if coordinator(name, groups) != leader)
        self.dying = coordinator(self.group, groups)
        self._id = next(name for name in names if coordinator(name, transactions) != self.dying)

    def producer(self) -> TransactionalProducer:
        producer = self._clients.transactional_producer(self._id)
        producer.init(TIMEOUT_S)
        return producer

    def begin(self, producer: TransactionalProducer) -> None:
        producer.send([Sent(TOPIC, 0, None, b"value")], TIMEOUT_S)

    def send_offset(self, producer: TransactionalProducer, offset: int, timeout_s: float = TIMEOUT_S) -> None:
        producer.send_offsets(Consumed(self.group, {(TOPIC, 0): offset}), timeout_s)

    def commit(self, producer: TransactionalProducer, offset: int) -> None:
        self.begin(producer)
        self.send_offset(producer, offset)
        producer.commit_transaction(TIMEOUT_S)

    def offset(self) -> int | None:
        return self._clients.cluster().stable_offsets(self.group, [(TOPIC, 0)], TIMEOUT_S).get((TOPIC, 0))


def test_offsets_end_in_time_when_their_coordinator_dies_and_a_new_instance_commits_them(tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path / "kafka", brokers=3, attached=True, jvm_options=JVM_OPTIONS) as kafka:
        scene = Scene(kafka)
        producer = scene.producer()
        scene.commit(producer, 2)
        assert described_coordinator(kafka, scene.group) == scene.dying

        scene.begin(producer)
        scene.send_offset(producer, 3)  # and once more, so that only the group's coordinator has anything to do
        kafka.kill(scene.dying)
        began = time.monotonic()
        with suppress(OperatingError):
            scene.send_offset(producer, 4, CALL_S)
        assert time.monotonic() - began < CALL_S + LATE_S
        producer.close()

        scene.commit(scene.producer(), 5)
        assert scene.offset() == 5


def test_a_client_of_a_coordinator_that_died_is_answered_by_the_next_one(tmp_path: Path) -> None:
    """The first is asked by a client that it has answered before, and is not the group's coordinator any more: the
    process of one that librdkafka ends is another's."""
    with EmbeddedKafka(tmp_path / "kafka", brokers=3, attached=True, jvm_options=JVM_OPTIONS) as kafka:
        scene = Scene(kafka)
        scene.commit(scene.producer(), 2)
        arguments = [kafka.bootstrap_servers, scene.group, TOPIC]
        command = program("askers", "patiently", *arguments)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as asking:
            assert asking.stdin is not None
            assert asking.stdout is not None
            try:
                assert asking.stdout.readline() == "2\n"
                kafka.kill(scene.dying)
                scene.commit(scene.producer(), 3)  # the next one's to coordinate
                kafka.start()
                asking.stdin.write("again\n")
                asking.stdin.flush()
                assert asking.stdout.readline() == "3\n"
            finally:
                asking.kill()
