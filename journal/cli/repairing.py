"""How the commands of `repair` work: they show the changes, ask, and only then write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from journal.cli.common import confirm, errors, print_json, print_line, shown_if_long
from journal.cli.standard_streams import note_done
from journal.cli.tables import print_facts

_Plan = TypeVar("_Plan")


class Repairer(Protocol[_Plan]):
    """A repair. `plan` only reads; `write` makes the changes to which the operator agreed."""

    def plan(self) -> _Plan: ...

    def write(self, agreed: _Plan, /) -> None: ...


def repair(
    repairer: Repairer[_Plan],
    title: str,
    facts_of: Callable[[_Plan], Mapping[str, object]],
    written: Callable[[_Plan], str],
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Carry out a repair, unless the operator says no. `written` is printed at the end."""
    with shown_if_long("Kafka"):
        planned = repairer.plan()
    facts = facts_of(planned)
    if not as_json or not yes:
        print_facts(title, facts, to=errors)
    confirm("write it?", yes=yes)
    with shown_if_long("Kafka"):
        repairer.write(planned)
    note_done(written(planned))
    if as_json:
        print_json({**facts, "repaired": True})
    else:
        print_line(written(planned))
