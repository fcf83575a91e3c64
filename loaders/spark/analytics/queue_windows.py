"""Makes windows from stays in queues. A window says what each queue was like in a span of time; docs/SPARK.md has the
columns.

The number of a window is its start in ms divided by its width. Only the windows from `first` to `last` are in the
result; what happened earlier counts in the depth at the beginning of the first one. A queue is in a window if something
happened to the queue in it, or if the queue had messages at its end.

The age of a queue is the age of the oldest message at the end of the window. Most stays last for many windows, so it
would take long to look at each stay in each window. But if the stays of a queue are sorted by arrival, a stay is the
oldest only after all earlier ones have ended. A running maximum of these ends gives the windows in which each stay is
the oldest, and there is one such stay for the end of each window. Stays that were recorded late are few, and are
handled separately.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from loaders.spark.fold.frames import SHARD, before, in_order

QUEUE = (*SHARD, "queue_id")
WINDOWS_SCHEMA = (
    "window_start timestamp, window_end timestamp, shard int, queue_id bigint, queue string, came_in bigint, "
    "went_out bigint, depth bigint, oldest_age_s double, redeliveries bigint, in_doubt bigint, in_doubt_age_s double, "
    "p50_s double, p99_s double, late bigint"
)
PERCENTILES = (0.5, 0.99)
_ACCURACY = 10_000
_FOREVER = 2**62
BUCKETS_PER_DECADE = 6
_OF_STAYS = ("came_in", "went_out", "redeliveries", "late")
_COUNTS = (*_OF_STAYS, "doubts_begun", "doubts_ended")


def windows(stays: DataFrame, doubts: DataFrame, names: DataFrame, width_ms: int, first: int, last: int) -> DataFrame:
    """The windows of `stays`, `doubts` and `names`, which come from `queue_events`."""

    def number(time: Column) -> Column:
        return F.floor(time / width_ms).alias("window")

    spans = stays.select(
        "*",
        number(F.col("entered_counted")).alias("from_window"),
        number(F.col("left_counted")).alias("left_window"),
    )
    in_doubt = doubts.select(
        *QUEUE,
        F.col("prepared").alias("entered"),
        F.lit(False).alias("entered_late"),
        number(F.col("prepared_counted")).alias("from_window"),
        number(F.col("settled_counted")).alias("left_window"),
    )
    counted = _counts(spans, number).unionByName(_doubt_counts(in_doubt), allowMissingColumns=True)
    told = counted.withColumn("window", F.greatest(F.col("window"), F.lit(first - 1))).where(F.col("window") <= last)
    grid = told.groupBy(*QUEUE).agg(F.min("window").alias("begin"))
    grid = grid.select(*QUEUE, F.explode(F.sequence("begin", F.lit(last).cast("bigint"))).alias("window"))
    everything = (
        told.unionByName(grid, allowMissingColumns=True)
        .unionByName(_oldest(spans, "oldest", first, last), allowMissingColumns=True)
        .unionByName(_oldest(in_doubt, "oldest_doubt", first, last), allowMissingColumns=True)
    )
    summed = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _COUNTS]
    per_window = everything.groupBy(*QUEUE, "window").agg(
        *summed,
        F.min("oldest").alias("oldest"),
        F.min("oldest_doubt").alias("oldest_doubt"),
        F.percentile_approx("stayed_ms", list(PERCENTILES), _ACCURACY).alias("stayed"),
    )
    so_far = in_order(*QUEUE, order=("window",)).rowsBetween(Window.unboundedPreceding, 0)
    running = per_window.withColumn("depth", F.sum(F.col("came_in") - F.col("went_out")).over(so_far)).withColumn(
        "in_doubt", F.sum(F.col("doubts_begun") - F.col("doubts_ended")).over(so_far)
    )
    something = F.greatest("came_in", "went_out", "redeliveries", "doubts_begun", "doubts_ended", "depth", "in_doubt")
    shown = running.where((F.col("window") >= first) & (something > 0))
    return _named(shown, names, width_ms)


def _named(rows: DataFrame, names: DataFrame, width_ms: int) -> DataFrame:
    end_ms = (F.col("window") + 1) * width_ms
    fallback = F.concat(F.lit("queue "), F.col("queue_id").cast("string"))
    return rows.join(F.broadcast(names), list(QUEUE), "left").select(
        F.timestamp_seconds(F.col("window") * width_ms / 1000).alias("window_start"),
        F.timestamp_seconds(end_ms / 1000).alias("window_end"),
        "shard",
        "queue_id",
        F.coalesce("queue", fallback).alias("queue"),
        "came_in",
        "went_out",
        "depth",
        ((end_ms - F.col("oldest")) / 1000).alias("oldest_age_s"),
        "redeliveries",
        "in_doubt",
        ((end_ms - F.col("oldest_doubt")) / 1000).alias("in_doubt_age_s"),
        (F.col("stayed")[0] / 1000).alias("p50_s"),
        (F.col("stayed")[1] / 1000).alias("p99_s"),
        "late",
    )


def summary(stays: DataFrame, *by: str) -> DataFrame:
    """One row for each queue (or one in all, without `by`) over the whole time: came_in, went_out, depth, redeliveries,
    p50_s, p99_s, and `oldest`, when the oldest remaining message came (ms since 1970)."""
    stayed = F.percentile_approx(F.col("left") - F.col("entered"), list(PERCENTILES), _ACCURACY)
    each = F.aggregate("returns", F.lit(0).cast("bigint"), lambda total, one: total + one["times"])
    grouped = stays.withColumn("times", each).groupBy(*by)
    return grouped.agg(
        F.count("entered").alias("came_in"),
        F.count("left").alias("went_out"),
        (F.count("entered") - F.count("left")).alias("depth"),
        F.coalesce(F.sum("times"), F.lit(0)).alias("redeliveries"),
        stayed.alias("stayed"),
        F.min(F.when(F.col("left").isNull(), F.col("entered"))).alias("oldest"),
    ).select(
        *by,
        "came_in",
        "went_out",
        "depth",
        "redeliveries",
        (F.col("stayed")[0] / 1000).alias("p50_s"),
        (F.col("stayed")[1] / 1000).alias("p99_s"),
        "oldest",
    )


def latencies(stays: DataFrame) -> DataFrame:
    """Numbers of messages by the length of their stay: `bucket` (there are `BUCKETS_PER_DECADE` for each factor of ten,
    from 1 ms) and `count`."""
    stayed = stays.where(F.col("left").isNotNull()).select(
        F.floor(F.log10(F.greatest(F.col("left") - F.col("entered"), F.lit(1))) * BUCKETS_PER_DECADE).alias("bucket")
    )
    return stayed.groupBy("bucket").agg(F.count("*").alias("count"))


# ---- what counts in which window ---------------------------------------------------------------------------


def _counts(spans: DataFrame, number: Callable[[Column], Column]) -> DataFrame:
    """A row for each event of a stay: its window, and the amounts that it adds there."""
    came = _measure(F.col("from_window"), came_in=F.lit(1), late=F.col("entered_late").cast("int"))
    stayed = F.col("left") - F.col("entered")
    went = _measure(F.col("left_window"), went_out=F.lit(1), late=F.col("left_late").cast("int"), stayed_ms=stayed)
    back = F.transform(
        "returns",
        lambda each: _measure(number(each["counted"]), redeliveries=each["times"], late=each["late"].cast("int")),
    )
    all_of_it = F.concat(F.array(came), F.when(F.col("left").isNotNull(), F.array(went)).otherwise(F.array()), back)
    return spans.select(*QUEUE, F.inline(all_of_it))


def _measure(window: Column, **of: Column) -> Column:
    def value(name: str) -> Column:
        return of.get(name, F.lit(None)).cast("bigint").alias(name)

    return F.struct(window.alias("window"), *(value(name) for name in (*_OF_STAYS, "stayed_ms")))


def _doubt_counts(in_doubt: DataFrame) -> DataFrame:
    begun = in_doubt.select(*QUEUE, F.col("from_window").alias("window"), F.lit(1).alias("doubts_begun"))
    ended = in_doubt.where(F.col("left_window").isNotNull()).select(
        *QUEUE, F.col("left_window").alias("window"), F.lit(1).alias("doubts_ended")
    )
    return begun.unionByName(ended, allowMissingColumns=True)


def _oldest(spans: DataFrame, name: str, first: int, last: int) -> DataFrame:
    """For each queue and window, if the queue had messages at the window's end: when the oldest of them came. The
    result may have several times for one window."""
    until = F.coalesce("left_window", F.lit(_FOREVER))
    in_time = spans.where(~F.col("entered_late"))
    order = before(*QUEUE, order=("from_window", "entered"))
    freed = in_time.withColumn("freed", F.coalesce(F.max(until).over(order), F.lit(-_FOREVER)))
    late = spans.where("entered_late").withColumn("freed", F.lit(-_FOREVER))
    begin = F.greatest("from_window", "freed", F.lit(first))
    end = F.least(until - 1, F.lit(last))
    ranges = freed.unionByName(late).withColumn("begin", begin).withColumn("end", end).where("begin <= end")
    each = F.explode(F.sequence("begin", "end")).alias("window")
    return ranges.select(*QUEUE, each, F.col("entered").alias(name))
