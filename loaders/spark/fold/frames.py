"""The part of the audit's fold that looks at whole frames: it finds the frames of a WAL that count, and where a shard
stops.

The rules are those of docs/FORMAT.md, "Frames" and "Skipped records", written once more as windows over a shard's
frames. A window over the frames before one gives all state that the fold needs, up to the place where the shard stops.
Shards are told apart by topic too, so one fold serves any number of journals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window, WindowSpec
from pyspark.sql import functions as F

from loaders.spark.session.wire import table_of

SHARD = ("topic", "shard")

_FOREVER = 2**63 - 1
_CUT = ("topic", "shard", "end", "stale_offsets", "epoch")
_CUT_SCHEMA = "topic string, shard int, end bigint, stale_offsets array<bigint>, epoch bigint"


def fingerprinted(data: Column) -> Column:
    """Data of more than 32 bytes as its length and a digest, so that a comparison need not carry the data."""
    printed = F.concat(
        F.lit(b"\1"), F.unhex(F.lpad(F.hex(F.length(data)), 8, "0")), F.unhex(F.substring(F.sha2(data, 256), 1, 32))
    )
    return F.when(F.length(data) <= 32, F.concat(F.lit(b"\0"), data)).otherwise(printed)


def shard_facts(flat: DataFrame, *, epoch: Column | None = None, number: Column | None = None) -> DataFrame:
    """One row for each shard: the fields of its mark that its frames give, where its fold ends, and where and why it
    stops.

    `flat` has rows of the data source's table `entries` and two more columns: `skip` (an operator has had the record
    skipped) and `until` (the offset at which its shard's fold ends; null: at the shard's end).

    `epoch` and `number` are those of the shard before the first of these frames; without them there were no earlier
    frames.
    """
    begin_epoch, begin_number = F.lit(0) if epoch is None else epoch, F.lit(0) if number is None else number
    heads = flat.where(F.coalesce("index", F.lit(0)) == 0)
    chained = _chained(_accepted(heads, begin_epoch), begin_number)
    stop = F.min(F.when(F.col("reason").isNotNull(), F.col("offset"))).over(Window.partitionBy(*SHARD))
    limited = chained.withColumn("stop", stop).withColumn(
        "end", F.least(F.coalesce("until", F.lit(_FOREVER)), F.coalesce(F.col("stop") - 1, F.lit(_FOREVER)))
    )
    counts = F.col("offset") <= F.col("end")
    advances = counts & F.col("advances")
    marker = counts & F.col("accepted") & F.col("marker")

    def latest(name: str, where: Column) -> Column:
        return F.max_by(F.when(where, F.col(name)), F.when(where, F.col("offset")))

    def total(where: Column) -> Column:
        return F.sum(F.when(where, 1).otherwise(0))

    at_stop = F.col("offset") == F.col("stop")
    return limited.groupBy(*SHARD).agg(
        F.first("end").alias("end"),
        F.collect_list(F.when(counts & F.col("stale"), F.col("offset"))).alias("stale_offsets"),
        F.coalesce(F.max(F.when(counts, F.col("offset"))), F.lit(-1)).alias("offset"),
        latest("timestamp", counts).alias("timestamp"),
        F.coalesce(F.max(F.when(advances, F.col("number"))), F.lit(0)).alias("number"),
        F.coalesce(latest("group", advances), F.lit(0)).alias("group"),
        F.coalesce(F.max(F.when(marker, F.col("epoch"))), F.lit(0)).alias("epoch"),
        F.coalesce(latest("node", marker), F.lit("")).alias("node"),
        F.coalesce(latest("data", marker), F.lit(b"")).alias("nonce"),
        F.coalesce(F.max(F.when(advances, F.col("issued"))), F.lit(0)).alias("issued"),
        total(counts & F.col("stale")).alias("stale"),
        total(counts & F.col("skip")).alias("skipped"),
        total(counts).alias("frames"),
        F.coalesce(latest("last", advances), F.lit(True)).alias("whole_group"),
        F.first("stop").alias("stop_offset"),
        F.max(F.when(at_stop, F.col("reason"))).alias("stop_reason"),
        F.coalesce(F.max(F.when(at_stop, F.col("trimmed"))), F.lit(False)).alias("trimmed"),
    )


def applied_operations(flat: DataFrame, facts: DataFrame) -> DataFrame:
    """The operations of the frames that count, without markers. `last_epoch` is the epoch in which their shard's fold
    ends."""
    cuts = facts.select(*SHARD, "end", "stale_offsets", F.col("epoch").alias("last_epoch"))
    within = (F.col("offset") <= F.col("end")) & ~F.col("skip") & ~F.array_contains("stale_offsets", F.col("offset"))
    operations = flat.where(F.col("index").isNotNull() & (F.col("type") != "MARKER"))
    return operations.join(F.broadcast(cuts), list(SHARD)).where(within).drop("end", "stale_offsets")


def known_facts(spark: SparkSession, facts: Iterable[Row | Mapping[str, Any]]) -> DataFrame:
    """The part of `shard_facts` that `applied_operations` needs, from the values on the driver."""
    return table_of(spark, _CUT_SCHEMA, [{name: row[name] for name in _CUT} for row in facts])


def put_aside(table: DataFrame) -> DataFrame:
    """`table`, computed now and kept on the executors (on disk what does not fit in memory) as long as anybody uses it.

    Unlike a persisted table, it does not carry the plan that computed it. Spark would analyse that whole plan again for
    each query on a persisted table, which takes longer than the query.
    """
    return table.localCheckpoint()


# ---- windows -----------------------------------------------------------------------------------------------


def in_order(*partition: str, order: Sequence[str]) -> WindowSpec:
    return Window.partitionBy(*partition).orderBy(*order)


def before(*partition: str, order: Sequence[str]) -> WindowSpec:
    """A window over all rows before a row."""
    return in_order(*partition, order=order).rowsBetween(Window.unboundedPreceding, -1)


def throughout(*partition: str, order: Sequence[str]) -> WindowSpec:
    return in_order(*partition, order=order).rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)


# ---- one shard's frames ------------------------------------------------------------------------------------


def _accepted(frames: DataFrame, begin_epoch: Column) -> DataFrame:
    """The frames with two columns: whether they belong to the epoch in which they stand (`accepted`), or to an older
    one (`stale`)."""
    good = F.col("fault").isNull() & ~F.col("skip")
    with_epoch = frames.withColumn("marker", F.coalesce(F.col("type") == "MARKER", F.lit(False))).withColumn(
        "epoch_before",
        F.greatest(F.max(F.when(good, F.col("epoch"))).over(before(*SHARD, order=("offset",))), begin_epoch),
    )
    of_now = F.col("epoch") >= F.col("epoch_before")
    return with_epoch.withColumn("stale", good & ~of_now).withColumn("accepted", good & of_now)


def _chained(frames: DataFrame, begin_number: Column) -> DataFrame:
    """The frames with two columns: whether they advance the shard's number (`advances`), and the reason if the shard
    stops there (`reason`).

    A skipped frame moves the number if it follows the frame before it. Skipped frames are few, so they are looked at
    one by one.
    """
    accepted, number = F.col("accepted"), F.col("number")
    reached = frames.withColumn("reached", _highest(number, accepted, begin_number))
    of_now = F.col("skip") & F.col("fault").isNull() & (F.col("epoch") >= F.col("epoch_before"))
    left_out = F.when(of_now, F.struct("offset", "number", "previous", "reached"))
    listed = reached.withColumn("left_out", F.collect_list(left_out).over(throughout(*SHARD, order=("offset",))))
    advances = accepted | F.array_contains(_following(F.col("left_out")), F.col("offset"))
    moved = listed.withColumn("advances", advances).withColumn(
        "before", _highest(number, F.col("advances"), begin_number)
    )
    gap = accepted & (F.col("previous") != F.col("before"))
    out_of_place = accepted & (F.col("marker") != (F.col("epoch") > F.col("epoch_before")))
    what = F.when(F.col("marker"), F.lit("a second marker")).otherwise(F.lit("no marker first"))
    reason = (
        F.when(~F.col("skip") & F.col("fault").isNotNull(), F.col("fault"))
        .when(gap, F.format_string("follows frame %d, but the last one was %d", F.col("previous"), F.col("before")))
        .when(
            out_of_place,
            F.format_string("epoch %d, after epoch %d, has %s", F.col("epoch"), F.col("epoch_before"), what),
        )
    )
    return moved.withColumn("reason", reason).withColumn("trimmed", gap & (F.col("before") == 0))


def _highest(number: Column, where: Column, begin: Column) -> Column:
    return F.greatest(F.max(F.when(where, number)).over(before(*SHARD, order=("offset",))), begin)


def _following(left_out: Column) -> Column:
    """Offsets of the skipped frames that follow the frame before them."""
    begin = F.struct(F.lit(0).cast("bigint").alias("number"), F.array().cast("array<bigint>").alias("offsets"))

    def step(state: Column, frame: Column) -> Column:
        at = F.greatest(state["number"], frame["reached"])
        follows = frame["previous"] == at
        return F.struct(
            F.when(follows, frame["number"]).otherwise(at).alias("number"),
            F.when(follows, F.concat(state["offsets"], F.array(frame["offset"])))
            .otherwise(state["offsets"])
            .alias("offsets"),
        )

    return F.aggregate(left_out, begin, step, lambda state: state["offsets"])
