"""The network between a process and the cluster: cut, one way or both, lossy, slow, late.

Each fault is given the network that the cluster's processes are placed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from tests.chaos.brokers import BROKERS
from tests.chaos.cluster import NODES, WORKERS, Cluster
from tests.chaos.faults.delay import DelayProxy
from tests.chaos.faults.fault import Choice, FaultOfOne
from tests.chaos.faults.network import Host, Network
from tests.chaos.faults.rules import Cut, Loss
from tests.chaos.processes import Place, Process

OBSERVER = "observer"
"""The host of the test itself: no fault touches it."""


def chaos_network() -> Network:
    """A host for each process of a cluster, and one for the test. Raises NoNamespacesError."""
    counts = {"broker": BROKERS, "node": NODES, "worker": WORKERS}
    return Network([OBSERVER, *(f"{kind}-{n}" for kind, count in counts.items() for n in range(1, count + 1))])


def places(network: Network) -> dict[str, Place]:
    """Where a cluster's processes run, by name."""
    return {host.name: Place(host.ip, host.prefix) for host in network.hosts if host.name != OBSERVER}


class Way(Enum):
    """What is cut, as the process itself sees it."""

    BOTH = "both ways"
    OUT = "outwards"
    IN = "inwards"


class _NetworkFault(FaultOfOne):
    def __init__(self, name: str, seed: int, network: Network, choose: Choice) -> None:
        super().__init__(name, seed, choose)
        self._network = network
        self._rules: Sequence[Cut | Loss] = ()

    def _host(self, process: Process) -> Host:
        return self._network.host(process.name)

    def _brokers(self, cluster: Cluster, process: Process) -> list[Host]:
        """All brokers, or the others."""
        return [self._host(broker) for broker in cluster.brokers if broker.name != process.name]

    def heal(self, cluster: Cluster) -> None:
        self._network.heal(self._rules)
        self._rules = ()


class Partition(_NetworkFault):
    """A node or worker from all brokers, or a broker from the other brokers; clients reach that broker still."""

    def __init__(self, seed: int, network: Network, choose: Choice, way: Way = Way.BOTH, name: str = "") -> None:
        super().__init__(name or f"partition {way.value}", seed, network, choose)
        self._way = way

    def inject(self, cluster: Cluster) -> None:
        process = self.choose(cluster)
        own, others = [self._host(process)], self._brokers(cluster, process)
        sender, receiver = (others, own) if self._way is Way.IN else (own, others)
        self._rules = self._network.partition(sender, receiver, both=self._way is Way.BOTH)


class Isolation(_NetworkFault):
    """A process from everything: a broker from the others and from its clients too."""

    def __init__(self, seed: int, network: Network, choose: Choice, name: str = "isolation") -> None:
        super().__init__(name, seed, network, choose)

    def inject(self, cluster: Cluster) -> None:
        own = self._host(self.choose(cluster))
        others = [host for host in self._network.hosts if host not in (own, self._network.host(OBSERVER))]
        self._rules = self._network.partition(own, others)


class Lossy(_NetworkFault):
    """A process whose packets are lost at random, each way."""

    def __init__(self, seed: int, network: Network, choose: Choice, percent: float = 10, name: str = "loss") -> None:
        super().__init__(name, seed, network, choose)
        self._percent = percent

    def inject(self, cluster: Cluster) -> None:
        self._rules = self._network.lose(self._host(self.choose(cluster)), self._percent)


class SlowLink(_NetworkFault):
    """A process whose cable carries little."""

    def __init__(self, seed: int, network: Network, choose: Choice, rate: str = "2mbit", name: str = "slow") -> None:
        super().__init__(name, seed, network, choose)
        self._rate = rate

    def inject(self, cluster: Cluster) -> None:
        self._network.slow(self._host(self.choose(cluster)), self._rate)

    def heal(self, cluster: Cluster) -> None:
        self._network.quicken(self._host(self.target))


class Delayed(_NetworkFault):
    """A process that hears, and is heard by, every broker later. Its connections are reset at both ends of the time."""

    def __init__(self, seed: int, network: Network, choose: Choice, delay_ms: int = 100, name: str = "delay") -> None:
        super().__init__(name, seed, network, choose)
        self._delay_ms = delay_ms
        self._proxy: DelayProxy | None = None

    def inject(self, cluster: Cluster) -> None:
        process = self.choose(cluster)
        self._proxy = DelayProxy(self._host(process), self._brokers(cluster, process), self._delay_ms)
        self._proxy.start()

    def heal(self, cluster: Cluster) -> None:
        if self._proxy is not None:
            self._proxy.stop()
            self._proxy = None
