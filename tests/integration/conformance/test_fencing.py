"""A newer producer of a transactional id fences the older one, and nobody else."""

from __future__ import annotations

import pytest

from journal.errors import FatalProducerError
from tests.integration.conformance.environment import (
    LIMIT_S,
    Environment,
    commit,
    read_all,
    record,
    values,
    wait_for_end,
)


def test_an_older_instance_is_fenced_when_it_sends(env: Environment) -> None:
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


def test_an_older_instance_is_fenced_when_it_commits_and_its_records_are_aborted(env: Environment) -> None:
    topic, transactional_id = env.topic(1, {}), env.name()
    old = env.producer(transactional_id)
    old.send([record(topic, b"a")], LIMIT_S)
    env.producer(transactional_id)
    with pytest.raises(FatalProducerError) as error:
        old.commit_transaction(LIMIT_S)
    assert error.value.fenced
    assert read_all(env, topic) == []


def test_an_older_instance_is_fenced_when_it_aborts(env: Environment) -> None:
    topic, transactional_id = env.topic(1, {}), env.name()
    old = env.producer(transactional_id)
    old.send([record(topic, b"a")], LIMIT_S)
    env.producer(transactional_id)
    with pytest.raises(FatalProducerError) as error:
        old.abort_transaction(LIMIT_S)
    assert error.value.fenced


def test_an_older_instance_does_not_disturb_the_open_transaction_of_the_newer(env: Environment) -> None:
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


def test_an_instance_that_only_connects_fences_nobody_until_its_init(env: Environment) -> None:
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


def test_a_fenced_instance_stays_fenced(env: Environment) -> None:
    topic, transactional_id = env.topic(1, {}), env.name()
    old = env.producer(transactional_id)
    env.producer(transactional_id)
    for _ in range(2):
        with pytest.raises(FatalProducerError):
            old.send([record(topic, b"a")], LIMIT_S)


def test_an_init_aborts_what_its_predecessor_left_open(env: Environment) -> None:
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


def test_an_init_leaves_what_was_committed(env: Environment) -> None:
    topic, transactional_id = env.topic(1, {}), env.name()
    commit(env.producer(transactional_id), record(topic, b"a"))
    env.producer(transactional_id)
    assert values(read_all(env, topic)) == [b"a"]


def test_the_coordinator_ends_a_transaction_past_its_time_out_and_its_producer_is_fenced(
    env: Environment,
) -> None:
    topic = env.topic(1, {})
    slow = env.impatient.transactional_producer(env.name())
    slow.init(LIMIT_S)
    slow.send([record(topic, b"a")], LIMIT_S)
    wait_for_end(env, topic, 2)
    assert read_all(env, topic) == []
    with pytest.raises(FatalProducerError) as error:
        slow.commit_transaction(LIMIT_S)
    assert error.value.fenced
