"""How our Kafka clients are configured. The user's properties pass through unchanged, except those that safety depends
on.

Properties on which the journal's guarantees rest are set here and cannot be overridden. Everything else (security,
network, compression, buffers) has a default that the user's property replaces.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, ThrottleEvent

from journal.errors import ConfigError
from journal.kafka.access import Access, access_of
from journal.limits import Limits

RETRY_BACKOFF_MS = 250
"""librdkafka repeats a request no sooner than after this time less its jitter of 20 %. See `repeated_after_s`."""

RETRY_BACKOFF_MAX_MS = 4 * RETRY_BACKOFF_MS


def repeated_after_s(backoff_ms: int) -> float:
    """Seconds below which a call that needs one request was served by one request. A repeated request shows nowhere
    else: docs/ARCHITECTURE.md, "Which commits may have been sent twice"."""
    return backoff_ms * 0.8 / 1000


_FIXED_BY_US = frozenset(
    {
        "acks",
        "request.required.acks",
        "enable.idempotence",
        "enable.gapless.guarantee",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "retries",
        "message.send.max.retries",
        "message.timeout.ms",
        "delivery.timeout.ms",
        "delivery.report.only.error",
        "message.max.bytes",
        "batch.size",
        "transactional.id",
        "transaction.timeout.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        "isolation.level",
        "enable.auto.commit",
        "auto.commit.enable",
        "enable.auto.offset.store",
        "auto.offset.reset",
        "enable.partition.eof",
        "check.crcs",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "bootstrap.servers",
        "metadata.broker.list",
        "allow.auto.create.topics",
        "test.mock.num.brokers",
        "test.mock.broker.rtt",
    }
)

_COMMON: Mapping[str, object] = {
    # Metadata arrive in 14 ms instead of 55, because the second connection is not put off for 100 ms.
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 1000,
    "socket.nagle.disable": True,
    # time for which a missing topic may still be spreading among brokers; `create` has waited for that already
    "topic.metadata.propagation.max.ms": 3000,
    # A broker that is cut off without a word closes no connection. Only metadata tell that another broker leads now.
    "topic.metadata.refresh.interval.ms": 5000,
    "socket.keepalive.enable": True,
}

_PRODUCER: Mapping[str, object] = {
    "compression.type": "lz4",
}

LINGER_MS = 5
"""Milliseconds for which a record waits for others in its batch. `send` flushes, and a flush sends at once whatever
lingers; so batches are long, and nothing is delayed."""
SPREAD_LINGER_MS = 200
"""Milliseconds for which a record waits for others in its batch, if records go to many partitions, whose batches fill
more slowly."""

_READER: Mapping[str, object] = {
    "fetch.min.bytes": 1,
    "fetch.queue.backoff.ms": 10,
    "max.partition.fetch.bytes": 8 * 1024 * 1024,
}

_POLL_INTERVAL_MS = 300_000
"""Milliseconds between two polls after which a member is out. A member polls in a thread that does nothing else, so its
session runs out first."""

_MEMBER_REQUEST_MS_MIN = 2000
"""Time-out of a member's requests. Until it passes, a client that has asked a stopped broker for the group's
coordinator asks no other broker, and cannot be a member; the default is a minute. librdkafka refuses less than 1500."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings that all clients of a process share."""

    bootstrap_servers: str
    properties: Mapping[str, str] = field(default_factory=dict)
    message_bytes_max: int = Limits().row_message_bytes_max
    batch_bytes_max: int = Limits().message_bytes_max
    """The smallest limit of any topic of the journal, so that only a single record can be above it."""
    fetch_bytes_max: int = Limits().fetch_bytes_max
    linger_ms: int = LINGER_MS
    transaction_timeout_ms: int = 10_000
    unavailable_after_s: float = 30.0
    on_throttle: Callable[[float], None] | None = None
    logger: logging.Logger = field(default_factory=lambda: logging.getLogger(__name__))

    def __post_init__(self) -> None:
        if not self.bootstrap_servers.strip():
            raise ConfigError("bootstrap servers are missing: give them with -b or KAFKA_JOURNAL_BOOTSTRAP_SERVERS")
        taken = sorted(_FIXED_BY_US & self.properties.keys())
        if taken:
            raise ConfigError(f"these Kafka client properties are the journal's own and cannot be set: {taken}")
        if self.transaction_timeout_ms < 1000:
            raise ConfigError(f"transaction_timeout_ms is {self.transaction_timeout_ms}, must be 1000 or more")

    @property
    def access(self) -> Access:
        """The user that the brokers' access rules see for these clients."""
        return access_of(self.bootstrap_servers, self.properties)

    @property
    def delivery_timeout_ms(self) -> int:
        """Time in which a record must be delivered. It is below the transaction's time-out, so that every record has
        its delivery report while its transaction can still be ended."""
        return self.transaction_timeout_ms * 8 // 10

    def transactional(self, transactional_id: str, backoff_ms: int = RETRY_BACKOFF_MS) -> dict[str, object]:
        return self._producer() | {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": self.transaction_timeout_ms,
            "retry.backoff.ms": backoff_ms,
            "retry.backoff.max.ms": max(RETRY_BACKOFF_MAX_MS, backoff_ms),
        }

    def plain(self) -> dict[str, object]:
        return self._producer()

    def reader(self, group_id: str, *, committed: bool, wait_ms: int) -> dict[str, object]:
        return self._common({**_READER, "fetch.wait.max.ms": wait_ms}) | {
            "group.id": group_id,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "check.crcs": True,
            "queued.max.messages.kbytes": self.fetch_bytes_max // 1024,
            # a batch larger than this is still fetched whole, so the value only bounds memory
            "fetch.max.bytes": max(self.fetch_bytes_max // 2, self.message_bytes_max),
        }

    def member(self, group_id: str, name: str, *, session_timeout_ms: int, heartbeat_ms: int) -> dict[str, object]:
        """Properties of a member of a group that holds partitions and reads nothing."""
        defaults = {"socket.timeout.ms": max(_MEMBER_REQUEST_MS_MIN, session_timeout_ms // 2)}
        return self._common(defaults) | {
            "group.id": group_id,
            "client.id": name,
            "session.timeout.ms": session_timeout_ms,
            "heartbeat.interval.ms": heartbeat_ms,
            "max.poll.interval.ms": max(_POLL_INTERVAL_MS, session_timeout_ms),
            "partition.assignment.strategy": "cooperative-sticky",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
        }

    def admin(self) -> dict[str, object]:
        return self._common({})

    def _producer(self) -> dict[str, object]:
        return self._common({**_PRODUCER, "linger.ms": self.linger_ms}) | {
            "acks": "all",
            "enable.idempotence": True,
            "message.timeout.ms": self.delivery_timeout_ms,
            "message.max.bytes": self.message_bytes_max,
            "batch.size": self.batch_bytes_max,
        }

    def _common(self, defaults: Mapping[str, object]) -> dict[str, object]:
        return {
            **_COMMON,
            **defaults,
            **self.properties,
            "bootstrap.servers": self.bootstrap_servers,
            # Where brokers have auto.create.topics.enable, a producer's or an administrator's request would create a
            # topic with the cluster's defaults.
            "allow.auto.create.topics": False,
            "retry.backoff.ms": RETRY_BACKOFF_MS,
            "retry.backoff.max.ms": RETRY_BACKOFF_MAX_MS,
        }


class ClientEvents:
    """The state that a client's callbacks report between calls. It does not refer to the client, so that dropping the
    client's last reference ends it."""

    def __init__(self, settings: ClientSettings) -> None:
        self.brokers_down = False
        """Whether no broker is connected. A caller that gets an answer from a broker sets it back."""
        self.refused = ""
        """The error of the newest connection that failed."""
        self._on_throttle = settings.on_throttle
        self._logger = settings.logger

    def callbacks(self) -> dict[str, object]:
        return {"error_cb": self.on_error, "throttle_cb": self.on_throttle, "logger": self}

    def on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.brokers_down = True
        elif error.code() == KafkaError._TRANSPORT:
            self.refused = error.str()

    def on_throttle(self, event: ThrottleEvent) -> None:
        if self._on_throttle is not None:
            self._on_throttle(event.throttle_time)

    def log(self, level: int, message: str, *arguments: object) -> None:
        """Takes librdkafka's log lines. Callers learn of what matters in them by exceptions, so no line is above
        INFO."""
        self._logger.log(min(level, logging.INFO), message, *arguments)


def config_error(error: KafkaException) -> ConfigError:
    """The error of making a client with a property or a value that librdkafka refuses."""
    return ConfigError(f"Kafka client properties: {error.args[0].str()}")
