"""Requests to the coordinators of consumer groups, with confluent-kafka: members and committed offsets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import TypeVar

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the module re-exports these names without saying so
    AdminClient,
    ConsumerGroupDescription,
    ListConsumerGroupsResult,
)

from journal.errors import KafkaUnavailableError, OperatingError
from journal.kafka.access import Access, on_group, on_topic
from journal.kafka.errors import error_of, operating_error
from journal.kafka.ports import GroupMember, Position

T = TypeVar("T")

_LONGEST_S = 3600.0
"""The longest time-out that librdkafka takes for a request."""

_TOPIC_ID = "kafka-journal.topic-id="
"""Prefix of an offset's metadata when the offset is committed with the id of its topic."""


def metadata_of(topic_id: str) -> str:
    """Metadata to commit with an offset: they hold the topic's id, or nothing if that is not known."""
    return _TOPIC_ID + topic_id if topic_id else ""


def topic_id_in(metadata: str | None) -> str:
    """The topic's id in an offset's metadata; empty if there is none. Other tools write metadata of their own."""
    return metadata.removeprefix(_TOPIC_ID) if metadata and metadata.startswith(_TOPIC_ID) else ""


class GroupsClient:
    """A separate client for group coordinators, used by one thread. Three errors of librdkafka (as of 2.16) require it:

    - If a request's own time-out passes before its coordinator is found and connected, the process ends with a failed
      assertion once the coordinator is found. So requests have no such time-out here: a caller that has waited long
      enough drops the client, which ends its open requests.
    - A client that is ended while a broker tells it a coordinator may never end. Nobody waits for a dropped client.
    - librdkafka remembers coordinators. If the broker that it remembers answers a request for offsets with "not the
      coordinator", the process ends; other requests just fail. So a request of another kind goes first, and after an
      error the next client starts without that memory.
    """

    def __init__(self, make: Callable[[], AdminClient], access: Access) -> None:
        self._make = make
        self._access = access
        self._client: AdminClient | None = None

    def members(self, group: str, timeout_s: float) -> list[GroupMember]:
        description = self._describe(group, timeout_s)
        # Brokers before 4.0 describe an unknown group as a dead one.
        if description is None or description.state == ConsumerGroupState.DEAD:
            return []
        return [
            GroupMember(
                member.member_id,
                member.client_id,
                member.host,
                tuple((part.topic, part.partition) for part in member.assignment.topic_partitions),
            )
            for member in description.members
        ]

    def names(self, timeout_s: float) -> set[str]:
        """The groups that this client may see."""
        try:
            found = self._ask(_names, timeout_s)
            for error in found.errors or ():
                raise error  # a broker that does not answer may have groups that nobody else knows
            return {each.group_id for each in found.valid or ()}
        except KafkaException as error:
            raise operating_error("list consumer groups", error_of(error)) from error

    def delete(self, group: str, timeout_s: float) -> None:
        """Deletes a group unless it is gone."""
        try:
            self._ask(partial(_deletion, group), timeout_s)
        except KafkaException as error:
            if error_of(error).code() != KafkaError.GROUP_ID_NOT_FOUND:
                asks = self._access.asks(on_group(group, "Delete"))
                raise operating_error(f"delete group {group}", error_of(error), asks) from error

    def offsets(self, group: str, timeout_s: float) -> dict[tuple[str, int], int]:
        """Committed offsets by (topic, partition). For partitions in an open transaction they are those before it."""
        try:
            found = self._list(group, None, timeout_s, stable=False)
            return {partition: position.offset for partition, position in found.items()}
        except KafkaException as error:
            raise self._error(f"offsets of group {group}", error, group) from error

    def stable_positions(
        self, group: str, partitions: Collection[tuple[str, int]] | None, timeout_s: float
    ) -> dict[tuple[str, int], Position] | None:
        """Committed positions of these partitions, or of all that have any; None while a transaction with some of them
        is open."""
        parts = None if partitions is None else [TopicPartition(topic, part) for topic, part in sorted(partitions)]
        try:
            return self._list(group, parts, timeout_s, stable=True)
        except KafkaException as error:
            if error_of(error).code() == KafkaError.UNSTABLE_OFFSET_COMMIT:
                return None
            raise self._error(f"offsets of group {group}", error, group, partitions or ()) from error

    def close(self) -> None:
        self._client = None

    def _error(
        self, doing: str, error: KafkaException, group: str, partitions: Collection[tuple[str, int]] = ()
    ) -> OperatingError:
        topics = [on_topic(topic, "Describe") for topic in sorted({topic for topic, _ in partitions})]
        return operating_error(doing, error_of(error), self._access.asks(on_group(group, "Describe"), *topics))

    def _describe(self, group: str, timeout_s: float) -> ConsumerGroupDescription | None:
        """Describes a group; None if it does not exist."""
        try:
            return self._ask(partial(_description, group), timeout_s)
        except KafkaException as error:
            if error_of(error).code() == KafkaError.GROUP_ID_NOT_FOUND:
                return None
            raise self._error(f"describe group {group}", error, group) from error

    def _list(
        self, group: str, partitions: list[TopicPartition] | None, timeout_s: float, *, stable: bool
    ) -> dict[tuple[str, int], Position]:
        deadline = time.monotonic() + timeout_s
        self._describe(group, timeout_s)
        request = ConsumerGroupTopicPartitions(group, partitions)
        try:
            answer = self._ask(partial(_offsets, request, stable), deadline - time.monotonic())
        except KafkaException as error:
            if error_of(error).code() == KafkaError.GROUP_ID_NOT_FOUND:
                return {}
            raise
        found: dict[tuple[str, int], Position] = {}
        for part in answer.topic_partitions or []:
            if part.error is not None:
                raise KafkaException(part.error)
            if part.offset >= 0:
                found[part.topic, part.partition] = Position(part.offset, topic_id_in(part.metadata))
        return found

    def _ask(self, ask: Callable[[AdminClient], Future[T]], timeout_s: float) -> T:
        if self._client is None:
            self._client = self._make()
        future = ask(self._client)
        try:
            return future.result(max(0.0, timeout_s))
        except BaseException as error:
            self._let_go()
            if isinstance(error, FutureTimeoutError):
                raise KafkaUnavailableError(f"no answer within {timeout_s:.2g} s") from error
            raise

    def _let_go(self) -> None:
        """Drop the client in a thread, because ending it may block. The only reference is in a list, which the thread
        clears; not even the frames of an error refer to the client."""
        last = [self._client]
        self._client = None
        threading.Thread(target=last.clear, name="kafka-journal-groups-end", daemon=True).start()


def _description(group: str, client: AdminClient) -> Future[ConsumerGroupDescription]:
    return client.describe_consumer_groups([group], request_timeout=_LONGEST_S)[group]


def _names(client: AdminClient) -> Future[ListConsumerGroupsResult]:
    return client.list_consumer_groups(request_timeout=_LONGEST_S)


def _deletion(group: str, client: AdminClient) -> Future[None]:
    return client.delete_consumer_groups([group], request_timeout=_LONGEST_S)[group]


def _offsets(
    request: ConsumerGroupTopicPartitions, stable: bool, client: AdminClient
) -> Future[ConsumerGroupTopicPartitions]:
    asked = client.list_consumer_group_offsets([request], require_stable=stable, request_timeout=_LONGEST_S)
    return asked[request.group_id]
