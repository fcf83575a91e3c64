"""The audit of a trimmed WAL: its fold begins with the state that the tables had at the trim.

As in `verify` (`journal.verify.base`), the records of that state that still exist are in the present tables, at
positions up to the trim's mark. They enter the fold as the operations that made them. The records that no longer exist
show only through later operations on them. Staged operations of transactions that were not settled at the trim are
still in the WAL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from journal.v1.journal_pb2 import Transaction
from journal.verify.base import TrimmedBase, base_of, records_digest
from journal.verify.state import fingerprint, pack_record, pack_update
from loaders.spark.audit.compare import found_records
from loaders.spark.fold.fold import by_shard
from loaders.spark.fold.frames import fingerprinted
from loaders.spark.read.source import JournalSource, control
from loaders.spark.read.start import Begin
from loaders.spark.session.wire import table_of

_NO_FRAMES: Mapping[str, Any] = {
    "number": 0,
    "group": 0,
    "epoch": 0,
    "node": "",
    "nonce": b"",
    "issued": 0,
    "stale": 0,
    "skipped": 0,
    "frames": 0,
    "offset": -1,
    "timestamp": 0,
    "stale_offsets": [],
    "whole_group": True,
    "stop_offset": None,
    "stop_reason": None,
    "trimmed": False,
}
"""The result of `fold_frames.shard_facts` for a shard without frames."""
_ADDED_UP = ("stale", "skipped")
_PREPARED_SCHEMA = "shard int, offset bigint, at bigint, epoch bigint, tx bigint, data binary, shards int"


def bases_of(spark: SparkSession, source: JournalSource, begin: Begin) -> dict[int, TrimmedBase]:
    """The state with which the fold of each shard begins. A shard that is not in the result still has its first frame,
    or was not trimmed by `trim`."""
    if not begin.trimmed:
        return {}
    trims = control(source).trims
    found = {shard: base_of(trims.get(shard), begin.offsets[shard]) for shard in sorted(begin.trimmed)}
    return {shard: base for shard, base in found.items() if base is not None}


# ---- the fold's frames and operations ------------------------------------------------------------------------


def begins(bases: Mapping[int, TrimmedBase]) -> Column:
    """The offset after which the fold of a row's shard begins; null for the shard's first frame."""
    return by_shard({shard: base.mark.offset for shard, base in bases.items()})


def is_new(offset: Column, bases: Mapping[int, TrimmedBase]) -> Column:
    """Whether an offset comes after the beginning of its shard's fold."""
    return F.coalesce(offset > begins(bases), F.lit(True))


def stood(name: str, bases: Mapping[int, TrimmedBase]) -> Column:
    """A field of the mark at which the fold of a row's shard begins; 0 if there is no such mark."""
    return F.coalesce(by_shard({shard: getattr(base.mark, name) for shard, base in bases.items()}), F.lit(0))


def with_waiting(flat: DataFrame, bases: Mapping[int, TrimmedBase], topic: str) -> DataFrame:
    """Rows of the table `entries` of the WAL `topic`, without the operations that the bases contain, except staged ones
    whose transactions were not settled at the trim."""
    parts = [(shard, part) for shard, base in bases.items() for part in base.transactions]
    if not parts:
        return flat.where(is_new(F.col("offset"), bases))
    spark, names = flat.sparkSession, flat.columns
    since = [{"shard": shard, "tx": part.tx, "since": part.epoch} for shard, part in parts]
    known = F.broadcast(table_of(spark, "shard int, tx bigint, since bigint", since))
    waits = F.col("since").isNotNull() & (F.col("epoch") >= F.col("since")) & F.col("fault").isNull() & ~F.col("skip")
    both = flat.join(known, ["shard", "tx"], "left").where(is_new(F.col("offset"), bases) | waits).select(*names)
    # a deleted frame may have prepared a part without operations
    alone = [_told(shard, bases[shard], part) for shard, part in parts if part.prepared and not part.staged]
    return both.union(_prepared(spark, alone, topic, flat.schema)) if alone else both


def _prepared(spark: SparkSession, parts: Sequence[Mapping[str, Any]], topic: str, schema: StructType) -> DataFrame:
    """The PREPAREs of `parts`, which the tables still have, as rows with `schema`."""
    zero = F.lit(0)
    columns = {name: F.col(name) for name in ("shard", "offset", "epoch", "tx", "shards")} | {
        "topic": F.lit(topic),
        "timestamp": F.expr("timestamp_millis(at)"),
        "skip": F.lit(False),
        "type": F.lit("PREPARE"),
        "data": fingerprinted(F.col("data")),
        "index": zero,
        "covers": zero,
        "bytes": zero,
    }
    each = (columns.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in schema)
    return table_of(spark, _PREPARED_SCHEMA, parts).select(*each)


def _told(shard: int, base: TrimmedBase, part: Transaction) -> dict[str, Any]:
    return {
        "shard": shard,
        "offset": base.mark.offset,
        "at": part.timestamp,
        "epoch": part.epoch,
        "tx": part.tx,
        "data": part.data,
        "shards": part.shards,
    }


def left_of(state: DataFrame, bases: Mapping[int, TrimmedBase], topic: str) -> DataFrame:
    """The operations that made the remaining records of the bases, from a table's state, with the columns of
    `fold.effective`."""
    record, until = F.col("record"), begins(bases)
    there = found_records(state.where(F.col("shard").isin(list(bases)))).where(record["position"]["offset"] <= until)
    add = F.struct(
        record["position"].alias("position"),
        F.lit("ADD").alias("type"),
        record["kind"].alias("kind"),
        record["data"].alias("data"),
        F.lit(False).alias("replaceable"),
        F.lit(0).cast("bigint").alias("subject"),
    )
    updates = F.transform(
        F.filter("updates", lambda update: update["position"]["offset"] <= until),
        lambda update: F.struct(
            update["position"].alias("position"),
            F.lit("UPDATE").alias("type"),
            *(update[name].alias(name) for name in ("kind", "data", "replaceable")),
            update["subject"].cast("bigint").alias("subject"),
        ),
    )
    each = there.select("shard", "id", F.explode(F.concat(F.array(add), updates)).alias("operation"))
    operation = F.col("operation")
    return each.select(
        F.lit(topic).alias("topic"),
        "shard",
        operation["position"].alias("position"),
        "id",
        *(operation[name].alias(name) for name in ("type", "kind", "data", "replaceable", "subject")),
        F.lit(0).cast("bigint").alias("tx"),
    )


# ---- on the driver -------------------------------------------------------------------------------------------


def continued(fact: Mapping[str, Any] | None, base: TrimmedBase, topic: str) -> dict[str, Any]:
    """Complete a shard's `fold_frames.shard_facts`. `fact` covers only the frames after the trimmed base; the result
    covers all frames, because the base's mark has the numbers of the earlier ones."""
    mark = base.mark
    told = dict(_NO_FRAMES) | {"topic": topic, "shard": mark.shard, "end": mark.offset} | dict(fact or {})
    for name in _ADDED_UP:
        told[name] += getattr(mark, name)
    told["issued"] = max(told["issued"], mark.issued)
    for shows, names in (("number", ("group",)), ("epoch", ("node", "nonce"))):
        if not told[shows]:
            told |= {name: getattr(mark, name) for name in (shows, *names)}
    if told["offset"] < 0:
        told |= {"offset": mark.offset, "timestamp": mark.timestamp}
    return told


def digest_of(state: DataFrame, shard: int, base: TrimmedBase) -> bytes:
    """The digest of the records of a base that a table still has; `state` is the table's state with all data. The
    digest needs the records in order, so they are brought to the driver, one partition of `state` at a time. It equals
    the base's own digest only if none of the base's records has changed."""
    until = base.mark.offset
    there = found_records(state.where(F.col("shard") == shard)).where(F.col("record")["position"]["offset"] <= until)
    return records_digest(_packed(there.orderBy("id").toLocalIterator(), until))


def _packed(rows: Iterator[Row], until: int) -> Iterator[tuple[int, bytes, list[bytes]]]:
    for row in rows:
        record = row["record"]
        updates = [
            pack_update(
                one["kind"], one["replaceable"], one["subject"], fingerprint(bytes(one["data"])), *one["position"]
            )
            for one in row["updates"]
            if one["position"]["offset"] <= until
        ]
        yield row["id"], pack_record(record["kind"], fingerprint(bytes(record["data"])), *record["position"]), updates
