"""What a WAL did to queues: operations of the message store's kinds become stays, which say how long each message was
in which queue.

    read_part   a part of a WAL: its operations and markers, without unneeded bytes; and the records that are no frames
    happened    a part, with what earlier parts left open -> what took effect, and transactions that were in doubt
    stays       what took effect -> one row for each message and queue: when it came, left, and came back

The rules are those of docs/STORE.md and docs/FORMAT.md: a staged operation counts at the time of its COMMIT. Times are
when a record was appended, in ms since 1970. A record is late if its time lies in a window that was already sent
(`floor_ms`). It counts in the next window (`counted`), so that depths stay right, while ages and durations use its own
time (`at`).

Hot path: expressions only, evaluated in the JVM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from journal.v1.store_pb2 import RecordKind, UpdateKind
from loaders.spark.fold.frames import SHARD, throughout
from loaders.spark.fold.transactions import COMMITTED, OPEN, PREPARED, ROLLED_BACK, STAGED, resolved
from loaders.spark.session.wire import computed_once, parsed

_ADDED = (RecordKind.QUEUE, RecordKind.MESSAGE)
_UPDATED = (UpdateKind.ROUTE, UpdateKind.REFERENCE, UpdateKind.ACKNOWLEDGE)
_WITH_DATA = (RecordKind.QUEUE, UpdateKind.REFERENCE)

OPERATIONS_SCHEMA = (
    "topic string, shard int, epoch bigint, offset bigint, index int, at bigint, type string, id bigint, kind int, "
    "data binary, subject bigint, tx bigint, covers int"
)
MARKERS_SCHEMA = "topic string, shard int, epoch bigint, node string, offset bigint, at bigint"
EVENTS_SCHEMA = (
    "topic string, shard int, id bigint, position struct<offset: bigint, index: int, ordinal: int>, what string, "
    "subject bigint, deliveries int, name string, at bigint, counted bigint, late boolean"
)
DOUBTS_SCHEMA = (
    "topic string, shard int, queue_id bigint, tx bigint, prepared bigint, prepared_counted bigint, settled bigint, "
    "settled_counted bigint"
)
_OF_LIFE = ("position", "what", "subject", "deliveries", "name", "at", "counted", "late")


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Records that are no frames of the journal: their number, the place of the first one, and why it is none (empty if
    there are none)."""

    count: int
    first: str


class Span(NamedTuple):
    """When the first and the last frame of a part were appended (None if it has none), and the part's records that are
    no frames."""

    begin_ms: int | None
    end_ms: int | None
    dead_letters: DeadLetters


class Happened(NamedTuple):
    """The operations that took effect; which transactions were in doubt over which queues, and when; and operations
    that still wait."""

    events: DataFrame
    doubts: DataFrame
    waiting: DataFrame


def read_part(entries: DataFrame) -> DataFrame:
    """One row for each operation, or for a frame without any, from the table `entries` and `skip` (an operator
    has had the record skipped: it is left out). A record that is no frame of the journal has one row of its
    place and its `fault`."""
    good, first = F.col("fault").isNull(), F.coalesce("index", F.lit(0)) == 0
    data = F.when(F.col("kind").isin(*_WITH_DATA), F.col("data"))
    known = {"at": F.expr("unix_millis(timestamp)"), "data": data}
    names = ("epoch", "node", "at", "index", "type", "id", "kind", "data", "subject", "tx", "covers")
    of_frame = (F.when(good, known.get(name, F.col(name))).alias(name) for name in names)
    return entries.where(~F.col("skip") & (good | first)).select(*SHARD, "offset", "fault", *of_frame)


def span_of(part: DataFrame) -> Span:
    """The time from the first frame to the last one in the result of `read_part`, and the records in it that are no
    frames."""
    bad = F.when(F.col("fault").isNotNull(), F.struct("shard", "offset", "topic", "fault"))
    found = part.agg(
        F.min("at").alias("begin"), F.max("at").alias("end"), F.count("fault").alias("bad"), F.min(bad).alias("first")
    )
    (row,) = found.collect()
    first = row["first"]
    told = "" if first is None else f"{first['topic']}[{first['shard']}]@{first['offset']}: {first['fault']}"
    return Span(row["begin"], row["end"], DeadLetters(row["bad"], told))


def operations_of(part: DataFrame) -> DataFrame:
    """The operations in the result of `read_part`."""
    operations = part.where(F.col("index").isNotNull() & (F.col("type") != "MARKER"))
    return operations.select(*(name.split()[0] for name in OPERATIONS_SCHEMA.split(", ")))


def markers_of(part: DataFrame) -> DataFrame:
    """The beginnings of epochs in the result of `read_part`."""
    return part.where(F.col("type") == "MARKER").select(*SHARD, "epoch", "node", "offset", "at")


def happened(operations: DataFrame, markers: DataFrame, floor_ms: int | None) -> Happened:
    """What happened in `operations`, together with those that waited before; `markers` are all since the
    journal began."""
    current = _current(operations, markers)
    # it gets a plan of its own, because the plan is long and later steps would contain it three times
    transacted = _transacted(current).localCheckpoint()
    plain = current.where((F.col("tx") == 0) & _is_told_of())
    position = F.struct("offset", "index", F.lit(0).alias("ordinal"))
    took_effect = plain.select(*SHARD, "id", position.alias("position"), *_OF_EVENT, "at")
    part = F.col("part")
    committed = transacted.where((part["fate"] == COMMITTED) & _is_told_of())
    place = F.struct(part["at"]["offset"].alias("offset"), part["at"]["index"].alias("index"), "ordinal")
    at = _time_of(part["at"]).alias("at")
    took_effect = took_effect.union(committed.select(*SHARD, "id", place.alias("position"), *_OF_EVENT, at))
    waiting = transacted.where(part["fate"].isin(OPEN, PREPARED))
    return Happened(
        _events(took_effect, floor_ms),
        _doubts(transacted, floor_ms),
        waiting.select(*(name.split()[0] for name in OPERATIONS_SCHEMA.split(", "))),
    )


def stays(events: DataFrame) -> DataFrame:
    """One row for each time that a message was in a queue: topic, shard, queue_id, queue, message, entered,
    entered_counted, entered_late, left (null: the message is still there), left_counted, left_late, and `returns`,
    which has for each time that the message came back: counted, late, and by how much the delivery count rose."""
    lives = events.groupBy(*SHARD, "id").agg(F.array_sort(F.collect_list(F.struct(*_OF_LIFE))).alias("life"))
    routed = lives.where(F.exists("life", lambda event: event["what"] == "ROUTE"))
    routed = routed.withColumn("route", F.explode(F.filter("life", lambda event: event["what"] == "ROUTE")))
    route = F.col("route")
    of_record = F.filter(
        "life", lambda event: event["what"].isin("MESSAGE", "DELETE") & (event["position"] < route["position"])
    )
    there = routed.where(F.try_element_at(of_record, F.lit(-1))["what"] == "MESSAGE")

    def ends(event: Column) -> Column:
        of_reference = event["what"].isin("ACKNOWLEDGE", "ROUTE") & (event["subject"] == route["subject"])
        return (event["position"] > route["position"]) & (of_reference | (event["what"] == "DELETE"))

    ended = there.withColumn("end", F.get(F.filter("life", ends), F.lit(0))).withColumn("queue_id", route["subject"])
    with_queue = ended.join(F.broadcast(_queues(lives)), [*SHARD, "queue_id"], "left")
    gone, end = F.col("gone"), F.col("end")
    earlier = gone.isNotNull() & (gone["position"] > route["position"])
    earlier = earlier & (end.isNull() | (gone["position"] < end["position"]))
    closed = with_queue.withColumn("end", F.when(earlier, gone).otherwise(end))

    def of_stay(event: Column) -> Column:
        within = (event["position"] > route["position"]) & (end.isNull() | (event["position"] < end["position"]))
        return within & (event["what"] == "REFERENCE") & (event["subject"] == route["subject"])

    seen = computed_once(closed, F.filter("life", of_stay), "seen")

    def rise(event: Column, index: Column) -> Column:
        before = F.coalesce(F.get("seen", index - 1)["deliveries"], F.lit(0))
        return F.struct(event["counted"].alias("counted"), event["late"].alias("late"), _over(event, before))

    returns = F.filter(F.transform("seen", rise), lambda each: each["times"] > 0)
    return seen.select(
        *SHARD,
        "queue_id",
        F.coalesce("queue", F.concat(F.lit("queue "), F.col("queue_id").cast("string"))).alias("queue"),
        F.col("id").alias("message"),
        route["at"].alias("entered"),
        route["counted"].alias("entered_counted"),
        route["late"].alias("entered_late"),
        # a clock may have been set back in between
        F.when(end.isNotNull(), F.greatest(end["at"], route["at"])).alias("left"),
        F.when(end.isNotNull(), F.greatest(end["counted"], route["counted"])).alias("left_counted"),
        end["late"].alias("left_late"),
        returns.alias("returns"),
    )


def queue_names(events: DataFrame) -> DataFrame:
    """The queues that ever existed: topic, shard, queue_id, queue."""
    return (
        events.where(F.col("what") == "QUEUE")
        .groupBy(*SHARD, F.col("id").alias("queue_id"))
        .agg(F.max_by("name", "position").alias("queue"))
    )


def unfinished(events: DataFrame, before_ms: int) -> DataFrame:
    """The events on which later ones may depend: events of queues, of messages that still exist, and of messages with
    an event that counts at `before_ms` or later."""
    of_id = F.struct("position", "what")
    newest = F.max(F.when(F.col("what").isin("MESSAGE", "DELETE"), of_id))["what"]
    ids = events.groupBy(*SHARD, "id").agg(
        newest.alias("newest"),
        F.max(F.col("what") == "QUEUE").alias("is_queue"),
        F.max("counted").alias("counted"),
    )
    kept = F.col("is_queue") | (F.col("newest") == "MESSAGE") | (F.col("counted") >= before_ms)
    return events.join(ids.where(kept).select(*SHARD, "id"), [*SHARD, "id"], "left_semi")


# ---- operations --------------------------------------------------------------------------------------------

_OF_EVENT = ("type", "kind", "data", "subject")


def _is_told_of() -> Column:
    """Whether an operation may concern a queue. Any DELETE may, because a DELETE does not name the kind of its
    record."""
    added = (F.col("type") == "ADD") & F.col("kind").isin(*_ADDED)
    return (F.col("type") == "DELETE") | added | ((F.col("type") == "UPDATE") & F.col("kind").isin(*_UPDATED))


def _what() -> Column:
    kind = F.col("kind")
    added = F.when(kind == RecordKind.QUEUE, "QUEUE").otherwise("MESSAGE")
    updated = F.when(kind == UpdateKind.ROUTE, "ROUTE").when(kind == UpdateKind.REFERENCE, "REFERENCE")
    return (
        F.when(F.col("type") == "DELETE", "DELETE")
        .when(F.col("type") == "ADD", added)
        .otherwise(updated.otherwise("ACKNOWLEDGE"))
    )


def _current(operations: DataFrame, markers: DataFrame) -> DataFrame:
    """The operations without those of nodes that a newer epoch had fenced. `last_epoch` is the newest epoch of the
    shard."""
    begun = markers.groupBy(*SHARD).agg(
        F.collect_list(F.struct("offset", "epoch")).alias("begun"), F.max("epoch").alias("last_epoch")
    )
    fenced = F.exists("begun", lambda marker: (marker["offset"] < F.col("offset")) & (marker["epoch"] > F.col("epoch")))
    return operations.join(F.broadcast(begun), list(SHARD)).where(~fenced).drop("begun")


# ---- transactions ------------------------------------------------------------------------------------------


def _transacted(current: DataFrame) -> DataFrame:
    """The operations of transactions with their fates. The column `turns_at` has the offset and index of the operation
    that prepared, committed or rolled back the transaction."""
    turn = F.when(~F.col("type").isin(*STAGED), F.struct("offset", "index", "at"))
    turns = F.collect_list(turn).over(throughout(*SHARD, "tx", order=("offset", "index")))
    return resolved(current.where(F.col("tx") != 0).withColumn("turns_at", turns))


def _time_of(place: Column) -> Column:
    """The time at which the row's transaction was prepared, committed or rolled back."""

    def is_it(turn: Column) -> Column:
        return (turn["offset"] == place["offset"]) & (turn["index"] == place["index"])

    return F.get(F.filter("turns_at", is_it), F.lit(0))["at"]


def _doubts(transacted: DataFrame, floor_ms: int | None) -> DataFrame:
    """For each queue, and each transaction that was prepared or still is: the time from which, and until which, it was
    in doubt."""
    part = F.col("part")
    updates = transacted.where((F.col("type") == "UPDATE") & F.col("kind").isin(*_UPDATED))
    prepared = updates.where(
        part["prepared"].isNotNull() & part["fate"].isin(COMMITTED, ROLLED_BACK, PREPARED)
    ).withColumn("prepared", _time_of(part["prepared"]))
    settled = F.when(part["at"].isNotNull(), F.greatest(_time_of(part["at"]), F.col("prepared")))
    each = prepared.select(*SHARD, F.col("subject").alias("queue_id"), "tx", "prepared", settled.alias("settled"))
    known = each.distinct()
    return known.select(
        *SHARD,
        "queue_id",
        "tx",
        "prepared",
        _counted("prepared", floor_ms).alias("prepared_counted"),
        "settled",
        _counted("settled", floor_ms).alias("settled_counted"),
    )


# ---- events ------------------------------------------------------------------------------------------------


def _events(took_effect: DataFrame, floor_ms: int | None) -> DataFrame:
    is_reference = (F.col("type") == "UPDATE") & (F.col("kind") == UpdateKind.REFERENCE)
    is_queue = (F.col("type") == "ADD") & (F.col("kind") == RecordKind.QUEUE)
    messages = F.struct(
        F.when(is_reference, parsed("data", "Reference")).alias("reference"),
        F.when(is_queue, parsed("data", "Queue")).alias("queue"),
    )
    decoded = computed_once(took_effect, messages, "decoded")
    return decoded.select(
        *SHARD,
        "id",
        "position",
        _what().alias("what"),
        "subject",
        F.when(is_reference, F.coalesce(F.col("decoded")["reference"]["deliveries"], F.lit(0))).alias("deliveries"),
        F.col("decoded")["queue"]["name"].alias("name"),
        "at",
        _counted("at", floor_ms).alias("counted"),
        (F.col("at") < F.lit(floor_ms) if floor_ms is not None else F.lit(False)).alias("late"),
    )


def _counted(time: str, floor_ms: int | None) -> Column:
    of = F.col(time)
    return of if floor_ms is None else F.when(of.isNotNull(), F.greatest(of, F.lit(floor_ms)))


def _queues(lives: DataFrame) -> DataFrame:
    """Queues by id, with the event that destroyed each one, if any (`gone`)."""
    newest = F.try_element_at(F.filter("life", lambda event: event["what"] == "QUEUE"), F.lit(-1))
    last = F.try_element_at(F.filter("life", lambda event: event["what"].isin("QUEUE", "DELETE")), F.lit(-1))
    queues = lives.where(F.exists("life", lambda event: event["what"] == "QUEUE"))
    return queues.select(
        *SHARD,
        F.col("id").alias("queue_id"),
        newest["name"].alias("queue"),
        F.when(last["what"] == "DELETE", last).alias("gone"),
    )


def _over(event: Column, before: Column) -> Column:
    return (event["deliveries"] - before).alias("times")
