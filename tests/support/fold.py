"""Drives an engine `Fold` over WAL records as a worker does, with checkpoints where a test wants them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from journal.errors import FrameError, GapError
from journal.fold.engine import Fold
from journal.fold.rows import Happened
from journal.v1.journal_pb2 import Mark, Skipped
from journal.wire.frames import decode_frame
from journal.wire.keys import mark_key
from tests.support.build import DictBase
from tests.support.golden import WalEntry


@dataclass(slots=True)
class Folded:
    """What a fold left: the table's rows, all that happened, where and why it stopped."""

    rows: dict[bytes, bytes] = field(default_factory=dict)
    happened: list[Happened] = field(default_factory=list)
    stopped: tuple[int, str] | None = None
    at_group_end: bool = True


def never(count: int) -> bool:
    """Checkpoint after this many records? Only at the end."""
    return False


def always(count: int) -> bool:
    return True


def fold_entries(
    entries: Iterable[WalEntry],
    journal: bytes,
    shard: int,
    shards: int,
    *,
    updates_row_bytes_max: int = 4096,
    checkpoint: Callable[[int], bool] = never,
    restart: bool = False,
    tell: bool = True,
) -> Folded:
    """Fold `entries`; `checkpoint(n)` says whether one follows the n-th. `restart`: each starts from rows alone.
    Without `tell` the fold takes runs as a whole, and tells nothing."""
    table = DictBase()
    result = Folded()

    def begin() -> Fold:
        row = table.get(mark_key(shard))
        mark = Mark.FromString(row) if row else Mark(shard=shard, offset=-1)
        return Fold(mark, table, updates_row_bytes_max=updates_row_bytes_max, tell=tell)

    def take_checkpoint(fold: Fold) -> Fold:
        result.happened += fold.happened()
        table.write(fold.changes())
        if restart:
            return begin()
        fold.checkpointed()
        return fold

    fold = begin()
    for count, entry in enumerate(entries, 1):
        try:
            take_entry(fold, entry, journal, shard, shards)
        except GapError:
            result.stopped = entry.offset, "gap"
            break
        except FrameError:
            result.stopped = entry.offset, "frame"
            break
        result.at_group_end = fold.at_group_boundary
        if checkpoint(count):
            fold = take_checkpoint(fold)
    take_checkpoint(fold)
    result.rows = table.rows
    return result


def take_entry(fold: Fold, entry: WalEntry, journal: bytes, shard: int, shards: int) -> None:
    """A WAL record as a worker takes it."""
    if not entry.skip:
        fold.apply(entry.offset, entry.timestamp_ms, decode_frame(entry.value, journal, shard, shards))
        return
    try:
        frame = decode_frame(entry.value, journal, shard, shards)
    except FrameError:
        frame = None
    row = Skipped(shard=shard, offset=entry.offset, raw=entry.value, reason="a test", operator="a test")
    fold.skip(row, entry.timestamp_ms, frame)
