"""Brokers that have not heard yet of a new topic, and brokers that die while they are asked."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from journal.errors import ClosedError, KafkaUnavailableError
from journal.kafka.cluster import KafkaCluster
from journal.kafka.settings import ClientSettings

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


def test_a_cluster_client_without_references_ends_without_the_garbage_collector() -> None:
    gc.disable()
    try:
        gone = weakref.ref(KafkaCluster(ClientSettings("127.0.0.1:1", {})))
        assert gone() is None
    finally:
        gc.enable()


def test_a_closed_cluster_client_refuses_requests_about_groups() -> None:
    cluster = KafkaCluster(ClientSettings("127.0.0.1:1", {}))
    cluster.close()
    with pytest.raises(ClosedError):
        cluster.group_members("g", LIMIT_S)


def cluster_of(late: Mapping[str, int]) -> KafkaCluster:
    cluster = KafkaCluster(ClientSettings("127.0.0.1:1", {}))
    cluster._client = Answering(late)  # type: ignore[assignment]
    return cluster


def test_a_topic_that_was_just_made_is_asked_for_until_the_broker_knows_it() -> None:
    cluster = cluster_of({"made": 3, "there": 0})
    cluster.create("made", 1, 1, {}, LIMIT_S)
    cluster._client.left["made"] = 3  # type: ignore[union-attr]  # the next one that is asked is another broker
    assert cluster.describe(["made", "there"], LIMIT_S).keys() == {"made", "there"}


def test_a_topic_that_does_not_exist_is_left_out() -> None:
    cluster = cluster_of({"made": 0, "there": 0})
    cluster.create("made", 1, 1, {}, LIMIT_S)
    assert cluster.describe(["there", "nobody's"], LIMIT_S).keys() == {"there"}
    cluster._client.left["made"] = 10**6  # type: ignore[union-attr]
    assert cluster.describe(["made", "there"], 0.2).keys() == {"there"}


class Dying:
    """An admin client of a cluster in which a broker has just died. The cluster counts this broker until it was asked
    again several times, and every request to it fails as in librdkafka."""

    def __init__(self, counted: int) -> None:
        self.counted = counted
        self.asked: list[str] = []
        self.given_s: list[float] = []
        """Time-outs of the requests to broker 3."""
        self.topics_asked = 0

    def describe_cluster(self, **_: float) -> Future[Any]:
        self.counted -= 1
        brokers = [1, 2, 3] if self.counted >= 0 else [1, 2]
        return _done(SimpleNamespace(cluster_id="id", nodes=[SimpleNamespace(id=broker) for broker in brokers]))

    def describe_configs(self, resources: list[Any], *, request_timeout: float) -> dict[Any, Future[Any]]:
        (resource,) = resources
        self.asked.append(resource.name)
        if resource.name == "3":
            self.given_s.append(request_timeout)
            return {resource: _failed(KafkaError._TRANSPORT)}
        return {resource: _done({"a": SimpleNamespace(value=f"of {resource.name}")})}

    def create_topics(self, topics: list[Any], **_: float) -> dict[str, Future[Any]]:
        self.counted -= 1
        code = KafkaError.NOT_CONTROLLER if self.counted >= 0 else KafkaError.TOPIC_ALREADY_EXISTS
        return {topic.topic: _failed(code) for topic in topics}

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        self.topics_asked += 1
        if self.topics_asked == 1:
            return {name: _failed(KafkaError._TRANSPORT) for name in topics.topic_names}
        part = SimpleNamespace(leader=1, replicas=[1])
        return {name: _done(SimpleNamespace(partitions=[part])) for name in topics.topic_names}

    def describe_consumer_groups(self, groups: list[str], **_: float) -> dict[str, Future[Any]]:
        self.counted -= 1
        if self.counted >= 0:
            return {groups[0]: _failed(KafkaError._TRANSPORT)}
        return {groups[0]: _done(SimpleNamespace(state=None, members=[]))}


def _failed(code: int) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(code)))
    return future


def dying(counted: int) -> tuple[KafkaCluster, Dying]:
    cluster, client = KafkaCluster(ClientSettings("127.0.0.1:1", {})), Dying(counted)
    cluster._client = client  # type: ignore[assignment]
    return cluster, client


def test_a_broker_that_has_just_died_is_asked_for_its_settings_until_the_cluster_counts_it_no_more() -> None:
    cluster, client = dying(3)
    assert cluster.broker_config("a", LIMIT_S) == {1: "of 1", 2: "of 2"}
    assert client.asked == ["1", "2", "3", "3", "3"]


def test_a_broker_that_has_just_died_takes_at_most_half_of_the_time() -> None:
    cluster, client = dying(3)
    assert cluster.broker_config("a", 60.0).keys() == {1, 2}
    assert [round(given_s, 1) for given_s in client.given_s] == [5.0, 5.0, 10.0]


def test_a_request_that_a_dying_broker_did_not_answer_is_repeated_by_a_new_client() -> None:
    cluster, client = dying(2)
    made = asked_for_groups(cluster, client)
    assert cluster.group_members("group", LIMIT_S) == []
    assert cluster.group_members("group", LIMIT_S) == []
    assert len(made) == 3


def asked_for_groups(cluster: KafkaCluster, client: Any) -> list[Any]:
    """Makes the cluster client use this client for groups; returns a list with one entry each time that it makes
    one."""
    made: list[Any] = []

    def make() -> Any:
        made.append(client)
        return client

    cluster._groups_client._make = make
    return made


class Silent:
    """An admin client whose brokers never answer."""

    def __init__(self) -> None:
        self.given_s: list[float] = []

    def describe_consumer_groups(self, groups: list[str], *, request_timeout: float) -> dict[str, Future[Any]]:
        self.given_s.append(request_timeout)
        return {groups[0]: Future()}


def test_a_coordinator_that_does_not_answer_is_not_waited_for_though_its_request_has_all_the_time() -> None:
    """librdkafka may end the process when a request's own time-out passes, so requests have none."""
    cluster, client = KafkaCluster(ClientSettings("127.0.0.1:1", {})), Silent()
    made = asked_for_groups(cluster, client)
    with pytest.raises(KafkaUnavailableError, match="no answer within"):
        cluster.group_members("group", 0.2)
    assert len(made) == len(client.given_s)
    assert set(client.given_s) == {3600.0}


def test_a_topic_is_made_though_a_broker_dies_meanwhile() -> None:
    cluster, client = dying(2)
    cluster.create("made", 1, 1, {}, LIMIT_S)
    assert (client.counted, client.topics_asked) == (-1, 2)


class Slow:
    """An admin client that answers requests with enough time."""

    def __init__(self, needs_s: float) -> None:
        self.needs_s = needs_s
        self.given_s: list[float] = []

    def describe_cluster(self, *, request_timeout: float) -> Future[Any]:
        self.given_s.append(request_timeout)
        if request_timeout < self.needs_s:
            return _failed(KafkaError._TIMED_OUT)
        return _done(SimpleNamespace(cluster_id="id"))


def test_a_slow_broker_gets_more_time_with_each_attempt() -> None:
    cluster, client = KafkaCluster(ClientSettings("127.0.0.1:1", {})), Slow(12.0)
    cluster._client = client  # type: ignore[assignment]
    assert cluster.cluster_id(60.0) == "id"
    assert client.given_s == [5.0, 10.0, 20.0]


def test_requests_end_within_the_callers_time_out() -> None:
    ticks, client = count(step=0.1), Dying(10**6)
    cluster = KafkaCluster(ClientSettings("127.0.0.1:1", {}), clock=lambda: next(ticks))
    cluster._client = client  # type: ignore[assignment]
    with pytest.raises(KafkaUnavailableError, match="settings of broker 3"):
        cluster.broker_config("a", 1.0)
    assert 1 < client.asked.count("3") < 10


class BrokenOff(Future[Any]):
    """The answer to a request that was broken off."""

    def result(self, timeout: float | None = None) -> Any:
        raise KeyboardInterrupt


def test_a_client_is_not_destroyed_before_its_last_request_is_answered() -> None:
    """librdkafka ends the process if an answer comes while the client is destroyed."""
    cluster, answer = cluster_of({}), BrokenOff()
    cluster._client.describe_topics = lambda topics, **_: {"t": answer}  # type: ignore
    with pytest.raises(KeyboardInterrupt):
        cluster.topic_ids(["t"], LIMIT_S)
    threading.Timer(0.05, answer.set_result, [None]).start()
    cluster.close()
    assert answer.done()
