"""Differences between a fold and a table's rows, as rows of text, in the words of `verify`.

Both sides have data as fingerprints (`fold_frames.fingerprinted`). `differences` of a row are structs of what, order,
key, expected, found and `times`: the number of differences that one struct stands for.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from loaders.spark.fold.frames import fingerprinted
from loaders.spark.read import rows

OF_BASE = ("grow", "kept", "changed")
"""The fields of `of_base` in `fold.folded_lives` that are summed over all ids of a shard."""

_UPDATE = ("position", "kind", "data", "replaceable", "subject")
_TEXT_MAX = 300


# ---- the table's side ----------------------------------------------------------------------------------------


def with_fingerprints(table: DataFrame) -> DataFrame:
    """Rows of the table `rows` with all data as fingerprints."""
    of_update = F.transform("updates", lambda update: update.withField("data", fingerprinted(update["data"])))
    part = F.col("transaction")
    data = fingerprinted(F.coalesce(part["data"], F.lit(b"")))
    return (
        table.withColumn("data", fingerprinted(F.col("data")))
        .withColumn("updates", of_update)
        .withColumn("transaction", F.when(part.isNotNull(), part.withField("data", data)))
    )


def state_of(table: DataFrame) -> DataFrame:
    """The state that rows of the table `rows` give, without the columns that are not compared."""
    newest = rows.newest(table.where(~is_misplaced())).where(F.col("fault").isNull())
    return newest.drop("topic", "offset", "key", "deleted", "value", "fault", "owner")


def found_records(state: DataFrame) -> DataFrame:
    """One row for each id that has table rows: its record, its updates in order, and how the updates are spread over
    rows."""
    row = F.col("row")
    single = F.struct(*_UPDATE)
    updates = F.when(row == "UPDATES", F.col("updates")).when(row == "UPDATE", F.array(single))
    return (
        state.where(row.isin("RECORD", "UPDATES", "UPDATE"))
        .groupBy("shard", "id")
        .agg(
            F.first(F.when(row == "RECORD", F.struct("position", "kind", "data")), ignorenulls=True).alias("record"),
            F.array_sort(F.flatten(F.collect_list(updates))).alias("updates"),
            F.coalesce(F.max(F.when(row == "UPDATES", F.col("spilled"))), F.lit(False)).alias("spilled"),
            F.count(F.when(row == "UPDATE", 1)).alias("spilled_rows"),
        )
    )


def found_transactions(state: DataFrame) -> DataFrame:
    """One row for each shard's part of a transaction that has table rows: its header, and its operations in order."""
    row = F.col("row")
    operation = F.struct("position", "type", "id", "kind", "data", "replaceable", "subject")
    return (
        state.where(row.isin("TRANSACTION", "STAGED"))
        .groupBy("shard", "tx")
        .agg(
            F.first(F.when(row == "TRANSACTION", F.col("transaction")), ignorenulls=True).alias("header"),
            F.array_sort(F.collect_list(F.when(row == "STAGED", operation))).alias("operations"),
        )
    )


# ---- side by side ------------------------------------------------------------------------------------------


def compared_records(lives: DataFrame, found: DataFrame) -> DataFrame:
    """One row for each id: what `fold.folded_lives` counted for it, and its differences."""
    both = lives.drop("topic").alias("e").join(found.alias("f"), ["shard", "id"], "full")
    should, has = F.col("e.record"), F.col("f.record")
    key = F.format_string("id %d", F.col("id"))
    gone = F.when(
        F.col("e.deleted").isNotNull(), F.concat(F.lit("none: deleted at "), _place(F.col("e.deleted")))
    ).otherwise(F.lit("none"))
    record = F.when(
        ~should.eqNullSafe(has),
        _difference(
            "record", F.col("id"), key, F.coalesce(_record(should), gone), F.coalesce(_record(has), F.lit("none"))
        ),
    )
    updates, others = F.col("e.updates"), F.col("f.updates")
    at = _first_different(updates, others)
    updates_differ = F.when(
        should.isNotNull() & has.isNotNull() & ~updates.eqNullSafe(others),
        _difference("updates", F.col("id"), key, _update_at(updates, at), _update_at(others, at)),
    )
    orphans = F.when(
        has.isNull() & (F.size(others) > 0),
        _difference("row", F.col("id"), key, F.lit("a record"), F.format_string("%d updates of none", F.size(others))),
    )
    unmarked = F.when(
        has.isNotNull() & (F.col("f.spilled_rows") > 0) & ~F.col("f.spilled"),
        _difference(
            "row",
            F.col("id"),
            key,
            F.lit("`spilled` in its Updates row"),
            F.format_string("%d spilled rows", F.col("f.spilled_rows")),
        ),
    )
    kept = F.coalesce("e.refused", F.array())
    not_kept = F.coalesce("e.rejected", F.lit(0)) - F.size(kept)
    refused = F.transform(kept, lambda one, at: _refused(one, F.when(at == 0, 1 + not_kept).otherwise(1)))
    of_base = {name: F.lit(0) for name in OF_BASE}
    missed = F.lit(None)
    if "of_base" in lives.columns:
        of_base = {name: F.coalesce(F.col("e.of_base")[name], F.lit(0)) for name in OF_BASE}
        at_update = F.col("e.of_base")["missed"]
        expected = F.format_string("a record, which offset %d updates", at_update)
        missed = F.when(at_update.isNotNull(), _difference("record", F.col("id"), key, expected, F.lit("none")))
    listed = F.filter(F.array(record, updates_differ, orphans, unmarked, missed), lambda each: each.isNotNull())
    return both.select(
        "shard",
        F.coalesce("e.applied", F.lit(0)).alias("applied"),
        F.coalesce("e.rejected", F.lit(0)).alias("rejected"),
        should.isNotNull().cast("bigint").alias("records"),
        F.when(should.isNotNull() & updates.isNotNull(), F.size(updates)).otherwise(0).cast("bigint").alias("updates"),
        *(value.alias(name) for name, value in of_base.items()),
        F.concat(listed, refused).alias("differences"),
    )


def compared_transactions(left: DataFrame, found: DataFrame) -> DataFrame:
    """One row for each shard's part of a transaction that either side has, with its differences."""
    both = left.drop("topic").alias("e").join(found.alias("f"), ["shard", "tx"], "full")
    key = F.format_string("tx %d", F.col("tx"))
    expected_part = _part(lambda name: F.col(f"e.{name}"), F.size("e.operations"))
    should = F.when(F.col("e.epoch").isNotNull(), expected_part)
    header = F.col("f.header")
    has = F.when(header.isNotNull(), _part(lambda name: header[name], header["staged"]))
    none = F.lit("none")
    parts = F.when(
        ~should.eqNullSafe(has),
        _difference("transaction", F.col("tx"), key, F.coalesce(should, none), F.coalesce(has, none)),
    )
    expected, operations = F.col("e.operations"), F.col("f.operations")
    at = _first_different(expected, operations)
    staged = F.when(
        should.isNotNull() & has.isNotNull() & ~expected.eqNullSafe(operations),
        _difference("staged", F.col("tx"), key, _staged_at(expected, at), _staged_at(operations, at)),
    )
    orphans = F.when(
        header.isNull() & (F.size(operations) > 0),
        _difference(
            "row",
            F.col("tx"),
            key,
            F.lit("a transaction row"),
            F.format_string("%d staged rows of none", F.size(operations)),
        ),
    )
    listed = F.filter(F.array(parts, staged, orphans), lambda each: each.isNotNull())
    return both.select("shard", listed.alias("differences"))


def differences_of(compared: DataFrame) -> DataFrame:
    """One row for each difference: shard, what, order, key, expected, found, times."""
    return compared.select("shard", F.explode("differences").alias("difference")).select("shard", "difference.*")


def first_of_each(differences: DataFrame, kept_max: int) -> DataFrame:
    """The first differences of each shard and sort, and how many of them there are."""
    alike = Window.partitionBy("shard", "what")
    ranked = differences.withColumn("rank", F.row_number().over(alike.orderBy("order", "key")))
    return ranked.withColumn("count", F.sum("times").over(alike)).where(F.col("rank") <= kept_max).orderBy("rank")


def is_misplaced() -> Column:
    """Whether a row is under a key of another shard than its own."""
    return F.coalesce(rows.shard_of_key() != F.col("shard"), F.lit(False))


def wrong_rows(table: DataFrame) -> DataFrame:
    """Table records that are not what their key says, or under a key of another shard, as differences."""
    faulty = table.where(F.col("fault").isNotNull() & ~is_misplaced())
    none = _of_rows(faulty, F.lit("what its key says"), F.col("fault"))
    of_another = F.format_string("a row of shard %d", rows.shard_of_key())
    return none.union(_of_rows(table.where(is_misplaced()), F.lit("a row of this shard"), of_another))


def stray_rows(behind: DataFrame) -> DataFrame:
    """Rows after the newest mark, as differences, because they belong to no state of the table."""
    return _of_rows(behind, F.lit("a mark behind it"), F.lit("none: no worker wrote it"))


def _of_rows(table: DataFrame, expected: Column, found: Column) -> DataFrame:
    key = F.format_string("key %s at %d", F.lower(F.hex(F.coalesce("key", F.lit(b"")))), F.col("offset"))
    difference = _difference("row", F.col("offset"), key, expected, found)
    told = table.select("shard", difference.alias("difference"))
    return told.select("shard", "difference.*")


# ---- words -------------------------------------------------------------------------------------------------


def _difference(
    what: str, order: Column, key: Column, expected: Column, found: Column, times: Column | None = None
) -> Column:
    return F.struct(
        F.lit(what).alias("what"),
        order.alias("order"),
        key.alias("key"),
        F.substring(expected, 1, _TEXT_MAX).alias("expected"),
        F.substring(found, 1, _TEXT_MAX).alias("found"),
        (F.lit(1) if times is None else times).cast("bigint").alias("times"),
    )


def _refused(one: Column, times: Column) -> Column:
    place = one["position"]
    inside = F.when(place["ordinal"] > 0, F.format_string(":%d", place["ordinal"])).otherwise(F.lit(""))
    key = F.concat(F.format_string("operation %d:%d", place["offset"], place["index"]), inside)
    name = F.format_string("%s id %d tx %d", one["type"], F.col("id"), one["tx"])
    return _difference("rejected", F.col("id"), key, F.lit("to be allowed by its state"), name, times)


def _place(position: Column) -> Column:
    return F.format_string("%d:%d:%d", position["offset"], position["index"], position["ordinal"])


def _data(printed: Column) -> Column:
    rest = F.lower(F.hex(_tail(printed, 2)))
    size = F.conv(F.hex(F.substring(printed, 2, 4)), 16, 10)
    return (
        F.when(F.length(printed) == 1, F.lit("empty"))
        .when(F.substring(printed, 1, 1) == F.lit(b"\0"), rest)
        .otherwise(F.concat(size, F.lit(" bytes, digest "), F.lower(F.hex(_tail(printed, 6)))))
    )


def _tail(binary: Column, start: int) -> Column:
    return F.substring(binary, start, 64)


def _record(of: Column) -> Column:
    return F.when(
        of.isNotNull(),
        F.concat(F.format_string("kind %d, ", of["kind"]), _data(of["data"]), F.lit(", at "), _place(of["position"])),
    )


def _first_different(one: Column, other: Column) -> Column:
    """Index of the first element in which two arrays differ."""
    indexes = F.sequence(F.lit(0), F.greatest(F.size(one), F.size(other), F.lit(0)))
    return F.get(F.filter(indexes, lambda at: ~F.get(one, at).eqNullSafe(F.get(other, at))), F.lit(0))


def _element_at(listed: Column, at: Column, noun: str, described: Column) -> Column:
    count = F.format_string(f"%d {noun}", F.size(listed))
    return F.when(at < F.size(listed), F.concat(count, F.format_string(", [%d] ", at), described)).otherwise(count)


def _update_at(updates: Column, at: Column) -> Column:
    one = F.get(updates, at)
    return _element_at(updates, at, "updates", _operation_text(one))


def _staged_at(operations: Column, at: Column) -> Column:
    one = F.get(operations, at)
    text = F.concat(F.format_string("%s id %d ", F.lower(one["type"]), one["id"]), _operation_text(one))
    return _element_at(operations, at, "operations", text)


def _operation_text(one: Column) -> Column:
    return F.concat(
        F.format_string("kind %d, ", one["kind"]),
        _data(one["data"]),
        F.format_string(", subject %d", one["subject"]),
        F.when(one["replaceable"], F.lit(", replaceable")).otherwise(F.lit("")),
        F.lit(", at "),
        _place(one["position"]),
    )


def _part(of: Callable[[str], Column], count: Column) -> Column:
    at = F.concat(F.lit("prepared at "), F.coalesce(of("prepared_at").cast("string"), F.lit("0")))
    numbers = (of("epoch"), count, of("bytes"), of("shards"))
    return F.concat(
        F.when(of("prepared"), at).otherwise(F.lit("unprepared")),
        F.format_string(", epoch %d, %d operations of %d bytes, %d shards, data ", *numbers),
        _data(F.coalesce(of("data"), F.lit(b"\0"))),
    )
