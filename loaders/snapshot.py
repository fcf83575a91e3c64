"""The read-only load: it reads the journal's state without a worker and without an epoch, and disturbs nobody.

A snapshot of the tables stands at one mark for each shard, and the marks belong to different groups. So the WAL's
committed frames are folded over it, with the engine, up to one group: the highest group of all marks or, with `now`,
the highest in the WAL. A group's frames become visible shard by shard, so each shard is read up to a high watermark
that was asked for after that group had been seen.

A reader cannot prove that the leader which answered was not deposed (docs/ARCHITECTURE.md, "What proves a read"):
records that such a leader lacks are missing in the load. With `now`, signs of this raise an error. Without it, the load
gives the state of the tables, even if the WAL has lost its end.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from journal.config import Settings
from journal.disk.ports import LocalStore, Snapshot
from journal.errors import FullError, GapError, StaleReadError
from journal.fold.engine import Fold
from journal.fold.rows import Change
from journal.kafka.ports import Kafka
from journal.load.loading import LoadCounts, Loader, load
from journal.process.clocks import Clock
from journal.process.commands import command
from journal.table.replica import Replica
from journal.topics.names import wal_topic
from journal.v1.journal_pb2 import Identity, Mark
from journal.wal.reading import WalReader
from loaders.overlay import Overlay

OVERLAY_BYTES_MAX = 512 * 1024 * 1024
"""Bytes of the WAL that a read-only load folds in memory. If the tables are further behind, a worker must catch up
first."""


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """A consistent state: the rows, and the marks whose fold they are."""

    base: Overlay
    marks: Mapping[int, Mark]
    group: int
    snapshot: Snapshot
    replica: Replica

    def tell(self, loader: Loader) -> LoadCounts:
        """Tell the loader everything. Raises what the loader raises, LocalDamageError if the copy is not what its marks
        say, and CountError if the table is not."""
        with self.replica.counting():
            return load(self.base, self.marks, loader)

    def close(self) -> None:
        """Release the store's snapshot. The store cannot be closed for good before this."""
        self.snapshot.close()


def read_snapshot(
    kafka: Kafka,
    settings: Settings,
    identity: Identity,
    replica: Replica,
    store: LocalStore,
    *,
    now: bool,
    timeout_s: float,
    clock: Clock = time.monotonic,
) -> SnapshotState:
    """The state up to the highest group of any mark, or up to the WAL's committed end.

    `replica` follows all shards into `store`, and has counted their rows. Raises FullError if the tables are too far
    behind the WAL, and with `now` StaleReadError for a WAL that shows less than there was.
    """
    replica.catch_up(timeout_s)
    marks = replica.marks()
    snapshot = store.snapshot()
    try:
        folds = {
            shard: Fold(mark, snapshot, updates_row_bytes_max=settings.limits.updates_row_bytes_max)
            for shard, mark in marks.items()
        }
        group = _fold_wal(kafka, settings, identity, folds, clock, now=now, timeout_s=timeout_s)
    except BaseException:
        snapshot.close()
        raise
    changes: list[Change] = []
    for fold in folds.values():
        changes += fold.changes()
    folded = {shard: fold.mark for shard, fold in folds.items()}
    return SnapshotState(Overlay(snapshot, changes), folded, group, snapshot, replica)


def _fold_wal(
    kafka: Kafka,
    settings: Settings,
    identity: Identity,
    folds: Mapping[int, Fold],
    clock: Clock,
    *,
    now: bool,
    timeout_s: float,
) -> int:
    """Fold the WAL after the marks up to one group in every shard; returns that group."""
    marks = {shard: fold.mark for shard, fold in folds.items()}
    wal = WalReader(kafka, settings.journal, identity.journal, identity.shards, clock)
    try:
        group = max(mark.group for mark in marks.values())
        if now:
            group = max(group, _highest_group(wal, marks, timeout_s))
        size = 0
        for shard, end in wal.high_watermarks(range(identity.shards), timeout_s).items():
            applied = marks[shard].offset
            if now and end <= applied:
                raise _stale(settings.journal, shard, f"ends at {end}, and the tables have offset {applied}")
            size += _fold_to(wal, folds[shard], settings.journal, group, end, timeout_s, OVERLAY_BYTES_MAX - size)
    finally:
        wal.close()
    if now:
        _require_one_epoch(settings.journal, folds)
    return group


def _require_one_epoch(journal: str, folds: Mapping[int, Fold]) -> None:
    """Raises StaleReadError if the shards end in different epochs: an activation writes its markers to all shards in
    one group."""
    newest = max(fold.mark.epoch for fold in folds.values())
    for shard, fold in folds.items():
        if fold.mark.epoch < newest:
            raise _stale(journal, shard, f"shows epoch {fold.mark.epoch}, and another shard epoch {newest}")


def _stale(journal: str, shard: int, why: str) -> StaleReadError:
    return StaleReadError(
        f"{wal_topic(journal)}[{shard}] {why}: a leader that was deposed has answered, or the WAL has lost its end. "
        f"Try again; {command('verify', journal=journal)} says what is lost, "
        "and dump without --now what the tables have"
    )


def _highest_group(wal: WalReader, marks: Mapping[int, Mark], timeout_s: float) -> int:
    """The highest group that is committed in any shard now."""
    highest = 0
    for shard, end in wal.high_watermarks(marks, timeout_s).items():
        highest = max(highest, wal.tail_until(shard, end, timeout_s).group)
    return highest


def _fold_to(wal: WalReader, fold: Fold, journal: str, group: int, end: int, timeout_s: float, bytes_left: int) -> int:
    """Fold one shard's frames after its mark up to a group; returns their bytes."""
    shard, start = fold.mark.shard, fold.mark.offset + 1
    first, _ = wal.bounds(shard, timeout_s)
    if first > start:
        raise GapError("frames behind the mark are gone", topic=wal_topic(journal), partition=shard, offset=start)
    size = 0
    for record, frame in wal.frames(shard, start, end, timeout_s, strict=True):
        if frame.group > group:
            break
        fold.apply(record.offset, record.timestamp, frame)
        size += len(record.value or b"")
        if size > bytes_left:
            raise FullError(
                f"the tables are more than {OVERLAY_BYTES_MAX} bytes behind the WAL: run a worker "
                f"({command('worker', journal=journal)}), then try again"
            )
    return size
