"""Administration with confluent-kafka: topics, settings of topics and brokers, consumer groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import (
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the module re-exports these names without saying so
    AclOperation,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    DescribeClusterResult,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicDescription,
)

from journal.errors import ClosedError, DeadlineError, KafkaUnavailableError
from journal.kafka.access import on_cluster, on_topic
from journal.kafka.errors import error_of, operating_error
from journal.kafka.groups import GroupsClient
from journal.kafka.ports import GroupMember, Position, TopicState
from journal.kafka.settings import ClientEvents, ClientSettings, config_error
from journal.process.clocks import Clock

T = TypeVar("T")

_DESCRIBE_CONFIGS = "DescribeConfigs"
_LOOK_EVERY_S = 0.05
_ATTEMPT_S = 5.0
"""Seconds that a broker has to answer the first attempt. A new attempt may reach another broker, or the cluster may
no longer count a dead one. Each attempt takes twice as long as the one before it, so a slow broker gets all of its
time."""
_ANSWER_MARGIN_S = 1.0
"""How much longer than a request's own time-out the wait for its future lasts. librdkafka ends a request at its
time-out, so this is only needed if it does not."""
_LAST_ANSWER_S = 1.0
"""Seconds that `close` waits for the last answer. A slower broker hardly answers at the very moment at which the client
is destroyed."""


class KafkaCluster:
    """A `ports.Cluster`."""

    def __init__(self, settings: ClientSettings, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._access = settings.access
        self._made: set[str] = set()
        self._asked: Future[Any] | None = None
        """The last request that was made."""
        self._client: AdminClient | None = _client(settings)
        # The groups' client gets a function that makes clients, not a method of this object: objects that refer to each
        # other would live until the garbage collector finds the cycle.
        self._groups_client = GroupsClient(partial(_client, settings), settings.access)

    def cluster_id(self, timeout_s: float) -> str:
        answer = self._patiently(timeout_s, self._describe_cluster).cluster_id
        if not answer:
            raise KafkaUnavailableError("the brokers did not give the cluster's id")
        return answer

    def describe(self, topics: Iterable[str], timeout_s: float) -> dict[str, TopicState]:
        """Describes topics as `ports.Cluster` says. A broker may not have heard yet of a topic that was just made; so
        this waits for topics that this client has made."""
        deadline = self._clock() + timeout_s
        wanted = list(topics)
        made = self._made.intersection(wanted)
        while True:
            found = self._patiently(deadline - self._clock(), partial(self._described, wanted))
            if made <= found.keys() or self._clock() >= deadline:
                return found
            time.sleep(_LOOK_EVERY_S)

    def topic_ids(self, topics: Iterable[str], timeout_s: float) -> dict[str, str]:
        found = self._patiently(timeout_s, partial(self._topics, list(topics), hidden=True))
        return {name: str(topic.topic_id) for name, topic in found.items()}

    def _described(self, topics: list[str], timeout_s: float) -> dict[str, TopicState]:
        deadline = self._clock() + timeout_s
        described = self._topics(topics, timeout_s)
        configs = self._configs(ResourceType.TOPIC, list(described), deadline - self._clock())
        return {
            name: TopicState(
                str(topic.topic_id),
                len(topic.partitions),
                min(len(part.replicas) for part in topic.partitions),
                configs[name],
                topic.authorized_operations is None or AclOperation.WRITE in topic.authorized_operations,
            )
            for name, topic in described.items()
            if name in configs
        }

    def create(
        self, topic: str, partitions: int, replication: int, config: Mapping[str, str], timeout_s: float
    ) -> None:
        deadline = self._clock() + timeout_s
        new = NewTopic(topic, partitions, replication, config=dict(config))
        self._patiently(timeout_s, partial(self._create, new))
        self._made.add(topic)
        while not self._patiently(deadline - self._clock(), partial(self._has_leaders, topic)):
            if self._clock() >= deadline:
                raise KafkaUnavailableError(f"topic {topic} has no leaders after {timeout_s} s")
            time.sleep(_LOOK_EVERY_S)

    def change(self, topic: str, partitions: int, config: Mapping[str, str], timeout_s: float) -> None:
        """Gives a topic at least so many partitions, and these settings."""
        limit_s, asks = _positive(timeout_s), self._access.asks(on_topic(topic, "Alter", "AlterConfigs"))
        found = self._topics([topic], timeout_s).get(topic)
        requests: list[Future[Any]] = []
        if found is not None and partitions > len(found.partitions):
            requests += (
                self._admin()
                .create_partitions(
                    [NewPartitions(topic, partitions)], request_timeout=limit_s, operation_timeout=limit_s
                )
                .values()
            )
        if config:
            entries = [
                ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()
            ]
            resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
            requests += self._admin().incremental_alter_configs([resource], request_timeout=limit_s).values()
        for request in requests:
            try:
                self._result(request, timeout_s)
            except KafkaException as error:
                raise operating_error(f"change topic {topic}", error_of(error), asks) from error

    def topics(self, timeout_s: float) -> set[str]:
        def ask(limit_s: float) -> set[str]:
            try:
                return set(self._admin().list_topics(timeout=_positive(limit_s)).topics)
            except KafkaException as error:
                raise operating_error("list topics", error_of(error)) from error

        return self._patiently(timeout_s, ask)

    def delete_topic(self, topic: str, timeout_s: float) -> None:
        deadline = self._clock() + timeout_s
        self._patiently(timeout_s, partial(self._delete, topic))
        self._made.discard(topic)
        while self._patiently(deadline - self._clock(), partial(self._topics, [topic], hidden=True)):
            if self._clock() >= deadline:
                raise KafkaUnavailableError(f"topic {topic} is still there after {timeout_s} s")
            time.sleep(_LOOK_EVERY_S)

    def broker_config(self, name: str, timeout_s: float) -> dict[int, str | None]:
        """Reads a setting as `ports.Cluster` says, from all brokers that the cluster counts. A broker that has just
        died is counted for a while."""
        found: dict[int, str | None] = {}

        def ask(left_s: float) -> dict[int, str | None]:
            deadline = self._clock() + left_s
            brokers = [node.id for node in self._describe_cluster(left_s).nodes]
            for broker in brokers:  # librdkafka asks each broker for its own settings, with one call for each broker
                if broker not in found:
                    resource, limit_s = str(broker), deadline - self._clock()
                    # One attempt does not get all the time that is left, because a broker that has just died would use
                    # it up. By the next attempt the cluster may no longer count that broker.
                    config = self._configs(ResourceType.BROKER, [resource], min(limit_s, max(_ATTEMPT_S, limit_s / 2)))
                    found[broker] = config[resource].get(name)
            return {broker: found[broker] for broker in brokers}

        return self._patiently(timeout_s, ask)

    def group_members(self, group: str, timeout_s: float) -> list[GroupMember]:
        return self._patiently(timeout_s, partial(self._groups().members, group))

    def groups(self, timeout_s: float) -> set[str]:
        return self._patiently(timeout_s, self._groups().names)

    def delete_group(self, group: str, timeout_s: float) -> None:
        self._patiently(timeout_s, partial(self._groups().delete, group))

    def group_offsets(self, group: str, topic: str, timeout_s: float) -> dict[int, int]:
        found = self._patiently(timeout_s, partial(self._groups().offsets, group))
        return {partition: offset for (found_topic, partition), offset in found.items() if found_topic == topic}

    def stable_offsets(
        self, group: str, partitions: Collection[tuple[str, int]], timeout_s: float
    ) -> dict[tuple[str, int], int]:
        found = self.stable_positions(group, partitions, timeout_s)
        return {partition: position.offset for partition, position in found.items()}

    def stable_positions(
        self, group: str, partitions: Collection[tuple[str, int]], timeout_s: float
    ) -> dict[tuple[str, int], Position]:
        deadline = self._clock() + timeout_s
        # A request for all partitions leaves out those whose first offset is in an open transaction, and does not say
        # so. So `partitions` are asked for by name.
        asked = {
            *partitions,
            *(self._patiently(timeout_s, partial(self._groups().stable_positions, group, None)) or {}),
        }
        while asked:
            found = self._patiently(deadline - self._clock(), partial(self._groups().stable_positions, group, asked))
            if found is not None:
                return found
            if self._clock() + _LOOK_EVERY_S >= deadline:
                raise DeadlineError(f"offsets of group {group}: a transaction with some is still open")
            time.sleep(_LOOK_EVERY_S)
        return {}

    def delete_records(self, topic: str, offsets: Mapping[int, int], timeout_s: float) -> None:
        below = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        asked = self._admin().delete_records(
            below, request_timeout=_positive(timeout_s), operation_timeout=_positive(timeout_s)
        )
        for part, future in asked.items():
            try:
                self._result(future, timeout_s)
            except KafkaException as error:
                doing, asks = (
                    f"delete records of {topic}[{part.partition}]",
                    self._access.asks(on_topic(topic, "Delete")),
                )
                raise operating_error(doing, error_of(error), asks) from error

    def close(self) -> None:
        """Ends the client. If a request was broken off, by Ctrl-C for example, this waits for its answer first:
        librdkafka ends the process with a failed assertion when an answer about topics or the cluster arrives while its
        client is destroyed."""
        if self._asked is not None:
            wait([self._asked], _LAST_ANSWER_S)
        self._client = None
        self._groups_client.close()

    def _result(self, future: Future[T], timeout_s: float) -> T:
        self._asked = future
        try:
            return future.result(max(0.0, timeout_s) + _ANSWER_MARGIN_S)
        except FutureTimeoutError as error:
            raise KafkaUnavailableError(f"no answer within {timeout_s} s") from error

    def _admin(self) -> AdminClient:
        if self._client is None:
            raise ClosedError("this cluster client is closed")
        return self._client

    def _groups(self) -> GroupsClient:
        self._admin()
        return self._groups_client

    def _patiently(self, timeout_s: float, ask: Callable[[float], T]) -> T:
        """Calls `ask` until a broker answers, and gives the answer. Each call gets the seconds that it may take; a
        broker that dies fails the requests that it had."""
        deadline, attempt_s = self._clock() + timeout_s, _ATTEMPT_S
        while True:
            try:
                return ask(min(attempt_s, deadline - self._clock()))
            except KafkaUnavailableError:
                if self._clock() + _LOOK_EVERY_S >= deadline:
                    raise
                time.sleep(_LOOK_EVERY_S)
                attempt_s *= 2

    def _describe_cluster(self, timeout_s: float) -> DescribeClusterResult:
        try:
            answer: DescribeClusterResult = self._result(
                self._admin().describe_cluster(request_timeout=_positive(timeout_s)), timeout_s
            )
        except KafkaException as error:
            asks = self._access.asks(on_cluster("Describe"))
            raise operating_error("describe the cluster", error_of(error), asks) from error
        return answer

    def _topics(self, topics: list[str], timeout_s: float, *, hidden: bool = False) -> dict[str, TopicDescription]:
        """Describes the topics that exist. With `hidden`, topics that this client may not see are left out too."""
        if not topics:
            return {}
        asked = self._admin().describe_topics(
            TopicCollection(topics), request_timeout=_positive(timeout_s), include_authorized_operations=True
        )
        found = {}
        for name, future in asked.items():
            try:
                found[name] = self._result(future, timeout_s)
            except KafkaException as error:
                code = error_of(error).code()
                is_hidden = hidden and code == KafkaError.TOPIC_AUTHORIZATION_FAILED
                if not is_hidden and code != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    asks = self._access.asks(on_topic(name, "Describe"))
                    raise operating_error(f"describe topic {name}", error_of(error), asks) from error
        return found

    def _create(self, new: NewTopic, timeout_s: float) -> None:
        """Creates a topic unless it exists: an earlier call may have made it without getting the answer, or somebody
        else has, because this client may not."""
        limit_s = _positive(timeout_s)
        asked = self._admin().create_topics([new], request_timeout=limit_s, operation_timeout=limit_s)
        try:
            self._result(asked[new.topic], timeout_s)
        except KafkaException as error:
            code = error_of(error).code()
            is_denied = code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
            is_there = is_denied and self._topics([new.topic], timeout_s, hidden=True)
            if code != KafkaError.TOPIC_ALREADY_EXISTS and not is_there:
                asks = self._access.asks(on_topic(new.topic, "Create"), on_cluster("Create"))
                raise operating_error(f"create topic {new.topic}", error_of(error), asks) from error

    def _delete(self, topic: str, timeout_s: float) -> None:
        """Deletes a topic unless it is gone. An earlier call may have deleted it without getting the answer."""
        limit_s = _positive(timeout_s)
        asked = self._admin().delete_topics([topic], request_timeout=limit_s, operation_timeout=limit_s)
        try:
            self._result(asked[topic], timeout_s)
        except KafkaException as error:
            if error_of(error).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                asks = self._access.asks(on_topic(topic, "Delete"))
                raise operating_error(f"delete topic {topic}", error_of(error), asks) from error

    def _has_leaders(self, topic: str, timeout_s: float) -> bool:
        described = self._topics([topic], timeout_s).get(topic)
        return described is not None and all(part.leader is not None for part in described.partitions)

    def _configs(self, kind: ResourceType, names: list[str], timeout_s: float) -> dict[str, dict[str, str]]:
        """Effective settings, defaults included, of the resources that exist. Secret settings have no value and are
        left out."""
        if not names:
            return {}
        resources = [ConfigResource(kind, name) for name in names]
        asked = self._admin().describe_configs(resources, request_timeout=_positive(timeout_s))
        found = {}
        for resource, future in asked.items():
            try:
                entries: dict[str, ConfigEntry] = self._result(future, timeout_s)
            except KafkaException as error:
                if error_of(error).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    told = _DESCRIBE_CONFIGS
                    is_topic = kind is ResourceType.TOPIC
                    asks = self._access.asks(on_topic(resource.name, told) if is_topic else on_cluster(told))
                    what = f"settings of {'topic' if is_topic else 'broker'} {resource.name}"
                    raise operating_error(what, error_of(error), asks) from error
            else:
                found[resource.name] = {key: e.value for key, e in entries.items() if e.value is not None}
        return found


def _client(settings: ClientSettings) -> AdminClient:
    try:
        return AdminClient({**settings.admin(), **ClientEvents(settings).callbacks()})  # type: ignore[dict-item]
    except KafkaException as error:
        raise config_error(error) from error


def _positive(timeout_s: float) -> float:
    """The time-out in seconds, at least the millisecond that librdkafka requires."""
    return max(0.001, timeout_s)
