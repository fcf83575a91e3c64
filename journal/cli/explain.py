"""`kafka-journal explain ID`: what a record is, and why it is still there: its queues, holders and transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from journal.cli.common import Chosen, JsonOption, journal_command, print_facts, print_json
from journal.cli.explaining import Explaining
from journal.cli.store import loaded_queues
from journal.cli.text import duration, moment
from journal.errors import RecordMissingError
from journal.limits import ID_MAX
from journal.runtime import wall_ms
from journal.wire.ids import sequence_of


@journal_command
def explain(
    chosen: Chosen,
    record_id: Annotated[int, typer.Argument(metavar="ID", min=1, max=ID_MAX, help="A record's id: a message's, say.")],
    as_json: JsonOption = False,
) -> None:
    """Why a record is still there: its queues, holders and transactions.

    Of a message, or of anything else that has an id. Needs no worker and disturbs nobody.
    """
    settings = chosen.settings()
    with loaded_queues(settings) as (loaded, state, progress):
        issued = max(mark.issued for mark in state.marks.values())
        explaining = Explaining(record_id, loaded, state.base, len(state.marks), wall_ms(), progress)
        found = explaining.explanation()
    if found is None:
        raise RecordMissingError(_missing(record_id, issued, settings.journal))
    if as_json:
        print_json(
            {"id": found.id, "what": found.what, **found.facts}
            | {"references": found.references, "transactions": found.transactions, "why": found.why}
        )
        return
    print_facts(f"{found.what} {record_id} of journal {settings.journal}", _shown(found.facts))
    for line in found.why:
        typer.echo(line)


def _missing(record_id: int, issued: int, journal: str) -> str:
    if sequence_of(record_id) <= issued:
        why = "it was deleted (a message: acknowledged everywhere), or it never came to be"
    else:
        why = "the journal has not issued that id yet"
    return f"there is no record {record_id}: {why}; kafka-journal messages -j {journal} QUEUE shows ids that there are"


def _shown(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts for people: those that say something."""
    return {name.replace("_", " "): _words(name, value) for name, value in facts.items() if value}


def _words(name: str, value: object) -> object:
    if name in ("timestamp", "expires") and isinstance(value, int):
        return moment(value)
    if name.endswith("_seconds") and isinstance(value, float):
        return duration(value)
    if isinstance(value, dict):
        return ", ".join(f"{key}={each}" for key, each in value.items())
    return ", ".join(str(_words("", each)) for each in value) if isinstance(value, list) else value
