"""`kafka-journal trim` deletes the beginning of the WAL."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Annotated, Any

import typer

from journal.cli.common import (
    PROGRESS_AFTER_S,
    Chosen,
    JsonOption,
    StepProgress,
    YesOption,
    confirm,
    journal_command,
    operator,
    print_json,
    print_line,
    print_note,
)
from journal.cli.reading import opened_journal
from journal.cli.standard_streams import note_done
from journal.cli.tables import print_table
from journal.process.clocks import wall_ms
from journal.upkeep.trim import ShardTrim, Trimming
from journal.words import called, counted

COLUMNS = ("shard", "WAL starts at", "will start at", "offsets to delete", "held by")


@journal_command
def trim(
    chosen: Chosen,
    without_archive: Annotated[
        bool,
        typer.Option("--without-archive", help="Delete without an archive, after comparing the tables with the WAL."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the beginning of the WAL: what the tables and the archive have, before the current epoch.

    This cannot be undone. From then on `verify` starts from the tables' digest, which this command records.
    """
    settings = chosen.settings()
    with opened_journal(settings) as (kafka, rows), StepProgress(after_s=PROGRESS_AFTER_S) as progress:
        trimming = Trimming(kafka, settings, rows, progress, without_archive=without_archive)
        with closing(trimming):
            plan = trimming.plan(operator(), wall_ms())
            progress.hide()
            count = sum(each.offset - each.start for each in plan)
            if not as_json:
                _show(settings.journal, plan)
            if count and not dry_run:
                if as_json and not yes:
                    print_note(f"to be deleted from the WAL of {called(settings.journal)}: {counted(count, 'offset')}")
                confirm("delete them for good?", yes=yes)
                trimming.delete(plan)
                note_done(f"{counted(count, 'offset')} {'were' if count > 1 else 'was'} deleted")
    if as_json:
        print_json({"journal": settings.journal, "deleted": bool(count) and not dry_run, "shards": _to_json(plan)})
    elif not count:
        print_line("there is nothing to delete")
    else:
        print_line(f"{counted(count, 'offset')} {'would be' if dry_run else 'were' if count > 1 else 'was'} deleted")


def _show(journal: str, plan: Sequence[ShardTrim]) -> None:
    rows = [(each.shard, each.start, each.offset, f"{each.offset - each.start:,}", each.held_by) for each in plan]
    print_table(f"the WAL of {called(journal)}", COLUMNS, rows)


def _to_json(plan: Sequence[ShardTrim]) -> list[dict[str, Any]]:
    return [{"shard": each.shard, "start": each.start, "offset": each.offset, "held_by": each.held_by} for each in plan]
