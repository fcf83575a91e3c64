"""`kafka-journal status` shows where every shard stands, the nodes, which one is active, and what is stopped.

It reads only ends and the newest rows. It reads all rows of the tables only if they are counted (`status_rows`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from journal.cli.common import (
    PROGRESS_AFTER_S,
    Chosen,
    JsonOption,
    StepProgress,
    journal_command,
    print_error,
    print_json,
    print_line,
)
from journal.cli.reading import opened_journal
from journal.cli.status.health import UNHEALTHY, problems
from journal.cli.status.nodes import (
    NODE_COLUMNS,
    failover_note,
    namesake_notes,
    node_lines,
    node_row,
    recovery_notes,
)
from journal.cli.status.routes import route_notes, route_stop
from journal.cli.status.rows import NOT_WANTED, CountedRows, ShardRows, counted_rows
from journal.cli.status.shard_stops import stop_lines
from journal.cli.status.sources import SOURCE_COLUMNS, source_notes, source_rows, sources_json
from journal.cli.status.trims import trim_json, trim_notes
from journal.cli.tables import print_table
from journal.cli.text import duration
from journal.config import Settings
from journal.kafka.ports import GroupMember, Kafka
from journal.process.clocks import wall_ms
from journal.process.commands import command
from journal.topics.control_rows import ControlRows
from journal.topics.marks import MarkReader
from journal.topics.names import node_group, table_topic, wal_topic, worker_group
from journal.upkeep.stops import Stop, look_ahead
from journal.v1.journal_pb2 import Identity, Mark
from journal.wal.reading import WalReader
from journal.words import called, counted, first_few
from loaders.node.liveness import LastActive, last_active
from loaders.node.roles import Role


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """The status of one shard. Offsets are the WAL's; times are milliseconds by the broker's clock."""

    shard: int
    start: int
    end: int
    high_watermark: int
    mark: Mark
    newest_number: int
    newest_timestamp: int
    ahead_since: int
    stop: Stop | None
    route_stop: dict[str, Any] | None = None
    """The stop as `--json` prints it; None if no route has stopped the shard."""
    trim: dict[str, Any] | None = None
    """The trim as `--json` prints it; None if the WAL has its beginning."""
    rows: ShardRows | None = None
    """Rows of the tables, just before `mark` was read; None if they were not counted."""

    @property
    def lag_frames(self) -> int:
        return max(0, self.newest_number - self.mark.number)

    def lag_s(self, now_ms: float) -> float:
        """How long the oldest frame that is not applied has waited."""
        return max(0.0, now_ms - self.ahead_since) / 1000 if self.ahead_since else 0.0


@dataclass(frozen=True, slots=True)
class JournalStatus:
    """Everything that `status` shows.

    It has many attributes because it is the whole answer, one attribute for each part of the output.
    """

    journal: str
    identity: Identity
    now_ms: float
    active: LastActive | None
    silent_after_ms: float
    shards: Sequence[ShardStatus]
    workers: Sequence[GroupMember]
    nodes: Sequence[dict[str, Any]] = ()
    """The nodes as `--json` prints them."""
    sources: dict[str, Any] | None = None
    """The sources as `--json` prints them; None if no node has reported any."""
    rows_missing: str = ""
    """Why the rows were not counted; empty if nobody needs to know."""

    @property
    def newest_timestamp(self) -> int:
        return max(shard.newest_timestamp for shard in self.shards)

    @property
    def last_seen_s(self) -> float:
        return max(0.0, self.now_ms - self.newest_timestamp) / 1000

    @property
    def node_state(self) -> str:
        """`active`, `activating`, `silent` (it writes nothing), `left`, or `none` for a journal without an epoch."""
        active, activating = self.active, self.activating
        wrote = active is not None and not active.released and self.last_seen_s * 1000 <= self.silent_after_ms
        if activating and not (wrote and active is not None and active.node != activating):
            return "activating"
        if active is None:
            return "none"
        if active.released:
            return "left"
        return "active" if wrote else "silent"

    @property
    def activating(self) -> str:
        """The name of a node that reports that it is activating; empty if none does."""
        names = [line["name"] for line in self.nodes if line["role"] == Role.ACTIVATING.value and not line["gone"]]
        return min(names, key=lambda name: self.active is None or name != self.active.node, default="")

    @property
    def problems(self) -> list[str]:
        """The problems that `status --check` names, a line each."""
        stopped = [shard.shard for shard in self.shards if shard.stop or shard.route_stop]
        return problems(self.node_state, self.workers, len(self.shards), stopped)

    @property
    def not_activated(self) -> list[int]:
        """The shards that the node of the newest epoch waits for while it activates."""
        if self.active is None or self.active.node != self.activating:
            return []
        return [shard.shard for shard in self.shards if shard.mark.epoch < self.active.epoch]


RowsOption = Annotated[
    bool | None,
    typer.Option(
        "--rows/--no-rows",
        help="Count the tables' rows and staged transactions, or not. By default they are counted if few.",
        show_default=False,
    ),
]


CheckOption = Annotated[
    bool,
    typer.Option(
        "--check", help="End with exit code 3 if no node is active, a shard has no worker, or a shard is stopped."
    ),
]


@journal_command
def status(
    chosen: Chosen, count_rows: RowsOption = None, check: CheckOption = False, as_json: JsonOption = False
) -> None:
    """Show where each shard stands, the nodes, the last failover, the workers, and what is stopped. It needs
    no worker."""
    settings = chosen.settings()
    with opened_journal(settings) as (kafka, rows):
        with StepProgress(after_s=PROGRESS_AFTER_S) as progress:
            counted = counted_rows(kafka, settings, rows, count_rows, progress)
        found = read_status(kafka, settings, rows, counted)
    if as_json:
        print_json(to_json(found))
    else:
        print_status(found)
    if check and found.problems:
        print_error(f"unhealthy: {'; '.join(found.problems)}")
        raise typer.Exit(UNHEALTHY)


# ---- reading -----------------------------------------------------------------------------------------------


def read_status(
    kafka: Kafka, settings: Settings, rows: ControlRows, counted: CountedRows = NOT_WANTED
) -> JournalStatus:
    """The status now, with the rows that were counted before. Raises KafkaUnavailableError, DeadlineError."""
    identity = rows.require_identity(settings.journal)
    timeout_s = settings.request_timeout_ms / 1000
    cluster = kafka.cluster()
    try:
        workers = cluster.group_members(worker_group(settings.journal), timeout_s)
        members = [member.client_id for member in cluster.group_members(node_group(settings.journal), timeout_s)]
    finally:
        cluster.close()
    marks = MarkReader(kafka, table_topic(settings.journal), time.monotonic)
    wal = WalReader(kafka, settings.journal, identity.journal, identity.shards, time.monotonic)
    unfiltered = kafka.reader(wal_topic(settings.journal), committed=False)
    shards = []
    try:
        for shard in range(identity.shards):
            # the mark is read first, because otherwise it could be ahead of the end that was read before it
            mark = marks.newest(shard, timeout_s).mark
            skips = {offset for number, offset in rows.skips if number == shard}
            ahead = look_ahead(kafka, identity, mark, skips, clock=time.monotonic, timeout_s=timeout_s)
            start, end = wal.bounds(shard, timeout_s)
            newest = wal.last_frame(shard, end, timeout_s)
            shards.append(
                ShardStatus(
                    shard=shard,
                    start=start,
                    end=end,
                    high_watermark=unfiltered.start_and_end(shard, timeout_s)[1],
                    mark=mark,
                    newest_number=newest[1].number if newest else 0,
                    newest_timestamp=newest[0].timestamp if newest else 0,
                    ahead_since=ahead.since,
                    stop=ahead.stop,
                    route_stop=route_stop(rows.routes.get(shard), mark.offset, ahead.since),
                    trim=trim_json(rows.trims.get(shard), identity.journal, start),
                    rows=counted.shards.get(shard),
                )
            )
    finally:
        marks.close()
        wal.close()
        unfiltered.close()
    now_ms = wall_ms()
    nodes = node_lines(rows, now_ms, members)
    sources = sources_json(rows.sources, now_ms)
    active = last_active(rows)
    silent_after_ms = active.silence_s(settings.fence_check_ms / 1000) * 1000 if active is not None else 0.0
    return JournalStatus(
        settings.journal,
        identity,
        now_ms,
        active,
        silent_after_ms,
        shards,
        workers,
        nodes,
        sources,
        counted.missing,
    )


# ---- showing -----------------------------------------------------------------------------------------------


def to_json(found: JournalStatus) -> dict[str, Any]:
    """The object that `--json` prints."""
    active = found.active
    return {
        "journal": found.journal,
        "uuid": found.identity.journal.hex(),
        "problems": found.problems,
        "node": {
            "state": found.node_state,
            "name": active.node if active else None,
            "epoch": active.epoch if active else 0,
            "last_seen_seconds": round(found.last_seen_s, 3) if active else None,
        },
        "nodes": list(found.nodes),
        "workers": [
            {"name": worker.client_id, "host": worker.host, "shards": sorted(shard for _, shard in worker.partitions)}
            for worker in found.workers
        ],
        "sources": found.sources,
        "rows_missing": found.rows_missing or None,
        "shards": [_shard_json(shard, found.now_ms) for shard in found.shards],
    }


def _shard_json(shard: ShardStatus, now_ms: float) -> dict[str, Any]:
    mark = shard.mark
    return {
        "shard": shard.shard,
        "wal_start": shard.start,
        "wal_end": shard.end,
        "lso_lag": shard.high_watermark - shard.end,
        "mark_offset": mark.offset,
        "lag_frames": shard.lag_frames,
        "lag_seconds": round(shard.lag_s(now_ms), 3),
        "epoch": mark.epoch,
        "group": mark.group,
        "records": mark.records,
        "rows": shard.rows.rows if shard.rows else None,
        "staged": mark.staged,
        "staged_transactions": shard.rows.staged_transactions if shard.rows else None,
        "prepared": mark.prepared,
        "rows_offset": shard.rows.offset if shard.rows else None,
        "applied": mark.applied,
        "rejected": mark.rejected,
        "stale": mark.stale,
        "dropped": mark.dropped,
        "skipped": mark.skipped,
        "stopped": None if shard.stop is None else {"offset": shard.stop.offset, "reason": shard.stop.reason},
        "stopped_by_route": shard.route_stop,
        "trimmed": shard.trim,
    }


COLUMNS = (
    *("shard", "WAL", "LSO lag", "mark", "lag", "lag time", "epoch"),
    *("records", "rows", "staged", "staged tx", "prepared", "rejected", "stale", "skipped"),
)
_NOT_COUNTED = "?"


def print_status(found: JournalStatus) -> None:
    """Print the status for people on standard output."""
    print_table(called(found.journal), COLUMNS, [_row(shard, found.now_ms) for shard in found.shards])
    if found.nodes:
        print_table("nodes", NODE_COLUMNS, [node_row(line, found.now_ms) for line in found.nodes])
    if found.sources is not None:
        print_table("sources", SOURCE_COLUMNS, source_rows(found.sources))
    for line in notes(found):
        print_line(line)


def _row(shard: ShardStatus, now_ms: float) -> tuple[object, ...]:
    mark = shard.mark
    lag = counted(shard.lag_frames, "frame") if shard.lag_frames else "0"
    return (
        shard.shard,
        f"{shard.start} to {shard.end}",
        shard.high_watermark - shard.end,
        mark.offset if mark.offset >= 0 else "none",
        "STOPPED" if shard.stop or shard.route_stop else lag,
        duration(shard.lag_s(now_ms)) if shard.ahead_since else "0",
        mark.epoch,
        f"{mark.records:,}",
        f"{shard.rows.rows:,}" if shard.rows else _NOT_COUNTED,
        f"{mark.staged:,}",
        f"{shard.rows.staged_transactions:,}" if shard.rows else _NOT_COUNTED,
        f"{mark.prepared:,}",
        f"{mark.rejected:,}",
        f"{mark.stale:,}",
        f"{mark.skipped:,}",
    )


def notes(found: JournalStatus) -> list[str]:
    """Lines for facts that are not in the table: the node, the workers, trims, stops and the commands that mend
    them."""
    lines = [_node_line(found)]
    failover = failover_note(found.nodes, found.now_ms)
    if failover is not None:
        lines.append(failover)
    lines += namesake_notes(found.nodes)
    lines += recovery_notes(found.nodes)
    for worker in found.workers:
        shards = ", ".join(str(shard) for shard in sorted(shard for _, shard in worker.partitions)) or "none"
        lines.append(f"worker {worker.client_id} at {worker.host}: shards {shards}")
    if not found.workers:
        lines.append(f"no worker is running: {command('worker', journal=found.journal)}")
    if found.sources is not None:
        active = found.active.node if found.active is not None and found.node_state == "active" else ""
        lines += source_notes(found.journal, found.sources, active)
    if found.rows_missing:
        lines.append(f"rows and staged transactions are not counted: {found.rows_missing}")
    routes = {shard.shard: shard.route_stop for shard in found.shards if shard.route_stop is not None}
    lines += route_notes(routes, found.now_ms)
    trims = {shard.shard: shard.trim for shard in found.shards if shard.trim is not None}
    lines += trim_notes(trims, found.now_ms)
    for shard in found.shards:
        if shard.stop is not None:
            lines += stop_lines(found.journal, shard.shard, shard.stop)
    return lines


def _node_line(found: JournalStatus) -> str:
    if found.node_state == "activating":
        waits = f" and waits for shards {first_few(found.not_activated)}" if found.not_activated else ""
        missing = "" if found.workers else ": no worker runs"
        return f"no node is active: {found.activating} is activating{waits}{missing}"
    if found.active is None:
        return "no node was ever active"
    who = f"node {found.active.node}, epoch {found.active.epoch}"
    seen = duration(found.last_seen_s)
    match found.node_state:
        case "left":
            return f"no node is active: {who}, left cleanly {seen} ago"
        case "active":
            return f"active: {who} (last seen {seen} ago)"
        case _:
            roles = [line["role"] for line in found.nodes if line["name"] == found.active.node and not line["gone"]]
            if roles:
                return f"no node is active: {who}, wrote last {seen} ago, and reports that it is {roles[0]}"
            return f"no node is active: {who}, was last seen {seen} ago (dead, or cut off from Kafka)"
