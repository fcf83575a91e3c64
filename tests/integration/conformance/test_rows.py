"""Rows are sent in bulk, with other records beside them, as one transaction."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from journal.errors import FatalProducerError, InvalidOperationError, ProducerError
from journal.kafka.ports import Kafka, Sent, TransactionalProducer
from tests.integration.conformance.environment import (
    LIMIT_S,
    Environment,
    commit,
    read_all,
    record,
    values,
    wait_for_end,
)

ROWS = 12_001
"""More than one call to librdkafka takes, and far more than a crowded producer has room for."""
TOPIC_BYTES = 800_000
TOO_LARGE = random.Random(ROWS).randbytes(TOPIC_BYTES + 50_000)
"""For the topic; not for the client, and not to be compressed."""


def rows_of(count: int) -> list[tuple[bytes, bytes | None]]:
    return [(b"%d" % i, b"value %d" % i if i % 3 else None) for i in range(count)]


def test_many_rows_are_one_transaction_and_the_last_one_is_behind_all_others(env: Environment) -> None:
    for kafka in (env.kafka, env.crowded):
        _commit_many_rows(env, kafka)


def _commit_many_rows(env: Environment, kafka: Kafka) -> None:
    topic, rows = env.topic(1, {"cleanup.policy": "compact"}), rows_of(ROWS)
    producer = kafka.transactional_producer(env.name())
    producer.init(LIMIT_S)
    offset = producer.send_rows(topic, 0, rows, LIMIT_S)
    assert offset == len(rows) - 1
    assert env.kafka.reader(topic).start_and_end(0, LIMIT_S) == (0, 0)
    producer.commit_transaction(LIMIT_S)
    wait_for_end(env, topic, len(rows) + 1)
    records = read_all(env, topic)
    assert (records[-1].offset, records[-1].key) == (offset, rows[-1][0])
    assert sorted((record.key or b"", record.value) for record in records) == sorted(rows)
    assert producer.send_rows(topic, 0, rows[:1], LIMIT_S) == len(rows) + 1


def test_records_beside_rows_keep_their_order_and_are_of_the_same_transaction(env: Environment) -> None:
    for kafka in (env.kafka, env.crowded):
        _commit_rows_and_records(env, kafka)


def _commit_rows_and_records(env: Environment, kafka: Kafka) -> None:
    topic, other, rows = env.topic(1, {"cleanup.policy": "compact"}), env.topic(2, {}), rows_of(ROWS)
    beside = [Sent(other, i % 2, b"key", b"%d" % i, [("name", b"%d" % i)]) for i in range(ROWS)]
    producer = kafka.transactional_producer(env.name())
    producer.init(LIMIT_S)
    taken: list[int] = []
    offset = producer.send_rows(
        topic,
        0,
        rows,
        LIMIT_S,
        beside=(taken.append(place) or each for place, each in enumerate(beside)),
        meanwhile=lambda: taken.append(-1),
    )
    assert offset == len(rows) - 1
    assert taken == [*range(ROWS), -1], "meanwhile is when all are on their way"
    reader = env.kafka.reader(other)
    assert [reader.start_and_end(part, LIMIT_S) for part in (0, 1)] == [(0, 0), (0, 0)]
    producer.commit_transaction(LIMIT_S)
    wait_for_end(env, topic, len(rows) + 1)
    records = read_all(env, topic)
    assert (records[-1].offset, records[-1].key) == (offset, rows[-1][0])
    for part in (0, 1):
        wait_for_end(env, other, ROWS // 2 + 1, partition=part)
        assert values(read_all(env, other, part)) == [each.value for each in beside[part::2]]


def test_a_refused_record_beside_rows_fails_the_transaction(env: Environment) -> None:
    topic, other, transactional_id = env.topic(1, {}), env.topic(1, {"max.message.bytes": str(TOPIC_BYTES)}), env.name()
    producer = env.producer(transactional_id)
    beside = [record(other, b"fits"), record(other, TOO_LARGE)]
    with pytest.raises(ProducerError) as error:
        _commit_rows(producer, topic, rows_of(2), beside)
    assert not (isinstance(error.value, FatalProducerError) and error.value.fenced)
    producer.close()
    commit(env.producer(transactional_id), record(topic, b"behind it"), record(other, b"behind it"))
    for each in (topic, other):
        wait_for_end(env, each, env.kafka.reader(each, committed=False).start_and_end(0, LIMIT_S)[1])
        assert values(read_all(env, each)) == [b"behind it"]


def test_a_refused_row_fails_the_transaction_and_nothing_of_it_is_committed(env: Environment) -> None:
    for place in (0, ROWS // 2, ROWS - 1):
        for kafka in (env.kafka, env.crowded):
            _send_with_a_row_too_large(env, kafka, place)


def _commit_rows(
    producer: TransactionalProducer, topic: str, rows: list[tuple[bytes, bytes | None]], beside: Sequence[Sent] = ()
) -> None:
    """Either of the two may fail."""
    producer.send_rows(topic, 0, rows, LIMIT_S, beside=beside)
    producer.commit_transaction(LIMIT_S)


def _send_with_a_row_too_large(env: Environment, kafka: Kafka, place: int) -> None:
    topic, transactional_id = env.topic(1, {"max.message.bytes": str(TOPIC_BYTES)}), env.name()
    producer = kafka.transactional_producer(transactional_id)
    producer.init(LIMIT_S)
    rows = rows_of(ROWS)
    rows[place] = (b"large", TOO_LARGE)
    with pytest.raises(ProducerError) as error:
        _commit_rows(producer, topic, rows)
    assert not (isinstance(error.value, FatalProducerError) and error.value.fenced)
    producer.close()
    commit(env.producer(transactional_id), record(topic, b"behind it"))
    end = env.kafka.reader(topic, committed=False).start_and_end(0, LIMIT_S)[1]
    wait_for_end(env, topic, end)
    assert values(read_all(env, topic)) == [b"behind it"]


def test_a_transaction_without_rows_is_refused(env: Environment) -> None:
    topic, producer = env.topic(1, {}), env.producer()
    with pytest.raises(InvalidOperationError):
        producer.send_rows(topic, 0, [], LIMIT_S)
    assert producer.send_rows(topic, 0, rows_of(1), LIMIT_S) == 0
