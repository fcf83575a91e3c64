"""What calls of producers and readers do, and which errors they raise."""

from __future__ import annotations

import pytest

from journal.errors import ClosedError, FatalProducerError, InvalidOperationError, KafkaRefusedError
from tests.integration.conformance.environment import (
    GLANCE_S,
    LIMIT_S,
    Environment,
    abort,
    commit,
    read_all,
    record,
    values,
    wait_for_end,
)


def test_transactions_of_one_producer_follow_each_other(env: Environment) -> None:
    topic, producer = env.topic(1, {}), env.producer()
    for i in range(10):
        commit(producer, record(topic, b"%d" % i))
    wait_for_end(env, topic, 20)
    assert values(read_all(env, topic)) == [b"%d" % i for i in range(10)]


def test_an_abort_is_followed_by_the_next_transaction(env: Environment) -> None:
    topic, producer = env.topic(1, {}), env.producer()
    abort(producer, record(topic, b"a"))
    commit(producer, record(topic, b"b"))
    wait_for_end(env, topic, 4)
    assert values(read_all(env, topic)) == [b"b"]


def test_a_record_that_the_broker_refuses_is_the_end_of_its_producer_and_the_next_goes_on(env: Environment) -> None:
    topic, transactional_id = env.topic(2, {"cleanup.policy": "compact"}), env.name()
    producer = env.producer(transactional_id)
    with pytest.raises(FatalProducerError) as error:
        producer.send([record(topic, b"a", key=b"k"), record(topic, b"without a key", 1)], LIMIT_S)
    assert not error.value.fenced
    producer.close()
    offset = commit(env.producer(transactional_id), record(topic, b"b", key=b"k"))[0]
    wait_for_end(env, topic, offset + 2)
    assert values(read_all(env, topic)) == [b"b"]


def test_calls_out_of_order_are_fatal(env: Environment) -> None:
    topic, producer = env.topic(1, {}), env.producer()
    with pytest.raises(FatalProducerError):
        producer.commit_transaction(LIMIT_S)
    fresh = env.kafka.transactional_producer(env.name())
    with pytest.raises(FatalProducerError):
        fresh.send([record(topic, b"a")], LIMIT_S)
    twice = env.producer()
    twice.send([record(topic, b"a")], LIMIT_S)
    with pytest.raises(FatalProducerError):
        twice.send([record(topic, b"b")], LIMIT_S)


def test_a_transaction_without_records_is_refused(env: Environment) -> None:
    topic, producer = env.topic(1, {}), env.producer()
    with pytest.raises(InvalidOperationError):
        producer.send([], LIMIT_S)
    assert commit(producer, record(topic, b"a")) == [0]


def test_plain_writes_are_there_when_send_returns(env: Environment) -> None:
    topic, plain = env.topic(2, {}), env.kafka.plain_producer()
    assert plain.send([record(topic, b"a"), record(topic, b"b", 1), record(topic, b"c")], LIMIT_S) == [0, 0, 1]
    assert values(read_all(env, topic)) == [b"a", b"c"]
    compacted = env.topic(1, {"cleanup.policy": "compact"})
    with pytest.raises(KafkaRefusedError):
        plain.send([record(compacted, b"without a key")], LIMIT_S)


def test_closed_clients_say_so(env: Environment) -> None:
    topic, producer, plain = env.topic(1, {}), env.producer(), env.kafka.plain_producer()
    reader, cluster = env.kafka.reader(topic), env.kafka.cluster()
    for client in (producer, plain, reader, cluster):
        client.close()
        client.close()
    with pytest.raises(ClosedError):
        producer.send([record(topic, b"a")], LIMIT_S)
    with pytest.raises(ClosedError):
        plain.send([record(topic, b"a")], LIMIT_S)
    with pytest.raises(ClosedError):
        reader.poll(GLANCE_S)
    with pytest.raises(ClosedError):
        cluster.cluster_id(LIMIT_S)
