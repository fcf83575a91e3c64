"""Topics, groups and settings as the cluster describes them."""

from __future__ import annotations

import pytest

from journal.errors import KafkaRefusedError
from tests.integration.conformance.environment import LIMIT_S, Environment


def test_a_topic_is_described_as_it_was_created_and_created_once(env: Environment) -> None:
    cluster, name = env.kafka.cluster(), env.name()
    cluster.create(name, 3, 1, {"cleanup.policy": "compact", "retention.ms": "-1"}, LIMIT_S)
    state = cluster.describe([name, env.name()], LIMIT_S)
    assert list(state) == [name]
    assert (state[name].partitions, state[name].replication) == (3, 1)
    assert state[name].config["cleanup.policy"] == "compact"
    assert state[name].config["retention.ms"] == "-1"
    cluster.create(name, 5, 1, {}, LIMIT_S)
    assert cluster.describe([name], LIMIT_S) == state


def test_a_topic_that_was_deleted_and_created_again_has_another_id(env: Environment) -> None:
    cluster, topic = env.kafka.cluster(), env.topic(1, {})
    before = cluster.describe([topic], LIMIT_S)[topic].topic_id
    env.delete_topic(topic)
    cluster.create(topic, 1, 1, {}, LIMIT_S)
    after = cluster.describe([topic], LIMIT_S)[topic].topic_id
    assert after != before
    assert cluster.topic_ids([topic, env.name()], LIMIT_S) == {topic: after}


def test_more_replicas_than_brokers_are_refused(env: Environment) -> None:
    with pytest.raises(KafkaRefusedError):
        env.kafka.cluster().create(env.name(), 1, 9, {}, LIMIT_S)


def test_the_cluster_tells_its_id_and_what_its_brokers_have_for_a_setting(env: Environment) -> None:
    cluster = env.kafka.cluster()
    assert cluster.cluster_id(LIMIT_S) == env.kafka.cluster().cluster_id(LIMIT_S) != ""
    # Known since 3.6, the first release that verifies transactional produce.
    assert set(cluster.broker_config("transaction.partition.verification.enable", LIMIT_S).values()) == {"true"}
    assert set(cluster.broker_config("no.such.setting", LIMIT_S).values()) == {None}


def test_an_unknown_group_has_no_members_and_no_offsets(env: Environment) -> None:
    cluster, group = env.kafka.cluster(), env.name()
    assert cluster.group_members(group, LIMIT_S) == []
    assert cluster.group_offsets(group, env.topic(1, {}), LIMIT_S) == {}
