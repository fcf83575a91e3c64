"""What there is: nodes, the broker, the groups' outcomes, and the faults still allowed. Values only, all hashable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from .removals import SHADOWED, Removal

READY_SHARD = 0
"""READY is one frame of one shard: what counts is its EndTxn."""


class Kind(StrEnum):
    """What a frame is, as far as fencing cares."""

    MARKER = "marker"
    READY = "ready"
    GROUP = "group"


class Frame(NamedTuple):
    """One Kafka record of a shard. It names the shard's previous frame; its own number is the next one."""

    epoch: int
    kind: Kind
    group: int | None
    previous: int


Log: TypeAlias = tuple[Frame, ...]


class Row(NamedTuple):
    """The epoch counter in the control partition: who took the newest epoch. The nonce is of one activation."""

    epoch: int
    name: int
    nonce: int


class Transaction(NamedTuple):
    """The one transaction of the journal's transactional id: open, or committed with markers still to be written.

    What is already visible to read_committed readers is no longer in here: a committed one disappears piece by piece.
    """

    committed: bool
    row: Row | None
    frames: tuple[Frame | None, ...]


class Request(NamedTuple):
    """What one produce request carries: a frame for one shard, and the counter with the first of a marker's frames."""

    shard: int
    frame: Frame
    row: Row | None


class Hidden(NamedTuple):
    """A shard, and how many of its committed frames are below the LSO."""

    shard: int
    behind: int


class Broker(NamedTuple):
    """Kafka, as far as the journal's transactional id, its WAL and its control partition go."""

    newest: int | None  # the node whose init is the newest; None once the coordinator or a late init bumped it
    wal: tuple[Log, ...]  # per shard what read_committed readers see, but for what is hidden
    control: tuple[Row, ...]  # the newest one last, but for what its partition has lost
    transaction: Transaction | None = None
    late_end: bool = False  # an EndTxn of the newest producer is still under way
    late_produce: Request | None = None
    late_inits: int = 0
    foreign: int | None = None  # rows below the LSO while somebody else's transaction stands open in control
    hidden: Hidden | None = None  # what somebody else's transaction that stands open in the WAL holds back


class At(StrEnum):
    """Where a node stands: its next step."""

    IDLE = "idle"
    INIT = "init"
    READ = "read"
    COUNTER = "counter"
    COUNTER_END = "counter end"
    GATE = "gate"
    READY = "ready"
    READY_END = "ready end"
    READY_LATE = "ready late"
    ACTIVE = "active"
    GROUP = "group"
    GROUP_END = "group end"
    CHECK = "check"
    REINIT = "reinit"
    RECHECK = "recheck"
    READ_BACK = "read back"
    FENCED = "fenced"
    NOTICED = "noticed"


class Node(NamedTuple):
    """One broker node. `loaded` is None until the gate has passed: the node is still taking its epoch."""

    at: At = At.IDLE
    activation: int = 0
    epoch: int = 0
    group: int | None = None  # the group in hand
    numbers: tuple[int, ...] = ()  # per shard its last frame, which the next one names
    produced: int = 0  # shards to which the transaction in hand has been produced
    loaded: tuple[frozenset[int], ...] | None = None
    ready: bool = False  # READY is known to be committed
    found: bool = False  # only where the read-back comes too early
    asked: int | None = None  # rows of control that the read under way must have come to

    @property
    def is_active(self) -> bool:
        """Whether it has told anybody that it is active, and not yet that it no longer is."""
        return self.ready and self.at is not At.FENCED


class Outcome(StrEnum):
    """What has been said about a group."""

    WAITING = "waiting"
    IN_HAND = "in hand"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Faults(NamedTuple):
    """How many of each fault may still happen. Pauses are free: any node may stand still for as long as it likes."""

    lost: int = 0  # requests delayed, answers lost or late
    timeouts: int = 0  # transactions that the coordinator times out
    crashes: int = 0
    lapses: int = 0  # an active node's membership lapses, or its replica shows a newer mark
    foreign: int = 0  # transactions that somebody else opens in the control partition
    foreign_wal: int = 0  # and in a shard of the WAL
    tails: int = 0  # newest rows of the control partition that are lost


NO_FAULTS = Faults()


class World(NamedTuple):
    """One state of the model."""

    broker: Broker
    nodes: tuple[Node, ...]
    outcomes: tuple[Outcome, ...]  # per group; the groups of node n are n * groups and the following
    faults: Faults

    def node(self, n: int, **changes: Any) -> World:
        """The same with node n changed."""
        nodes = (*self.nodes[:n], self.nodes[n]._replace(**changes), *self.nodes[n + 1 :])
        return self._replace(nodes=nodes)

    def kafka(self, broker: Broker) -> World:
        """The same with Kafka changed."""
        return self._replace(broker=broker)

    def said(self, group: int, outcome: Outcome) -> World:
        """The same with this said about the group."""
        return self._replace(outcomes=(*self.outcomes[:group], outcome, *self.outcomes[group + 1 :]))

    def spend(self, fault: str) -> World:
        """The same with one fault less to come."""
        return self._replace(faults=self.faults._replace(**{fault: getattr(self.faults, fault) - 1}))


Step: TypeAlias = tuple[str, World]
Steps: TypeAlias = Iterator[Step]


@dataclass(frozen=True)
class Config:
    """The size of the model, and the step it goes without."""

    nodes: int = 2
    shards: int = 1
    groups: int = 1  # that each node has to write
    activations: int = 1  # that each node may begin (node 0's first one is over when it starts active)
    faults: Faults = NO_FAULTS
    starts_active: bool = True  # node 0 is active in epoch 1, else nobody is
    same_name: bool = False  # two processes run under one node name
    two_steps: bool = False  # the counter is read in two: how far, and then up to there
    removed: Removal | None = None

    def lacks(self, removal: Removal) -> bool:
        """Whether this step is removed."""
        return self.removed is removal or (removal is Removal.NEWER_MARKER and self.removed in SHADOWED)

    def row(self, node: Node, n: int) -> Row:
        """The counter row of the node's activation."""
        return Row(node.epoch, 0 if self.same_name else n, node.activation * self.nodes + n)

    def start(self) -> World:
        """The first state."""
        idle = Node()
        outcomes = (Outcome.WAITING,) * (self.nodes * self.groups)
        if not self.starts_active:
            nobody = Row(0, self.nodes, self.nodes)
            return World(Broker(None, ((),) * self.shards, (nobody,)), (idle,) * self.nodes, outcomes, self.faults)
        marker, ready = Frame(1, Kind.MARKER, None, 0), Frame(1, Kind.READY, None, 1)
        logs = tuple((marker, ready) if shard == READY_SHARD else (marker,) for shard in range(self.shards))
        numbers = tuple(map(len, logs))
        active = Node(At.ACTIVE, 1, 1, numbers=numbers, loaded=(frozenset(),) * self.shards, ready=True)
        broker = Broker(0, logs, (Row(0, self.nodes, self.nodes), self.row(active, 0)))
        return World(broker, (active, *(idle,) * (self.nodes - 1)), outcomes, self.faults)
