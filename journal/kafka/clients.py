"""All Kafka clients of one process (`ports.Kafka`), made with confluent-kafka from one address and one set of
properties.

    KafkaClients -> transactional_producer, plain_producer, readers, cluster     the ports, one file each
                 -> membership                                                   a node's place in its group
                 -> settings                                                     how clients are configured
                 -> errors                                                       what clients raise
                 -> bounded_calls                                                calls that may never return
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from journal.kafka.cluster import KafkaCluster
from journal.kafka.commit_times import CommitTimes
from journal.kafka.membership import Membership
from journal.kafka.plain_producer import KafkaPlainProducer
from journal.kafka.ports import READ_MS
from journal.kafka.readers import KafkaReader
from journal.kafka.settings import SPREAD_LINGER_MS, ClientSettings
from journal.kafka.transactional_producer import KafkaTransactionalProducer
from journal.limits import Limits
from journal.process.clocks import Clock

if TYPE_CHECKING:
    from journal.settings import JournalSettings

LOGGER = logging.getLogger("journal.kafka")


class KafkaClients:
    """A `ports.Kafka`. All its clients share settings, and producers of one transactional id share its commit times.
    One thread makes and uses each client.

    Raises ConfigError for a property that the journal sets itself. Making a client raises ConfigError for a property
    that librdkafka does not know.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        properties: Mapping[str, str] | None = None,
        *,
        limits: Limits | None = None,
        transaction_timeout_ms: int = 10_000,
        unavailable_after_s: float = 30.0,
        on_throttle: Callable[[float], None] | None = None,
        logger: logging.Logger = LOGGER,
        clock: Clock = time.monotonic,
    ) -> None:
        bounds = limits or Limits()
        self._clock = clock
        self._times: defaultdict[str, CommitTimes] = defaultdict(CommitTimes)
        """Commit times of the producers of each transactional id."""
        self._settings = ClientSettings(
            bootstrap_servers,
            dict(properties or {}),
            message_bytes_max=bounds.row_message_bytes_max,
            batch_bytes_max=bounds.message_bytes_max,
            fetch_bytes_max=bounds.fetch_bytes_max,
            transaction_timeout_ms=transaction_timeout_ms,
            unavailable_after_s=unavailable_after_s,
            on_throttle=on_throttle,
            logger=logger,
        )

    def sized(self, *, record_bytes_max: int, batch_bytes_max: int) -> KafkaClients:
        """Clients with the same settings, but whose producers send records of these sizes to many partitions: for
        topics that are not the journal's own."""
        clients = copy(self)
        clients._settings = replace(
            self._settings,
            message_bytes_max=record_bytes_max,
            batch_bytes_max=batch_bytes_max,
            linger_ms=SPREAD_LINGER_MS,
        )
        return clients

    def transactional_producer(self, transactional_id: str) -> KafkaTransactionalProducer:
        return KafkaTransactionalProducer(self._settings, transactional_id, self._times[transactional_id], self._clock)

    def plain_producer(self) -> KafkaPlainProducer:
        return KafkaPlainProducer(self._settings, self._clock)

    def reader(self, topic: str, *, committed: bool = True, wait_ms: int = READ_MS) -> KafkaReader:
        return KafkaReader(self._settings, topic, committed=committed, wait_ms=wait_ms, clock=self._clock)

    def cluster(self) -> KafkaCluster:
        return KafkaCluster(self._settings, self._clock)

    @property
    def settings(self) -> ClientSettings:
        """Settings for making further kinds of clients."""
        return self._settings

    def membership(
        self, group: str, topic: str, name: str, *, session_timeout_ms: int, heartbeat_ms: int
    ) -> Membership:
        """Join a group that shares a topic's partitions. Other members see this one as `name`."""
        return Membership(
            self._settings,
            group=group,
            topic=topic,
            name=name,
            session_timeout_ms=session_timeout_ms,
            heartbeat_ms=heartbeat_ms,
        )


def kafka_of(settings: JournalSettings) -> KafkaClients:
    """The Kafka clients of a process with these settings."""
    return KafkaClients(
        settings.bootstrap_servers,
        settings.client_properties,
        limits=settings.limits,
        transaction_timeout_ms=settings.transaction_timeout_ms,
    )
