"""What happened in one seed as its callers saw it: tenures, calls, completions, loads. The checker judges it later.

A tenure is one load by one activation, and the calls that were accepted after it. Calls whose completion is one object
are a unit: they are in the WAL together or not at all. What cannot wait for the end is a violation at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from journal.append.completion import Completion
from journal.errors import CorruptionError
from journal.load.loading import LoadCounts, LoadedUpdate
from journal.topics.names import table_topic, wal_topic
from journal.v1.journal_pb2 import ADD, DELETE, UPDATE, Mark, Operation
from journal.verify.state import VerifiedShard, fingerprint, pack_record, pack_update, shard_of
from tests.simulation.reference import Call, Seen, SeenRecord, by_shard
from tests.simulation.setting import JOURNAL

_VERBS: dict[int, str] = {ADD: "add", UPDATE: "update", DELETE: "delete"}


class Violation(AssertionError):
    """An invariant does not hold; its message begins with the invariant's name."""


class Over(Exception):  # nothing went wrong: there is no more of this life
    """A seed's life has come to its end before its plan has: a loss was noticed, or a process ended that must not."""


class CapturedLoad:
    """A loader that keeps what it is told, can be kept warm, and insists on the order of DESIGN's protocol."""

    def __init__(self, shards: int, take_time: Callable[[], None]) -> None:
        """`take_time` is called before the load is complete: rebuilding a broker's state is not quick."""
        self._take_time = take_time
        self.marks: dict[int, Mark] = {}
        self.seen = Seen({}, {})
        self.counts: LoadCounts | None = None
        self.packed: list[dict[int, bytes]] = [{} for _ in range(shards)]
        """Per shard and id the record as `verify` packs it, with its position."""
        self.packed_updates: list[dict[int, list[bytes]]] = [{} for _ in range(shards)]
        self._shards = shards
        self._begun = 0

    def begin(self, marks: Mapping[int, Mark]) -> None:
        self._begun += 1
        self.marks = dict(marks)

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        if record_id in self.seen.records:
            raise Violation(f"exactly once: a load tells record {record_id} twice")
        self._keep(record_id, kind, data, updates, position)

    def changed(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        self.deleted(record_id)
        self._keep(record_id, kind, data, updates, position)

    def deleted(self, record_id: int) -> None:
        if self.counts is not None:
            raise Violation("gated: a load that is complete is told more")
        shard = shard_of(record_id, self._shards)
        self.seen.records.pop(record_id, None)
        self.packed[shard].pop(record_id, None)
        self.packed_updates[shard].pop(record_id, None)

    def _keep(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        record: SeenRecord = kind, data, tuple((u.kind, u.data, u.replaceable, u.subject) for u in updates)
        self.seen.records[record_id] = record
        shard = shard_of(record_id, self._shards)
        self.packed[shard][record_id] = pack_record(kind, fingerprint(data), *position)
        if updates:
            self.packed_updates[shard][record_id] = [
                pack_update(u.kind, u.replaceable, u.subject, fingerprint(u.data), *u.position) for u in updates
            ]

    def prepared(self, tx: int, data: bytes, operations: Sequence[Operation]) -> None:
        if tx in self.seen.prepared:
            raise Violation(f"in doubt stays: a load tells transaction {tx} twice")
        told = ((_VERBS[op.type], op.id, op.kind, op.data, op.replaceable, op.subject) for op in operations)
        self.seen.prepared[tx] = data, by_shard(told, self._shards)

    def complete(self, counts: LoadCounts) -> None:
        self._take_time()
        self.counts = counts
        if self._begun != 1 or len(self.seen.records) != counts.records or len(self.seen.prepared) != counts.prepared:
            raise Violation(f"gated: a load began {self._begun} times and counts {counts}")


@dataclass(slots=True)
class Unit:
    """Calls that one completion tells the fate of."""

    completion: Completion


@dataclass(slots=True)
class Tenure:
    """One load of an activation, and the calls after it. `active_at` is when the node was told to be active."""

    epoch: int
    node: str
    load: CapturedLoad
    active_at: float | None = None
    ended: bool = False
    """Whether its process came to its own end, with everybody told."""
    calls: list[tuple[Call, Unit | None]] = field(default_factory=list)
    """Accepted calls in order; without a unit: buffered or staged in a transaction, or done without the WAL."""
    units: dict[int, Unit] = field(default_factory=dict)
    issued: list[int] = field(default_factory=list)
    """Ids that the journal made, in order."""

    def accepted(self, call: Call, completion: Completion) -> None:
        """Note an accepted call and what tells its fate."""
        inside = call.tx and call.verb in ("add", "update", "delete")
        unit: Unit | None = None
        if not inside and not completion.done:
            unit = self.units.setdefault(id(completion), Unit(completion))
        self.calls.append((call, unit))


class SnapshotLoad(NamedTuple):
    """A read-only load: what it told, and the group that it says it is of."""

    load: CapturedLoad
    group: int
    now: bool
    groups_before: int
    """The highest group that was committed in every shard when it began."""


class CopySeen(NamedTuple):
    """What a table partition or a local copy held at some moment: the state of its mark."""

    where: str
    shard: int
    offset: int
    state: VerifiedShard


@dataclass(slots=True)
class History:
    """Everything of one seed."""

    shards: int
    tenures: list[Tenure] = field(default_factory=list)
    snapshots: list[SnapshotLoad] = field(default_factory=list)
    copies: list[CopySeen] = field(default_factory=list)
    marks: set[tuple[int, int]] = field(default_factory=set)
    """Shard and WAL offset of every committed mark that was seen in the table topic."""
    garbage: set[tuple[int, int]] = field(default_factory=set)
    """Shard and WAL offset of every record of a foreign client's; an operator has each skipped."""
    cleaned: dict[int, int] = field(default_factory=dict)
    """Per shard how far the cleaner has got in the table partition: behind marks before that, there is no state."""
    operations: int = 0
    refused: int = 0
    activations: int = 0
    moves: int = 0
    compactions: int = 0
    trims: int = 0
    is_slow: bool = False
    """Whether brokers become slow: what is large might then not be taken in the time of a request."""
    zombies: int = 0
    warm_loads: int = 0
    own_decisions: int = 0
    """How often a node became active because it decided to."""
    losses: list[str] = field(default_factory=list)
    """Acknowledged tails that Kafka has lost, and when."""
    lost_topics: set[str] = field(default_factory=set)
    noticed: list[str] = field(default_factory=list)
    """Typed errors after a loss: somebody says that something is not as it must be."""
    is_over: bool = False
    """Whether a loss was noticed that the journal need not go on after. Tables are built anew from what the WAL has."""
    excused_until: float = 0.0
    """Till then a read may meet what the next one need not meet."""
    violations: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def violate(self, what: str) -> None:
        self.violations.append(what)

    def lose(self, topic: str, what: str) -> None:
        """Kafka has lost what it had acknowledged: from now on it is right not to go on."""
        self.losses.append(what)
        self.lost_topics.add(topic)

    @property
    def has_lost_rows(self) -> bool:
        """Whether what tables and copies hold need not be what the WAL says, until somebody loads it."""
        return bool(self.lost_topics & {wal_topic(JOURNAL), table_topic(JOURNAL)})

    def excuse(self, until: float) -> None:
        self.excused_until = max(self.excused_until, until)

    def takes(self, error: CorruptionError, now: float) -> bool:
        """Whether a typed error of some process has a cause outside of the product. After a loss, it is noticed."""
        if self.losses:
            self.noticed.append(str(error))
            self.is_over |= self.lost_topics != {table_topic(JOURNAL)}
        return bool(self.losses) or now < self.excused_until

    def newest_active(self) -> Tenure | None:
        """The tenure of the newest epoch that was told to be active."""
        active = [one for one in self.tenures if one.active_at is not None]
        return max(active, key=lambda one: one.epoch, default=None)
