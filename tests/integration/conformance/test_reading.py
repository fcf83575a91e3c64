"""Readers see what was committed, in order, and say where it is not."""

from __future__ import annotations

from itertools import chain

import pytest

from journal.errors import GapError, TopicError
from journal.kafka.ports import RecordRun, Sent
from tests.integration.conformance.environment import (
    GLANCE_S,
    LIMIT_S,
    Environment,
    abort,
    commit,
    read,
    read_all,
    record,
    values,
    wait_for_end,
)


def test_committed_records_are_read_in_order_at_the_offsets_that_send_told(env: Environment) -> None:
    topic, producer = env.topic(1, {}), env.producer()
    offsets = commit(producer, *(record(topic, b"%d" % i) for i in range(5)))
    offsets += commit(producer, *(record(topic, b"%d" % i) for i in range(5, 8)))
    wait_for_end(env, topic, offsets[-1] + 2)
    records = read_all(env, topic)
    assert values(records) == [b"%d" % i for i in range(8)]
    assert [record.offset for record in records] == offsets


def test_a_transaction_marker_takes_an_offset(env: Environment) -> None:
    topic, producer = env.topic(1, {}), env.producer()
    assert commit(producer, record(topic, b"a"), record(topic, b"b")) == [0, 1]
    assert abort(producer, record(topic, b"c")) == [3]
    assert commit(producer, record(topic, b"d")) == [5]


def test_offsets_are_told_in_the_order_of_the_records_across_partitions(env: Environment) -> None:
    topic, producer = env.topic(2, {}), env.producer()
    commit(producer, record(topic, b"x", 1), record(topic, b"y", 1))
    sent = [record(topic, b"a", 1), record(topic, b"b", 0), record(topic, b"c", 1), record(topic, b"d", 0)]
    assert commit(producer, *sent) == [3, 0, 4, 1]


def test_keys_values_and_tombstones_come_back_as_they_were(env: Environment) -> None:
    topic, producer = env.topic(1, {}), env.producer()
    sent = [
        Sent(topic, 0, b"k", b"v"),
        Sent(topic, 0, b"k", None),
        Sent(topic, 0, None, b""),
        Sent(topic, 0, b"", b"w"),
    ]
    commit(producer, *sent)
    wait_for_end(env, topic, 5)
    records = read_all(env, topic)
    assert [(record.key, record.value) for record in records] == [(b"k", b"v"), (b"k", None), (None, b""), (b"", b"w")]
    assert all(record.partition == 0 and record.timestamp > 0 for record in records)


def test_a_commit_becomes_visible_in_every_partition(env: Environment) -> None:
    topic, producer = env.topic(3, {}), env.producer()
    commit(producer, *(record(topic, b"%d" % partition, partition) for partition in range(3)))
    for partition in range(3):
        wait_for_end(env, topic, 2, partition=partition)
        assert values(read_all(env, topic, partition)) == [b"%d" % partition]


def test_aborted_records_are_in_the_log_and_only_unfiltered_readers_see_them(env: Environment) -> None:
    topic, producer = env.topic(1, {}), env.producer()
    commit(producer, record(topic, b"a"))
    abort(producer, record(topic, b"b"), record(topic, b"c"))
    commit(producer, record(topic, b"d"))
    wait_for_end(env, topic, 7)
    assert values(read_all(env, topic)) == [b"a", b"d"]
    assert values(read_all(env, topic, committed=False)) == [b"a", b"b", b"c", b"d"]


def test_an_open_transaction_holds_back_what_others_committed_behind_it(env: Environment) -> None:
    topic, one, other = env.topic(1, {}), env.producer(), env.producer()
    commit(other, record(topic, b"before"))
    wait_for_end(env, topic, 2)
    one.send([record(topic, b"open")], LIMIT_S)
    env.kafka.plain_producer().send([record(topic, b"plain")], LIMIT_S)
    commit(other, record(topic, b"behind"))
    wait_for_end(env, topic, 6, committed=False)
    assert values(read_all(env, topic)) == [b"before"]
    assert values(read_all(env, topic, committed=False)) == [b"before", b"open", b"plain", b"behind"]
    one.commit_transaction(LIMIT_S)
    wait_for_end(env, topic, 7)
    assert values(read_all(env, topic)) == [b"before", b"open", b"plain", b"behind"]


def test_the_end_is_the_last_stable_offset_or_the_high_watermark(env: Environment) -> None:
    topic, producer = env.topic(1, {}), env.producer()
    committed, unfiltered = env.kafka.reader(topic), env.kafka.reader(topic, committed=False)
    assert committed.start_and_end(0, LIMIT_S) == unfiltered.start_and_end(0, LIMIT_S) == (0, 0)
    commit(producer, record(topic, b"a"))
    wait_for_end(env, topic, 2)
    producer.send([record(topic, b"b"), record(topic, b"c")], LIMIT_S)
    assert committed.start_and_end(0, LIMIT_S) == (0, 2)
    assert unfiltered.start_and_end(0, LIMIT_S) == (0, 4)


def test_the_bounds_of_many_partitions_are_those_of_each(env: Environment) -> None:
    topic, producer = env.topic(3, {}), env.producer()
    commit(producer, record(topic, b"a"), record(topic, b"b", 2))
    wait_for_end(env, topic, 2)
    wait_for_end(env, topic, 2, partition=2)
    env.trim(topic, 2, 1)
    producer.send([record(topic, b"open", 2)], LIMIT_S)
    committed, unfiltered = env.kafka.reader(topic), env.kafka.reader(topic, committed=False)
    for _ in range(2):
        assert committed.bounds(range(3), LIMIT_S) == {0: (0, 2), 1: (0, 0), 2: (1, 2)}
        assert unfiltered.bounds([2, 0], LIMIT_S) == {0: (0, 2), 2: (1, 3)}
        assert committed.ends(range(3), LIMIT_S) == {0: 2, 1: 0, 2: 2}
        assert unfiltered.ends([2, 0], LIMIT_S) == {0: 2, 2: 3}


def test_the_position_passes_markers_and_aborted_tails(env: Environment) -> None:
    topic, producer = env.topic(1, {}), env.producer()
    commit(producer, record(topic, b"a"))
    wait_for_end(env, topic, 2)
    reader = env.kafka.reader(topic)
    reader.seek({0: 0})
    assert values(read(env, reader)) == [b"a"]
    assert reader.position(0) == 2
    abort(producer, record(topic, b"b"), record(topic, b"c"))
    wait_for_end(env, topic, 5)
    assert read(env, reader) == []
    assert reader.position(0) == 5


def test_the_position_stands_at_an_open_transaction(env: Environment) -> None:
    topic, producer = env.topic(1, {}), env.producer()
    env.kafka.plain_producer().send([record(topic, b"a")], LIMIT_S)
    producer.send([record(topic, b"b")], LIMIT_S)
    reader = env.kafka.reader(topic)
    reader.seek({0: 0})
    assert values(read(env, reader)) == [b"a"]
    assert reader.poll(GLANCE_S) == []
    assert reader.position(0) == 1
    producer.commit_transaction(LIMIT_S)
    assert values(reader.poll(LIMIT_S)) == [b"b"]


def test_a_position_behind_an_open_transaction_waits_for_its_end(env: Environment) -> None:
    topic, producer = env.topic(1, {}), env.producer()
    producer.send([record(topic, b"a"), record(topic, b"b"), record(topic, b"c")], LIMIT_S)
    reader = env.kafka.reader(topic)
    reader.seek({0: 1})
    assert reader.poll(GLANCE_S) == []
    assert reader.position(0) == 1
    producer.commit_transaction(LIMIT_S)
    wait_for_end(env, topic, 4)
    assert values(read(env, reader)) == [b"b", b"c"]


def test_a_seek_reads_these_partitions_from_there_and_no_others(env: Environment) -> None:
    topic, plain = env.topic(2, {}), env.kafka.plain_producer()
    plain.send([record(topic, b"%d" % i, i % 2) for i in range(8)], LIMIT_S)
    reader = env.kafka.reader(topic)
    reader.seek({0: 0, 1: 0})
    assert sorted(values(read(env, reader, 0) + read(env, reader, 1))) == [b"%d" % i for i in range(8)]  # type: ignore[type-var]
    reader.seek({1: 2})
    assert values(read(env, reader, 1)) == [b"5", b"7"]
    assert reader.poll(GLANCE_S) == []
    reader.seek({0: 4})
    assert reader.poll(GLANCE_S) == []
    assert reader.position(0) == 4


def test_runs_are_the_same_records_as_columns(env: Environment) -> None:
    topic, plain = env.topic(2, {}), env.kafka.plain_producer()
    plain.send([record(topic, b"%d" % i, i % 2) for i in range(20)], LIMIT_S)
    reader = env.kafka.reader(topic)
    reader.seek({0: 0, 1: 0})
    read(env, reader)
    reader.seek({0: 3, 1: 0})
    runs: list[RecordRun] = []
    deadline = env.clock() + LIMIT_S
    while min(reader.position(0), reader.position(1)) < 10:
        assert env.clock() < deadline
        runs += reader.poll_runs(GLANCE_S)
    for partition, first in ((0, 3), (1, 0)):
        mine = [run for run in runs if run.partition == partition]
        records = [one for run in mine for one in run.records()]
        assert records == read_all(env, topic, partition)[first:]
        assert [offset for run in mine for offset in run.offsets] == [one.offset for one in records]
        assert [*chain(*[run.keys() for run in mine])] == [one.key for one in records]
        assert [*chain(*[run.values() for run in mine])] == values(records)
        assert [one for run in mine for one in [*run.records(0, 1), *run.records(1)]] == records


# ---- outside the log -----------------------------------------------------------------------------------------


def test_a_position_behind_the_end_is_a_gap(env: Environment) -> None:
    topic = env.topic(1, {})
    env.kafka.plain_producer().send([record(topic, b"a")], LIMIT_S)
    reader = env.kafka.reader(topic)
    reader.seek({0: 2})
    with pytest.raises(GapError) as gap:
        reader.poll(LIMIT_S)
    assert (gap.value.topic, gap.value.partition, gap.value.offset) == (topic, 0, 2)
    with pytest.raises(GapError):
        reader.poll(LIMIT_S)
    reader.seek({0: 0})
    assert values(reader.poll(LIMIT_S)) == [b"a"]


def test_a_position_before_a_trimmed_start_is_a_gap(env: Environment) -> None:
    topic = env.topic(1, {})
    env.kafka.plain_producer().send([record(topic, b"%d" % i) for i in range(4)], LIMIT_S)
    env.trim(topic, 0, 3)
    reader = env.kafka.reader(topic)
    assert reader.start_and_end(0, LIMIT_S) == (3, 4)
    reader.seek({0: 2})
    with pytest.raises(GapError):
        reader.poll(LIMIT_S)
    reader.seek({0: 3})
    assert values(reader.poll(LIMIT_S)) == [b"3"]


def test_a_missing_topic_is_named(env: Environment) -> None:
    missing = env.name()
    with pytest.raises(TopicError, match=missing):
        env.kafka.reader(missing).start_and_end(0, LIMIT_S)
    with pytest.raises(TopicError):
        env.kafka.plain_producer().send([record(missing, b"a")], LIMIT_S)
    assert env.kafka.cluster().describe([missing], LIMIT_S) == {}
