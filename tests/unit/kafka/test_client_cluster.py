"""Brokers that have not heard yet of what another one has made."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from journal.kafka.client_cluster import KafkaCluster
from journal.kafka.client_settings import ClientSettings

LIMIT_S = 5.0


class Answering:
    """An admin client whose broker tells of a topic only when it is asked for the nth time."""

    def __init__(self, late: Mapping[str, int]) -> None:
        self.left = dict(late)

    def create_topics(self, topics: list[Any], **_: float) -> dict[str, Future[None]]:
        return {topic.topic: _done(None) for topic in topics}

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        return {name: _done(self._topic(name)) for name in topics.topic_names if self._is_known(name)}

    def describe_configs(self, resources: list[Any], **_: float) -> dict[Any, Future[Any]]:
        return {resource: _done({}) for resource in resources}

    def _is_known(self, name: str) -> bool:
        self.left[name] = self.left.get(name, 10**6) - 1
        return self.left[name] < 0

    def _topic(self, name: str) -> Any:
        part = SimpleNamespace(leader=1, replicas=[1])
        return SimpleNamespace(topic_id=name, partitions=[part], authorized_operations=None)


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def cluster_of(late: Mapping[str, int]) -> KafkaCluster:
    cluster = KafkaCluster(ClientSettings("127.0.0.1:1", {}))
    cluster._client = Answering(late)  # type: ignore[assignment]
    return cluster


def test_a_topic_that_was_just_made_is_asked_for_until_the_broker_knows_it() -> None:
    cluster = cluster_of({"made": 3, "there": 0})
    cluster.create("made", 1, 1, {}, LIMIT_S)
    cluster._client.left["made"] = 3  # type: ignore[union-attr]  # the next one that is asked is another broker
    assert cluster.describe(["made", "there"], LIMIT_S).keys() == {"made", "there"}


def test_one_that_is_missing_for_good_is_left_out() -> None:
    cluster = cluster_of({"made": 0, "there": 0})
    cluster.create("made", 1, 1, {}, LIMIT_S)
    assert cluster.describe(["there", "nobody's"], LIMIT_S).keys() == {"there"}
    cluster._client.left["made"] = 10**6  # type: ignore[union-attr]
    assert cluster.describe(["made", "there"], 0.2).keys() == {"there"}
