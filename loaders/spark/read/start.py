"""Where the WAL begins, and whether all frames that a reader needs are still there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from journal.errors import GapError
from loaders.spark.read.frames import head_of
from loaders.spark.read.source import (
    EARLIEST,
    JournalIdentity,
    JournalSource,
    batch,
    identity_and_begun,
    require_all_shards,
)
from loaders.spark.session.failures import journal_errors

_SHARDS_AT_ONCE = 16
"""The number of shards that one query plan reads."""


def readable_start(
    spark: SparkSession,
    source: JournalSource,
    journal: JournalIdentity,
    starting: Mapping[int, int] | None = None,
    *,
    mend: str,
    begun: bool | None = None,
) -> Mapping[int, int]:
    """Where to read the WAL from, to have all frames or all from `starting` on. The result has offsets, because a
    reader of records that are trimmed after this check then gets an error; with "earliest" it would silently begin
    after them.

    Raises GapError unless all records are there; the error names what is gone, and has the text `mend`. `begun` is that
    of `identity_and_begun`; it is looked up if it is not given.
    """
    require_all_shards(journal, starting)
    if starting is not None:
        asked = {shard: offset for shard, offset in starting.items() if offset != EARLIEST}
        gone = _unreadable(spark, source, asked) if asked else []
    else:
        if begun is None:
            _, begun = identity_and_begun(spark, source)
        asked, gone = {}, list(range(journal.shards))
        if not begun or _is_there(spark, source, journal):
            return dict.fromkeys(gone, 0)
    first = _first_frames(spark, source, gone, None)
    told = "; ".join(filter(None, (_what_is_gone(shard, first.get(shard), asked.get(shard)) for shard in gone)))
    if told:
        raise GapError(f"{source.wal} has been trimmed: {told} ({mend})")
    # if the shard still has its first frame, only aborted records stood before it
    return starting if starting is not None else {shard: row["offset"] for shard, row in first.items()}


class Begin(NamedTuple):
    """The beginning of the WAL in each shard."""

    offsets: dict[int, int]
    """The first offset of each shard; `EARLIEST` for a shard without records. A reader that begins there gets an error
    if records are trimmed meanwhile."""
    trimmed: frozenset[int]
    """The shards that no longer begin with their first frame."""


def begin_of(spark: SparkSession, source: JournalSource, journal: JournalIdentity) -> Begin:
    """Where the WAL begins now."""
    shards = range(journal.shards)
    if _is_there(spark, source, journal):
        return Begin(dict.fromkeys(shards, 0), frozenset())
    firsts = _first_frames(spark, source, shards, None)
    trimmed = (shard for shard, row in firsts.items() if row["offset"] and row["number"] != 1)
    offsets = {shard: firsts[shard]["offset"] if shard in firsts else EARLIEST for shard in shards}
    return Begin(offsets, frozenset(trimmed))


def _first_frames(
    spark: SparkSession, source: JournalSource, shards: Iterable[int], starting: Mapping[int, int] | None
) -> dict[int, Row]:
    """The first record of each shard that has one: shard, offset and the number of its frame (null for no frame)."""
    found: dict[int, Row] = {}
    left = sorted(shards)
    while left:
        now, left = left[:_SHARDS_AT_ONCE], left[_SHARDS_AT_ONCE:]
        firsts = [
            batch(
                spark,
                source,
                source.wal,
                starting=None if starting is None else {shard: starting[shard]},
                shards=[shard],
            ).limit(1)
            for shard in now
        ]
        shard, number = F.col("partition").alias("shard"), head_of("value")["number"].alias("number")
        first = reduce(DataFrame.union, firsts).select(shard, "offset", number)
        with journal_errors(source):
            found |= {row["shard"]: row for row in first.collect()}
    return found


def _is_there(spark: SparkSession, source: JournalSource, journal: JournalIdentity) -> bool:
    """Whether every shard has its first record, at offset 0. This takes one small job, while asking for the first
    offset takes one job for each shard."""
    firsts = dict.fromkeys(range(journal.shards), 0)
    records = batch(spark, source, source.wal, starting=firsts, ending=dict.fromkeys(firsts, 1))
    try:
        with journal_errors(source):
            records.select("offset").collect()
    except GapError:
        return False
    return True


def _unreadable(spark: SparkSession, source: JournalSource, asked: Mapping[int, int]) -> list[int]:
    """The shards whose records from the given offsets on cannot all be read."""
    try:
        _first_frames(spark, source, asked, asked)
    except GapError:
        if len(asked) == 1:
            return list(asked)
    else:
        return []
    return [shard for shard, offset in sorted(asked.items()) if _unreadable(spark, source, {shard: offset})]


def _what_is_gone(shard: int, first: Row | None, asked: int | None) -> str | None:
    """A text about the deleted part of a shard that was to be read from offset `asked`, or from its start; None if
    nothing is deleted."""
    if first is None:
        return f"shard {shard}: all of it"
    number, begins = first["number"], f"the WAL begins at offset {first['offset']}"
    if number is not None:
        begins += f" with frame {number}"
    if asked is not None:
        return f"shard {shard}: asked from offset {asked} on, {begins}"
    if number == 1 or (number is None and first["offset"] == 0):
        return None
    return f"shard {shard}: {begins}" + (f", frames 1 to {number - 1} are gone" if number else "")
