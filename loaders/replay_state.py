"""What a replay takes from its source, and how far it is in its target, as the target's load tells.

Progress is a record of the target, of kind REPLAY, for each source, archive, filter and shard (docs/FORMAT.md).
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from google.protobuf.message import DecodeError
from pyroaring import BitMap64

from journal.append.operations import PlainOperation
from journal.errors import ConfigError, RowError
from journal.limits import SEQUENCE_MAX
from journal.load.loading import LoadCounts, LoadedUpdate
from journal.v1.journal_pb2 import ADD, Mark, Operation, ReplayProgress
from journal.v1.store_pb2 import RecordKind, UpdateKind
from journal.wire.ids import make_id


class Selected(NamedTuple):
    """An operation of the source to replay. Operations come in the order of their groups; transactions in doubt come
    last."""

    group: int
    shard: int
    offset: int
    type: str
    id: int
    kind: int
    data: bytes
    replaceable: bool
    subject: int
    tx: int
    in_doubt: bool


@dataclass(frozen=True, slots=True)
class ReplaySource:
    """The journal and the archive to replay, and the filter."""

    uuid: bytes
    journal: str
    archive: bytes
    path: str
    filter: bytes
    """The filter's digest."""
    filtered: str
    """The filter in words."""
    ends: Mapping[int, int]
    """For each shard, the last offset that this replay looks at."""
    issued: int
    remapped: bool

    def record_id(self, shard: int) -> int:
        """The id of the target's progress record for a shard. It is far above those that a journal issues, and the same
        in every run."""
        told = hashlib.sha256(self.uuid + self.archive + self.filter + struct.pack(">I", shard)).digest()
        return make_id(SEQUENCE_MAX // 2 + int.from_bytes(told[:8], "big") % (SEQUENCE_MAX // 2), shard)


class TargetInDoubt(NamedTuple):
    """A transaction that is prepared in the target."""

    data: bytes
    operations: Counter[PlainOperation]
    """How many times the transaction has each operation."""


class ReplayTarget:
    """A loader that keeps what a replay must know of its target: which records exist, what is in doubt, and earlier
    replays."""

    def __init__(self) -> None:
        self.live = BitMap64()
        self.replays: dict[int, Sequence[LoadedUpdate]] = {}
        self.in_doubt: dict[int, TargetInDoubt] = {}
        self.added_in_doubt: dict[int, int] = {}
        """For each record that a transaction in doubt adds, that transaction."""

    def begin(self, marks: Mapping[int, Mark]) -> None: ...

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        self.live.add(record_id)
        if kind == RecordKind.REPLAY:
            self.replays[record_id] = tuple(updates)

    def prepared(self, tx: int, data: bytes, operations: Sequence[Operation]) -> None:
        found = Counter(
            (each.type, each.id, each.kind, each.data, each.replaceable, each.subject) for each in operations
        )
        self.in_doubt[tx] = TargetInDoubt(data, found)
        self.added_in_doubt.update((each.id, tx) for each in operations if each.type == ADD)

    def complete(self, counts: LoadCounts) -> None: ...


class Progress:
    """How far a replay is in its target, as the target's load told."""

    def __init__(self, source: ReplaySource, target: ReplayTarget) -> None:
        self.known = source.record_id(min(source.ends)) in target.replays
        self.shards = {shard: ReplayProgress(offset=-1) for shard in source.ends}
        self.blocks: dict[int, int] = {}
        """For each block of the source's sequences, the first sequence that it became."""
        self.kept: set[int] = set()
        for shard in source.ends:
            for update in target.replays.get(source.record_id(shard), ()):
                self._take(shard, update)

    @property
    def reached(self) -> dict[int, int]:
        """For each shard, the source's offset up to which everything is replayed; -1 for nothing."""
        return {shard: progress.offset for shard, progress in self.shards.items()}

    @property
    def operations(self) -> int:
        return sum(progress.operations for progress in self.shards.values())

    def _take(self, shard: int, update: LoadedUpdate) -> None:
        if update.kind == UpdateKind.REPLAYED:
            try:
                self.shards[shard] = ReplayProgress.FromString(update.data)
            except DecodeError as error:
                raise RowError(f"the progress of a replay of shard {shard} does not parse: {error}") from None
        elif update.kind == UpdateKind.REMAPPED:
            self.blocks[update.subject] = int.from_bytes(update.data, "big")
        elif update.kind == UpdateKind.KEPT:
            self.kept.add(update.subject)


def require_other_journal(source: ReplaySource, target: bytes) -> None:
    """Raises ConfigError if the target is the source itself."""
    if source.uuid == target:
        raise ConfigError(f"{source.path} is the archive of the target itself: replay into another journal")
