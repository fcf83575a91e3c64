"""The conformance cases about who may write, what an error means, and administration. See `kafka_conformance`."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from journal.errors import ClosedError, FatalProducerError, InvalidOperationError, KafkaRefusedError, ProducerError
from journal.kafka.ports import Kafka, Sent, TransactionalProducer
from tests.support.kafka_conformance import (
    GLANCE_S,
    LIMIT_S,
    READING,
    Environment,
    abort,
    commit,
    read_all,
    record,
    values,
    wait_for_end,
)
from tests.support.kafka_conformance_offsets import OFFSETS

# ---- fencing -------------------------------------------------------------------------------------------------


def an_older_instance_is_fenced_when_it_sends(env: Environment) -> None:
    topic, transactional_id = env.topic(1, {}), env.name()
    old = env.producer(transactional_id)
    commit(old, record(topic, b"a"))
    new = env.producer(transactional_id)
    with pytest.raises(FatalProducerError) as error:
        old.send([record(topic, b"b")], LIMIT_S)
    assert error.value.fenced
    commit(new, record(topic, b"c"))
    wait_for_end(env, topic, 4)
    assert values(read_all(env, topic, committed=False)) == [b"a", b"c"]


def an_older_instance_is_fenced_when_it_commits_and_its_records_are_aborted(env: Environment) -> None:
    topic, transactional_id = env.topic(1, {}), env.name()
    old = env.producer(transactional_id)
    old.send([record(topic, b"a")], LIMIT_S)
    env.producer(transactional_id)
    with pytest.raises(FatalProducerError) as error:
        old.commit_transaction(LIMIT_S)
    assert error.value.fenced
    assert read_all(env, topic) == []


def an_older_instance_is_fenced_when_it_aborts(env: Environment) -> None:
    topic, transactional_id = env.topic(1, {}), env.name()
    old = env.producer(transactional_id)
    old.send([record(topic, b"a")], LIMIT_S)
    env.producer(transactional_id)
    with pytest.raises(FatalProducerError) as error:
        old.abort_transaction(LIMIT_S)
    assert error.value.fenced


def an_older_instance_does_not_disturb_the_open_transaction_of_the_newer(env: Environment) -> None:
    topic, transactional_id = env.topic(1, {}), env.name()
    old = env.producer(transactional_id)
    old.send([record(topic, b"old")], LIMIT_S)
    new = env.producer(transactional_id)
    new.send([record(topic, b"new")], LIMIT_S)
    with pytest.raises(FatalProducerError):
        old.commit_transaction(LIMIT_S)
    old.close()
    assert new.commit_transaction(LIMIT_S) in (True, False)
    wait_for_end(env, topic, 4)
    assert values(read_all(env, topic)) == [b"new"]


def an_instance_that_only_connects_fences_nobody_until_its_init(env: Environment) -> None:
    topic, transactional_id = env.topic(1, {}), env.name()
    active = env.producer(transactional_id)
    active.send([record(topic, b"a")], LIMIT_S)
    waiting = env.kafka.transactional_producer(transactional_id)
    for _ in range(2):
        assert waiting.connect([topic], LIMIT_S)
    active.commit_transaction(LIMIT_S)
    commit(active, record(topic, b"b"))
    waiting.init(LIMIT_S)
    commit(waiting, record(topic, b"c"))
    with pytest.raises(FatalProducerError):
        commit(active, record(topic, b"late"))
    wait_for_end(env, topic, 6)
    assert values(read_all(env, topic)) == [b"a", b"b", b"c"]


def a_fenced_instance_stays_fenced(env: Environment) -> None:
    topic, transactional_id = env.topic(1, {}), env.name()
    old = env.producer(transactional_id)
    env.producer(transactional_id)
    for _ in range(2):
        with pytest.raises(FatalProducerError):
            old.send([record(topic, b"a")], LIMIT_S)


def an_init_aborts_what_its_predecessor_left_open(env: Environment) -> None:
    topic, transactional_id = env.topic(2, {}), env.name()
    crashed = env.producer(transactional_id)
    crashed.send([record(topic, b"a", 0), record(topic, b"b", 1)], LIMIT_S)
    crashed.close()
    assert env.kafka.reader(topic).start_and_end(0, LIMIT_S) == (0, 0)
    env.producer(transactional_id)
    for partition in range(2):
        # By the time init has returned its markers are there: this end is not waited for.
        assert env.kafka.reader(topic).start_and_end(partition, LIMIT_S) == (0, 2)
        assert read_all(env, topic, partition) == []


def an_init_leaves_what_was_committed(env: Environment) -> None:
    topic, transactional_id = env.topic(1, {}), env.name()
    commit(env.producer(transactional_id), record(topic, b"a"))
    env.producer(transactional_id)
    assert values(read_all(env, topic)) == [b"a"]


def the_coordinator_ends_a_transaction_that_outlives_its_time_out_and_its_producer_is_fenced(env: Environment) -> None:
    topic = env.topic(1, {})
    slow = env.impatient.transactional_producer(env.name())
    slow.init(LIMIT_S)
    slow.send([record(topic, b"a")], LIMIT_S)
    wait_for_end(env, topic, 2)
    assert read_all(env, topic) == []
    with pytest.raises(FatalProducerError) as error:
        slow.commit_transaction(LIMIT_S)
    assert error.value.fenced


# ---- rows in bulk --------------------------------------------------------------------------------------------

ROWS = 12_001
"""More than one call to librdkafka takes, and far more than a crowded producer has room for."""
TOPIC_BYTES = 800_000
TOO_LARGE = random.Random(ROWS).randbytes(TOPIC_BYTES + 50_000)
"""For the topic; not for the client, and not to be compressed."""


def rows_of(count: int) -> list[tuple[bytes, bytes | None]]:
    return [(b"%d" % i, b"value %d" % i if i % 3 else None) for i in range(count)]


def many_rows_are_one_transaction_and_the_last_one_is_behind_all_others(env: Environment) -> None:
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


def records_beside_rows_keep_their_order_and_are_of_the_same_transaction(env: Environment) -> None:
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


def a_refused_record_beside_rows_fails_the_transaction(env: Environment) -> None:
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


def a_refused_row_fails_the_transaction_and_nothing_of_it_is_committed(env: Environment) -> None:
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


def a_transaction_without_rows_is_refused(env: Environment) -> None:
    topic, producer = env.topic(1, {}), env.producer()
    with pytest.raises(InvalidOperationError):
        producer.send_rows(topic, 0, [], LIMIT_S)
    assert producer.send_rows(topic, 0, rows_of(1), LIMIT_S) == 0


# ---- calls and their errors ----------------------------------------------------------------------------------


def transactions_of_one_producer_follow_each_other(env: Environment) -> None:
    topic, producer = env.topic(1, {}), env.producer()
    for i in range(10):
        commit(producer, record(topic, b"%d" % i))
    wait_for_end(env, topic, 20)
    assert values(read_all(env, topic)) == [b"%d" % i for i in range(10)]


def an_abort_is_followed_by_the_next_transaction(env: Environment) -> None:
    topic, producer = env.topic(1, {}), env.producer()
    abort(producer, record(topic, b"a"))
    commit(producer, record(topic, b"b"))
    wait_for_end(env, topic, 4)
    assert values(read_all(env, topic)) == [b"b"]


def a_record_that_the_broker_refuses_is_the_end_of_its_producer_and_the_next_goes_on(env: Environment) -> None:
    topic, transactional_id = env.topic(2, {"cleanup.policy": "compact"}), env.name()
    producer = env.producer(transactional_id)
    with pytest.raises(FatalProducerError) as error:
        producer.send([record(topic, b"a", key=b"k"), record(topic, b"without a key", 1)], LIMIT_S)
    assert not error.value.fenced
    producer.close()
    offset = commit(env.producer(transactional_id), record(topic, b"b", key=b"k"))[0]
    wait_for_end(env, topic, offset + 2)
    assert values(read_all(env, topic)) == [b"b"]


def calls_out_of_order_are_fatal(env: Environment) -> None:
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


def a_transaction_without_records_is_refused(env: Environment) -> None:
    topic, producer = env.topic(1, {}), env.producer()
    with pytest.raises(InvalidOperationError):
        producer.send([], LIMIT_S)
    assert commit(producer, record(topic, b"a")) == [0]


def plain_writes_are_there_when_send_returns(env: Environment) -> None:
    topic, plain = env.topic(2, {}), env.kafka.plain_producer()
    assert plain.send([record(topic, b"a"), record(topic, b"b", 1), record(topic, b"c")], LIMIT_S) == [0, 0, 1]
    assert values(read_all(env, topic)) == [b"a", b"c"]
    compacted = env.topic(1, {"cleanup.policy": "compact"})
    with pytest.raises(KafkaRefusedError):
        plain.send([record(compacted, b"without a key")], LIMIT_S)


def closed_clients_say_so(env: Environment) -> None:
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


# ---- administration ------------------------------------------------------------------------------------------


def a_topic_is_described_as_it_was_created_and_created_once(env: Environment) -> None:
    cluster, name = env.kafka.cluster(), env.name()
    cluster.create(name, 3, 1, {"cleanup.policy": "compact", "retention.ms": "-1"}, LIMIT_S)
    state = cluster.describe([name, env.name()], LIMIT_S)
    assert list(state) == [name]
    assert (state[name].partitions, state[name].replication) == (3, 1)
    assert state[name].config["cleanup.policy"] == "compact"
    assert state[name].config["retention.ms"] == "-1"
    cluster.create(name, 5, 1, {}, LIMIT_S)
    assert cluster.describe([name], LIMIT_S) == state


def a_topic_that_was_deleted_and_created_again_has_another_id(env: Environment) -> None:
    cluster, topic = env.kafka.cluster(), env.topic(1, {})
    before = cluster.describe([topic], LIMIT_S)[topic].topic_id
    env.delete_topic(topic)
    cluster.create(topic, 1, 1, {}, LIMIT_S)
    after = cluster.describe([topic], LIMIT_S)[topic].topic_id
    assert after != before
    assert cluster.topic_ids([topic, env.name()], LIMIT_S) == {topic: after}


def more_replicas_than_brokers_are_refused(env: Environment) -> None:
    with pytest.raises(KafkaRefusedError):
        env.kafka.cluster().create(env.name(), 1, 9, {}, LIMIT_S)


def the_cluster_tells_its_id_and_what_its_brokers_have_for_a_setting(env: Environment) -> None:
    cluster = env.kafka.cluster()
    assert cluster.cluster_id(LIMIT_S) == env.kafka.cluster().cluster_id(LIMIT_S) != ""
    # Known since 3.6, the first release that verifies transactional produce.
    assert set(cluster.broker_config("transaction.partition.verification.enable", LIMIT_S).values()) == {"true"}
    assert set(cluster.broker_config("no.such.setting", LIMIT_S).values()) == {None}


def an_unknown_group_has_no_members_and_no_offsets(env: Environment) -> None:
    cluster, group = env.kafka.cluster(), env.name()
    assert cluster.group_members(group, LIMIT_S) == []
    assert cluster.group_offsets(group, env.topic(1, {}), LIMIT_S) == {}


CASES: list[Callable[[Environment], None]] = [
    *READING,
    *OFFSETS,
    an_older_instance_is_fenced_when_it_sends,
    an_older_instance_is_fenced_when_it_commits_and_its_records_are_aborted,
    an_older_instance_is_fenced_when_it_aborts,
    an_older_instance_does_not_disturb_the_open_transaction_of_the_newer,
    an_instance_that_only_connects_fences_nobody_until_its_init,
    a_fenced_instance_stays_fenced,
    an_init_aborts_what_its_predecessor_left_open,
    an_init_leaves_what_was_committed,
    the_coordinator_ends_a_transaction_that_outlives_its_time_out_and_its_producer_is_fenced,
    many_rows_are_one_transaction_and_the_last_one_is_behind_all_others,
    records_beside_rows_keep_their_order_and_are_of_the_same_transaction,
    a_refused_record_beside_rows_fails_the_transaction,
    a_refused_row_fails_the_transaction_and_nothing_of_it_is_committed,
    a_transaction_without_rows_is_refused,
    transactions_of_one_producer_follow_each_other,
    an_abort_is_followed_by_the_next_transaction,
    a_record_that_the_broker_refuses_is_the_end_of_its_producer_and_the_next_goes_on,
    calls_out_of_order_are_fatal,
    a_transaction_without_records_is_refused,
    plain_writes_are_there_when_send_returns,
    closed_clients_say_so,
    a_topic_is_described_as_it_was_created_and_created_once,
    a_topic_that_was_deleted_and_created_again_has_another_id,
    more_replicas_than_brokers_are_refused,
    the_cluster_tells_its_id_and_what_its_brokers_have_for_a_setting,
    an_unknown_group_has_no_members_and_no_offsets,
]
