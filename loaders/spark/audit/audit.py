"""The audit: a journal's tables compared with Spark's own fold of its WAL, and of its archive if one is given.

It gives the same report as `verify`, for journals that are too large for one process. Only one row for each shard, and
the first differences of each sort, are brought to the driver; all differences are counted.

    tables' marks -> the WAL's operations, fingerprinted, put aside -> where each shard's fold ends
    -> all operations on an id, folded, and its table rows -> differences

A shard whose fold cannot reach its mark is not compared, because its right state at the mark is not known; the reason
why the fold stopped is a finding. If the WAL was trimmed and no archive is given, the fold begins at the trim
(`loaders.spark.audit.base`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import reduce
from typing import Any

from google.protobuf.message import DecodeError
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from journal.errors import RowError
from journal.v1.journal_pb2 import Mark
from journal.verify.base import TrimmedBase, cannot_check
from journal.verify.differences import KEPT_MAX, Differences
from journal.verify.report import Report, ShardReport
from journal.verify.state import Finding, MarkState
from loaders.spark.audit.base import (
    bases_of,
    begins,
    continued,
    digest_of,
    is_new,
    left_of,
    stood,
    with_waiting,
)
from loaders.spark.audit.compare import (
    OF_BASE,
    compared_records,
    compared_transactions,
    differences_of,
    first_of_each,
    found_records,
    found_transactions,
    is_misplaced,
    state_of,
    stray_rows,
    with_fingerprints,
    wrong_rows,
)
from loaders.spark.fold.fold import by_shard, effective, folded_lives, is_one_of, transacted
from loaders.spark.fold.frames import (
    applied_operations,
    fingerprinted,
    known_facts,
    put_aside,
    shard_facts,
)
from loaders.spark.fold.transactions import transaction_counts, transactions_left
from loaders.spark.read.archived import joined
from loaders.spark.read.loading import load
from loaders.spark.read.source import JournalIdentity, JournalSource, identity
from loaders.spark.read.start import begin_of
from loaders.spark.session.failures import journal_errors

_NONE = -1
"""A value in place of an offset, if there is none."""
_OF_IDS = ("applied", "rejected", "records", "updates", *OF_BASE)
_COUNTED = ("applied", "rejected", "records", "updates", "staged", "prepared", "dropped")
"""Fields of a mark that only a fold of the operations gives. The other fields follow from the frames alone."""
_OF_TABLE = (
    *("topic", "shard", "offset", "key", "row", "deleted", "id", "tx", "type", "kind", "data", "replaceable"),
    *("subject", "position", "updates", "spilled", "transaction", "value", "fault"),
)
"""The columns of the table `rows` that are compared."""
_GOES_ON = ("applied", "rejected", "dropped")
"""Fields of a mark that never decrease."""
_FROM_ARCHIVE = "--archive PATH reads it from an archive"
_TRIMMED = f"the WAL begins here, no trim told of the tables' state, and what stood before is gone: {_FROM_ARCHIVE}"
_EMPTIED = f"the WAL is empty, and what stood up to here is gone: {_FROM_ARCHIVE}"


def audit(
    spark: SparkSession, source: JournalSource, *, archive: str | None = None, kept_max: int = KEPT_MAX
) -> Report:
    """Compare a journal's tables with its WAL, and with the archive at a path for what the WAL no longer has.

    WAL and tables may be written meanwhile: the comparison goes up to the marks that are found first. Raises
    TopicError, RowError (also for a mark that does not parse) and ArchiveError like `archived.joined`, GapError if the
    WAL is trimmed meanwhile, and KafkaUnavailableError.
    """
    journal = identity(source)
    with journal_errors():
        # the trim is read first, so that no mark that is read next is before it
        if archive is None:
            begin = begin_of(source, journal)
            bases = bases_of(spark, source, begin)
            wal = load(spark, source, "entries", starting=begin.offsets)
        else:
            bases = {}
            wal = joined(spark, source, journal, archive)
        table = load(spark, source, "rows", columns=_OF_TABLE)
        return compare(spark, wal, table, journal, topic=source.wal, bases=bases, kept_max=kept_max)


def table_marks(table: DataFrame) -> Mapping[int, Row]:
    """For each shard: its newest mark and where that stands, where the shard's rows end, and which offsets were
    skipped."""
    own = ~F.col("deleted") & ~is_misplaced()
    is_mark, is_skip = (own & (F.col("row") == name) for name in ("MARK", "SKIPPED"))
    skipped = F.conv(F.hex(F.expr("substring(key, 4, 8)")), 16, 10).try_cast("bigint")
    found = table.groupBy("shard").agg(
        F.max_by(F.when(is_mark, F.col("value")), F.when(is_mark, F.col("offset"))).alias("mark"),
        F.coalesce(F.max(F.when(is_mark, F.col("offset"))), F.lit(_NONE)).alias("row_offset"),
        F.max("offset").alias("last"),
        F.first("topic").alias("topic"),
        F.count("*").alias("rows"),
        F.array_sort(F.collect_set(F.when(is_skip, skipped))).alias("skipped"),
    )
    return {row["shard"]: row for row in found.collect()}


def compare(
    spark: SparkSession,
    wal: DataFrame,
    table: DataFrame,
    journal: JournalIdentity,
    *,
    topic: str,
    bases: Mapping[int, TrimmedBase] | None = None,
    kept_max: int = KEPT_MAX,
) -> Report:
    """Compare `wal`, which has the columns of `entries`, and `table`, which has those of `_OF_TABLE`. `topic` names the
    WAL in the report, and `bases` are those of `base.bases_of`."""
    bases = bases or {}
    # the table is read first and once, so that the WAL is not behind it; digests need all data
    kept = table.withColumn("value", F.when(F.col("row") == "MARK", F.col("value")))
    table = put_aside(kept if bases else with_fingerprints(kept))
    marks = table_marks(table)
    shards = [_Audited(shard, marks.get(shard), topic, kept_max, bases.get(shard)) for shard in range(journal.shards)]
    until = {each.number: each.mark.offset for each in shards}
    places = ((each.number, offset) for each in shards for offset in each.skipped)
    data = F.when(F.col("type") == "MARKER", F.col("data")).otherwise(fingerprinted(F.col("data")))
    flat = wal.select(
        *(F.col(name) for name in wal.columns if name not in ("key", "value", "data")),
        is_one_of(places).alias("skip"),
        by_shard(until).alias("until"),
        F.length("data").alias("bytes"),
        data.alias("data"),
    )
    whole = table.where(F.col("offset") <= by_shard({each.number: each.row_offset for each in shards}))
    found = put_aside(state_of(whole))
    state = put_aside(with_fingerprints(found)) if bases else found
    flat = put_aside(with_waiting(flat, bases, topic) if bases else flat)
    new = flat.where(is_new(F.col("offset"), bases)) if bases else flat
    facts = shard_facts(new, epoch=stood("epoch", bases), number=stood("number", bases))
    for row in facts.withColumn("timestamp", F.expr("unix_millis(timestamp)")).collect():
        shards[row["shard"]].fact = row.asDict()
    for each in shards:
        each.go_on()
    good = [each for each in shards if each.reached]
    _compare_states(spark, flat, state, table, good, kept_max)
    for each in good:
        each.compare_marks()
        each.compare_base(found)
    return Report([each.report() for each in shards])


def _compare_states(
    spark: SparkSession,
    flat: DataFrame,
    state: DataFrame,
    table: DataFrame,
    shards: Sequence[_Audited],
    kept_max: int,
) -> None:
    """Compare records and transactions of the shards whose fold reaches the mark. Counts and differences go into
    `shards`."""
    by_number = {each.number: each for each in shards}
    here = F.col("shard").isin(list(by_number))
    facts = known_facts(spark, [each.fact for each in shards if each.fact is not None])
    operations = applied_operations(flat.where(here), facts)
    of_transactions = put_aside(transacted(operations))
    done = effective(operations, of_transactions)
    bases = {each.number: each.base for each in shards if each.base is not None}
    if bases:
        behind = done.where(is_new(F.col("position")["offset"], bases))
        there = left_of(state, bases, shards[0].topic)
        lives = folded_lives(behind.union(there), begins(bases), refused_max=kept_max)
        counts = transaction_counts(of_transactions, is_new(F.col("offset"), bases))
    else:
        lives, counts = folded_lives(done, refused_max=kept_max), transaction_counts(of_transactions)
    by_id = put_aside(compared_records(lives, found_records(state.where(here))))
    for row in by_id.groupBy("shard").agg(*(F.sum(name).alias(name) for name in _OF_IDS)).collect():
        by_number[row["shard"]].count(row.asDict())
    for row in counts.drop("topic").collect():
        by_number[row["shard"]].count(row.asDict())
    parts = compared_transactions(transactions_left(of_transactions), found_transactions(state.where(here)))
    found = [differences_of(by_id), differences_of(parts), *_faulty_rows(table, shards)]
    first = first_of_each(reduce(DataFrame.union, found), kept_max).collect()
    for row in first:
        by_number[row["shard"]].add(row)
    for row in first:
        by_number[row["shard"]].count_differences(row)


def _faulty_rows(table: DataFrame, shards: Sequence[_Audited]) -> Iterator[DataFrame]:
    """Rows that are not what their key says, or belong to another shard, and rows after the newest mark."""
    row_offset = by_shard({each.number: each.row_offset for each in shards})
    yield wrong_rows(table.where(F.col("offset") <= row_offset))
    if any(each.last > each.row_offset for each in shards):
        last = by_shard({each.number: each.last for each in shards})
        yield stray_rows(table.where((F.col("offset") > row_offset) & (F.col("offset") <= last)))


# ---- one shard -----------------------------------------------------------------------------------------------


class _Audited:
    """The facts about one shard that the audit collects, and the shard's report."""

    def __init__(self, number: int, found: Row | None, topic: str, kept_max: int, base: TrimmedBase | None) -> None:
        self.number = number
        self.topic = topic
        self.base = base
        self.row_offset: int = _NONE if found is None else found["row_offset"]
        self.last: int = _NONE if found is None else found["last"]
        self.skipped: list[int] = [] if found is None else found["skipped"]
        self.mark = _mark(number, found)
        self.fact: dict[str, Any] | None = None
        self._rows: int = 0 if found is None else found["rows"]
        self._counts = Counter[str]()
        self._differences = Differences(number, kept_max)
        self._not_checked: list[str] = []

    def go_on(self) -> None:
        """If the shard was trimmed, complete the facts about its frames with the state that it had at the trim."""
        if self.base is not None:
            self.fact = continued(self.fact, self.base, self.topic)

    @property
    def reached(self) -> bool:
        """Whether the fold reaches the mark."""
        if self.fact is None:
            return self.mark.offset < 0
        return self._stop is None or self._stop > self.mark.offset

    @property
    def _stop(self) -> int | None:
        return None if self.fact is None else self.fact["stop_offset"]

    def count(self, counts: Mapping[str, int]) -> None:
        self._counts.update({name: value for name, value in counts.items() if name != "shard"})

    def add(self, row: Row) -> None:
        """Add one of the first differences of a sort to the report."""
        self._differences.add(row["what"], row["key"], row["expected"], row["found"])

    def count_differences(self, row: Row) -> None:
        """Set the number of differences of one sort. Each of the first differences, which were added before, has this
        number."""
        self._differences.counts[row["what"]] = row["count"]

    def compare_marks(self) -> None:
        fact = self.fact
        if fact is not None and not fact["whole_group"]:
            self._differences.add("mark", "group", "the end of a group", f"the middle of group {fact['group']}")
        for field in fields(MarkState):
            expected, found = self._expected(field.name), getattr(self.mark, field.name)
            if expected != found:
                self._differences.add("mark", field.name, _plain(expected), _plain(found))
        for offset in self.skipped:
            if offset <= self.mark.offset:
                self._differences.add_skip(offset)

    def _expected(self, name: str) -> Any:
        if name == "shard":
            return self.number
        if name in _COUNTED:
            return self._counted(name)
        if self.fact is None:
            return getattr(MarkState(), name)
        value = self.fact[name]
        return bytes(value) if name == "nonce" else value

    def _counted(self, name: str) -> int:
        if self.base is None:
            return self._counts[name]
        if name == "records":
            return self.base.mark.records + self._counts["grow"]
        return self._counts[name] + (getattr(self.base.mark, name) if name in _GOES_ON else 0)

    def compare_base(self, state: DataFrame) -> None:
        """Compare the records that exist now with the state at the trim, from which the fold began: their number, and
        by the digest their content, if no record of that state was changed since."""
        base = self.base
        if base is None:
            return
        expected, found = self._counted("records"), self._counts["records"]
        if expected != found:
            self._differences.add("record", "how many", str(expected), str(found))
        if self._counts["changed"]:
            self._not_checked.append(cannot_check(base, self._counts["kept"]))
        elif (digest := digest_of(state, self.number, base)) != base.digest:
            self._differences.add("digest", f"at offset {base.mark.offset}", base.digest.hex(), digest.hex())

    def report(self) -> ShardReport:
        fact = self.fact
        return ShardReport(
            shard=self.number,
            offset=_NONE if fact is None else fact["offset"],
            records=self._counts["records"],
            transactions=self._counts["transactions"],
            wal_records=0 if fact is None else fact["frames"],
            rows=self._rows,
            differences=self._differences,
            findings=list(self._findings()),
            unchecked=[*self._unchecked(), *self._not_checked],
            base="" if self.base is None else self.base.begins,
        )

    def _findings(self) -> Iterator[Finding]:
        if self._stop is not None and self.fact is not None:
            reason = _TRIMMED if self.fact["trimmed"] else self.fact["stop_reason"]
            yield Finding(self.topic, self.number, self._stop, reason)
        elif not self.reached:
            yield Finding(self.topic, self.number, self.mark.offset, _EMPTIED)

    def _unchecked(self) -> Iterator[str]:
        if not self.reached:
            yield f"the tables: they stand at offset {self.mark.offset}, where the fold of the WAL did not come"


def _mark(shard: int, found: Row | None) -> MarkState:
    if found is None or found["mark"] is None:
        return MarkState(shard)
    try:
        row = Mark.FromString(bytes(found["mark"]))
    except DecodeError as error:
        reason = f"the mark does not parse: {error}"
        raise RowError(reason, topic=found["topic"], partition=shard, offset=found["row_offset"]) from None
    return MarkState(**{field.name: getattr(row, field.name) for field in fields(MarkState)})


def _plain(value: object) -> str:
    return value.hex() or "empty" if isinstance(value, bytes) else str(value)
