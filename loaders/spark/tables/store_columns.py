"""The content of the message store's records and updates (store.proto) as columns, and the messages that are in queues.

This is for journals of a message store; the kinds of another broker mean something else.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from journal.v1.store_pb2 import RecordKind, UpdateKind
from loaders.spark.read.rows import moment
from loaders.spark.session.wire import computed_once, parsed

_KINDS = {value: name for kinds in (RecordKind, UpdateKind) for name, value in kinds.items() if value}
_PARSED = ("ADDRESS", "QUEUE", "BINDING", "MESSAGE", "OUTCOME", "REFERENCE")
"""Kinds whose data is a message of the same name. ROUTE has no data, and that of CHUNK is bytes."""

COLUMNS = (
    "what",
    "address",
    "queue",
    "queue_id",
    "priority",
    "sent_at",
    "expires_at",
    "due_at",
    "body",
    "body_bytes",
    "headers",
    "properties",
    "duplicate_id",
    "deliveries",
    "holder",
    "delivered_at",
    "acknowledged_at",
    "reason",
    "decision",
)
"""The columns that `with_store_columns` adds."""


def with_store_columns(table: DataFrame) -> DataFrame:
    """`table` (operations, records or changes) with the columns of the store's kinds; docs/SPARK.md lists them.

    `acknowledged_at` exists only for operations: a table knows where a reference was settled, not when.
    """
    kind = F.col("kind")
    what = F.coalesce(*(F.when(kind == value, name) for value, name in _KINDS.items()))
    messages = F.struct(
        *(F.when(F.col("what") == name, parsed("data", name.title())).alias(name.lower()) for name in _PARSED),
        F.when(F.col("what") == "ADDRESS_SETTINGS", parsed("data", "AddressSettings")).alias("address_settings"),
        F.when(F.col("what") == "ACKNOWLEDGE", parsed("data", "Acknowledgement")).alias("acknowledgement"),
        F.when(F.col("what") == "DUPLICATE", parsed("data", "Duplicate")).alias("duplicate"),
    )
    decoded = computed_once(table.withColumn("what", what), messages, "decoded")
    return decoded.select(*table.columns, "what", *_columns(table)).drop("decoded")


def messages(records: DataFrame) -> DataFrame:
    """One row for each message and queue in which it waits, from a table's records; docs/SPARK.md has the columns.

    A reference is live if it has a ROUTE without a later ACKNOWLEDGE, and its queue exists (docs/STORE.md).
    """
    decoded = with_store_columns(records)
    queues = decoded.where(F.col("what") == "QUEUE").select("shard", F.col("id").alias("queue_id"), "queue")
    routes = F.filter("updates", lambda update: update["kind"] == UpdateKind.ROUTE)
    routed = decoded.where(F.col("what") == "MESSAGE").drop("queue", "queue_id", "deliveries", "holder")
    routed = routed.withColumn("route", F.explode(routes)).where(~_is_over())
    state = F.when(F.col("reference").isNotNull(), parsed(F.col("reference")["data"], "Reference"))
    referred = routed.withColumn("reference", _reference()).withColumn("state", state)
    return (
        referred.withColumn("queue_id", F.col("route")["subject"])
        .join(queues, ["shard", "queue_id"])
        .select(
            "shard",
            F.col("id").alias("message"),
            "queue_id",
            "queue",
            "address",
            "priority",
            F.col("route")["position"].alias("position"),
            F.coalesce(F.col("state")["deliveries"], F.lit(0)).alias("deliveries"),
            F.col("state")["holder"].alias("holder"),
            "sent_at",
            "expires_at",
            F.coalesce(moment(F.col("state")["due"]), F.when(F.col("state").isNull(), F.col("due_at"))).alias("due_at"),
            "body",
            "body_bytes",
            "headers",
            "properties",
            "duplicate_id",
        )
    )


def _is_over() -> Column:
    route = F.col("route")

    def ends(update: Column) -> Column:
        """Whether an update ends the reference: an acknowledgement does, and a route that begins it anew."""
        behind = update["position"] > route["position"]
        of_it = update["subject"] == route["subject"]
        return update["kind"].isin(UpdateKind.ACKNOWLEDGE, UpdateKind.ROUTE) & of_it & behind

    return F.exists("updates", ends)


def _reference() -> Column:
    """The newest state of the reference that the route made; null if nothing has changed it since the route."""
    route = F.col("route")

    def is_its(update: Column) -> Column:
        behind = update["position"] > route["position"]
        return (update["kind"] == UpdateKind.REFERENCE) & (update["subject"] == route["subject"]) & behind

    return F.try_element_at(F.filter("updates", is_its), F.lit(-1))


def _columns(table: DataFrame) -> list[Column]:
    """The columns in the order of `COLUMNS`, without `what`."""
    others = ("address_settings", "acknowledgement", "duplicate")
    of = {name: F.col("decoded")[name] for name in (*(each.lower() for each in _PARSED), *others)}
    message, queue, reference, settled = of["message"], of["queue"], of["reference"], of["acknowledgement"]
    what = F.col("what")
    subject = F.col("subject") if "subject" in table.columns else F.lit(None).cast("bigint")
    at = F.col("appended") if "appended" in table.columns else F.lit(None).cast("timestamp")
    large = F.coalesce(F.size(message["chunks"]), F.lit(0)) > 0
    columns = (
        F.coalesce(of["address"]["name"], queue["address"], message["address"], of["address_settings"]["pattern"]),
        queue["name"],
        F.when(what == "QUEUE", F.col("id"))
        .when(what == "BINDING", of["binding"]["queue"])
        .when(what.isin("ROUTE", "REFERENCE", "ACKNOWLEDGE"), subject),
        F.when(what == "MESSAGE", F.coalesce(message["priority"], F.lit(0))),
        moment(message["timestamp"]),
        moment(message["expires"]),
        moment(F.coalesce(message["due"], reference["due"])),
        F.when(what == "CHUNK", F.col("data")).when(
            (what == "MESSAGE") & ~large, F.coalesce(message["body"], F.lit(b""))
        ),
        F.when(what == "CHUNK", F.length("data").cast("bigint")).when(
            what == "MESSAGE",
            F.when(large, message["body_bytes"]).otherwise(
                F.coalesce(F.length(message["body"]), F.lit(0)).cast("bigint")
            ),
        ),
        _texts(message["headers"]),
        _texts(message["properties"]),
        F.coalesce(message["duplicate_id"], of["duplicate"]["id"]),
        F.when(
            what.isin("REFERENCE", "ACKNOWLEDGE"), F.coalesce(reference["deliveries"], settled["deliveries"], F.lit(0))
        ),
        F.coalesce(reference["holder"], settled["holder"]),
        moment(settled["delivered"]),
        F.when(what == "ACKNOWLEDGE", at),
        F.when(what == "ACKNOWLEDGE", F.coalesce(settled["reason"], F.lit("CONSUMED"))),
        of["outcome"]["decision"],
    )
    return [column.alias(name) for name, column in zip(COLUMNS[1:], columns, strict=True)]


def _texts(properties: Column) -> Column:
    """Names and values, the values as text; bytes are in base64."""

    def text(_: Column, value: Column) -> Column:
        plain = (value[name].cast("string") for name in ("boolean", "integer", "real", "text"))
        return F.coalesce(*plain, F.base64(value["binary"]))

    return F.transform_values(properties, text)
