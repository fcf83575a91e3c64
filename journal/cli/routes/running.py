"""`kafka-journal routes status` and `resume`: what routes have done, and letting a shard go on that a route has
stopped."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from journal.cli.common import (
    Chosen,
    JsonOption,
    YesOption,
    confirm,
    errors,
    journal_command,
    operator,
    print_json,
    print_line,
    print_note,
)
from journal.cli.reading import opened_journal
from journal.cli.repair import newest_mark, wait_for_mark
from journal.cli.standard_streams import note_done
from journal.cli.status.sources import SOURCE_COLUMNS, source_notes, source_rows, sources_json
from journal.cli.tables import print_facts, print_table
from journal.cli.text import duration, moment
from journal.config import Settings
from journal.errors import RepairError
from journal.kafka.ports import Kafka
from journal.process.clocks import wall_ms
from journal.topics.control_keys import control_row, route_skip_key
from journal.topics.control_rows import ControlRows
from journal.topics.marks import MarkReader
from journal.topics.names import table_topic, wal_topic
from journal.v1.journal_pb2 import RouteCounts, RoutesReport, SkipRequest
from journal.words import called, counted


def add_running(app: typer.Typer) -> None:
    """Add the commands to those of `routes`."""
    app.command("status")(status)
    app.command("resume")(resume)


# ---- status --------------------------------------------------------------------------------------------------------


@journal_command
def status(chosen: Chosen, as_json: JsonOption = False) -> None:
    """Show what the routes have sent and refused, as the workers last reported, and how far they are behind; and what
    happened to the sources' records, as the active node last reported.

    The exit code is 1 if a route has stopped a shard.
    """
    settings = chosen.settings()
    with opened_journal(settings) as (kafka, rows):
        shards = rows.require_identity(settings.journal).shards
        marks, lags = _marks_and_lags(kafka, settings, shards)
    reported = [as_it_stands(row, marks[shard]) for shard, row in sorted(rows.routes.items()) if shard < shards]
    routes = summed(reported)
    sources = sources_json(rows.sources, wall_ms())
    if as_json:
        print_json(
            {
                "routes": [_route_json(row) for row in routes.values()],
                "shards": [_shard_json(row, lags[row.shard]) for row in reported],
                "sources": sources,
            }
        )
    else:
        _show(settings, routes, reported, lags, sources)
    if any(row.stopped for row in reported):
        raise typer.Exit(1)


def _show(
    settings: Settings,
    routes: Mapping[str, RouteCounts],
    reported: Sequence[RoutesReport],
    lags: Mapping[int, int],
    sources: dict[str, Any] | None,
) -> None:
    if not reported:
        print_line(f"no worker of {called(settings.journal)} has reported that it has routes")
    else:
        print_table(
            f"routes of {called(settings.journal)}", ROUTE_COLUMNS, [_route_row(row) for row in routes.values()]
        )
        print_table("", SHARD_COLUMNS, [_shard_row(row, lags[row.shard]) for row in reported])
        for row in reported:
            if row.stopped:
                print_line(row.stopped)
    if sources is not None:
        title = f"sources, as {sources['node']} reported {duration(sources['reported_seconds'])} ago"
        print_table(title, SOURCE_COLUMNS, source_rows(sources))
        for line in source_notes(settings.journal, sources, sources["node"]):
            print_note(line)


ROUTE_COLUMNS = ("route", "sent", "refused", "dead letters", "last error")
SHARD_COLUMNS = ("shard", "state", "lag", "latency ms", "at most", "worker", "since", "reported")


def _marks_and_lags(kafka: Kafka, settings: Settings, shards: int) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """For each shard, the WAL offset of its mark, and the number of offsets after it, without the marker of the last
    transaction."""
    timeout_s = settings.request_timeout_ms / 1000
    reader, marks = (
        kafka.reader(wal_topic(settings.journal)),
        MarkReader(kafka, table_topic(settings.journal), time.monotonic),
    )
    try:
        ends = reader.bounds(range(shards), timeout_s)
        found = {shard: marks.newest(shard, timeout_s).mark.offset for shard in range(shards)}
        return found, {shard: max(0, ends[shard][1] - offset - 2) for shard, offset in found.items()}
    finally:
        reader.close()
        marks.close()


def as_it_stands(reported: RoutesReport, mark_offset: int) -> RoutesReport:
    """A report, without a stop that the shard has passed since. If the worker has no routes any more, it sends no newer
    report."""
    found = RoutesReport()
    found.CopyFrom(reported)
    if found.stopped and found.stopped_at <= mark_offset:
        for name in ("stopped", "stopped_at", "stopped_since"):
            found.ClearField(name)
    return found


def summed(statuses: Sequence[RoutesReport]) -> dict[str, RouteCounts]:
    """The numbers of each route, summed over shards."""
    total: dict[str, RouteCounts] = {}
    for row in (row for status in statuses for row in status.routes):
        found = total.setdefault(row.route, RouteCounts(route=row.route))
        found.sent += row.sent
        found.dead_letters += row.dead_letters
        for reason, count in row.refused.items():
            found.refused[reason] += count
        if row.last_error_at > found.last_error_at:
            found.last_error, found.last_error_at = row.last_error, row.last_error_at
    return total


def _route_row(row: RouteCounts) -> Sequence[object]:
    refused = ", ".join(f"{reason} {count:,}" for reason, count in sorted(row.refused.items()))
    error = f"{moment(row.last_error_at)}: {row.last_error}" if row.last_error else ""
    return row.route, f"{row.sent:,}", refused or "0", f"{row.dead_letters:,}", error


def _shard_row(row: RoutesReport, lag: int) -> Sequence[object]:
    since = f" since {moment(row.stopped_since)}" if row.stopped_since else ""
    state = f"STOPPED before {row.stopped_at}{since}" if row.stopped else "running"
    latency = (f"{row.latency_ms:,.0f}", f"{row.latency_ms_max:,.0f}")
    return row.shard, state, counted(lag, "offset"), *latency, row.worker, moment(row.since), moment(row.timestamp)


def _route_json(row: RouteCounts) -> dict[str, Any]:
    return {
        "route": row.route,
        "sent": row.sent,
        "refused": dict(sorted(row.refused.items())),
        "dead_letters": row.dead_letters,
        "last_error": row.last_error,
        "last_error_ms": row.last_error_at,
    }


def _shard_json(row: RoutesReport, lag: int) -> dict[str, Any]:
    return {
        "shard": row.shard,
        "state": "stopped" if row.stopped else "running",
        "stopped": row.stopped,
        "stopped_at": row.stopped_at if row.stopped else None,
        "stopped_since_ms": row.stopped_since or None,
        "lag_offsets": lag,
        "latency_ms": row.latency_ms,
        "latency_ms_max": row.latency_ms_max,
        "worker": row.worker,
        "since_ms": row.since,
        "reported_ms": row.timestamp,
    }


# ---- resume --------------------------------------------------------------------------------------------------------


@journal_command
def resume(
    chosen: Chosen,
    shard: Annotated[
        int, typer.Argument(min=0, help="The shard that a route has stopped, as `routes status` shows it.")
    ],
    skip: Annotated[int, typer.Option(min=0, help="The WAL offset of the frame at which the shard is stopped.")],
    yes: YesOption = False,
    timeout_s: Annotated[
        float, typer.Option(min=1, help="How many seconds to wait for the worker to pass the frame.")
    ] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Let a shard go on that a route has stopped, without what no route can send of the frame at that offset.

    The frame is applied, and everything else in it that has a route is sent. The control rows keep who asked for this,
    and why.
    """
    settings = chosen.settings()
    with opened_journal(settings) as (kafka, rows):
        identity = rows.require_identity(settings.journal)
        stop = _require_stop(kafka, settings, rows, shard, skip)
        facts = {
            "shard": shard,
            "stopped before": f"{wal_topic(settings.journal)}[{shard}]@{skip}",
            "reported": moment(stop.timestamp),
            "reason": stop.stopped,
        }
        if not as_json or not yes:
            print_facts("what cannot be sent", facts, to=errors)
        confirm("leave it out?", yes=yes)
        row = SkipRequest(
            journal=identity.journal,
            shard=shard,
            offset=skip,
            operator=operator(),
            timestamp=int(wall_ms()),
            reason=stop.stopped,
        )
        producer = kafka.plain_producer()
        try:
            key = route_skip_key(shard, skip)
            producer.send([control_row(settings.journal, key, row)], settings.request_timeout_ms / 1000)
        finally:
            producer.close()
        mark = wait_for_mark(kafka, settings, shard, skip, timeout_s)
    done = f"shard {shard} passed offset {skip}; its mark stands at {mark.offset}"
    note_done(done)
    if as_json:
        print_json(facts | {"resumed": True, "mark_offset": mark.offset, "operator": operator()})
    else:
        print_line(done)


def _require_stop(kafka: Kafka, settings: Settings, rows: ControlRows, shard: int, offset: int) -> RoutesReport:
    """The stop of the shard, as its worker reports it. Raises RepairError if the shard is not stopped there."""
    mark = newest_mark(kafka, settings, shard) if shard < rows.require_identity(settings.journal).shards else None
    if mark is None:
        raise RepairError(f"{called(settings.journal)} has no shard {shard}")
    if offset <= mark.offset:
        raise RepairError(f"the mark of shard {shard} is at {mark.offset}, so offset {offset} is already behind it")
    found = rows.routes.get(shard)
    if found is None or not found.stopped:
        raise RepairError(f"no route has stopped shard {shard}, as far as its worker has reported")
    if found.stopped_at != offset:
        raise RepairError(f"shard {shard} is stopped before offset {found.stopped_at}, not {offset}: {found.stopped}")
    return found
