"""`verify_shard`: one pass over a shard's WAL, which is compared with the tables and a load at the offsets where these
stand.

The caller brings the rows and records. Shards are checked one at a time, so that memory holds one shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from journal.verify.base import BasedFold, TrimmedBase
from journal.verify.compare import compare_loaded, compare_states
from journal.verify.differences import KEPT_MAX, Differences
from journal.verify.state import Finding, VerifiedShard
from journal.verify.table_state import read_table
from journal.verify.wal_fold import ShardFold, WalRecord


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of a load at WAL offset `until`: `entries` in the form of `dump`. Entries of other shards are
    ignored."""

    until: int
    entries: Iterable[Mapping[str, Any]]


@dataclass(slots=True)
class ShardReport:
    """The result of checking one shard. `findings` says where the fold stopped, `unchecked` what could not be checked
    and why, and `base` where the check began, if that is not the WAL's first frame."""

    shard: int
    offset: int
    records: int
    transactions: int
    wal_records: int
    rows: int
    differences: Differences
    findings: list[Finding] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    base: str = ""

    @property
    def agrees(self) -> bool:
        return not self.differences.total and not self.findings

    def lines(self) -> list[str]:
        """Lines for people; their number is bounded."""
        found = [f"{f.topic}[{f.partition}]@{f.offset}: {f.reason}" for f in self.findings]
        cannot = [f"shard {self.shard}: cannot check: {reason}" for reason in self.unchecked]
        began = [f"shard {self.shard}: {self.base}"] if self.base else []
        return self.differences.lines() + found + began + cannot

    def to_json(self) -> dict[str, object]:
        return {
            "shard": self.shard,
            "offset": self.offset,
            "records": self.records,
            "transactions": self.transactions,
            "wal_records": self.wal_records,
            "rows": self.rows,
            "agrees": self.agrees,
            "differences": self.differences.to_json(),
            "findings": [finding._asdict() for finding in self.findings],
            "unchecked": self.unchecked,
            "base": self.base,
        }


@dataclass(slots=True)
class Report:
    """The reports of all shards. `verify` exits with 0 only if it `agrees`."""

    shards: list[ShardReport] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        return all(shard.agrees for shard in self.shards)

    @property
    def skipped(self) -> int:
        """Number of records that an operator had skipped."""
        return sum(shard.differences.skipped for shard in self.shards)

    @property
    def complete(self) -> bool:
        """Whether nothing was left unchecked."""
        return not any(shard.unchecked for shard in self.shards)

    @property
    def left_out(self) -> int:
        """Number of differences that were counted and are not named."""
        return sum(shard.differences.left_out for shard in self.shards)

    def lines(self) -> list[str]:
        return [line for shard in self.shards for line in shard.lines()]

    def to_json(self) -> dict[str, object]:
        return {
            "agrees": self.agrees,
            "complete": self.complete,
            "differences": sum(shard.differences.total for shard in self.shards),
            "skipped": self.skipped,
            "left_out": self.left_out,
            "shards": [shard.to_json() for shard in self.shards],
        }


def verify_shard(
    shard: int,
    shards: int,
    journal_uuid: bytes,
    *,
    wal: Iterable[WalRecord],
    table: Iterable[tuple[bytes, bytes | None]] | None = None,
    loaded: Loaded | None = None,
    wal_topic: str = "",
    rows_in_partition_order: bool = True,
    kept_max: int = KEPT_MAX,
    base: TrimmedBase | None = None,
    with_tables: Callable[[VerifiedShard], None] | None = None,
) -> ShardReport:
    """Fold `wal` (offset, timestamp, key, value; committed records from the start) and compare.

    With `base` the WAL was trimmed, and the fold starts at the trim; `table` is then required. `with_tables` is called
    with the state that the tables hold.

    `table` has all rows of the shard's partition up to one of its marks, or those of a copy that stands at one. Records
    that its `skipped` rows name are skipped. `wal` is read up to the later of the mark and `loaded.until`. Without
    both, this only looks for what would stop the shard.
    """
    differences = Differences(shard, kept_max)
    unchecked: list[str] = []
    checks: list[tuple[int, str, Callable[[VerifiedShard], None]]] = []
    rows, skips = 0, frozenset[int]()
    tables: VerifiedShard | None = None
    if table is not None:
        tables, reader = read_table(shard, shards, table, differences)
        rows, skips = reader.rows, frozenset(reader.skipped)
        if rows_in_partition_order and reader.rows_after_mark:
            unchecked.append(f"the tables: {reader.rows_after_mark} rows follow the last mark, they are no state yet")
        else:
            checks.append((tables.mark.offset, "tables", partial(_check_tables, tables, differences)))
        if with_tables is not None:
            with_tables(tables)
    if loaded is not None:
        compare = partial(compare_loaded, shard, shards, loaded.entries, differences)
        checks.append((loaded.until, "loaded state", compare))
    checks.sort(key=lambda check: check[0])

    if base is None:
        fold = ShardFold(shard, shards, journal_uuid, skips, topic=wal_topic, differences=differences)
    else:
        assert tables is not None, "a trimmed WAL is checked with the tables"
        fold = based = BasedFold(
            shard, shards, journal_uuid, skips, base, tables, topic=wal_topic, differences=differences
        )
        unchecked += [f"the {what}: it stands before the tables" for at, what, _ in checks if at < tables.mark.offset]
        meet = partial(_meet_tables, based, unchecked)
        checks = [(tables.mark.offset, "base", meet), *(check for check in checks if check[0] >= tables.mark.offset)]
    endless = not checks
    taken = 0
    for offset, timestamp_ms, _key, value in wal:
        while checks and offset > checks[0][0]:
            checks.pop(0)[2](fold.state)
        if fold.stopped or not (checks or endless):
            break
        fold.take(offset, timestamp_ms, value)
        taken += 1
    unmade = [until for until, *_ in checks if not taken and until > fold.state.mark.offset]
    if unmade:
        reason = "the WAL is empty: what the frames up to here made cannot be computed again"
        fold.state.findings.append(Finding(wal_topic, shard, unmade[0], reason))
    for until, what, check in checks:
        if fold.stopped or until in unmade:
            unchecked.append(f"the {what}: they stand at offset {until}, where the fold of the WAL did not come")
        else:
            check(fold.state)
    return ShardReport(
        shard=shard,
        offset=fold.state.mark.offset,
        records=len(fold.state.records),
        transactions=len(fold.state.transactions),
        wal_records=taken,
        rows=rows,
        differences=differences,
        findings=fold.state.findings,
        unchecked=unchecked,
        base="" if base is None else base.begins,
    )


def _meet_tables(fold: BasedFold, unchecked: list[str], _state: VerifiedShard) -> None:
    reason = fold.meet_tables()
    if reason:
        unchecked.append(reason)


def _check_tables(tables: VerifiedShard, differences: Differences, state: VerifiedShard) -> None:
    if not state.whole_group:
        differences.add("mark", "group", "the end of a group", f"the middle of group {state.mark.group}")
    compare_states(state, tables, differences)
