"""`python -m bench failover`: how soon a standby is active, against the bare gate and a plain group's reassignment.

take-over   The time from a node's turn to activate (its predecessor has handed over to it) until it is active, with
            warm queues and with cold ones. The limit is a whole round trip of `limits.BareGate`, also under load. It
            includes the first transaction, because a take-over writes its markers too. A second ratio compares with the
            round trip from the commit of that transaction on.
hand-over   The longest gap between two acknowledgements. The limit is a consumer group of two members: the time from
            when one member leaves until the other one is assigned the partition.
kill        The time from SIGKILL until the other node is active. The limit is the same group: the time from the death
            of the member that has the partition until the other one is assigned it.

The load is 5,000 operations a second of a message store, 200 in the quick form. It goes on while the limits are
measured. The group and the workers have the nodes' session time-out and heartbeat. Hand-overs and kills are measured
twice: with one worker beside the nodes, and with a worker for each node, which is killed with its node.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from bench import limits
from bench.failover_group import Group
from bench.failover_processes import OPERATIONS_A_MESSAGE, Event, NodeProcess, wait_for_members
from bench.rounds import Comparison, Figures, Outcome, Series, alternate, rounded, say
from bench.scene import TIMEOUT_S, Marks, Memory, Scene, worker
from journal.config import Settings
from journal.kafka.clients import kafka_of
from journal.topics.names import node_group, wal_topic, worker_group

SHARDS = 8
LIVE = {10_000: 0.4, 1_000_000: 0.2}
"""The numbers of live messages that are measured, and for each the ratio to the limit that a warm take-over should
reach."""
QUICK_LIVE = {1000: 0.4}
GAP_TARGET = 0.5
PARTS = ("fence", "claim", "gate", "load", "ready", "callback")

_ROUNDS_OF_FEW = 3
"""With few messages there are this many times as many rounds, because such a round takes only seconds, and its times of
milliseconds vary on a busy machine."""
_SESSION_MS, _QUICK_SESSION_MS = 6000, 3000


def run(scene: Scene) -> Outcome:
    outcome = Outcome()
    memory = Memory()
    with memory.watch(bench=os.getpid(), broker=scene.broker_pid):
        for live, target in (QUICK_LIVE if scene.quick else LIVE).items():
            _take_overs(scene, live, target, outcome, memory)
        for with_worker in (False, True):
            _gaps(scene, outcome, with_worker=with_worker)
    outcome.figures |= memory.figures()
    return outcome


@contextmanager
def _journal(scene: Scene) -> Iterator[Settings]:
    """Makes a journal with default settings, and the nodes' session for workers; shorter ones in the quick form."""
    session_ms = _QUICK_SESSION_MS if scene.quick else _SESSION_MS
    times = {"node_session_timeout_ms": session_ms, "session_timeout_ms": session_ms}
    times |= {"fence_check_ms": session_ms // 2}
    if scene.quick:
        times |= {"node_heartbeat_ms": 200, "node_report_ms": 1000}
    with scene.journal(SHARDS, **times) as settings:
        yield settings


def _alternate(
    scene: Scene, rounds: int, ours: Callable[[], float], limit: Callable[[], float], what: str
) -> tuple[list[float], list[float]]:
    """Runs the rounds; the quick form has one, because a round takes long."""
    return alternate(1 if scene.quick else rounds, ours, limit, what=what, warm_up=0 if scene.quick else 1)


class Load(NamedTuple):
    """The load that nodes serve, and how long they serve it before and after each change of the active node."""

    operations_per_s: int
    served_s: float


LOAD, QUICK_LOAD = Load(5000, 1.0), Load(200, 0.3)


def _load(scene: Scene) -> Load:
    return QUICK_LOAD if scene.quick else LOAD


# ---- two nodes -------------------------------------------------------------------------------------------------------


class Nodes:
    """Two nodes of a journal, of which one is active."""

    def __init__(self, settings: Settings, ending: ExitStack, *flags: Sequence[str], load: Load) -> None:
        """Starts two nodes with the same `flags`; the first one becomes active first."""
        self._settings = settings
        self._load = load
        self._ending = ending
        self._all: list[NodeProcess] = []
        self.active = self._start("first", *flags[0])
        self.active.next("active", 0.0)
        self.standby = self._start("second", *flags[1])

    def _start(self, name: str, *flags: str) -> NodeProcess:
        node = NodeProcess(self._settings, name, *flags)
        self._ending.enter_context(node)
        self._all.append(node)
        return node

    def fill(self, live: int) -> None:
        """Makes the queues and their live messages, then starts the load."""
        say(f"{live:,} messages, and {self._load.operations_per_s:,} operations a second")
        self.active.tell(f"fill {live}")
        self.active.next("filled", 0.0)
        for node in (self.active, self.standby):
            node.tell(f"load {self._load.operations_per_s}")

    def ready(self) -> None:
        """Waits until the standby is fit and the active node has served its load for a while."""
        self.standby.wait_fit()
        self.active.wait_served(time.time(), self._load.served_s)

    def hand_over(self, *, leave: bool) -> TakeOver:
        """Has the active node hand over: by the standby's request, or because its process ends."""
        self.ready()
        before = self.active
        if leave:
            asked = before.terminate()
        else:
            asked = time.time()
            before.tell("hand-over")
        self._swap(asked)
        served = self.active.wait_served(asked, self._load.served_s)
        gap_s = longest_gap([*before.acknowledged, *self.active.acknowledged], asked)
        return TakeOver(asked, before.acknowledged[-1], self.took, served, gap_s)

    def kill(self) -> TakeOver:
        self.ready()
        killed = self.active.kill()
        self._swap(killed)
        return TakeOver(killed, killed, self.took, self.active.wait_served(killed, self._load.served_s))

    def _swap(self, after: float) -> None:
        self.active, self.standby = self.standby, self.active
        self.took = self.active.next("active", after)

    def load_figures(self, name: str) -> Figures:
        """Returns the rate of the load, as reported by the nodes that ended in order."""
        told = [event for node in self._all for event in node.events if event["event"] == "loaded"]
        messages, seconds = (sum(event[what] for event in told) for what in ("messages", "seconds"))
        return {f"failover_load_{name}_operations_per_s": round(OPERATIONS_A_MESSAGE * messages / seconds)}

    def replace(self) -> None:
        """Starts another process for the node that was killed or has left."""
        self.standby.ended()
        gone = self.standby
        self.standby = self._start(gone.name, *gone.flags)
        self.standby.tell(f"load {self._load.operations_per_s}")


@dataclass(frozen=True, slots=True)
class TakeOver:
    """One change of the active node, with times of this machine's clock."""

    began: float
    """Time at which the change was requested, or the node was killed."""
    last: float
    """Time of the last acknowledgement before the change."""
    active: Event
    served: float
    """Time of the first acknowledgement after the change."""
    gap_s: float = 0.0
    """Longest gap between two acknowledgements."""

    @property
    def activation_s(self) -> float:
        """Seconds from the node's turn until it is active."""
        took: float = self.active["active"] - self.active["began"]
        return took

    @property
    def active_s(self) -> float:
        took: float = self.active["active"] - self.began
        return took

    def parts_ms(self) -> dict[str, float]:
        """Milliseconds of each part of the change, in the order in which they follow each other."""
        parts: dict[str, float] = {part: self.active["parts"][f"{part}_ms"] for part in PARTS}
        started = self.activation_s * 1000 - sum(parts.values())
        served = (self.served - self.active["active"]) * 1000
        return {"noticed": (self.active["began"] - self.last) * 1000, "started": started, **parts, "served": served}


def longest_gap(times: Sequence[float], after: float) -> float:
    """Returns the longest gap between two of these times that does not end before `after`."""
    return max((later - earlier for earlier, later in pairwise(sorted(times)) if later >= after), default=0.0)


@dataclass(slots=True)
class Parts:
    """Parts of many take-overs of one kind."""

    name: str
    took: list[TakeOver] = field(default_factory=list)

    def figures(self, rounds: int) -> Figures:
        """Returns the medians of the last take-overs, and the number of those that found their state warm."""
        took = self.took[-rounds:]
        found = [each.parts_ms() for each in took]
        figures: Figures = {
            f"failover_parts_{self.name}_{part}_ms": rounded(statistics.median(parts[part] for parts in found))
            for part in found[0]
        }
        warm = sum(each.active["parts"]["warm"] for each in took)
        return figures | {f"failover_parts_{self.name}_warm": f"{warm} of {len(found)}"}


# ---- a node's turn to active -----------------------------------------------------------------------------------------


def _take_overs(scene: Scene, live: int, target: float, outcome: Outcome, memory: Memory) -> None:
    warm, cold = (Parts(f"{kind}_{live}_messages") for kind in ("warm", "cold"))
    bare = limits.BareGate(scene.bootstrap, SHARDS)
    idle = [bare.run().path_s * 1000 for _ in range(6)][1:]
    with _journal(scene) as settings, worker(settings) as pid, memory.watch(worker=pid), ExitStack() as ending:
        nodes = Nodes(settings, ending, (), ("--cold",), load=_load(scene))
        nodes.fill(live)

        gates: list[float] = []

        def bare_ms() -> float:
            took = bare.run()
            gates.append(took.gate_s * 1000)
            return took.path_s * 1000

        def warm_ms() -> float:
            """Measures a take-over by the second node, which is cold, and then the one back by the first node, which is
            warm; returns the milliseconds of the warm one."""
            cold.took.append(nodes.hand_over(leave=False))
            warm.took.append(nodes.hand_over(leave=False))
            return warm.took[-1].activation_s * 1000

        name = f"failover_{warm.name}"
        with memory.watch(**{f"node_{live}_messages": nodes.active.pid}):
            rounds = scene.rounds() * (_ROUNDS_OF_FEW if live <= min(LIVE) else 1)
            ours, limit = _alternate(scene, rounds, warm_ms, bare_ms, f"{name}, ms")
        outcome.figures |= nodes.load_figures(f"{live}_messages")
    bare.close()
    outcome.comparisons.append(Comparison(name, "ms", ours, limit, target, less_is_better=True))
    of_gate = Comparison("", "ms", ours, gates[-len(ours) :], 0.0, less_is_better=True).ratio
    outcome.figures |= {f"{name}_ratio_to_gate_alone": round(of_gate, 3)}
    cold_ms = [each.activation_s * 1000 for each in cold.took][-len(limit) :]
    ratio = Comparison("", "ms", cold_ms, limit, 0.0, less_is_better=True).ratio
    outcome.figures |= Series(f"failover_{cold.name}", "ms", cold_ms).figures()
    outcome.figures |= {f"failover_{cold.name}_ratio": round(ratio, 3)}
    outcome.figures |= Series(f"failover_bare_gate_without_load_{live}_messages", "ms", idle).figures()
    outcome.figures |= warm.figures(len(limit)) | cold.figures(len(limit))


def _wait_until_applied(settings: Settings) -> None:
    """Waits until every shard's worker has applied what is in the WAL now: a worker that just got its shards recovers
    them first. The load goes on, and moves every shard's mark beyond the present end of its WAL."""
    wal, marks = kafka_of(settings).reader(wal_topic(settings.journal)), Marks(settings)
    try:
        ends = {shard: wal.start_and_end(shard, TIMEOUT_S)[1] for shard in range(settings.shards)}
        marks.wait_for(ends, TIMEOUT_S)
    finally:
        wal.close()
        marks.close()


# ---- hand-over and kill ----------------------------------------------------------------------------------------------


def _gaps(scene: Scene, outcome: Outcome, *, with_worker: bool) -> None:
    form = "node_with_worker" if with_worker else "node_alone"
    handed, killed = Parts(f"hand_over_{form}"), Parts(f"kill_{form}")
    live = next(iter(QUICK_LIVE if scene.quick else LIVE))
    with _journal(scene) as settings, ExitStack() as ending:
        flags = ("--with-worker",) if with_worker else ()
        if not with_worker:
            ending.enter_context(worker(settings))
        nodes = Nodes(settings, ending, flags, flags, load=_load(scene))
        nodes.fill(live)
        group = Group(scene.bootstrap, settings, ending)

        def settle() -> None:
            wait_for_members(scene.bootstrap, node_group(settings.journal), 2)
            wait_for_members(scene.bootstrap, worker_group(settings.journal), 2 if with_worker else 1)
            _wait_until_applied(settings)

        def gap_s() -> float:
            settle()
            handed.took.append(nodes.hand_over(leave=with_worker))
            if with_worker:
                nodes.replace()
            return handed.took[-1].gap_s

        def kill_s() -> float:
            settle()
            killed.took.append(nodes.kill())
            nodes.replace()
            return killed.took[-1].active_s

        for parts, ours_s, limit_s, rounds in (
            (handed, gap_s, group.leave_s, 2 * scene.rounds()),
            (killed, kill_s, group.kill_s, scene.rounds()),
        ):
            name = f"failover_{parts.name}"
            ours, limit = _alternate(scene, rounds, ours_s, limit_s, f"{name}, s")
            outcome.comparisons.append(Comparison(name, "s", ours, limit, GAP_TARGET, less_is_better=True))
            outcome.figures |= parts.figures(len(limit))
        outcome.figures |= nodes.load_figures(form)
