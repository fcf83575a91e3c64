"""Table records become typed rows: changes, deletions included, or the state that the newest row of each key gives.

Compaction is lazy, so a topic may hold many rows of one key. The state is made here: it is the newest row of each key,
without deleted ones. It is the fold of the WAL up to each shard's mark, because a worker writes rows and then the mark
in one Kafka transaction, and only whole transactions are read (docs/FORMAT.md).

Hot path: expressions only, and one shuffle for a state: all rows of a record are brought together once.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from loaders.spark.session.wire import computed_once, parsed

_TYPES: Mapping[tuple[bytes, int], str] = {
    (b"r", 9): "RECORD",
    (b"r", 10): "UPDATES",
    (b"r", 26): "UPDATE",
    (b"r", 19): "UPDATE",
    (b"t", 11): "TRANSACTION",
    (b"x", 23): "STAGED",
    (b"m", 3): "MARK",
    (b"s", 11): "SKIPPED",
}
"""A row's type by the tag and length of its key."""

_LIKE_OPERATIONS = ("RECORD", "UPDATE", "STAGED")
"""Rows whose messages have the fields of `Staged`, or some of them."""

_SHARD_FIRST = ("MARK", "SKIPPED")
"""Rows whose keys begin with their shard."""
_SPILLED = 2
"""The byte that distinguishes the key of a spilled update from that of a replaceable one."""

_XID_PART_BYTES_MAX = 64
_FORMAT_ID_MAX = 2**31 - 1

_OWNER_BYTES = 9
"""Length of the part of a key that all rows of one record, or of one transaction, share."""

MOMENTS_END_MS = 253_402_214_400_000
"""The last day of the year 9999 in UTC. Readers in any time zone can show every time before it. A client's "never" is
often a time far later, which no timestamp can hold."""

UPDATE_SCHEMA = (
    "struct<position: struct<offset: bigint, index: int, ordinal: int>, kind: int, data: binary, replaceable: boolean, "
    "subject: bigint>"
)


def newest(records: DataFrame) -> DataFrame:
    """The newest record of each key, without tombstones."""
    with_owner = records.withColumn("owner", F.expr(f"substring(key, 1, {_OWNER_BYTES})"))
    together = with_owner.repartition("partition", "owner")
    backwards = Window.partitionBy("partition", "owner", "key").orderBy(F.col("offset").desc())
    numbered = together.withColumn("versions", F.row_number().over(backwards))
    return numbered.where((F.col("versions") == 1) & F.col("value").isNotNull()).drop("versions")


def changes(records: DataFrame) -> DataFrame:
    """One row for each record of a table topic, in no order; docs/SPARK.md has the columns. Records that are no rows of
    a journal's table are left out, and `dead_letters` returns them."""
    typed = _typed(records).where(F.col("fault").isNull())
    op, parsed_ = F.col("parsed")["operation"], F.col("parsed")
    row = F.col("row")
    has_data = row.isin(*_LIKE_OPERATIONS)
    return typed.select(
        F.col("partition").alias("shard"),
        "offset",
        F.col("timestamp").alias("written"),
        "row",
        F.col("value").isNull().alias("deleted"),
        F.when(row.isin("RECORD", "UPDATES", "UPDATE"), _number(2, 8)).otherwise(op["id"]).alias("id"),
        F.when(row.isin("TRANSACTION", "STAGED"), _number(2, 8)).alias("tx"),
        F.when(row == "STAGED", op["type"]).alias("type"),
        F.when(has_data & op.isNotNull(), F.coalesce(op["kind"], F.lit(0))).alias("kind"),
        F.when(has_data & op.isNotNull(), F.coalesce(op["data"], F.lit(b""))).alias("data"),
        F.when(row.isin("UPDATE", "STAGED") & op.isNotNull(), _true(op["replaceable"])).alias("replaceable"),
        F.when(row.isin("UPDATE", "STAGED") & op.isNotNull(), F.coalesce(op["subject"], F.lit(0))).alias("subject"),
        F.when(op.isNotNull(), _position(op["position"])).alias("position"),
        F.transform(parsed_["updates"]["updates"], _update).alias("updates"),
        F.when(parsed_["updates"].isNotNull(), _true(parsed_["updates"]["spilled"])).alias("spilled"),
        _transaction(parsed_["transaction"]).alias("transaction"),
        _mark(parsed_["mark"]).alias("mark"),
        _skipped(parsed_["skipped"]).alias("skipped"),
        *(column for column in ("owner",) if column in records.columns),
    )


def dead_letters(records: DataFrame) -> DataFrame:
    """The records that are no rows: topic, partition, offset, timestamp, key, value and reason."""
    found = _typed(records).where(F.col("fault").isNotNull())
    return found.select("topic", "partition", "offset", "timestamp", "key", "value", F.col("fault").alias("reason"))


def records(state: DataFrame) -> DataFrame:
    """The records of a state (`changes` of `newest`) with their updates in order."""
    of_records = state.where(F.col("row").isin("RECORD", "UPDATES", "UPDATE"))
    single = F.struct("position", "kind", "data", "replaceable", "subject")
    here = F.when(F.col("row") == "UPDATES", F.col("updates")).when(F.col("row") == "UPDATE", F.array(single))
    of_record = F.struct("id", "kind", "data", "position", "offset", "written")
    together = of_records.groupBy("shard", "owner").agg(
        F.first(F.when(F.col("row") == "RECORD", of_record), ignorenulls=True).alias("record"),
        F.array_sort(F.flatten(F.collect_list(here))).alias("updates"),
    )
    record = F.col("record")
    return together.where(record.isNotNull()).select(
        "shard",
        *(record[name].alias(name) for name in ("id", "kind", "data", "position")),
        "updates",
        *(record[name].alias(name) for name in ("offset", "written")),
    )


def marks(state: DataFrame) -> DataFrame:
    """One row for each mark of a state: its fields, and where its row stands in the topic. The rows are in no order."""
    found = state.where(F.col("row") == "MARK")
    return found.select("shard", F.col("offset").alias("row_offset"), "written", "mark.*")


def skipped(state: DataFrame) -> DataFrame:
    """The WAL records that operators had skipped."""
    return state.where(F.col("row") == "SKIPPED").select("shard", "skipped.*")


def transactions(state: DataFrame) -> DataFrame:
    """The transactions of a state that are not settled, one row each: docs/SPARK.md has the columns."""
    part = F.col("transaction")
    parts = state.where(F.col("row") == "TRANSACTION").groupBy("tx")
    whole = parts.agg(
        F.max(part["prepared"]).alias("prepared"),
        F.min(part["epoch"]).alias("epoch"),
        F.sum(part["staged"]).alias("operations"),
        F.sum(part["bytes"]).alias("bytes"),
        F.array_sort(F.collect_set("shard")).alias("shards"),
        F.max(part["shards"]).alias("shards_prepared"),
        F.min(part["prepared_at"]).alias("prepared_at"),
        F.first(part["data"], ignorenulls=True).alias("data"),
    )
    decoded = computed_once(whole, parsed("data", "Xid"), "as_xid")
    return decoded.select("*", _xid(F.col("as_xid")).alias("xid")).drop("as_xid")


# ---- one row -----------------------------------------------------------------------------------------------


def type_of_key() -> Column:
    """The type of the row with this key; null for bytes that are no key."""
    tag, size = F.expr("substring(key, 1, 1)"), F.length("key")
    return F.coalesce(*(F.when((tag == F.lit(at)) & (size == of), type_) for (at, of), type_ in _TYPES.items()))


def shard_of_key() -> Column:
    """The shard that a row's key names; null for the keys that name none."""
    row = type_of_key()
    return F.when(row.isin(*_SHARD_FIRST), _number(2, 2)).when(row.isin("TRANSACTION", "STAGED"), _number(10, 2))


def _typed(records: DataFrame) -> DataFrame:
    """`records` with `row`, `parsed` (a struct of the messages, one of which is not null) and `fault`."""
    with_row = records.withColumn("row", type_of_key())
    is_there = F.col("value").isNotNull()
    messages = F.struct(
        F.when(is_there & F.col("row").isin(*_LIKE_OPERATIONS), parsed("value", "Staged")).alias("operation"),
        *(
            F.when(is_there & (F.col("row") == name.upper()), parsed("value", name.title())).alias(name)
            for name in ("updates", "transaction", "mark", "skipped")
        ),
    )
    typed = computed_once(with_row, messages, "parsed")
    return typed.withColumn("fault", _fault(F.col("parsed")))


def _fault(of: Column) -> Column:
    """Why a record is no row; null if it is one. For bytes that do not parse, all fields are null."""
    nothing = F.lit("a value that does not parse as what its key says")
    another = F.lit("a row whose value is of another record or transaction than its key")
    elsewhere = F.lit("a row whose value is of another place than its key")
    key_number = _number(2, 8)
    row, op = F.col("row"), of["operation"]
    mark, skip = of["mark"], of["skipped"]
    return (
        F.when(row.isNull(), F.concat(F.lit("not a table key: "), F.coalesce(F.lower(F.hex("key")), F.lit("none"))))
        .when(F.col("value").isNull(), F.lit(None))
        .when(row == "RECORD", _wrong(op["id"], key_number, nothing, another))
        .when(
            row == "UPDATE", F.coalesce(_wrong(op["id"], key_number, nothing, another), _unless(_is_its(op), elsewhere))
        )
        .when(row == "UPDATES", _wrong(of["updates"]["id"], key_number, nothing, another))
        .when(
            row == "STAGED", F.coalesce(_wrong(op["tx"], key_number, nothing, another), _unless(_is_at(op), elsewhere))
        )
        .when(row == "TRANSACTION", _wrong(of["transaction"]["tx"], key_number, nothing, another))
        .when(row == "MARK", F.when(F.coalesce(mark["epoch"], mark["offset"], mark["timestamp"]).isNull(), nothing))
        .when(
            row == "SKIPPED",
            F.when(F.coalesce(skip["offset"], skip["timestamp"]).isNull(), nothing).when(
                F.coalesce(skip["offset"], F.lit(0)) != _number(4, 8), elsewhere
            ),
        )
    )


def _unless(holds: Column, reason: Column) -> Column:
    return F.when(~holds, reason)


def _is_its(update: Column) -> Column:
    """Whether the key of an update in a row of its own agrees with its position, or with its kind and subject."""
    replaceable, at = _true(update["replaceable"]), _position(update["position"])
    of_place = (at["offset"] == _number(11, 8)) & (at["index"] == _number(19, 4)) & (at["ordinal"] == _number(23, 4))
    kind, subject = _zero(update, "kind", "subject")
    of_slot = (kind == _number(11, 1)) & (subject == _number(12, 8))
    plain = _number(10, 1) == _SPILLED
    return (replaceable != plain) & F.when(plain, of_place).otherwise(of_slot)


def _is_at(operation: Column) -> Column:
    """Whether the key of a staged operation agrees with its position."""
    at = _position(operation["position"])
    return (at["offset"] == _number(12, 8)) & (at["index"] == _number(20, 4))


def _wrong(found: Column, expected: Column, nothing: Column, another: Column) -> Column:
    return F.when(found.isNull(), nothing).when(found != expected, another)


def _number(start: int, size: int) -> Column:
    """A big-endian number in the key."""
    return F.conv(F.hex(F.expr(f"substring(key, {start}, {size})")), 16, 10).cast("bigint")


def _true(value: Column) -> Column:
    return F.coalesce(value, F.lit(False))


def _zero(of: Column, *names: str) -> list[Column]:
    return [F.coalesce(of[name], F.lit(0)).alias(name) for name in names]


def _position(of: Column) -> Column:
    return F.struct(*_zero(of, "offset", "index", "ordinal"))


def _update(of: Column) -> Column:
    return F.struct(
        _position(of["position"]).alias("position"),
        F.coalesce(of["kind"], F.lit(0)).alias("kind"),
        F.coalesce(of["data"], F.lit(b"")).alias("data"),
        _true(of["replaceable"]).alias("replaceable"),
        F.coalesce(of["subject"], F.lit(0)).alias("subject"),
    )


def moment(ms: Column) -> Column:
    """The time for milliseconds since 1970; null if there is no time, or if it is `MOMENTS_END_MS` or later."""
    known = F.when((ms > 0) & (ms < MOMENTS_END_MS), ms)
    return F.timestamp_seconds(known.cast("decimal(20, 0)") * F.lit(Decimal("0.001")))


def _transaction(of: Column) -> Column:
    told = F.struct(
        *_zero(of, "epoch", "staged"),
        _true(of["prepared"]).alias("prepared"),
        of["data"].alias("data"),
        *_zero(of, "shards", "bytes"),
        moment(of["timestamp"]).alias("prepared_at"),
    )
    return F.when(of.isNotNull(), told)


def _xid(of: Column) -> Column:
    """The xid that a PREPARE carried; null if its data is not an xid, because somebody prepared without XA."""
    told = F.struct(
        F.coalesce(of["format_id"], F.lit(0)).alias("format_id"),
        of["gtrid"].alias("gtrid"),
        F.coalesce(of["bqual"], F.lit(b"")).alias("bqual"),
    )
    good = F.length(told["gtrid"]).between(1, _XID_PART_BYTES_MAX) & (F.length(told["bqual"]) <= _XID_PART_BYTES_MAX)
    return F.when(good & told["format_id"].between(0, _FORMAT_ID_MAX), told)


def _mark(of: Column) -> Column:
    counts = ("records", "updates", "staged", "prepared", "applied", "rejected", "stale", "skipped", "dropped")
    told = F.struct(
        F.coalesce(of["offset"], F.lit(0)).alias("offset"),
        *_zero(of, "number", "group", "epoch"),
        F.coalesce(of["node"], F.lit("")).alias("node"),
        *_zero(of, "issued"),
        moment(of["timestamp"]).alias("appended"),
        *_zero(of, *counts),
    )
    return F.when(of.isNotNull(), told)


def _skipped(of: Column) -> Column:
    told = F.struct(
        F.coalesce(of["offset"], F.lit(0)).alias("offset"),
        of["reason"].alias("reason"),
        of["operator"].alias("operator"),
        moment(of["timestamp"]).alias("skipped_at"),
        of["raw"].alias("raw"),
    )
    return F.when(of.isNotNull(), told)
