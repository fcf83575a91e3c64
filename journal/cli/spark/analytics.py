"""`kafka-journal spark analytics` and `spark report` show what queues were like, as a table, a stream or a page."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from journal.cli.common import Chosen, JsonOption, journal_command, print_json, print_line, print_note
from journal.cli.spark.session import SMALL, further_parts, spark_session
from journal.cli.stopping import BEHIND_THE_BATCH, stopped_by_signals
from journal.cli.tables import print_facts, print_table
from journal.errors import ConfigError
from journal.words import called, counted, first_few
from loaders.spark.session.packages import SparkPart

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from loaders.spark.analytics.analytics import Analytics, QueueSummary
    from loaders.spark.analytics.queue_events import DeadLetters
    from loaders.spark.analytics.window_sinks import Sink, WindowSpan

QUEUES_SHOWN = 20
_TOPIC, _DELTA = "topic:", "delta:"
COLUMNS = (
    "queue",
    "in",
    "out",
    "depth",
    "at most",
    "oldest (s)",
    "redelivered",
    "in doubt (s)",
    "p50 (s)",
    "p99 (s)",
)

ArchiveOption = Annotated[
    str | None, typer.Option("--from-archive", metavar="PATH", help="Read this archive only, without Kafka.")
]
WindowOption = Annotated[
    float | None,
    typer.Option("--window-s", metavar="SECONDS", help="Width of a window in seconds.", show_default="as suits"),
]
MasterOption = Annotated[str | None, typer.Option("--master", help="Spark's master, unless it is configured.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands to the group `spark`."""
    app.command("analytics")(analytics)
    app.command("report")(report)


@journal_command
def analytics(
    chosen: Chosen,
    from_archive: ArchiveOption = None,
    window: WindowOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep running until Ctrl-C, and print each window once it is over.")
    ] = False,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="PLACE", help="Write windows to Parquet files at PATH, to delta:PATH, or to topic:NAME."
        ),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="PATH", help="With --follow: the directory from which a restart goes on."),
    ] = None,
    lateness: Annotated[
        float,
        typer.Option(
            "--lateness-s",
            min=0,
            metavar="SECONDS",
            help="With --follow: seconds for which a window waits for late records.",
        ),
    ] = 10.0,
    once: Annotated[bool, typer.Option("--once", help="With --follow: stop at the WAL's present end.")] = False,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """For each queue: messages in and out, depth, age of the oldest, redeliveries, in doubt, time in queue. For message
    stores.

    Prints a table over the whole time; --to also writes windows. With --follow there are only windows, which are
    printed unless --to is given.
    """
    if follow and from_archive is not None:
        raise ConfigError("--follow reads the WAL: leave --from-archive out")
    if state is not None and not follow:
        raise ConfigError("--state is where --follow goes on: it has no use without")
    if once and not follow:
        raise ConfigError("--once ends what --follow begins: without --follow it is once anyway")
    settings = chosen.settings()
    parts = further_parts(from_archive) | ({SparkPart.DELTA} if (to or "").startswith(_DELTA) else set())
    with spark_session(f"analytics {settings.journal}", master, parts, SMALL) as spark:
        # the import is here, because only these commands need PySpark
        from loaders.spark.read.source import JournalSource

        source = JournalSource.from_settings(settings)
        if follow:
            from loaders.spark.analytics.follow import follow as follow_wal

            with stopped_by_signals(BEHIND_THE_BATCH) as stop, state_at(state, spark.sparkContext.master) as place:
                follow_wal(
                    spark,
                    source,
                    place,
                    _printed if to is None else _sink(source, to),
                    width_s=10.0 if window is None else window,
                    lateness_s=lateness,
                    once=once,
                    stop=stop,
                    bad_input=lambda bad: _warn(settings.journal, bad),
                    left_out=_warn_of_skipped,
                )
            return
        from loaders.spark.analytics.analytics import analytics as analyse

        found = analyse(spark, source, archive=from_archive, width_s=window)
        if to is not None:
            from loaders.spark.analytics.window_sinks import WHOLE

            _sink(source, to)(found.windows, WHOLE)
            print_note(f"windows were written to {to}")
        told = to_json(found)
    if as_json:
        print_json(told)
    else:
        show(told)


@journal_command
def report(
    chosen: Chosen,
    to: Annotated[Path, typer.Option("--to", metavar="FILE.html", help="The file to write the page to.")],
    from_archive: ArchiveOption = None,
    window: WindowOption = None,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write one HTML page with plots: depth, throughput, time in queue, ages, and failovers as marks."""
    settings = chosen.settings()
    with spark_session(f"report {settings.journal}", master, further_parts(from_archive), SMALL) as spark:
        from loaders.spark.analytics.analytics import analytics as analyse
        from loaders.spark.read.source import JournalSource

        found = analyse(spark, JournalSource.from_settings(settings), archive=from_archive, width_s=window)
        write_report(found, to)
        if found.dead_letters.count:
            _warn(settings.journal, found.dead_letters)
        told = to_json(found)
    if as_json:
        print_json(told | {"report": str(to.resolve())})
    else:
        print_line(f"{to.resolve()}")


def write_report(found: Analytics, to: Path) -> None:
    """Write the page. Raises ConfigError for a place that cannot be written."""
    from loaders.spark.analytics.report import render, report_data

    page = render(report_data(found))
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"the report cannot be written: {error}") from error


# ---- words -------------------------------------------------------------------------------------------------


def to_json(found: Analytics) -> dict[str, Any]:
    """The object that `--json` prints. Units are in the keys."""
    return {
        "journal": found.journal,
        "from": _moment(found.from_ms),
        "until": _moment(found.until_ms),
        "window_s": found.width_ms / 1000,
        "total": _plain(found.total),
        "queues": [_plain(each) for each in found.queues],
        "epochs": [{"epoch": each.epoch, "node": each.node, "at": _moment(each.at_ms)} for each in found.epochs],
        "dead_letters": found.dead_letters.count,
        "first_dead_letter": found.dead_letters.first or None,
        "skipped": found.skipped,
    }


def show(told: dict[str, Any]) -> None:
    """A table of the busiest queues, from `to_json`."""
    queues = told["queues"]
    rows = [_cells(each) for each in queues[:QUEUES_SHOWN]]
    if len(queues) > QUEUES_SHOWN:
        rows.append([f"and {len(queues) - QUEUES_SHOWN:,} more", *[""] * (len(COLUMNS) - 1)])
    print_table(f"queues of {called(told['journal'])}", COLUMNS, [*rows, _cells(told["total"])])
    begun = first_few([f"{each['epoch']} {each['node']}" for each in told["epochs"]])
    facts = {"from": told["from"], "until": told["until"], "epochs": begun}
    if told["dead_letters"]:
        facts["no frames of this journal"] = f"{told['dead_letters']:,}; the first: {told['first_dead_letter']}"
    if told["skipped"]:
        facts["skipped by operators"] = f"{told['skipped']:,}"
    print_facts("analytics", facts)


def _cells(of: dict[str, Any]) -> list[str]:
    counts = ("came_in", "went_out", "depth", "depth_max")
    ages = {name: "" if of[name] is None else f"{of[name]:,.3f}" for name in _AGES}
    return [
        of["queue"],
        *(f"{of[name]:,}" for name in counts),
        ages["oldest_age_s"],
        f"{of['redeliveries']:,}",
        ages["in_doubt_age_s"],
        ages["p50_s"],
        ages["p99_s"],
    ]


_AGES = ("oldest_age_s", "in_doubt_age_s", "p50_s", "p99_s")


def _warn(journal: str, bad: DeadLetters) -> None:
    told = (
        f"no frames of {called(journal)}, and counted nowhere: {counted(bad.count, 'record')}; the first: {bad.first}"
    )
    print_note(told, style="yellow")


def _warn_of_skipped(count: int) -> None:
    told = f"skipped by operators, and counted nowhere: {counted(count, 'record')}"
    print_note(told, style="yellow")


def _plain(of: QueueSummary) -> dict[str, Any]:
    return asdict(of)


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


# ---- the places for windows ----------------------------------------------------------------------------------


def _sink(source: Any, to: str) -> Sink:
    from loaders.spark.analytics.window_sinks import to_delta, to_files, to_topic

    if to.startswith(_TOPIC):
        return to_topic(source, to.removeprefix(_TOPIC))
    if to.startswith(_DELTA):
        return to_delta(to.removeprefix(_DELTA))
    return to_files(to)


def _printed(windows: DataFrame, _told: WindowSpan) -> None:
    """Print a JSON object on each line, for people and programs alike."""
    for (line,) in windows.orderBy("window_start", "queue").selectExpr("to_json(struct(*))").toLocalIterator():
        print_line(line)


@contextmanager
def state_at(place: str | None, master: str | None) -> Iterator[str]:
    """The place of the state: the given one, or a directory for this run alone. Raises ConfigError if executors may run
    on other machines, which cannot use a directory of this one."""
    if place is not None:
        yield place
        return
    if (master or "").split("[")[0] != "local":
        raise ConfigError(
            f"executors of {master} may be elsewhere: --state says where they all find the stream's state"
        )
    with tempfile.TemporaryDirectory(prefix="kafka-journal-analytics-") as directory:
        yield Path(directory).as_uri()
