"""The part of an archive to replay: effective operations in the order of the source's groups, by filter.

    manifest -> frames up to its ends -> the fold's rules: what took effect, and what is still in doubt
    -> filter -> one row for each operation, ordered by (group, shard, position); what is in doubt comes last

An operation of a committed transaction has the place of the COMMIT. So a filter may take only some operations of a
transaction, and they are replayed as committed. All operations of a group come together, so a replay of whole groups
never splits a transaction.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from copy import copy
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from journal.errors import ArchiveError, ConfigError, CorruptionError
from journal.topics.names import wal_topic
from loaders.spark.fold.fold import by_shard, cut_at, is_one_of, transacted
from loaders.spark.fold.frames import (
    applied_operations,
    before,
    in_order,
    known_facts,
    put_aside,
    shard_facts,
)
from loaders.spark.fold.transactions import COMMITTED, PREPARED, STAGED
from loaders.spark.read.archived import newest_manifest, read_archive, read_manifests
from loaders.spark.read.frames import with_operations
from loaders.spark.read.source import JournalIdentity
from loaders.spark.replay.replay_filter import of_addresses, require_places
from loaders.spark.stored.manifest import Manifest

COLUMNS = ("group", "shard", "offset", "type", "id", "kind", "data", "replaceable", "subject", "tx", "in_doubt")
"""The columns of `Selection.operations`. `tx` is the source's transaction, 0 for none. `in_doubt` means that this
transaction is not settled. In each shard a row of type PREPARE follows the operations of such a transaction, and one of
these rows has the PREPARE's data."""

_LAST = 2**63 - 1
_DAY_MS = 86_400_000
_POSITION = "struct<offset: bigint, index: int, ordinal: int>"


@dataclass(frozen=True, slots=True)
class Filter:
    """The criteria of a replay, which takes only the operations that meet all of them. Bounds are inclusive, and days
    are in UTC."""

    until: datetime | None = None
    """Take the groups that had been appended completely by this time."""
    addresses: tuple[str, ...] = ()
    """In a message store: the records of these addresses, with queues, bindings, messages and bodies."""
    queues: tuple[str, ...] = ()
    """In a message store: these queues and their addresses, and only those records of the addresses that refer to the
    queues."""
    ids: tuple[int, int] | None = None
    epochs: tuple[int, int] | None = None
    days: tuple[date, date] | None = None
    """Days in UTC on which an operation took effect, by the WAL's append time."""
    skip: tuple[tuple[int, int], ...] = ()
    """Records (shard, offset) to leave out, in addition to those that the archive names as skipped by the source's
    operators."""

    def to_json(self) -> str:
        """The filter as JSON, without criteria that are not set."""
        asked = {name: value for name, value in asdict(self).items() if value}
        return json.dumps(asked, default=_as_text, sort_keys=True)

    def digest(self, *, remapped: bool) -> bytes:
        """32 bytes that distinguish a replay with this filter from every other replay. `skip` does not change them,
        because skipping a record repairs the source."""
        asked = replace(self, skip=()).to_json()
        return hashlib.sha256(f"{asked} remapped={remapped}".encode()).digest()


def _as_text(value: Any) -> str:
    moment: date = value.astimezone(UTC) if isinstance(value, datetime) else value
    return moment.isoformat()


def open_archive(spark: SparkSession, path: str, journal: str | None = None) -> Manifest:
    """The newest manifest of a journal's archive. Without `journal`, the archive must have one journal only. Raises
    ArchiveError."""
    if journal is None:
        try:
            rows = read_manifests(spark, path).select("journal").distinct().collect()
        except AnalysisException as error:
            raise ArchiveError(f"{path} is no archive: there are no manifests in it") from error
        names = sorted(row["journal"] for row in rows)
        if len(names) != 1:
            raise ArchiveError(f"{path} has {', '.join(names) or 'no journal'}: name one with --source")
        journal = names[0]
    return newest_manifest(spark, path, journal)


class Selection:
    """The operations of an archive, as its manifest describes it, that pass a filter."""

    def __init__(self, spark: SparkSession, path: str, manifest: Manifest, filter_: Filter) -> None:
        self.manifest = manifest
        self._filter = filter_
        flat = put_aside(self._entries(spark, path))
        self._facts = shard_facts(flat).collect()
        _require_whole(self._facts, path)
        self._operations = applied_operations(flat, known_facts(spark, self._facts))
        self._of_transactions = put_aside(transacted(self._operations))
        self._require_places(filter_)

    def with_filter(self, filter_: Filter) -> Selection:
        """The same archive with another filter, up to the same time and with the same records skipped. Nothing is
        parsed again. Raises ConfigError for a filter with another time, and ArchiveError like the constructor."""
        if (filter_.until, filter_.skip) != (self._filter.until, self._filter.skip):
            raise ConfigError("--until and --skip are of a selection as a whole: make another one")
        self._require_places(filter_)
        other = copy(self)
        other._filter = filter_
        return other

    @property
    def ends(self) -> dict[int, int]:
        """The last offset of each shard that is replayed; -1 for a shard of which nothing is replayed."""
        found = {row["shard"]: row["offset"] for row in self._facts}
        return {shard: found.get(shard, -1) for shard in self.manifest.parts}

    @property
    def issued(self) -> int:
        """The highest sequence of the ids that the source had issued."""
        return max((row["issued"] for row in self._facts), default=0)

    def operations(self, reached: Mapping[int, int] | None = None, kept: Collection[int] = ()) -> DataFrame:
        """The operations after `reached` ({shard: offset}), with `COLUMNS`, in order. Transactions in `kept` were
        replayed while they were in doubt: the operations that they had prepared when they were replayed are in the
        target already, and are left out. Later operations on the records that they added are not left out."""
        found = self._filtered(self._living(dict(reached or {}), kept))
        order = ("group", F.when(F.col("in_doubt"), F.col("tx")), "shard", "place", "ordinal")
        return found.orderBy(*order).select(*COLUMNS)

    def counts(self, reached: Mapping[int, int] | None = None, kept: Collection[int] = ()) -> list[Row]:
        """Rows of shard, type, in_doubt, operations and bytes, in order. A PREPARE counts once for each transaction and
        shard."""
        found = self.operations(reached, kept).groupBy("shard", "type", "in_doubt")
        counted = found.agg(F.count("*").alias("operations"), F.sum(F.length("data")).alias("bytes"))
        return counted.orderBy("shard", "in_doubt", "type").collect()

    def in_doubt(self) -> list[int]:
        """The transactions that are not settled and have operations that pass the filter."""
        waiting = self.operations().where(F.col("in_doubt") & (F.col("type") == "PREPARE"))
        return sorted({row["tx"] for row in waiting.select("tx").distinct().collect()})

    # ---- what took effect ----------------------------------------------------------------------------------------

    def _require_places(self, asked: Filter) -> None:
        """Raises ArchiveError for an address or a queue that never existed, or that only rolled-back or dropped
        transactions added."""
        plain = self._operations.where(F.col("tx") == 0)
        of_transactions = self._of_transactions.where(F.col("part")["fate"].isin(COMMITTED, PREPARED))
        lasting = plain.unionByName(of_transactions.select(*plain.columns))
        require_places(lasting, asked.addresses, asked.queues)

    def _entries(self, spark: SparkSession, path: str) -> DataFrame:
        manifest, until = self.manifest, self._filter.until
        # the newest manifest is read first; records archived after that are left for the next replay
        archived = read_archive(spark, path, manifest.journal).where(F.col("offset") < by_shard(manifest.ends()))
        journal = JournalIdentity(manifest.uuid, len(manifest.parts))
        entries = with_operations(archived, wal_topic(manifest.journal), journal)
        with_skips = entries.withColumn("skip", is_one_of({*self._filter.skip, *manifest.skipped}))
        if until is None:
            return with_skips.withColumn("until", F.lit(None).cast("bigint"))
        return cut_at(with_skips, F.lit(until))

    def _living(self, reached: Mapping[int, int], kept: Collection[int]) -> DataFrame:
        """The operations that `_with_lives` allows. `life` says to which life of its id an operation belongs, and `new`
        whether the target still lacks it."""
        of_transactions = self._of_transactions
        plain = self._operations.where(F.col("tx") == 0)
        all_ = plain.select(*_columns(_position("offset", "index", F.lit(0))), F.lit(False).alias("known"))
        all_ = all_.union(_committed(of_transactions, reached, kept)).union(_waiting(of_transactions, kept))
        behind = F.col("in_doubt") | (F.col("position")["offset"] > F.coalesce(_reached(reached), F.lit(-1)))
        # operations that the target has already still belong to the lives of their records
        return _with_lives(all_).withColumn("new", behind & ~F.col("known"))

    def _filtered(self, living: DataFrame) -> DataFrame:
        asked = self._filter
        found = living
        if asked.addresses or asked.queues:
            found = of_addresses(found.localCheckpoint(), asked.addresses, asked.queues)
        for bounds, column in ((asked.ids, "id"), (asked.epochs, "epoch")):
            if bounds is not None:
                found = found.where(F.col(column).between(*bounds) | _is_prepare())
        if asked.days is not None:
            found = found.where(_day().between(*(F.lit(day) for day in asked.days)) | _is_prepare())
        found = found.where("new")
        if found is not living and self._cuts_transactions():
            with_operations = found.where(F.col("in_doubt") & ~_is_prepare()).select("tx").distinct()
            some_left = with_operations.withColumn("some", F.lit(True))
            found = found.join(F.broadcast(some_left), "tx", "left").where(~_is_prepare() | F.col("some"))
        return found

    def _cuts_transactions(self) -> bool:
        asked = self._filter
        return bool(asked.addresses or asked.queues or asked.ids or asked.epochs or asked.days)


def _require_whole(facts: list[Row], path: str) -> None:
    for row in sorted(facts, key=lambda row: row["shard"]):
        if row["stop_offset"] is not None:
            mend = (
                "the archive was begun after a trim"
                if row["trimmed"]
                else f"if the source's operators had it skipped, so does --skip {row['shard']}:{row['stop_offset']}"
            )
            raise CorruptionError(
                f"{path} cannot be applied from {row['topic']}[{row['shard']}]@{row['stop_offset']} on: "
                f"{row['stop_reason']} ({mend})"
            )


# ---- rows ----------------------------------------------------------------------------------------------------


def _position(offset: Any, index: Any, ordinal: Column) -> Column:
    return F.struct(
        (F.col(offset) if isinstance(offset, str) else offset).alias("offset"),
        (F.col(index) if isinstance(index, str) else index).alias("index"),
        ordinal.alias("ordinal"),
    ).cast(_POSITION)


def _columns(position: Column, *, in_doubt: bool = False) -> Iterator[Column | str]:
    """The columns that operations have before they are filtered. `place` is where an operation stands in the WAL, and
    `position` where it took effect."""
    yield from ("topic", "shard")
    yield (F.lit(_LAST) if in_doubt else F.col("group")).cast("bigint").alias("group")
    yield from ("epoch", "timestamp", "offset")
    yield F.struct("offset", "index").alias("place")
    yield position["ordinal"].alias("ordinal")
    yield position.alias("position")
    yield from ("type", "id", "kind", "data", "replaceable", "subject", "tx")
    yield F.lit(in_doubt).alias("in_doubt")


def _committed(of_transactions: DataFrame, reached: Mapping[int, int], kept: Collection[int]) -> DataFrame:
    """The operations of committed transactions. Each has the place and the time of its COMMIT. It is `known` if the
    target has it already: the transaction is in `kept`, and had prepared the operation when an earlier run replayed
    it."""
    part, at = F.col("part"), ("offset", "index", "group", "epoch", "timestamp")
    commits = of_transactions.where((F.col("type") == COMMITTED) & F.col("done")).select("topic", "shard", "tx", *at)
    done = of_transactions.where((part["fate"] == COMMITTED) & F.col("type").isin(*STAGED))
    early = F.coalesce(part["prepared"]["offset"] <= _reached(reached), F.lit(False))
    done = done.withColumn("known", F.col("tx").isin(*kept) & early)
    placed = done.withColumn("offset", part["at"]["offset"]).withColumn("index", part["at"]["index"])
    placed = placed.drop("group", "epoch", "timestamp").join(commits, ["topic", "shard", "tx", "offset", "index"])
    return placed.select(*_columns(_position("offset", "index", F.col("ordinal"))), "known")


def _waiting(of_transactions: DataFrame, kept: Collection[int]) -> DataFrame:
    """Operations in doubt: the staged operations and the PREPARE of each transaction that is prepared in all of its
    shards. An archive may end with a group that only some of its shards have; the next replay takes that group.
    Operations of transactions in `kept` are `known`: the target has them already."""
    prepared = of_transactions.where(F.col("part")["fate"] == PREPARED)
    wholes = (
        prepared.where(_is_prepare())
        .groupBy("topic", "tx")
        .agg(F.count("*").alias("found"), F.max("shards").alias("wanted"))
    )
    wholes = wholes.where(F.col("found") == F.col("wanted")).select("topic", "tx")
    whole = prepared.join(F.broadcast(wholes), ["topic", "tx"], "left_semi")
    position = _position(F.lit(_LAST), F.lit(0), F.coalesce("ordinal", F.lit(0)))
    return whole.select(*_columns(position, in_doubt=True), F.col("tx").isin(*kept).alias("known"))


def _with_lives(operations: DataFrame) -> DataFrame:
    """The operations that are allowed: an ADD if its record did not exist, any other operation if its record existed.
    `life` is the number of ADDs of the id so far."""
    of_id, order = ("topic", "shard", "id"), ("position",)
    kind_of = F.col("type")
    life = F.when(kind_of != "UPDATE", kind_of)
    there = F.coalesce(F.last(life, ignorenulls=True).over(before(*of_id, order=order)) == "ADD", F.lit(False))
    stepped = operations.withColumn("allowed", F.when(kind_of == "ADD", ~there).otherwise(there))
    adds = (F.col("allowed") & (kind_of == "ADD")).cast("int")
    lives = F.sum(adds).over(in_order(*of_id, order=order).rowsBetween(-(2**63), 0))
    # a PREPARE belongs to no record
    return stepped.withColumn("life", lives).where(F.col("allowed") | _is_prepare())


def _reached(reached: Mapping[int, int]) -> Column:
    if not reached:
        return F.lit(-1).cast("bigint")
    named = (F.lit(value).cast("bigint") for pair in sorted(reached.items()) for value in pair)
    return F.create_map(*named)[F.col("shard").cast("bigint")]


def _day() -> Column:
    """The day in UTC, whatever time zone the session has."""
    return F.expr(f"date_from_unix_date(cast(floor(unix_millis(timestamp) / {_DAY_MS}) as int))")


def _is_prepare() -> Column:
    return F.col("type") == "PREPARE"
