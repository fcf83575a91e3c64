"""How a worker joins the group of its journal's workers, and how it reads the WAL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from aiokafka.errors import KafkaError  # type: ignore[import-untyped]

from journal.errors import KafkaRefusedError
from journal.kafka.access import access_of, on_group, on_topic
from journal.topics.names import wal_topic, worker_group
from streams.reading.client_properties import aiokafka_properties

REBALANCE_MS_MIN = 5000
"""The shortest time-out of a rebalance: longer than a worker takes for its last checkpoints, and than brokers let the
first member of a group wait (3 s)."""

REQUEST_MARGIN_MS = 2000
"""How much longer than a rebalance a request may take."""

FETCH_BYTES_MAX = 4 * 1024 * 1024
"""The most bytes of one shard in one fetch."""

FETCHED_BYTES_MAX = 256 * 1024 * 1024
"""Bytes that a worker holds in fetches of all shards; each shard has an equal share."""


@dataclass(frozen=True)
class GroupSettings:
    """Settings with which the worker joins its group and reads the WAL. Each option of the client that differs from its
    default has an attribute."""

    bootstrap_servers: str
    topic: str
    group_id: str
    client_id: str = "kafka-journal-worker"
    """The client id. Workers that start together get the shards in the order of their client ids."""
    session_timeout_ms: int = 6_000
    heartbeat_interval_ms: int = 300
    """How often a member sends a heartbeat. It learns of a rebalance from the answer, and no shard moves until all
    members have learned of it. A node may wait at its gate for a dead worker's shard, so three small requests a second
    are a low price."""
    commit_interval_ms: int = 3_000
    retry_backoff_ms: int = 250
    """The pause between two attempts. The client logs each one, so this also bounds how fast the log grows while Kafka
    is away."""
    fetch_bytes_max: int = FETCH_BYTES_MAX
    """Bytes of one shard in one fetch. A worker holds up to two fetches of each of its shards."""
    fetch_wait_ms: int = 100
    """How long a fetch waits for records. A shard whose last batch was taken after a fetch began is only in the next
    fetch, so a fetch must not wait long for other shards."""
    client_properties: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of AIOKafkaConsumer, from the client properties of the configuration."""

    def refused(self, doing: str, error: KafkaError) -> KafkaRefusedError:
        """The error for a request that Kafka has refused. If access rules forbid it, it names the command that allows
        it."""
        user = self.client_properties.get("sasl_plain_username", "")
        protocol = self.client_properties.get("security_protocol", "PLAINTEXT")
        access = access_of(self.bootstrap_servers, {"sasl.username": user, "security.protocol": protocol})
        asks = access.asks(on_group(self.group_id, "Read"), on_topic(self.topic, "Read"))
        code = getattr(error, "errno", 0)  # only an answer of a broker has an error code
        return KafkaRefusedError(": ".join(filter(None, (doing, repr(error), asks.lacking(code)))))

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance waits for members to join again. A member that has not joined by then is left out, so
        that the others wait for it no longer than for a dead one. It joins as a new member, and goes on where it was
        with the shards that it gets again."""
        return max(REBALANCE_MS_MIN, self.session_timeout_ms)

    @property
    def request_timeout_ms(self) -> int:
        """How long the client waits for an answer. A join is answered when all members have joined, so this is longer
        than a rebalance. If the coordinator is cut off, the client also waits that long before it asks another
        broker."""
        return self.rebalance_timeout_ms + REQUEST_MARGIN_MS


class MemberSettings(Protocol):
    """The part of `journal.config.Settings` that a member of the workers' group needs."""

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def journal(self) -> str: ...

    @property
    def node(self) -> str: ...

    @property
    def session_timeout_ms(self) -> int: ...

    @property
    def client_properties(self) -> Mapping[str, str]: ...


def group_settings(settings: MemberSettings, name: str, shards: int) -> GroupSettings:
    """The settings with which the worker's Faust app joins its group and reads a WAL with this number of shards."""
    return GroupSettings(
        settings.bootstrap_servers,
        wal_topic(settings.journal),
        worker_group(settings.journal),
        client_id=f"{worker_group(settings.journal)}.{settings.node}.{name}",
        session_timeout_ms=settings.session_timeout_ms,
        fetch_bytes_max=min(FETCH_BYTES_MAX, FETCHED_BYTES_MAX // (2 * shards)),
        client_properties=aiokafka_properties(settings.client_properties),
    )
