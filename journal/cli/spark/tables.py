"""`kafka-journal spark tables` keeps tables of the journal up to date, which anybody can query."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from journal.cli.common import Chosen, JsonOption, journal_command, print_json, print_line, print_note
from journal.cli.spark.session import spark_session
from journal.cli.stopping import BEHIND_THE_BATCH, stopped_by_signals
from journal.cli.tables import print_table
from journal.words import called, counted

if TYPE_CHECKING:
    from loaders.spark.tables.tables import TablesBatch


class KeptAs(Enum):
    """The format of the tables."""

    DELTA = "delta"
    PARQUET = "parquet"


def add_to(app: typer.Typer) -> None:
    """Add the command to the group `spark`."""
    app.command("tables")(tables)


@journal_command
def tables(
    chosen: Chosen,
    to: Annotated[
        str,
        typer.Option("--to", metavar="PATH", help="Where to keep the tables: a directory, or a URL that Hadoop knows."),
    ],
    kept_as: Annotated[
        KeptAs, typer.Option("--format", help="Parquet files or Delta Lake tables. It cannot be changed later.")
    ] = KeptAs.PARQUET,
    once: Annotated[bool, typer.Option("--once", help="Stop at the journal's present end.")] = False,
    every_s: Annotated[
        float, typer.Option("--every-s", min=0, metavar="SECONDS", help="Seconds between batches.")
    ] = 60.0,
    from_trimmed: Annotated[
        bool, typer.Option("--from-trimmed", help="If the WAL was trimmed, begin with what is left of it.")
    ] = False,
    master: Annotated[str | None, typer.Option("--master", help="Spark's master, unless it is configured.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Keep tables of waiting messages, of transactions in doubt, and of the life of every message, until Ctrl-C.

    After a kill, the next run goes on: nothing is in a table twice, and nothing is missing.
    """
    settings = chosen.settings()
    # this import needs no Spark, only the names of the packages
    from loaders.spark.session.packages import SparkPart

    parts = {SparkPart.DELTA} if kept_as is KeptAs.DELTA else ()
    with (
        spark_session(f"tables {settings.journal}", master, parts) as spark,
        stopped_by_signals(BEHIND_THE_BATCH) as stop,
    ):
        # the import is here, because only this command needs Spark
        from loaders.spark.read.source import JournalSource
        from loaders.spark.stored.table_stores import TableFormat
        from loaders.spark.tables.tables import keep_tables

        result = keep_tables(
            spark,
            JournalSource.from_settings(settings),
            to,
            kept_as=TableFormat(kept_as.value),
            once=once,
            every_s=every_s,
            from_trimmed=from_trimmed,
            retention_ms=settings.delete_retention_ms,
            begun=_tell_begun,
            told=_tell,
            stop=stop,
        )
    if as_json:
        print_json(
            {
                "journal": result.journal,
                "path": result.path,
                "format": kept_as.value,
                "batches": result.batches,
                "records": result.records,
                "dead_letters": result.dead_letters,
                "gaps": result.gaps,
                "skipped": result.skipped,
                "rows": result.rows,
            }
        )
        return
    records, batches = counted(result.records, "record"), counted(result.batches, "batch", "batches")
    title = f"{called(result.journal)}: {records} in {batches}, to {result.path}"
    print_table(title, ["table", "rows"], [[name, f"{count:,}"] for name, count in result.rows.items()])
    if result.dead_letters:
        print_line(
            f"in dead_letters, as no frames of this journal or no rows: {counted(result.dead_letters, 'record')}"
        )
    if result.gaps:
        print_line(f"frames that do not follow the one before them: {result.gaps:,}")
    if result.skipped:
        print_line(f"skipped by operators, and in no life: {counted(result.skipped, 'record')} of the WAL")


def _tell_begun(number: int, records: int) -> None:
    print_note(f"batch {number}: {counted(records, 'record')} to be applied")


def _tell(batch: TablesBatch) -> None:
    print_note(f"batch {batch.number} is in the tables: {counted(batch.records, 'record')}")
