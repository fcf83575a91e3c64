"""Where the WAL begins, and whether all frames that a reader needs are still there."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from google.protobuf.message import DecodeError

from journal.errors import GapError
from journal.kafka.ports import LogRecord
from journal.topics.marks import records_between
from journal.v1.journal_pb2 import FrameColumns
from journal.wire.frames import MAGIC
from loaders.spark.read.source import EARLIEST, JournalIdentity, JournalSource, control, require_all_shards


class FirstRecord(NamedTuple):
    """The first record of a shard."""

    offset: int
    number: int | None
    """The number of its frame; None if it is no frame."""


def readable_start(
    source: JournalSource,
    journal: JournalIdentity,
    starting: Mapping[int, int] | None = None,
    bounds: Mapping[int, tuple[int, int]] | None = None,
    *,
    mend: str,
    begun: bool | None = None,
) -> dict[int, int]:
    """Where to read the WAL from, to have all frames or all from `starting` on. The result has offsets, because a
    reader of records that are trimmed after this check then gets an error; with "earliest" it would silently begin
    after them.

    Raises GapError unless all records are there; the error names what is gone, and has the text `mend`. `begun` is that
    of `identity_and_begun`, and `bounds` has the first offset and the end of the shards to read; they are looked up if
    they are not given.
    """
    if bounds is None:
        bounds = _bounds(source, range(journal.shards))
    require_all_shards(journal, starting, bounds)
    asked = {shard: offset for shard, offset in (starting or {}).items() if offset != EARLIEST}
    if starting is not None:
        gone = [shard for shard, offset in asked.items() if offset < bounds[shard][0]]
    else:
        if begun is None:
            begun = control(source).begun
        gone = [shard for shard, (start, _) in bounds.items() if start > 0] if begun else []
    first = _first_records(source, {shard: bounds[shard] for shard in gone})
    told = "; ".join(filter(None, (_what_is_gone(shard, first.get(shard), asked.get(shard)) for shard in sorted(gone))))
    if told:
        raise GapError(f"{source.wal} has been trimmed: {told} ({mend})")
    # if the shard still has its first frame, only aborted records stood before it
    return {shard: asked.get(shard, start) for shard, (start, _) in bounds.items()}


class Begin(NamedTuple):
    """The beginning of the WAL in each shard."""

    offsets: dict[int, int]
    """The first offset of each shard. A reader that begins there gets an error if records are trimmed meanwhile."""
    trimmed: frozenset[int]
    """The shards that no longer begin with their first frame."""


def begin_of(source: JournalSource, journal: JournalIdentity) -> Begin:
    """Where the WAL begins now."""
    bounds = _bounds(source, range(journal.shards))
    first = _first_records(source, {shard: found for shard, found in bounds.items() if found[0] > 0})
    trimmed = frozenset(shard for shard, record in first.items() if record.number != 1)
    return Begin({shard: start for shard, (start, _) in bounds.items()}, trimmed)


def _bounds(source: JournalSource, shards: Iterable[int]) -> dict[int, tuple[int, int]]:
    """Each shard's first offset, and the end of what is committed."""
    reader = source.kafka().reader(source.wal)
    try:
        return reader.bounds(list(shards), source.timeout_s)
    finally:
        reader.close()


def _first_records(source: JournalSource, bounds: Mapping[int, tuple[int, int]]) -> dict[int, FirstRecord]:
    """The first record of each shard that has one."""
    found: dict[int, FirstRecord] = {}
    reader = source.kafka().reader(source.wal)
    try:
        for shard, (start, end) in bounds.items():
            records = records_between(
                reader, shard, start, end, clock=time.monotonic, stall_s=source.timeout_s, name=f"shard {shard}"
            )
            if (record := next(records, None)) is not None:
                found[shard] = FirstRecord(record.offset, _number(record))
    finally:
        reader.close()
    return found


def _number(record: LogRecord) -> int | None:
    try:
        frame = FrameColumns.FromString(record.value or b"")
    except DecodeError:
        return None
    return frame.number if frame.magic == MAGIC else None


def _what_is_gone(shard: int, first: FirstRecord | None, asked: int | None) -> str | None:
    """A text about the deleted part of a shard that was to be read from offset `asked`, or from its start; None if
    nothing is deleted."""
    if first is None:
        return f"shard {shard}: all of it"
    begins = f"the WAL begins at offset {first.offset}"
    if first.number is not None:
        begins += f" with frame {first.number}"
    if asked is not None:
        return f"shard {shard}: asked from offset {asked} on, {begins}"
    if first.number == 1 or (first.number is None and first.offset == 0):
        return None
    return f"shard {shard}: {begins}" + (f", frames 1 to {first.number - 1} are gone" if first.number else "")
