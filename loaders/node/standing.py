"""How a node stands: its role and since when, how its last failover went, and whether it could take over. The node
reports this, and its owner may wait for it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from journal.activate.activation import ActivationReport
from journal.activate.copy_thread import Fitness
from journal.append.writing import Recoveries
from journal.config import Settings
from journal.errors import DeadlineError, JournalError
from journal.journal import BlockingJournal
from journal.load.loading import Loader
from journal.process.clocks import Clock
from journal.process.progress import Progress
from journal.v1.journal_pb2 import Failover, NodeStatus
from loaders.node.roles import Role, require_role_transition


@dataclass(frozen=True, slots=True)
class ActiveNode:
    """What the owner gets when its node is active. The node closes the journal."""

    journal: BlockingJournal
    loader: Loader
    """The loader, filled with the journal's state."""
    report: ActivationReport


@dataclass(frozen=True, slots=True)
class NodeOwner:
    """The callbacks that a node was given; see `Node`."""

    loader: Callable[[], Loader]
    on_active: Callable[[ActiveNode], None]
    on_standby: Callable[[], None]
    on_fenced: Callable[[JournalError], None]
    progress: Progress


def failover_of(
    report: ActivationReport, reason: str, silence_ms: float, callback_ms: float, now_ms: float
) -> Failover:
    """The times of an activation's parts, as they are reported."""
    return Failover(
        epoch=report.epoch,
        timestamp=int(now_ms),
        reason=reason,
        silence_ms=silence_ms,
        fence_ms=report.fence_s * 1000,
        claim_ms=report.claim_s * 1000,
        gate_ms=report.gate_s * 1000,
        load_ms=report.load_s * 1000,
        ready_ms=report.ready_s * 1000,
        callback_ms=callback_ms,
        warm=report.warm,
    )


class NodeStanding:
    """The standing of one node. Only the node's thread changes it; any thread may read it.

    It has many attributes because a report shows all of them together.
    """

    def __init__(self, settings: Settings, *, clock_ms: Clock) -> None:
        self._settings = settings
        self._clock_ms = clock_ms
        self._changed = threading.Condition()
        self._role = Role.STARTING
        self._reason = "connecting to Kafka, and opening its copy"
        self._epoch = 0
        self._since_ms = clock_ms()
        self._failover: Failover | None = None
        self._recoveries: Callable[[], Recoveries] = Recoveries
        self._journal = b""
        self._fitness: Callable[[], Fitness] | None = None
        self._reported_fit = False

    @property
    def role(self) -> Role:
        return self._role

    @property
    def epoch(self) -> int:
        """The epoch of an active node; 0 otherwise."""
        return self._epoch

    def identify(self, journal: bytes, fitness: Callable[[], Fitness]) -> None:
        """Set the journal's uuid, and the function that tells how fit the node is."""
        self._journal, self._fitness = journal, fitness

    def become(self, role: Role, reason: str, epoch: int) -> None:
        """Change the role. Raises StateError for a transition that the table does not have."""
        with self._changed:
            self._role = require_role_transition(self._role, role)
            self._reason, self._epoch, self._since_ms = reason, epoch, self._clock_ms()
            self._changed.notify_all()

    def end(self) -> None:
        """Change the role to STOPPED, once nothing of the node is left."""
        with self._changed:
            self._role = require_role_transition(self._role, Role.STOPPED)
            self._since_ms = self._clock_ms()
            self._changed.notify_all()

    def took_over(self, failover: Failover, recoveries: Callable[[], Recoveries]) -> None:
        """Note how an activation went, and the function that counts the writer's recoveries since."""
        self._failover, self._recoveries = failover, recoveries

    def wait(self, wanted: Callable[[Role], bool], timeout_s: float) -> None:
        """Wait for a role. Raises DeadlineError."""
        with self._changed:
            if not self._changed.wait_for(lambda: wanted(self._role), timeout_s):
                raise DeadlineError(f"the node is still {self._role.value} after {timeout_s:g} s: {self._reason}")

    def fitness_changed(self) -> bool:
        """Whether the node's fitness differs from the one that it last reported."""
        return self._is_fit() != self._reported_fit

    def _is_fit(self) -> bool:
        return self._fitness is not None and self._fitness().fit

    def report(self) -> NodeStatus:
        """The status to report now; later changes are measured against it."""
        status = self.status()
        self._reported_fit = status.fit
        return status

    def status(self) -> NodeStatus:
        fitness = self._fitness() if self._fitness is not None else Fitness(False, "not open yet", 0, 0)
        recovered = self._recoveries()
        with self._changed:
            return NodeStatus(
                journal=self._journal,
                name=self._settings.node,
                role=self._role.value,
                epoch=self._epoch,
                fit=fitness.fit,
                why_not=fitness.why_not,
                lag_offsets=fitness.lag_offsets,
                lag_ms=fitness.lag_ms,
                preferred=self._settings.preferred,
                since=int(self._since_ms),
                timestamp=int(self._clock_ms()),
                last_failover=self._failover,
                host=socket.gethostname(),
                pid=os.getpid(),
                report_ms=self._settings.node_report_ms,
                reason=self._reason,
                recoveries=recovered.times,
                checks=recovered.checks,
                inits=recovered.inits,
            )
