"""The fate of staged operations: the part of the audit's fold that follows transactions.

For one transaction in one shard, in WAL order, only its turns matter: a PREPARE, COMMIT or ROLLBACK, and its first
operation in a newer epoch, because that epoch's marker has dropped the unprepared operations. All staged operations
between two turns have the same fate; a running count says how many there were before each. So the few turns of a
transaction are looked at one by one, and give its parts: runs of staged operations with one fate. The rules are those
of docs/FORMAT.md, "Operations".
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from loaders.spark.fold.frames import SHARD, before, in_order, throughout
from loaders.spark.session.wire import computed_once

STAGED = ("ADD", "UPDATE", "DELETE")

COMMITTED, ROLLED_BACK, DROPPED, OPEN, PREPARED = "COMMIT", "ROLLBACK", "DROPPED", "OPEN", "PREPARED"
"""The fates of a part. OPEN and PREPARED parts exist at the end of the fold."""

_PLACE = "struct<offset: bigint, index: int>"
_PART = f"struct<first: bigint, count: bigint, fate: string, at: {_PLACE}, prepared: {_PLACE}>"


def resolved(operations: DataFrame) -> DataFrame:
    """Operations of transactions with `done` (its precondition held). Staged operations and PREPAREs also have their
    `part`: its fate, and where that was decided. Staged ones have their `ordinal` in it."""
    staged = F.col("type").isin(*STAGED)
    of_tx, order = (*SHARD, "tx"), ("offset", "index")
    ahead, whole = before(*of_tx, order=order), throughout(*of_tx, order=order)
    counted = operations.select(
        "*",
        F.coalesce(F.sum(staged.cast("bigint")).over(ahead), F.lit(0)).alias("before"),
        F.coalesce(F.lag("epoch").over(in_order(*of_tx, order=order)) != F.col("epoch"), F.lit(False)).alias(
            "new_epoch"
        ),
    )
    turn = F.struct("offset", "index", "type", "covers", "before", "new_epoch")
    gathered = counted.select(
        "*",
        F.collect_list(F.when(~staged | F.col("new_epoch"), turn)).over(whole).alias("turns"),
        F.sum(staged.cast("bigint")).over(whole).alias("total"),
        F.max("epoch").over(whole).alias("epoch_at_end"),
    )
    told = computed_once(gathered, _history(), "history")
    place = F.struct("offset", "index")

    def has_it(part: Column) -> Column:
        inside = F.col("before").between(part["first"], part["first"] + part["count"] - 1)
        return F.when(staged, inside).otherwise(part["prepared"].eqNullSafe(place))

    part = F.get(F.filter(F.col("history")["parts"], has_it), F.lit(0))
    with_part = computed_once(told, part, "part")
    done = F.when(staged, F.col("part").isNotNull()).otherwise(F.array_contains(F.col("history")["done"], place))
    return with_part.select(
        *operations.columns,
        done.alias("done"),
        "part",
        (F.col("before") - F.col("part")["first"] + 1).cast("int").alias("ordinal"),
    )


def _history() -> Column:
    """The parts of one transaction in order, and the places of the turns that were allowed."""
    begin = F.struct(
        F.lit(0).cast("bigint").alias("first"),
        F.lit(None).cast("bigint").alias("frozen"),
        F.lit(None).cast(_PLACE).alias("prepared"),
        F.array().cast(f"array<{_PART}>").alias("parts"),
        F.array().cast(f"array<{_PLACE}>").alias("done"),
    )
    return F.aggregate("turns", begin, lambda state, turn: _turned(_after_marker(state, turn), turn), _ended)


def _after_marker(state: Column, turn: Column) -> Column:
    """The state of a transaction after the marker of a newer epoch: its operations are dropped, unless it was
    prepared."""
    count = turn["before"] - state["first"]
    dropped = turn["new_epoch"] & state["prepared"].isNull() & (count > 0)
    part = _part(state, count, F.lit(DROPPED), F.lit(None).cast(_PLACE))
    return F.struct(
        F.when(dropped, turn["before"]).otherwise(state["first"]).alias("first"),
        state["frozen"].alias("frozen"),
        state["prepared"].alias("prepared"),
        F.when(dropped, F.concat(state["parts"], F.array(part))).otherwise(state["parts"]).alias("parts"),
        state["done"].alias("done"),
    )


def _turned(state: Column, turn: Column) -> Column:
    prepared, place = state["prepared"].isNotNull(), F.struct(turn["offset"], turn["index"]).cast(_PLACE)
    count = F.coalesce(state["frozen"], turn["before"] - state["first"])
    fits = count == turn["covers"]
    prepares = (turn["type"] == "PREPARE") & ~prepared & fits
    settles = turn["type"].isin(COMMITTED, ROLLED_BACK) & (prepared | (count > 0)) & fits
    part = _part(state, count, turn["type"], place)
    return F.struct(
        F.when(settles, turn["before"]).otherwise(state["first"]).alias("first"),
        F.when(prepares, count).when(~settles, state["frozen"]).alias("frozen"),
        F.when(prepares, place).when(~settles, state["prepared"]).alias("prepared"),
        F.when(settles, F.concat(state["parts"], F.array(part))).otherwise(state["parts"]).alias("parts"),
        F.when(settles | prepares, F.concat(state["done"], F.array(place))).otherwise(state["done"]).alias("done"),
    )


def _ended(state: Column) -> Column:
    """The history of a transaction at the end of the fold. A part that is not settled then is its last part."""
    prepared = state["prepared"].isNotNull()
    count = F.coalesce(state["frozen"], F.col("total") - state["first"])
    fate = (
        F.when(prepared, F.lit(PREPARED))
        .when(F.col("epoch_at_end") < F.col("last_epoch"), F.lit(DROPPED))
        .otherwise(F.lit(OPEN))
    )
    left = F.array(_part(state, count, fate, F.lit(None).cast(_PLACE)))
    parts = F.when(prepared | (count > 0), F.concat(state["parts"], left)).otherwise(state["parts"])
    return F.struct(parts.alias("parts"), state["done"].alias("done"))


def _part(state: Column, count: Column, fate: Column, at: Column) -> Column:
    return F.struct(
        state["first"].alias("first"),
        count.alias("count"),
        fate.alias("fate"),
        at.alias("at"),
        state["prepared"].alias("prepared"),
    ).cast(_PART)


# ---- parts that are left, and counts -------------------------------------------------------------------------


def transactions_left(operations: DataFrame) -> DataFrame:
    """One row for each part that is open or prepared at the end of the fold: topic, shard, tx, epoch, prepared, data,
    shards, timestamp, bytes, and its operations in order."""
    left = operations.where(F.col("part")["fate"].isin(OPEN, PREPARED))
    staged = F.col("type").isin(*STAGED)
    place = F.struct("offset", "index", F.lit(0).alias("ordinal"))
    operation = F.struct(place.alias("position"), "type", "id", "kind", "data", "replaceable", "subject")
    prepare = F.first(F.when(~staged, F.struct("data", "shards", "timestamp")), ignorenulls=True)
    parts = left.groupBy(*SHARD, "tx").agg(
        F.max("epoch").alias("epoch"),
        F.max(F.col("part")["fate"] == PREPARED).alias("prepared"),
        prepare.alias("prepare"),
        F.coalesce(F.sum(F.when(staged, F.col("bytes"))), F.lit(0)).alias("bytes"),
        F.array_sort(F.collect_list(F.when(staged, operation))).alias("operations"),
    )
    told = F.col("prepare")
    return parts.select(
        *SHARD,
        "tx",
        "epoch",
        "prepared",
        told["data"].alias("data"),
        F.coalesce(told["shards"], F.lit(0)).alias("shards"),
        told["timestamp"].alias("prepared_at"),
        "bytes",
        "operations",
    )


def transaction_counts(operations: DataFrame, new: Column | None = None) -> DataFrame:
    """One row for each shard: the counts that the operations of transactions, and those that still wait in them, add to
    its mark. Operations that are not `new` were applied before, and only wait."""
    staged, fate = F.col("type").isin(*STAGED), F.col("part")["fate"]
    counted = F.lit(True) if new is None else new

    def total(where: Column) -> Column:
        return F.sum(F.when(where, 1).otherwise(0))

    return operations.groupBy(*SHARD).agg(
        total(counted & F.col("done")).alias("applied"),
        total(counted & ~F.col("done")).alias("rejected"),
        total(staged & fate.isin(OPEN, PREPARED)).alias("staged"),
        total((F.col("type") == "PREPARE") & (fate == PREPARED)).alias("prepared"),
        total(staged & (fate == DROPPED)).alias("dropped"),
        F.count_distinct(F.when(fate.isin(OPEN, PREPARED), F.col("tx"))).alias("transactions"),
    )
