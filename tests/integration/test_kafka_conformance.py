"""The conformance cases against the embedded Apache Kafka, through confluent-kafka."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from journal.kafka.clients import KafkaClients
from journal.kafka.ports import Kafka
from tests.support.kafka_conformance import CROWDED_RECORDS, LIMIT_S, Environment
from tests.support.kafka_conformance_writing import CASES

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def environment(bootstrap: str) -> Environment:
    kafka: Kafka = KafkaClients(bootstrap)
    cluster, admin = kafka.cluster(), AdminClient({"bootstrap.servers": bootstrap})

    def name() -> str:
        return f"conformance-{uuid.uuid4()}"

    def topic(partitions: int, config: Mapping[str, str]) -> str:
        new = name()
        cluster.create(new, partitions, 1, config, LIMIT_S)
        return new

    def trim(topic: str, partition: int, start: int) -> None:
        for future in admin.delete_records([TopicPartition(topic, partition, start)]).values():
            future.result(LIMIT_S)

    def delete_topic(topic: str) -> None:
        admin.delete_topics([topic])[topic].result(LIMIT_S)

    return Environment(
        kafka=kafka,
        impatient=KafkaClients(bootstrap, transaction_timeout_ms=1000),
        crowded=KafkaClients(bootstrap, {"queue.buffering.max.messages": str(CROWDED_RECORDS)}),
        topic=topic,
        name=name,
        trim=trim,
        delete_topic=delete_topic,
        clock=time.monotonic,
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_kafka_conforms(environment: Environment, case: Callable[[Environment], None]) -> None:
    case(environment)


def test_a_group_shows_its_live_members_and_its_committed_offsets(environment: Environment, bootstrap: str) -> None:
    topic, group, cluster = environment.topic(2, {}), environment.name(), environment.kafka.cluster()
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "client.id": "member"})
    member.subscribe([topic])
    deadline = time.monotonic() + LIMIT_S
    while len(member.assignment()) < 2:
        assert time.monotonic() < deadline
        member.poll(0.1)
    member.commit(offsets=[TopicPartition(topic, 1, 7)], asynchronous=False)
    (seen,) = cluster.group_members(group, LIMIT_S)
    assert (seen.client_id, sorted(seen.partitions)) == ("member", [(topic, 0), (topic, 1)])
    assert cluster.group_offsets(group, topic, LIMIT_S) == {1: 7}
    member.close()
    assert cluster.group_members(group, LIMIT_S) == []
    assert cluster.group_offsets(group, topic, LIMIT_S) == {1: 7}


def test_who_asks_for_a_group_for_less_than_an_answer_takes_lives_on(environment: Environment, bootstrap: str) -> None:
    """The process that asks is another's: librdkafka may end one whose request has timed out."""
    topic, group = environment.topic(1, {}), environment.name()
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    member.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    member.close()
    command = [sys.executable, "-m", "tests.support.impatient_asker", bootstrap, group, topic, "20"]
    asked = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=4 * LIMIT_S, check=False)
    assert asked.returncode == 0
    unanswered, answers = asked.stdout.split(" ", 1)
    assert int(unanswered) > 0
    assert answers == "[] {0: 7}\n"
