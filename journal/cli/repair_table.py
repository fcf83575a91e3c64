"""`kafka-journal repair table` makes a shard's table have as many rows as its mark says."""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from journal.cli.common import Chosen, JsonOption, YesOption, journal_command
from journal.cli.reading import opened_journal
from journal.cli.repairing import repair
from journal.disk.rocks import open_copy
from journal.errors import RowError
from journal.limits import ID_MAX
from journal.topics.names import table_topic
from journal.upkeep.table_repair import TableRepair, TableRepairer
from journal.wire.keys import record_key, row_type
from journal.words import called

_SHOWN_KEYS = 20


def _key(text: str) -> bytes:
    try:
        key = bytes.fromhex(text)
        row_type(key)
    except (ValueError, RowError) as error:
        raise typer.BadParameter(f"{text} is not a key in hex, as verify names them", param_hint="--row") from error
    return key


@journal_command
def table(
    chosen: Chosen,
    shard: Annotated[int, typer.Argument(min=0, help="The shard whose number of rows differs from its mark.")],
    record: Annotated[
        list[int] | None,
        typer.Option(
            metavar="ID", min=1, max=ID_MAX, help="Delete this record, which no worker wrote, with its updates."
        ),
    ] = None,
    row: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Delete the row with this key (in hex), which no worker wrote."),
    ] = None,
    recount: Annotated[
        bool, typer.Option("--recount", help="Make the mark count the rows that are left. Missing rows stay lost.")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete rows that no worker wrote from a shard's table. This is refused while a worker has the shard.

    Rows after the last mark, and rows of another shard, are found without being named. The remaining rows must be as
    many as the mark says.
    """
    settings = chosen.settings()
    keys = [*map(record_key, record or ()), *map(_key, row or ())]
    with (
        opened_journal(settings) as (kafka, rows),
        tempfile.TemporaryDirectory(prefix="kafka-journal-") as directory,
        closing(open_copy(Path(directory) / "table")) as store,
    ):
        identity = rows.require_identity(settings.journal)
        if shard >= identity.shards:
            last = identity.shards - 1
            raise typer.BadParameter(f"{called(settings.journal)} has shards 0 to {last}", param_hint="SHARD")
        repairer = TableRepairer(
            kafka,
            settings.journal,
            identity,
            shard,
            store,
            clock=time.monotonic,
            timeout_s=settings.request_timeout_ms / 1000,
            delete=keys,
            recount=recount,
        )
        place = f"{table_topic(settings.journal)}[{shard}]"

        def written(planned: TableRepair) -> str:
            return f"{place} has {planned.numbers}, as its mark says"

        repair(repairer, f"what is to be written to {place}", _facts, written, yes=yes, as_json=as_json)


def _facts(planned: TableRepair) -> dict[str, object]:
    gone = [key.hex() for key, value in planned.changes.items() if value is None]
    restored = [key.hex() for key, value in planned.changes.items() if value is not None]
    return {
        "mark": planned.found.mark.offset,
        "deleted": _named(gone),
        "as_before": _named(restored),
        "rows": str(planned.numbers),
        "mark_said": str(planned.said),
    }


def _named(keys: list[str]) -> str:
    more = f" and {len(keys) - _SHOWN_KEYS:,} more" if len(keys) > _SHOWN_KEYS else ""
    return ", ".join(keys[:_SHOWN_KEYS]) + more or "none"
