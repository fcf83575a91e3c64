"""Offsets are committed with the transaction that they are sent in."""

from __future__ import annotations

import pytest

from journal.errors import FatalProducerError, OperatingError
from journal.kafka.ports import Consumed, TransactionalProducer
from tests.integration.conformance.environment import LIMIT_S, Environment, read_all, record, values, wait_for_end


def send(producer: TransactionalProducer, topic: str, group: str, offset: int) -> None:
    """A record, and an offset of the same topic."""
    producer.send([record(topic, b"%d" % offset)], LIMIT_S)
    producer.send_offsets(Consumed(group, {(topic, 0): offset}), LIMIT_S)


def test_offsets_are_committed_with_the_records_of_their_transaction(env: Environment) -> None:
    topic, group, producer, cluster = env.topic(1, {}), env.name(), env.producer(), env.kafka.cluster()
    assert cluster.stable_offsets(group, [(topic, 0)], LIMIT_S) == {}
    for offset in (3, 5):
        send(producer, topic, group, offset)
        producer.commit_transaction(LIMIT_S)
    wait_for_end(env, topic, 4)
    assert values(read_all(env, topic)) == [b"3", b"5"]
    assert cluster.stable_offsets(group, [(topic, 0)], LIMIT_S) == {(topic, 0): 5}


def test_offsets_of_an_aborted_transaction_are_not_committed(env: Environment) -> None:
    topic, group, producer, cluster = env.topic(1, {}), env.name(), env.producer(), env.kafka.cluster()
    send(producer, topic, group, 3)
    producer.commit_transaction(LIMIT_S)
    send(producer, topic, group, 9)
    producer.abort_transaction(LIMIT_S)
    wait_for_end(env, topic, 4)
    assert values(read_all(env, topic)) == [b"3"]
    assert cluster.stable_offsets(group, [(topic, 0)], LIMIT_S) == {(topic, 0): 3}


def test_offsets_of_an_open_transaction_are_settled_by_the_next_instances_init(env: Environment) -> None:
    topic, group, transactional_id = env.topic(1, {}), env.name(), env.name()
    cluster, old = env.kafka.cluster(), env.producer(transactional_id)
    send(old, topic, group, 3)
    with pytest.raises(OperatingError):
        cluster.stable_offsets(group, [(topic, 0)], 0.5)
    env.producer(transactional_id)
    assert cluster.stable_offsets(group, [(topic, 0)], LIMIT_S) == {}
    with pytest.raises(FatalProducerError) as error:
        old.commit_transaction(LIMIT_S)
    assert error.value.fenced


def test_an_older_instance_is_fenced_when_it_sends_offsets(env: Environment) -> None:
    topic, group, transactional_id = env.topic(1, {}), env.name(), env.name()
    old = env.producer(transactional_id)
    old.send([record(topic, b"a")], LIMIT_S)
    new = env.producer(transactional_id)
    with pytest.raises(FatalProducerError):
        old.send_offsets(Consumed(group, {(topic, 0): 3}), LIMIT_S)
    send(new, topic, group, 7)
    new.commit_transaction(LIMIT_S)
    assert env.kafka.cluster().stable_offsets(group, [(topic, 0)], LIMIT_S) == {(topic, 0): 7}
