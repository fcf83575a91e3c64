"""The journal's meaning in Spark: a WAL folded into records, transactions and marks, distributed, by expressions alone.

    fold_frames         which frames count, and where a shard stops
    fold_transactions   what becomes of staged operations
    this file           the records that result from operations, and the marks

It is written from docs/FORMAT.md and shares nothing with the engine; the golden cases run against it. The state of a
record follows from the operations on its id, in order. Adds and deletes, allowed or not, decide whether the record
exists. The updates since its last ADD count, and of replaceable updates the last one of each kind and subject. So all
operations on an id are brought together once, in order: this is the only shuffle of all operations. No row is ever
larger than the record in the state, because replaced updates are removed first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from journal.errors import ConfigError
from loaders.spark.fold.frames import (
    SHARD,
    applied_operations,
    before,
    put_aside,
    shard_facts,
    throughout,
)
from loaders.spark.fold.transactions import COMMITTED, STAGED, resolved, transaction_counts, transactions_left
from loaders.spark.read.archived import joined
from loaders.spark.read.loading import load
from loaders.spark.read.readers import skipped_places
from loaders.spark.read.source import JournalIdentity, JournalSource, identity, require_all_shards
from loaders.spark.read.start import readable_start

_OF_ID = (*SHARD, "id")
_UPDATE = ("position", "kind", "data", "replaceable", "subject")
_COUNTS = ("applied", "rejected", "staged", "prepared", "dropped")


class State(NamedTuple):
    """The state that a WAL folds into, as the table has it; docs/SPARK.md has the columns. Shards are those
    of `topic`."""

    records: DataFrame
    transactions: DataFrame
    marks: DataFrame


def fold(flat: DataFrame) -> State:
    """The state after rows as `fold_frames.shard_facts` takes them, for any number of journals (told apart by their
    topics).

    The state is computed now, each step once, and kept, so that reading it is cheap.
    """
    flat = put_aside(flat.withColumn("bytes", F.length("data")))
    facts = put_aside(shard_facts(flat))
    operations = applied_operations(flat, facts)
    of_transactions = put_aside(transacted(operations))
    lives = put_aside(folded_lives(effective(operations, of_transactions)))
    there = lives.where(F.col("record").isNotNull())
    record = F.col("record")
    return State(
        there.select(*SHARD, "id", *(record[name].alias(name) for name in ("kind", "data", "position")), "updates"),
        transactions_left(of_transactions),
        marks(facts, lives, of_transactions),
    )


def state_as_of(
    spark: SparkSession,
    source: JournalSource,
    *,
    time: datetime | None = None,
    offsets: Mapping[int, int] | None = None,
    archive: str | None = None,
) -> State:
    """The journal's state at a time, or after the records at `offsets` ({shard: offset}, of all shards).

    A time means: after the last group that had been appended completely by then, so that no transaction is cut. Trimmed
    records are read from the archive at the path `archive`. Records that operators had skipped are left out.

    Raises TopicError and RowError like `read_wal`, GapError for a WAL without its beginning, ArchiveError like
    `joined`, and ConfigError if neither or both are given, or if offsets leave a shard out.
    """
    if (time is None) == (offsets is None):
        raise ConfigError("a state is as of a time, or as of offsets")
    journal = identity(source)
    require_all_shards(journal, offsets)
    with_skips = committed(spark, source, journal, archive).withColumn("skip", is_skipped(spark, source))
    if offsets is not None:
        return fold(with_skips.withColumn("until", by_shard(offsets)))
    return fold(cut_at(with_skips, F.lit(time)))


def committed(spark: SparkSession, source: JournalSource, journal: JournalIdentity, archive: str | None) -> DataFrame:
    """The table `entries` of the whole WAL, with its beginning from the archive at a path. Raises the errors of
    `state_as_of`."""
    if archive is not None:
        return joined(spark, source, journal, archive)
    start = readable_start(source, journal, mend="archive=PATH reads it from an archive")
    return load(spark, source, "entries", starting=start)


def is_skipped(spark: SparkSession, source: JournalSource) -> Column:
    """Whether an operator has had a WAL record skipped. Raises the errors of `readers.read_table`."""
    return is_one_of(skipped_places(spark, source))


def is_one_of(places: Iterable[tuple[int, int]]) -> Column:
    """Whether a record is at one of these places (shard, offset)."""
    by_offset: dict[int, list[int]] = {}
    for shard, offset in places:
        by_offset.setdefault(shard, []).append(offset)
    found = [(F.col("shard") == shard) & F.col("offset").isin(offsets) for shard, offsets in sorted(by_offset.items())]
    return reduce(lambda one, other: one | other, found, F.lit(False))


def by_shard(offsets: Mapping[int, int]) -> Column:
    """The offset of a row's shard; null for a shard that is not named."""
    if not offsets:
        return F.lit(None).cast("bigint")
    # the numbers are passed as one text, because asking the JVM for each would cost more than parsing them
    named = ", ".join(f"{value}L" for pair in sorted(offsets.items()) for value in pair)
    return F.expr(f"map({named})")[F.col("shard").cast("bigint")]


# ---- operations ----------------------------------------------------------------------------------------------


def transacted(operations: DataFrame) -> DataFrame:
    """The operations of transactions, with the fate of each."""
    return resolved(operations.where(F.col("tx") != 0))


def effective(operations: DataFrame, of_transactions: DataFrame) -> DataFrame:
    """The operations that take effect on records, and their positions: plain operations, and staged ones that were
    committed."""
    plain = operations.where(F.col("tx") == 0).select(*_done(F.struct("offset", "index", F.lit(0).alias("ordinal"))))
    part = F.col("part")
    committed = of_transactions.where((part["fate"] == COMMITTED) & F.col("type").isin(*STAGED))
    at = F.struct(part["at"]["offset"].alias("offset"), part["at"]["index"].alias("index"), "ordinal")
    return plain.union(committed.select(*_done(at)))


def _done(position: Column) -> list[Column]:
    what = ("id", "type", "kind", "data", "replaceable", "subject", "tx")
    return [F.col(name) for name in SHARD] + [position.alias("position")] + [F.col(name) for name in what]


def folded_lives(operations: DataFrame, begins: Column | None = None, *, refused_max: int = 0) -> DataFrame:
    """One row for each id that has operations: its `record` (position, kind, data; null if it does not exist), its
    `updates`, how many operations were `applied` and `rejected`, the first `refused_max` rejected ones (`refused`), and
    when it was last `deleted`.

    `begins` is the offset after which the fold of a row's shard begins, null for the shard's first frame. Operations up
    to `begins` made the remaining records of the state with which the fold begins, and are not counted. If a record of
    that state was deleted since, an operation that needs it shows that it was there. `of_base` then says for an id: by
    how much it makes the number of records `grow`, whether its record is `kept` from that state, whether it was
    `changed` since, and which update shows that the record must have been there although the table lacks it (`missed`).
    """
    slots = folded_slots(operations, begins, refused_max=refused_max)
    replaceable, others = F.collect_list("newest"), F.flatten(F.collect_list("others"))
    # rows of an id are together already, so this needs no further shuffle
    lives = slots.groupBy(*_OF_ID).agg(
        F.max("added").alias("added"),
        F.max("deleted").alias("deleted"),
        F.array_sort(F.concat(replaceable, others)).alias("updates"),
        F.sum("applied").alias("applied"),
        F.sum("rejected").alias("rejected"),
        F.array_sort(F.flatten(F.collect_list("refused"))).alias("refused"),
        *([] if begins is None else [_of_base()]),
    )
    is_there = _is_there(F.col("added")["position"], F.col("deleted"))
    return lives.withColumn("record", F.when(is_there, F.col("added"))).drop("added")


def folded_slots(operations: DataFrame, begins: Column | None = None, *, refused_max: int = 0) -> DataFrame:
    """The rows that `folded_lives` combines: one for each kind and subject of which an existing record has a
    replaceable update, with the `newest` one; and one row (`slot` is null) for all else of the id."""
    judged = _judged(operations, begins)
    kind_of, allowed = F.col("type"), F.col("allowed")
    counted = allowed & F.col("counts")
    stands = F.col("live") & F.col("replaceable")
    slot = F.when(stands, F.struct("kind", "subject")).alias("slot")
    added = F.when(allowed & (kind_of == "ADD"), F.struct("position", "kind", "data"))
    refused = ~allowed & (F.col("refused_before") < refused_max)
    # structs are compared field by field and begin with their position, so the greatest one is the last
    return judged.groupBy(*_OF_ID, slot).agg(
        F.max(added).alias("added"),
        F.max(F.when(allowed & (kind_of == "DELETE"), F.col("position"))).alias("deleted"),
        F.max(F.when(stands, F.struct(*_UPDATE))).alias("newest"),
        F.collect_list(F.when(F.col("live") & ~F.col("replaceable"), F.struct(*_UPDATE))).alias("others"),
        F.count(F.when(counted, 1)).alias("applied"),
        F.count(F.when(~allowed, 1)).alias("rejected"),
        F.collect_list(F.when(refused, F.struct("position", "type", "tx"))).alias("refused"),
        *([] if begins is None else _told_of_base(counted)),
    )


def _judged(operations: DataFrame, begins: Column | None) -> DataFrame:
    """`operations` with these columns: whether they are `allowed`; whether they count (`counts`); whether they show
    that the state at the beginning has their record (`known_by`); whether they are updates that a record has at the end
    (`live`); and how many operations on their id were refused before."""
    kind_of, position = F.col("type"), F.col("position")
    life = F.when(kind_of != "UPDATE", kind_of)
    ahead, whole = before(*_OF_ID, order=("position",)), throughout(*_OF_ID, order=("position",))
    known_by = F.lit(False) if begins is None else begins.isNotNull() & (F.first(kind_of).over(whole) != "ADD")
    counts = F.lit(True) if begins is None else F.coalesce(position["offset"] > begins, F.lit(True))
    there = F.coalesce(F.last(life, ignorenulls=True).over(ahead) == "ADD", known_by)
    stepped = operations.select(
        "*",
        F.when(kind_of == "ADD", ~there).otherwise(there).alias("allowed"),
        counts.alias("counts"),
        known_by.alias("known_by"),
    )
    allowed = F.col("allowed")
    added = F.max(F.when(allowed & (kind_of == "ADD"), position)).over(whole)
    deleted = F.max(F.when(allowed & (kind_of == "DELETE"), position)).over(whole)
    live = allowed & (kind_of == "UPDATE") & (position > added) & _is_there(added, deleted)
    refused = F.sum((~allowed).cast("bigint")).over(ahead)
    return stepped.select(
        "*",
        F.coalesce(live, F.lit(False)).alias("live"),
        F.coalesce(refused, F.lit(0)).alias("refused_before"),
    )


def _is_there(added: Column, deleted: Column) -> Column:
    """Whether a record exists that was last added and last deleted at these positions."""
    return added.isNotNull() & (deleted.isNull() | (deleted < added))


def _told_of_base(counted: Column) -> list[Column]:
    """The columns that `_of_base` needs, computed from the operations on an id. They show what the state with which the
    shard's fold begins had of this id. `counted` says which operations were applied in this fold."""
    kind_of = F.col("type")
    grow = F.when(counted & (kind_of == "ADD"), 1).when(counted & (kind_of == "DELETE"), -1).otherwise(0)
    replaces = counted & ((kind_of == "DELETE") | ((kind_of == "UPDATE") & F.col("replaceable")))
    return [
        F.sum(grow).alias("grow"),
        F.max(~F.col("counts")).alias("kept"),
        F.max(replaces).alias("replaces"),
        F.max(counted & (kind_of != "UPDATE")).alias("gone"),
        F.max(F.when(counted & (kind_of == "UPDATE"), F.col("position")["offset"])).alias("updated"),
        F.max("known_by").alias("was_there"),
    ]


def _of_base() -> Column:
    """The column `of_base` of `folded_lives`, computed from the columns of `_told_of_base` in all rows of an id."""
    kept, was_there = F.max("kept"), F.max("was_there")
    return F.struct(
        F.sum("grow").alias("grow"),
        kept.cast("bigint").alias("kept"),
        (was_there | (kept & F.max("replaces"))).cast("bigint").alias("changed"),
        F.when(was_there & ~F.max("gone"), F.max("updated")).alias("missed"),
    ).alias("of_base")


# ---- marks ---------------------------------------------------------------------------------------------------


def marks(facts: DataFrame, lives: DataFrame, of_transactions: DataFrame) -> DataFrame:
    """One row for each shard: its mark; `whole_group` (a checkpoint may fall here); if the shard stops, where and why;
    and `trimmed` if it stops where its WAL begins."""
    zero = F.lit(0).cast("bigint")
    of_none = [zero.alias(name) for name in ("staged", "prepared", "dropped")]
    of_lives = lives.groupBy(*SHARD).agg(
        F.sum("applied").alias("applied"),
        F.sum("rejected").alias("rejected"),
        F.count("record").alias("records"),
        F.sum(F.when(F.col("record").isNotNull() & F.col("updates").isNotNull(), F.size("updates")).otherwise(0)).alias(
            "updates"
        ),
    )
    counts = [*_COUNTS, "records", "updates"]
    counted = (
        of_lives.select(*SHARD, "applied", "rejected", *of_none, "records", "updates")
        .union(transaction_counts(of_transactions).select(*SHARD, *_COUNTS, zero, zero))
        .groupBy(*SHARD)
        .agg(*(F.sum(name).alias(name) for name in counts))
    )
    return facts.drop("end", "stale_offsets").join(counted, list(SHARD), "left").na.fill(0, counts)


# ---- at a time ---------------------------------------------------------------------------------------------------


def cut_at(flat: DataFrame, time: Column) -> DataFrame:
    """Rows of the table `entries` and `skip`, with the column `until`: the end of the last group that had been appended
    completely at the given time. The epoch and the group of a skipped record do not count."""
    heads = flat.where((F.coalesce("index", F.lit(0)) == 0) & F.col("fault").isNull() & ~F.col("skip"))
    newest = F.coalesce(F.max("epoch").over(before(*SHARD, order=("offset",))), F.lit(0))
    of_now = heads.withColumn("newest", newest).where(F.col("epoch") >= F.col("newest"))
    late = of_now.agg(F.min(F.when(F.col("timestamp") > time, F.col("group"))).alias("late"))
    ends = (
        of_now.crossJoin(F.broadcast(late))
        .where(F.col("late").isNull() | (F.col("group") < F.col("late")))
        .groupBy(*SHARD)
        .agg(F.max("offset").alias("until"))
    )
    together = flat.join(F.broadcast(ends), list(SHARD), "left")
    return together.withColumn("until", F.coalesce("until", F.lit(-1).cast("bigint")))
