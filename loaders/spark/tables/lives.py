"""The life of each message of a store, from its ADD to its DELETE, from the WAL, one batch at a time.

A batch continues from what the one before it carried over: where each shard stands, the operations that wait for their
transaction, and the queues. The fields of a life are first or last values by position. So a batch can be merged into a
known life several times, and the result is the same.

Hot path: expressions only. A table that is used twice is computed once without its plan (`localCheckpoint`), because
planning takes most of the time of a small batch.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from loaders.spark.fold.transactions import COMMITTED, OPEN, PREPARED, STAGED, resolved
from loaders.spark.read.frames import frames as frames_of
from loaders.spark.read.frames import operations as operations_of
from loaders.spark.session.wire import table_of
from loaders.spark.tables.store_columns import with_store_columns

LIFE_KEYS = ("shard", "message", "queue_id")
CARRIED_KEYS = ("shard", "what", "at", "index")

_OPERATION = (
    "struct<offset: bigint, index: int, epoch: bigint, type: string, id: bigint, kind: int, data: binary, "
    "subject: bigint, tx: bigint, covers: int>"
)
_STANDS = "struct<offset: bigint, epoch: bigint, number: bigint>"
_QUEUE = "struct<queue: string>"
CARRIED_SCHEMA = (
    f"shard int, what string, at bigint, `index` int, stands {_STANDS}, operation {_OPERATION}, queue {_QUEUE}"
)
"""The rows of three sorts that are carried over: SHARD (`stands`: the last frame that counted), STAGED (`operation`),
QUEUE (`queue`)."""

_POSITION = "struct<offset: bigint, index: int, ordinal: int>"
_MOMENT = f"struct<position: {_POSITION}, at: timestamp>"
_STATE = {
    "added": f"struct<position: {_POSITION}, at: timestamp, address: string, priority: int, expires_at: timestamp>",
    "routed": _MOMENT,
    "delivered": _MOMENT,
    "returned": f"struct<position: {_POSITION}, deliveries: int>",
    "settled": f"struct<position: {_POSITION}, at: timestamp, reason: string>",
    "deleted": _MOMENT,
}


class WalBatch(NamedTuple):
    """The result of one batch of the WAL."""

    operations: DataFrame
    """The operations that took effect, with the columns of `loaders.spark.read.frames.operations` and their `position`.
    Their `appended` is the time at which they took effect."""
    carried: DataFrame
    """The rows for the next batch, in CARRIED_SCHEMA."""
    frames: DataFrame
    """The frames that counted; `gap` says that a frame did not follow the one before it."""


# ---- operations --------------------------------------------------------------------------------------------


def wal_batch(read: DataFrame, carried: DataFrame | None, topic: str) -> WalBatch:
    """The result of one batch of the WAL. `read` has the columns of the table `entries` and `skip` (an operator has
    had the record skipped, so its frame is left out). `carried` is what the batch before it carried over."""
    spark = read.sparkSession
    before = table_of(spark, CARRIED_SCHEMA, []) if carried is None else carried
    moving = _moving(frames_of(read), before).localCheckpoint()
    stands = _stands(moving, before).localCheckpoint()
    frames = moving.where(~F.col("skip"))
    operations = operations_of(read)
    operations = operations.join(frames.select("shard", "offset"), ["shard", "offset"], "left_semi")
    waiting = before.where("what = 'STAGED'").select("shard", "operation.*")
    names = waiting.columns
    of_transactions = waiting.unionByName(operations.where("tx is not null").select(*names))
    epochs = stands.select("shard", F.col("stands")["epoch"].alias("last_epoch"))
    told = resolved(
        of_transactions.withColumn("topic", F.lit(topic)).withColumn("replaceable", F.lit(False)).join(epochs, "shard")
    )
    told = told.localCheckpoint()
    effective = _effective(operations, told, frames).localCheckpoint()
    kept = told.where(F.col("part")["fate"].isin(OPEN, PREPARED))
    staged = _carried(
        kept, "STAGED", F.col("offset"), F.col("index"), operation=F.struct(*(F.col(name) for name in names[1:]))
    )
    shards = _carried(stands, "SHARD", F.lit(0), F.lit(0), stands=F.col("stands"))
    queues = _queues(effective, before)
    return WalBatch(effective, shards.unionByName(staged).unionByName(queues), frames)


def _moving(frames: DataFrame, carried: DataFrame) -> DataFrame:
    """The frames that advance their shard, in order. A frame of an older epoch after a newer one does not, nor does a
    repeated frame. A skipped frame changes no epoch; it changes the number only if it follows the frame before it, and
    its operations do not count."""
    stands = carried.where("what = 'SHARD'").select(
        "shard", F.col("stands")["epoch"].alias("epoch_then"), F.col("stands")["number"].alias("number_then")
    )
    earlier = Window.partitionBy("shard").orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    epoch, number = F.col("epoch"), F.col("number")
    known = frames.join(F.broadcast(stands), "shard", "left").fillna(0, ["epoch_then", "number_then"])
    skip, taken = F.col("skip"), ~F.col("skip")
    epoch_before = F.greatest(F.max(F.when(taken, epoch)).over(earlier), "epoch_then")
    of_epoch = known.withColumn("epoch_before", epoch_before).where(epoch >= F.col("epoch_before"))
    reached = F.greatest(F.max(F.when(taken, number)).over(earlier), "number_then")
    moves = of_epoch.withColumn("reached", reached).where(taken | (F.col("previous") == F.col("reached")))
    numbered = moves.withColumn("number_before", F.greatest(F.max(number).over(earlier), "number_then"))
    moving = numbered.where(number > F.col("number_before"))
    gap = (F.col("number_before") > 0) & (F.col("previous") != F.col("number_before"))
    stands_in = F.when(skip, F.col("epoch_before")).otherwise(epoch)
    return moving.select("shard", "offset", "appended", stands_in.alias("epoch"), "number", "skip", gap.alias("gap"))


def _stands(frames: DataFrame, carried: DataFrame) -> DataFrame:
    """The last frame that counted in each shard, after the batch."""
    of_batch = frames.select("shard", F.struct("offset", "epoch", "number").cast(_STANDS).alias("stands"))
    both = of_batch.unionByName(carried.where("what = 'SHARD'").select("shard", "stands"))
    return both.groupBy("shard").agg(F.max("stands").alias("stands"))


def _effective(operations: DataFrame, of_transactions: DataFrame, frames: DataFrame) -> DataFrame:
    names = ("shard", "position", "appended", "type", "id", "kind", "data", "subject")
    at_once = F.col("tx").isNull() & F.col("type").isin(*STAGED)
    plain = operations.where(at_once).withColumn("position", _position(F.col("offset"), F.col("index"), F.lit(0)))
    part = F.col("part")
    committed = of_transactions.where((part["fate"] == COMMITTED) & F.col("type").isin(*STAGED)).select(
        "*",
        _position(part["at"]["offset"], part["at"]["index"], F.col("ordinal")).alias("position"),
        part["at"]["offset"].alias("settled_by"),
    )
    when = frames.select("shard", F.col("offset").alias("settled_by"), "appended")
    return plain.select(*names).unionByName(committed.join(when, ["shard", "settled_by"]).select(*names))


def _position(offset: Column, index: Column, ordinal: Column) -> Column:
    return F.struct(offset.alias("offset"), index.alias("index"), ordinal.alias("ordinal")).cast(_POSITION)


def _queues(effective: DataFrame, carried: DataFrame) -> DataFrame:
    """Every queue that ever existed, because lives name a queue even after its end."""
    added = with_store_columns(effective.where("type = 'ADD' and kind = 2")).where("queue is not null")
    new = _carried(added, "QUEUE", F.col("id"), F.lit(0), queue=F.struct("queue"))
    kept = carried.where("what = 'QUEUE'")
    return kept.join(new.select(*CARRIED_KEYS), list(CARRIED_KEYS), "left_anti").unionByName(new)


def _carried(rows: DataFrame, what: str, at: Column, index: Column, **payload: Column) -> DataFrame:
    def of(name: str, kind: str) -> Column:
        return payload.get(name, F.lit(None)).cast(kind).alias(name)

    return rows.select(
        "shard",
        F.lit(what).alias("what"),
        at.cast("bigint").alias("at"),
        index.cast("int").alias("index"),
        of("stands", _STANDS),
        of("operation", _OPERATION),
        of("queue", _QUEUE),
    )


# ---- lives -------------------------------------------------------------------------------------------------


def life_events(operations: DataFrame) -> DataFrame:
    """The events of messages in the operations: shard, message, queue_id (null for all queues of the message),
    state."""
    told = with_store_columns(operations)
    what, kind_of = F.col("what"), F.col("type")
    at, at_position = F.col("appended").alias("at"), F.col("position")
    of_a_queue = (kind_of == "UPDATE") & what.isin("ROUTE", "REFERENCE", "ACKNOWLEDGE")
    is_one = ((kind_of == "ADD") & (what == "MESSAGE")) | of_a_queue | (kind_of == "DELETE")
    moment = F.struct(at_position, at)
    returned = F.struct(at_position, F.col("deliveries"))
    holds = (what == "REFERENCE") & F.col("holder").isNotNull()
    settles, tells = what == "ACKNOWLEDGE", F.col("delivered_at").isNotNull()
    delivered = F.when(of_a_queue & holds, moment).when(
        of_a_queue & settles & tells, F.struct(at_position, F.col("delivered_at").alias("at"))
    )
    counts = (what == "REFERENCE") | (settles & (F.col("deliveries") > 0))
    fields = {
        "added": F.when(kind_of == "ADD", F.struct(at_position, at, "address", "priority", "expires_at")),
        "routed": F.when(of_a_queue & (what == "ROUTE"), moment),
        "delivered": delivered,
        "returned": F.when(of_a_queue & counts, returned),
        "settled": F.when(of_a_queue & settles, F.struct(at_position, at, "reason")),
        "deleted": F.when(kind_of == "DELETE", moment),
    }
    state = F.struct(*(column.cast(_STATE[name]).alias(name) for name, column in fields.items()))
    return told.where(is_one).select(
        "shard",
        F.col("id").alias("message"),
        F.when(of_a_queue, F.col("queue_id")).alias("queue_id"),
        state.alias("state"),
    )


def lives(events: DataFrame, stored: DataFrame | None, queues: DataFrame) -> DataFrame:
    """The lives of the messages that have `events`, with these events included. There is one row for each message and
    queue; a message in no queue has one row without a queue. `stored` are the lives from earlier events, and `queues`
    has shard, queue_id and queue. docs/SPARK.md has the columns."""
    both = events
    if stored is not None:
        touched = events.select("shard", "message").distinct()
        known = stored.join(touched, ["shard", "message"], "left_semi")
        both = events.unionByName(known.select("shard", "message", "queue_id", "state"))
    whole = Window.partitionBy("shard", "message")
    state = F.col("state")
    begun = both.withColumn("added", F.min(state["added"]).over(whole)).where("added is not null")
    later = F.when(state["deleted"]["position"] > F.col("added")["position"], state["deleted"])
    ended = begun.withColumn("deleted", F.min(later).over(whole)).where(_within())
    in_a_queue = F.max(F.col("queue_id").isNotNull()).over(whole)
    rows = ended.withColumn("in_a_queue", in_a_queue).where("queue_id is not null or not in_a_queue")
    together = rows.groupBy(*LIFE_KEYS).agg(
        F.struct(
            F.first("added").alias("added"),
            F.min(state["routed"]).alias("routed"),
            F.min(state["delivered"]).alias("delivered"),
            F.max(state["returned"]).alias("returned"),
            F.max(state["settled"]).alias("settled"),
            F.first("deleted").alias("deleted"),
        ).alias("state")
    )
    return together.join(F.broadcast(queues), ["shard", "queue_id"], "left").select(*_columns())


def _within() -> Column:
    """Whether an event happened while its message existed, between ADD and DELETE. An update at another time changed
    nothing."""
    state = F.col("state")
    at = F.coalesce(*(state[name]["position"] for name in ("routed", "delivered", "returned", "settled")))
    after, until = at > F.col("added")["position"], F.col("deleted")["position"]
    return at.isNull() | (after & (until.isNull() | (at < until)))


def _columns() -> list[Column]:
    state = F.col("state")
    added, settled = state["added"], state["settled"]
    routed_at, delivered_at, settled_at = state["routed"]["at"], state["delivered"]["at"], settled["at"]

    def between(start: Column, end: Column) -> Column:
        return F.round((end.cast("double") - start.cast("double")) * 1000).cast("bigint")

    columns = {
        "address": added["address"],
        "priority": added["priority"],
        "expires_at": added["expires_at"],
        "added_at": added["at"],
        "routed_at": routed_at,
        "delivered_at": delivered_at,
        "deliveries": F.coalesce(state["returned"]["deliveries"], F.lit(0)),
        "settled_at": settled_at,
        "reason": settled["reason"],
        "acknowledged_at": F.when(settled["reason"] == "CONSUMED", settled_at),
        "expired_at": F.when(settled["reason"] == "EXPIRED", settled_at),
        "deleted_at": state["deleted"]["at"],
        "waiting_ms": between(routed_at, delivered_at),
        "handling_ms": between(delivered_at, settled_at),
        "queue_ms": between(routed_at, settled_at),
    }
    return [*(F.col(name) for name in (*LIFE_KEYS, "queue")), *(c.alias(n) for n, c in columns.items()), state]


def queues_of(carried: DataFrame) -> DataFrame:
    """The queues in what is carried over: shard, queue_id, queue."""
    found = carried.where("what = 'QUEUE'")
    return found.select("shard", F.col("at").alias("queue_id"), F.col("queue")["queue"].alias("queue"))
