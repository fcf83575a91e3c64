"""Clients that are used for a moment are closed, because each has threads and connections."""

from __future__ import annotations

from journal.activate.readiness import Readiness
from journal.config import Settings
from journal.table.opening import open_replica
from journal.topics.made_and_checked import init_journal, open_journal
from tests.simulation.broker import SimulatedBroker
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.faults import Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.readers import SimulatedCluster
from tests.simulation.timeline import Timeline

SETTINGS = Settings(journal="j", bootstrap_servers="b:1", shards=2, replication=1)
LIMIT_S = 5.0


class Lending(SimulatedKafka):
    """Keeps the administration clients that it made."""

    def __init__(self, broker: SimulatedBroker) -> None:
        super().__init__(broker)
        self.made: list[SimulatedCluster] = []

    def cluster(self) -> SimulatedCluster:
        self.made.append(super().cluster())
        return self.made[-1]

    def require_returned(self) -> None:
        assert self.made
        assert all(cluster._requests is None for cluster in self.made)
        self.made.clear()


def test_commands_about_topics_close_their_cluster_client() -> None:
    broker = SimulatedBroker(Timeline(), Faults())
    kafka, now = Lending(broker), broker.timeline.now
    init_journal(kafka, SETTINGS, lambda: b"A" * 16, clock=now, wall_ms=now, timeout_s=LIMIT_S)
    kafka.require_returned()
    rows = open_journal(kafka, SETTINGS, clock=now, timeout_s=LIMIT_S)
    kafka.require_returned()
    identity = rows.require_identity("j")
    open_replica(kafka, SETTINGS, identity, SimulatedStore(Disk(), Faults(), "node")).close()
    kafka.require_returned()
    readiness = Readiness(kafka, SETTINGS, lambda: identity)
    readiness._check()
    assert readiness.checked
    kafka.require_returned()
