"""The brokers of a cluster: whatever can start and end them one by one, and each as a process under test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from journal.embedded.cluster import EmbeddedKafka
from tests.chaos.processes import Place, Process
from tests.support.brokers import JVM_OPTIONS

BROKERS = 3
START_TIMEOUT_S = 240.0
HERE = Place()


class Brokers(Protocol):
    """A Kafka cluster, broker by broker, which count from 1: `EmbeddedKafka`, or `ContainerKafka`.

    All calls may be repeated; each blocks until what it says is so.
    """

    @property
    def bootstrap_servers(self) -> str:
        """Host and port of each, in order."""

    def start(self) -> object:
        """Starts those that do not run; all answer."""

    def broker_pid(self, broker: int) -> int | None:
        """Its process on this machine, while there is one."""

    def start_broker(self, broker: int) -> None:
        """With what it has on its disk; it answers."""

    def stop_broker(self, broker: int) -> None:
        """Cleanly."""

    def kill(self, broker: int) -> None:
        """SIGKILL of one that runs."""


def chaos_kafka(
    directory: Path, places: Mapping[str, Place] | None = None, properties: Mapping[str, str] | None = None
) -> EmbeddedKafka:
    """Three brokers, not started yet, in their places."""
    chosen = {broker: (places or {}).get(f"broker-{broker}", HERE) for broker in range(1, BROKERS + 1)}
    hosts = [place.host for place in chosen.values()]
    return EmbeddedKafka(
        directory,
        BROKERS,
        properties=properties,
        attached=True,
        jvm_options=JVM_OPTIONS,
        start_timeout_s=START_TIMEOUT_S,
        hosts=hosts if set(hosts) != {HERE.host} else None,
        prefixes={broker: place.prefix for broker, place in chosen.items() if place.prefix},
    )


class BrokerProcess(Process):
    """One broker of a cluster."""

    def __init__(self, brokers: Brokers, broker: int, place: Place) -> None:
        super().__init__(f"broker-{broker}", place)
        self._brokers = brokers
        self.broker = broker
        self._is_to_run = True  # whoever started the cluster has started it

    @property
    def pid(self) -> int | None:
        return self._brokers.broker_pid(self.broker)

    @property
    def address(self) -> str:
        """Host and port that clients use."""
        return self._brokers.bootstrap_servers.split(",")[self.broker - 1]

    def start(self, *, ready: bool = True) -> None:
        """Always waits: a broker has no other way to be started."""
        self.note_end()
        self._brokers.start_broker(self.broker)
        self._is_to_run = True

    def stop(self) -> None:
        self.note_end()
        self._is_to_run = False
        self._brokers.stop_broker(self.broker)

    def kill(self) -> None:
        self.note_end()
        self._is_to_run = False
        if self.running:
            self._brokers.kill(self.broker)
