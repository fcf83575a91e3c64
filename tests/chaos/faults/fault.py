"""What every fault is: a name, a seed that makes its choices, and two calls that the runner makes in turn."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.chaos.cluster import Cluster
from tests.chaos.processes import Process

P = TypeVar("P", bound=Process)

Choice = Callable[[Cluster, random.Random], Process]
"""A function that chooses the process that a fault is for, called when the fault is injected."""


class Fault(ABC):
    """`inject` and `heal` alternate; each blocks until what it does is done. A fault may be injected again."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.seed = seed
        self.chance = random.Random(f"{name}/{seed}")

    @abstractmethod
    def inject(self, cluster: Cluster) -> None: ...

    @abstractmethod
    def heal(self, cluster: Cluster) -> None: ...

    def __str__(self) -> str:
        return f"{self.name} (seed {self.seed})"


class FaultOfOne(Fault):
    """A fault of one process, which is chosen anew each time it is injected."""

    def __init__(self, name: str, seed: int, choose: Choice) -> None:
        super().__init__(name, seed)
        self._choose = choose
        self._target: Process | None = None

    @property
    def target(self) -> Process:
        """The process that it was injected into last."""
        assert self._target is not None, f"{self} was not injected"
        return self._target

    def choose(self, cluster: Cluster) -> Process:
        """Chooses the next target."""
        self._target = self._choose(cluster, self.chance)
        return self._target


# ---- choices ---------------------------------------------------------------------------------------------------


def active_node(cluster: Cluster, chance: random.Random) -> Process:
    """The node that is active, as soon as there is one."""
    return cluster.wait_for_active()


def any_node(cluster: Cluster, chance: random.Random) -> Process:
    return _one_that_runs(cluster.nodes, chance)


def any_worker(cluster: Cluster, chance: random.Random) -> Process:
    return _one_that_runs(cluster.workers, chance)


def any_broker(cluster: Cluster, chance: random.Random) -> Process:
    return _one_that_runs(cluster.brokers, chance)


def named(name: str) -> Choice:
    """Always this one."""

    def choose(cluster: Cluster, chance: random.Random) -> Process:
        return cluster.find(name)

    return choose


def _one_that_runs(processes: Sequence[P], chance: random.Random) -> P:
    running = [process for process in processes if process.running]
    assert running, "none of them runs"
    return chance.choice(running)
