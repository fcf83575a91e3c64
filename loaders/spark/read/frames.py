"""WAL records with parsed frames become operations, one row each. Records that are no frames become dead letters, with
the reason.

The rules are those of docs/FORMAT.md, written again as Spark expressions. A record is either a frame or a dead letter:
an operation that must not be there makes its whole record a dead letter, just as it stops a worker.

Hot path: expressions only, evaluated in the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from journal.limits import VIRTUAL_SHARDS
from loaders.spark.read.source import JournalIdentity
from loaders.spark.session.wire import FORMAT, FRAME_SCHEMA, MAGIC

RECORD_SCHEMA = (
    f"topic string, partition int, offset bigint, timestamp timestamp, value binary, frame struct<{FRAME_SCHEMA}>"
)
"""The input of these functions: Kafka's columns, and the column that `wire.with_frame` adds."""

_KIND_MAX = 255
_NONCE_BYTES = 16

_OF_A_RECORD = ("ADD", "UPDATE", "DELETE")
_OF_A_TRANSACTION = ("PREPARE", "COMMIT", "ROLLBACK")


def frames(records: DataFrame, journal: JournalIdentity) -> DataFrame:
    """One row for each frame, heartbeats too, in no order; docs/SPARK.md has the columns. The result has `skip` if
    records have it."""
    columns = (*_place(), *_of_frame("number", "previous", "last", "issued", "count"))
    return _good(records, journal).select(*columns, *(column for column in ("skip",) if column in records.columns))


def operations(records: DataFrame, journal: JournalIdentity) -> DataFrame:
    """One row for each operation, in no order; docs/SPARK.md has the columns."""
    exploded = _good(records, journal).select(
        *_place(), *_of_frame("number"), F.posexplode(F.col("frame")["operations"]).alias("index", "operation")
    )
    op = F.col("operation")
    kind = op["type"]
    return exploded.select(
        "shard",
        "offset",
        "index",
        "appended",
        "epoch",
        "node",
        "group",
        "number",
        kind.alias("type"),
        F.when(kind.isin(*_OF_A_RECORD), op["id"]).alias("id"),
        F.when(kind.isin("ADD", "UPDATE"), op["kind"]).alias("kind"),
        F.when(kind.isin("ADD", "UPDATE", "PREPARE", "MARKER"), op["data"]).alias("data"),
        F.when(kind == "UPDATE", op["replaceable"]).alias("replaceable"),
        F.when(kind == "UPDATE", op["subject"]).alias("subject"),
        F.when(op["tx"] != 0, op["tx"]).alias("tx"),
        F.when(kind.isin(*_OF_A_TRANSACTION), op["covers"]).alias("covers"),
        F.when(kind == "PREPARE", op["shards"]).alias("shards"),
    )


def dead_letters(records: DataFrame, journal: JournalIdentity) -> DataFrame:
    """The records that are no frames of this journal: topic, partition, offset, timestamp, value and reason."""
    with_reason = records.select("topic", "partition", "offset", "timestamp", "value", _fault(journal).alias("reason"))
    return with_reason.where(F.col("reason").isNotNull())


def _good(records: DataFrame, journal: JournalIdentity) -> DataFrame:
    frame = F.col("frame")
    a_fault = F.exists(frame["operations"], lambda op: _operation_fault(op, frame, journal).isNotNull())
    return records.where(_frame_fault(journal).isNull() & ~a_fault)


def _place() -> Iterator[Column]:
    yield F.col("partition").alias("shard")
    yield F.col("offset")
    yield F.col("timestamp").alias("appended")


def _of_frame(*further: str) -> Iterator[Column]:
    for name in ("epoch", "node", "group", *further):
        yield F.col("frame")[name].alias(name)


def _fault(journal: JournalIdentity) -> Column:
    """Why a record is no frame of the journal; null if it is one."""
    return F.coalesce(_frame_fault(journal), _first_operation_fault(F.col("frame"), journal))


def _frame_fault(journal: JournalIdentity) -> Column:
    """The fault of a frame as a whole, without a look at each operation."""
    frame = F.col("frame")
    numbers = (frame["epoch"] < 1) | (frame["group"] < 1) | (frame["number"] < 1)
    faults = (
        (F.coalesce(F.length("value"), F.lit(0)) == 0, F.lit("an empty record is not a frame")),
        (frame.isNull(), F.lit("not a frame: it does not parse, or has no magic")),
        (frame["magic"] != MAGIC, F.format_string("not a frame: magic %d", frame["magic"])),
        (frame["format"] != FORMAT, F.format_string(f"frame format %d instead of {FORMAT}", frame["format"])),
        (
            frame["journal"] != F.lit(journal.uuid),
            F.format_string("frame of another journal: uuid %s", F.lower(F.hex(frame["journal"]))),
        ),
        (
            frame["count"] != F.size(frame["operations"]),
            F.format_string("frame says %d operations and has %d", frame["count"], F.size(frame["operations"])),
        ),
        (
            numbers | (frame["previous"] != frame["number"] - 1),
            F.format_string(
                "frame with impossible numbers: epoch %d, group %d, number %d after %d",
                *(frame[name] for name in ("epoch", "group", "number", "previous")),
            ),
        ),
        (frame["issued"] < 0, F.format_string("frame with a negative issued sequence: %d", frame["issued"])),
    )
    return F.coalesce(*(F.when(holds, reason) for holds, reason in faults))


def _first_operation_fault(frame: Column, journal: JournalIdentity) -> Column:
    def fault(op: Column, index: Column) -> Column:
        return F.concat(F.lit("operation "), index.cast("string"), F.lit(": "), _operation_fault(op, frame, journal))

    return F.get(F.filter(F.transform(frame["operations"], fault), lambda each: each.isNotNull()), F.lit(0))


def _operation_fault(op: Column, frame: Column, journal: JournalIdentity) -> Column:
    """Why an operation must not be in its frame; null if it may."""
    kind, of = op["type"], F.col("partition")
    home = op["id"].bitwiseAND(F.lit(VIRTUAL_SHARDS - 1)) % journal.shards
    record = (
        F.when(op["id"] <= 0, F.format_string("id %d is not positive", op["id"]))
        .when(~op["kind"].between(0, _KIND_MAX), F.format_string(f"kind %d is beyond {_KIND_MAX}", op["kind"]))
        .when(op["tx"] < 0, F.format_string("tx %d is negative", op["tx"]))
        .when(op["subject"] < 0, F.format_string("subject %d is negative", op["subject"]))
        .when(home != of, F.format_string("id %d belongs to shard %d and stands in shard %d", op["id"], home, of))
    )
    marker = F.when(
        frame["count"] != 1, F.format_string("an epoch marker in a frame of %d operations", frame["count"])
    ).when(F.length(op["data"]) != _NONCE_BYTES, F.lit(f"an epoch marker without a nonce of {_NONCE_BYTES} bytes"))
    return (
        F.when(kind.isin(*_OF_A_RECORD), record)
        .when(
            kind.isin(*_OF_A_TRANSACTION),
            F.when(op["tx"] <= 0, F.format_string("tx %d is not positive", op["tx"])),
        )
        .when(kind == "MARKER", marker)
        .otherwise(F.format_string("unknown type %s", kind))
    )
