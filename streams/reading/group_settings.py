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
    """How the group is joined and the WAL is read; one attribute for each option of the client that is not its
    default."""

    bootstrap_servers: str
    topic: str
    group_id: str
    client_id: str = "kafka-journal-worker"
    """Workers that start together share the shards in the order of these."""
    session_timeout_ms: int = 6_000
    heartbeat_interval_ms: int = 300
    """A member hears of a rebalance with its next heartbeat, and until all members have heard no shard moves. A node
    may wait at its gate for a dead worker's shard, so three small requests a second are a low price."""
    commit_interval_ms: int = 3_000
    retry_backoff_ms: int = 250
    """The pause between two attempts. The client logs each one: without Kafka this is how fast the log grows."""
    fetch_bytes_max: int = FETCH_BYTES_MAX
    """Bytes of one shard in one fetch. A worker holds up to two fetches of each of its shards."""
    fetch_wait_ms: int = 100
    """How long a fetch waits for records. A shard whose last batch was taken late joins only the next fetch, so that a
    fetch must not wait long for other shards."""
    client_properties: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of AIOKafkaConsumer, from the client properties of the configuration."""

    def refused(self, doing: str, error: KafkaError) -> KafkaRefusedError:
        """The error for what Kafka has refused, with the command that allows it if access rules forbid it."""
        user = self.client_properties.get("sasl_plain_username", "")
        protocol = self.client_properties.get("security_protocol", "PLAINTEXT")
        access = access_of(self.bootstrap_servers, {"sasl.username": user, "security.protocol": protocol})
        asks = access.asks(on_group(self.group_id, "Read"), on_topic(self.topic, "Read"))
        code = getattr(error, "errno", 0)  # only what a broker has answered has one
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
        than a rebalance. A coordinator that is cut off without a word is asked in vain for as long."""
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
    """How the worker's Faust app joins its group and reads the WAL, which has so many shards."""
    return GroupSettings(
        settings.bootstrap_servers,
        wal_topic(settings.journal),
        worker_group(settings.journal),
        client_id=f"{worker_group(settings.journal)}.{settings.node}.{name}",
        session_timeout_ms=settings.session_timeout_ms,
        fetch_bytes_max=min(FETCH_BYTES_MAX, FETCHED_BYTES_MAX // (2 * shards)),
        client_properties=aiokafka_properties(settings.client_properties),
    )
