"""Processes that end, in a crash or in order, and are started again: the faults of Kafka's own transactions test."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import cycle

from tests.chaos.cluster import Cluster
from tests.chaos.faults.fault import Choice, Fault, FaultOfOne, active_node, any_broker, any_node, any_worker
from tests.chaos.processes import Process

KINDS = ("broker", "node", "worker")
WAYS = ("kill", "stop")
_AT_RANDOM: dict[str, Choice] = {"broker": any_broker, "node": any_node, "worker": any_worker}


class Ending(FaultOfOne):
    """SIGKILL or a clean stop of one process, until it is healed."""

    def __init__(self, name: str, seed: int, choose: Choice, *, clean: bool) -> None:
        super().__init__(name, seed, choose)
        self._clean = clean

    def inject(self, cluster: Cluster) -> None:
        process = self.choose(cluster)
        if self._clean:
            process.stop()
        else:
            process.kill()

    def heal(self, cluster: Cluster) -> None:
        self.target.start(ready=False)


class MachineEnding(FaultOfOne):
    """SIGKILL of the active node and of the worker beside it, at once, until it is healed."""

    def __init__(self, seed: int) -> None:
        super().__init__("machine of the active node killed", seed, active_node)

    def inject(self, cluster: Cluster) -> None:
        node = self.choose(cluster)
        for process in (node, self._worker(cluster)):
            process.kill()

    def heal(self, cluster: Cluster) -> None:
        for process in (self._worker(cluster), self.target):
            process.start(ready=False)

    def _worker(self, cluster: Cluster) -> Process:
        return cluster.find(self.target.name.replace("node", "worker"))


def in_turn(kind: str) -> Choice:
    """One after the other, round and round."""
    turn: Iterator[str] | None = None

    def choose(cluster: Cluster, chance: random.Random) -> Process:
        nonlocal turn
        if turn is None:
            turn = cycle([process.name for process in cluster.processes if process.kind == kind])
        return cluster.find(next(turn))

    return choose


def matrix(seed: int, kinds: Sequence[str] = KINDS) -> list[Fault]:
    """Every cell of {kill, stop} x {broker, node, worker} x {in turn, at random}, kind by kind.

    Those of a kind that go in turn share the turn.
    """
    faults: list[Fault] = []
    for kind in kinds:
        chosen = {"in turn": in_turn(kind), "at random": _AT_RANDOM[kind]}
        for order, choose in chosen.items():
            for way in WAYS:
                faults.append(Ending(f"{way} {kind} {order}", seed, choose, clean=way == "stop"))
    return faults
