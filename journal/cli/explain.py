"""`kafka-journal explain ID` shows what a record is and why it still exists: its queues, holders and transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from journal.cli.common import Chosen, JsonOption, journal_command, print_json, print_line
from journal.cli.places import NodeOption, looking
from journal.cli.tables import print_facts
from journal.cli.text import duration, moment
from journal.limits import ID_MAX
from journal.words import called

_BESIDE_FACTS = ("id", "what", "references", "transactions", "why")


@journal_command
def explain(
    chosen: Chosen,
    record_id: Annotated[
        int, typer.Argument(metavar="ID", min=1, max=ID_MAX, help="The id of a message or another record.")
    ],
    node: NodeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show why a record still exists: its queues, holders and transactions.

    The record is a message or anything else that has an id. It needs no worker and disturbs nobody.
    """
    settings = chosen.settings()
    with looking(settings, node) as looks:
        found = looks.explain(record_id)
    if as_json:
        print_json(found)
        return
    facts = {name: value for name, value in found.items() if name not in _BESIDE_FACTS}
    print_facts(f"{found['what']} {record_id} of {called(settings.journal)}", _shown(facts))
    for line in found["why"]:
        print_line(line)


def _shown(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts for people, without empty ones."""
    return {name.replace("_", " "): _words(name, value) for name, value in facts.items() if value}


def _words(name: str, value: object) -> object:
    if name in ("timestamp", "expires") and isinstance(value, int):
        return moment(value)
    if name.endswith("_seconds") and isinstance(value, float):
        return duration(value)
    if isinstance(value, dict):
        return ", ".join(f"{key}={each}" for key, each in value.items())
    return ", ".join(str(_words("", each)) for each in value) if isinstance(value, list) else value
