"""How a process opens its Kafka connection and its copy of the tables, alike for every command and the library."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

from journal.disk.ports import LocalStore
from journal.errors import DeadlineError, KafkaUnavailableError, TopicError
from journal.kafka.ports import Cluster, Kafka
from journal.process.clocks import wall_ms
from journal.process.commands import command
from journal.settings import JournalSettings
from journal.table.replica import Replica, copy_identity
from journal.topics.names import table_topic
from journal.v1.journal_pb2 import Identity

log = logging.getLogger(__name__)

T = TypeVar("T")

START_ATTEMPTS = 4
"""How many times a starting service asks Kafka, each time for `request_timeout_ms`: a minute in all. If all machines
start together, or the controller has died, Kafka needs that long to elect a controller and to answer."""


def identity_of_copy(cluster: Cluster, settings: JournalSettings, identity: Identity, timeout_s: float) -> bytes:
    """The identity bytes of a copy that is made from the topics as they are now. Raises TopicError if the table does
    not exist."""
    topic = table_topic(settings.journal)
    table = cluster.describe([topic], timeout_s).get(topic)
    if table is None:
        raise TopicError(f"topic {topic} is missing: run `{command('init', journal=settings.journal)}`")
    return copy_identity(cluster.cluster_id(timeout_s), table.topic_id, identity.shards, identity.journal)


def open_replica(
    kafka: Kafka, settings: JournalSettings, identity: Identity, store: LocalStore, *, counts_rows: bool = False
) -> Replica:
    """A replica of all shards in `store`, which reads on from the place where the copy stands."""
    timeout_s = settings.request_timeout_ms / 1000
    with closing(kafka.cluster()) as cluster:
        copied = identity_of_copy(cluster, settings, identity, timeout_s)
    replica = Replica(
        kafka,
        table_topic(settings.journal),
        range(identity.shards),
        store,
        copied,
        clock=time.monotonic,
        wall_ms=wall_ms,
        delete_retention_ms=settings.delete_retention_ms,
        min_compaction_lag_ms=settings.min_compaction_lag_ms,
        held_bytes_max=settings.limits.held_bytes_max,
        counts_rows=counts_rows,
    )
    replica.open(timeout_s)
    return replica


def patiently(start: Callable[[], T], *, given_up: Callable[[], bool] = lambda: False) -> T:
    """Call `start`, and again while Kafka does not answer, until `given_up()` is true; returns its result. Raises what
    the last call raises."""
    for _ in range(START_ATTEMPTS - 1):
        try:
            return start()
        except (KafkaUnavailableError, DeadlineError) as error:
            if given_up():
                raise
            log.warning("Kafka does not answer, and is asked again: %s", error)
    return start()
