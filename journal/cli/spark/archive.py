"""`kafka-journal spark archive` writes the journal's WAL to Parquet or Delta Lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from journal.cli.common import Chosen, JsonOption, journal_command, print_json, print_line, print_note
from journal.cli.spark.session import spark_session
from journal.cli.spark.tables import KeptAs
from journal.cli.stopping import BEHIND_THE_BATCH, stopped_by_signals
from journal.words import called, counted
from loaders.spark.session.packages import SparkPart

if TYPE_CHECKING:
    from loaders.spark.archive.result import ArchiveResult
    from loaders.spark.stored.manifest import Manifest


def add_to(app: typer.Typer) -> None:
    """Add the command to the group `spark`."""
    app.command("archive")(archive)


@journal_command
def archive(
    chosen: Chosen,
    to: Annotated[
        str, typer.Option("--to", metavar="PATH", help="Where the archive is: a directory, or a URL that Hadoop knows.")
    ],
    once: Annotated[bool, typer.Option("--once", help="Stop at the WAL's present end.")] = False,
    every_s: Annotated[
        float, typer.Option("--every-s", min=0, metavar="SECONDS", help="Seconds between batches.")
    ] = 60.0,
    kept_as: Annotated[
        KeptAs, typer.Option("--format", help="Parquet files or a Delta Lake table. It cannot be changed later.")
    ] = KeptAs.PARQUET,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the journal's present archive by this one.")
    ] = False,
    from_trimmed: Annotated[
        bool, typer.Option("--from-trimmed", help="If the WAL was trimmed, begin the archive with what is left of it.")
    ] = False,
    check_operations: Annotated[
        bool, typer.Option("--check-operations", help="Also check every operation, which takes longer.")
    ] = False,
    master: Annotated[str | None, typer.Option("--master", help="Spark's master, unless it is configured.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Archive the committed WAL, every record once, until Ctrl-C.

    A run that is killed, or loses all of Spark's data, goes on where the archive's manifest ends. `trim` deletes only
    what is in the archive.
    """
    settings = chosen.settings()
    parts = {SparkPart.DELTA} if kept_as is KeptAs.DELTA else ()
    with (
        spark_session(f"archive {settings.journal}", master, parts) as spark,
        stopped_by_signals(BEHIND_THE_BATCH) as stop,
    ):
        # the import is here, because only this command needs Spark
        from loaders.spark.archive.archive import archive as archive_wal
        from loaders.spark.read.source import JournalSource
        from loaders.spark.stored.table_stores import TableFormat

        result = archive_wal(
            spark,
            JournalSource.from_settings(settings),
            to,
            once=once,
            every_s=every_s,
            replace_other=replace,
            from_trimmed=from_trimmed,
            kept_as=TableFormat(kept_as.value),
            check_operations=check_operations,
            told=_tell,
            stop=stop,
        )
    if as_json:
        print_json(to_json(result))
    else:
        count = f"{counted(result.records, 'record')} in {counted(result.batches, 'batch', 'batches')}"
        print_line(f"{called(result.journal)}: {count} were archived to {result.path}")
        if result.foreign:
            told = f"no frames of this journal among them: {result.foreign:,}"
            print_line(f"{told}; the first: {place(result.first_foreign)}")
        if result.damaged:
            told = f"frames with operations that must not be there: {result.damaged:,}"
            print_line(f"{told}; the first: {place(result.first_damaged)}")
        if result.faults:
            print_line(f"frames that do not follow the one before them: {result.faults:,}")
        if result.skipped:
            print_line(f"skipped by operators: {counted(result.skipped, 'record')} of the archive")


def to_json(result: ArchiveResult) -> dict[str, Any]:
    """The object that `--json` prints."""
    return {
        "journal": result.journal,
        "path": result.path,
        "batches": result.batches,
        "records": result.records,
        "bytes": result.bytes,
        "foreign": result.foreign,
        "first_foreign": place(result.first_foreign),
        "damaged": result.damaged,
        "first_damaged": place(result.first_damaged),
        "faults": result.faults,
        "skipped": result.skipped,
        "offsets": [result.ends[shard] for shard in sorted(result.ends)],
    }


def place(found: tuple[str, int, int] | None) -> str | None:
    """The topic, partition and offset of a record, if there is one."""
    if found is None:
        return None
    topic, partition, offset = found
    return f"{topic}[{partition}]@{offset}"


def _tell(manifest: Manifest) -> None:
    ends = " ".join(str(part.end) for _, part in sorted(manifest.parts.items()))
    print_note(f"batch {manifest.number} is archived: offsets below {ends}")
