"""The state of the embedded Apache Kafka and of its brokers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """One broker. It is `stopped`, `running` (a member of the cluster that answers) or `unresponsive` (only a
    process)."""

    broker: int
    state: str
    port: int
    pid: int | None
    log: str


@dataclass(frozen=True, slots=True)
class KafkaStatus:
    directory: str
    cluster_id: str | None
    bootstrap_servers: str | None
    brokers: tuple[BrokerStatus, ...]

    @property
    def running(self) -> bool:
        return bool(self.brokers) and all(broker.state == "running" for broker in self.brokers)
