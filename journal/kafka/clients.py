"""Kafka through confluent-kafka: `ports.Kafka` for one process, made from one bootstrap address and one set of
properties.

    KafkaClients -> client_producers, client_readers, client_cluster     the ports, one file each
                 -> membership                                           a node's place in its group
                 -> client_settings                                      what they are configured with
                 -> client_errors                                        what they raise
                 -> client_calls                                         what may never return
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace

from journal.kafka.cluster import KafkaCluster
from journal.kafka.commit_times import CommitTimes
from journal.kafka.membership import Membership
from journal.kafka.ports import READ_MS
from journal.kafka.producers import KafkaPlainProducer, KafkaTransactionalProducer
from journal.kafka.readers import KafkaReader
from journal.kafka.settings import SPREAD_LINGER_MS, ClientSettings
from journal.limits import Limits
from journal.process.clocks import Clock
from journal.settings import JournalSettings

LOGGER = logging.getLogger("journal.kafka")


class KafkaClients:
    """`ports.Kafka`. Clients share settings, and producers of one id how long its commits take; each is made for, and
    used by, one thread.

    Raises ConfigError for a property that is the journal's own, and, when a client is made, for one that librdkafka
    does not know.
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
        """By transactional id."""
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
        """The same, but for producers that send records of these sizes to many partitions: to topics that are not the
        journal's own."""
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
        """What further kinds of clients are made from."""
        return self._settings

    def membership(
        self, group: str, topic: str, name: str, *, session_timeout_ms: int, heartbeat_ms: int
    ) -> Membership:
        """Join a group for one of its topics' partitions, as `name`."""
        return Membership(
            self._settings,
            group=group,
            topic=topic,
            name=name,
            session_timeout_ms=session_timeout_ms,
            heartbeat_ms=heartbeat_ms,
        )


def kafka_of(settings: JournalSettings) -> KafkaClients:
    """The Kafka clients of a process."""
    return KafkaClients(
        settings.bootstrap_servers,
        settings.client_properties,
        limits=settings.limits,
        transaction_timeout_ms=settings.transaction_timeout_ms,
    )
