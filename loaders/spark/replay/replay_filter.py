"""The part of a replay's filter that reads data: it finds the operations that belong to an address or a queue of a
message store (docs/STORE.md).

The added records show which records belong to an address. A record's life, from its ADD to its DELETE, is taken whole
or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from journal.errors import ArchiveError
from journal.v1.store_pb2 import RecordKind, UpdateKind
from loaders.spark.session.wire import computed_once, parsed

_OF_A_QUEUE = (UpdateKind.ROUTE, UpdateKind.REFERENCE, UpdateKind.ACKNOWLEDGE)
"""Updates of messages whose subject is a queue."""
_LIFE = ("topic", "shard", "id", "life")


def of_addresses(operations: DataFrame, addresses: Sequence[str], queues: Sequence[str]) -> DataFrame:
    """The operations of these addresses or, with `queues`, of these queues and their addresses only. PREPAREs are never
    filtered out. `require_places` raises an error for an address or a queue that does not exist."""
    added = _added(operations)
    mine = added.where(F.col("kind") == RecordKind.QUEUE)
    if addresses:
        mine = mine.where(F.col("address").isin(*addresses))
    names = list(addresses)
    if queues:
        mine = mine.where(F.col("name").isin(*queues))
        names = sorted(row["address"] for row in mine.select("address").distinct().collect())
    queue_ids = mine.select("topic", F.col("id").alias("queue_id")).distinct()
    at_address = F.col("address").isin(*names)
    bindings = added.where(F.col("kind") == RecordKind.BINDING).join(
        F.broadcast(queue_ids), ["topic", "queue_id"], "left_semi"
    )
    messages = added.where((F.col("kind") == RecordKind.MESSAGE) & at_address)
    if queues:
        messages = messages.join(_routed(operations, queue_ids), list(_LIFE), "left_semi")
    chunk_ids = messages.select("topic", "shard", F.explode("chunks").alias("id")).distinct()
    chunks = added.where(F.col("kind") == RecordKind.CHUNK).join(chunk_ids, ["topic", "shard", "id"], "left_semi")
    chosen = added.where((F.col("kind") == RecordKind.ADDRESS) & at_address).select(*_LIFE)
    for further in (mine, bindings, messages, chunks):
        chosen = chosen.union(further.select(*_LIFE))
    lives = chosen.distinct().withColumn("chosen", F.lit(True))
    kept = operations.join(lives, list(_LIFE), "left").where(F.col("chosen") | (F.col("type") == "PREPARE"))
    kept = kept.drop("chosen")
    return _without_other_queues(kept, queue_ids) if queues else kept


def require_places(operations: DataFrame, addresses: Sequence[str], queues: Sequence[str]) -> None:
    """Raises ArchiveError for an address or a queue (of these addresses) that no operation adds."""
    if not (addresses or queues):
        return
    places = operations.where(F.col("kind").isin(RecordKind.ADDRESS, RecordKind.QUEUE)).withColumn("life", F.lit(0))
    asked = F.col("address").isin(*addresses) | F.col("name").isin(*queues)
    found = _added(places).where(asked).select("kind", "address", "name").distinct().collect()
    missing = set(addresses) - {row["address"] for row in found if row["kind"] == RecordKind.ADDRESS}
    if missing:
        raise ArchiveError(f"the archive has no address {', '.join(sorted(missing))}")
    missing = set(queues) - {row["name"] for row in found if not addresses or row["address"] in addresses}
    if missing:
        raise ArchiveError(f"the archive has no queue {', '.join(sorted(missing))}" + _at(addresses))


def _added(operations: DataFrame) -> DataFrame:
    """One row for each ADD of the store's: kind, address, name, queue_id, chunks."""
    kinds = (RecordKind.ADDRESS, RecordKind.QUEUE, RecordKind.BINDING, RecordKind.MESSAGE, RecordKind.CHUNK)
    adds = operations.where((F.col("type") == "ADD") & F.col("kind").isin(*kinds))

    def read(kind: int, message: str) -> Column:
        return F.when(F.col("kind") == kind, parsed("data", message)).alias(message)

    decoded = computed_once(
        adds.select(*_LIFE, "kind", "data"),
        F.struct(
            read(RecordKind.ADDRESS, "Address"),
            read(RecordKind.QUEUE, "Queue"),
            read(RecordKind.BINDING, "Binding"),
            read(RecordKind.MESSAGE, "Message"),
        ),
        "decoded",
    )
    of = F.col("decoded")
    return decoded.select(
        *_LIFE,
        "kind",
        F.coalesce(of["Address"]["name"], of["Queue"]["address"], of["Message"]["address"]).alias("address"),
        of["Queue"]["name"].alias("name"),
        of["Binding"]["queue"].alias("queue_id"),
        of["Message"]["chunks"].alias("chunks"),
    )


def _routed(operations: DataFrame, queue_ids: DataFrame) -> DataFrame:
    """The lives of messages that were routed to one of the queues."""
    routes = operations.where((F.col("type") == "UPDATE") & (F.col("kind") == UpdateKind.ROUTE))
    routes = routes.withColumn("queue_id", F.col("subject"))
    return routes.join(F.broadcast(queue_ids), ["topic", "queue_id"], "left_semi").select(*_LIFE).distinct()


def _without_other_queues(operations: DataFrame, queue_ids: DataFrame) -> DataFrame:
    of_one = (F.col("type") == "UPDATE") & F.col("kind").isin(*_OF_A_QUEUE)
    mine = queue_ids.select("topic", F.col("queue_id").alias("subject"), F.lit(True).alias("mine"))
    judged = operations.join(F.broadcast(mine), ["topic", "subject"], "left")
    return judged.where(~of_one | F.col("mine")).drop("mine")


def _at(addresses: Sequence[str]) -> str:
    return f" at {', '.join(addresses)}" if addresses else ""
