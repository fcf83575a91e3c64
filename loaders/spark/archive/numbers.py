"""Frame numbers in a batch of the archive: which frames follow the one before them, and whether the WAL is still the
one that is archived.

Skipped frames move neither epochs nor numbers here, though they are archived like all records. The archiving job does
not see skips, and may have archived a record before it was skipped. So the skips are read from the table only for a
batch whose numbers do not fit, and then the archive is searched once more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from journal.errors import GapError
from loaders.spark.stored.manifest import ShardPart


def checked_part(
    part: ShardPart,
    before: ShardPart,
    written: DataFrame,
    archived: Callable[[], DataFrame],
    skipped: Callable[[], Collection[int]],
    topic: str,
) -> ShardPart:
    """`part`, with its number of frames that do not follow the one before them. Raises GapError for a WAL that began
    anew."""
    follows = part.first == before.last + 1 or not before.last
    if not part.frames or (follows and part.last - part.first + 1 == part.frames):
        return part
    nothing = F.lit(False)
    faults = _faults(written, nothing, before)
    # no frame of the newest epoch: the frames are late, or that epoch never existed
    if not faults and part.epoch in part.epochs:
        return part
    offsets = skipped()
    if offsets:
        left_out = F.col("offset").isin(list(offsets))
        if before.last:
            before = _newest(archived().where(~left_out), replace(before, last=0, epoch=0, epochs=()))
        part = _newest(written.where(~left_out), replace(part, last=before.last, epoch=before.epoch, epochs=()))
        faults = _faults(written, left_out, before)
    if part.last <= before.last and part.epoch in part.epochs:
        raise GapError(
            f"the archive has frames to number {before.last}, and the WAL goes on with {part.first}: it is not the one "
            "that was archived, or a frame in between is none of it; archive the WAL to another place (--replace), or "
            "have the frame skipped, as `verify` names it, and start again",
            topic=topic,
            partition=part.shard,
            offset=part.start,
        )
    return replace(part, faults=faults)


def _faults(written: DataFrame, left_out: Column, before: ShardPart) -> int:
    """Number of frames that do not follow the one before them, without those of an older epoch."""
    earlier = Window.partitionBy("shard").orderBy("offset")
    ahead = earlier.rowsBetween(Window.unboundedPreceding, -1)
    rows = written.withColumn("left_out", left_out)
    good = ~F.col("left_out")
    newest = F.greatest(F.max(F.when(good, F.col("epoch"))).over(ahead), F.lit(before.epoch))
    in_turn = rows.withColumn("newest", newest).where(F.col("left_out") | (F.col("epoch") >= F.col("newest")))
    # after a frame that was left out, both its own successor and its predecessor's are in order
    at = F.coalesce(F.last(F.when(good, F.col("number")), ignorenulls=True).over(ahead), F.lit(before.last))
    beside = F.lag("number", 1, before.last).over(earlier)
    judged = in_turn.select("left_out", (F.col("number") - 1).isin(at, beside).alias("follows"))
    return judged.where(good & ~F.col("follows")).count()


def _newest(frames: DataFrame, without: ShardPart) -> ShardPart:
    """The part with the number and epochs of its newest frame; `without` if it has none, or only frames of older
    epochs."""
    newest = F.max(F.struct("epoch", "number")).alias("newest")
    first, epochs = F.min("number").alias("first"), F.array_sort(F.collect_set("epoch")).alias("epochs")
    (found,) = frames.agg(newest, first, epochs).collect()
    if found["newest"] is None:
        return without
    told = replace(without, first=found["first"], epochs=tuple(found["epochs"]))
    if found["newest"]["epoch"] < without.epoch:
        return told
    return replace(told, last=found["newest"]["number"], epoch=found["newest"]["epoch"])
