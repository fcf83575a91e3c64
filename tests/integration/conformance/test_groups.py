"""What a real group of consumers shows of itself to whoever asks."""

from __future__ import annotations

import subprocess
import time

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.integration.conformance.environment import LIMIT_S, Environment
from tests.support.processes.child import program

pytestmark = pytest.mark.kafka


def test_a_group_shows_its_live_members_and_its_committed_offsets(real: Environment, bootstrap: str) -> None:
    topic, group, cluster = real.topic(2, {}), real.name(), real.kafka.cluster()
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


def test_who_asks_for_a_group_for_less_than_an_answer_takes_lives_on(real: Environment, bootstrap: str) -> None:
    """The process that asks is another's: librdkafka may end one whose request has timed out."""
    topic, group = real.topic(1, {}), real.name()
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    member.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    member.close()
    command = program("askers", "impatiently", bootstrap, group, topic, 20)
    asked = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=4 * LIMIT_S, check=False)
    assert asked.returncode == 0
    unanswered, answers = asked.stdout.split(" ", 1)
    assert int(unanswered) > 0
    assert answers == "[] {0: 7}\n"
