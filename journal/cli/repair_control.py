"""`kafka-journal repair control`: the journal's identity and epoch written anew, as its WAL and tables have them."""

from __future__ import annotations

import time
from typing import Annotated
from uuid import UUID

import typer

from journal.cli.common import (
    Chosen,
    JsonOption,
    YesOption,
    confirm,
    errors,
    journal_command,
    print_facts,
    print_json,
    print_line,
    shown_if_long,
)
from journal.cli.text import printable
from journal.kafka.clients import kafka_of
from journal.process.clocks import wall_ms
from journal.topics.names import control_topic
from journal.upkeep.control_repair import ControlRepair, ControlRepairer


@journal_command
def control(
    chosen: Chosen,
    uuid: Annotated[
        UUID | None, typer.Option(help="The journal's, as `init` printed it, if no frame is left that says it.")
    ] = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write identity and epoch anew, as WAL and tables have them, where the control rows have lost them.

    Rows that an activation needs and nobody can read are lost: what they said is not kept.
    Whoever is active is fenced; the next activation takes the epoch behind the one that is written.
    """
    settings = chosen.settings()
    repairer = ControlRepairer(
        kafka_of(settings), settings, clock=time.monotonic, wall_ms=wall_ms, uuid=uuid.bytes if uuid else b""
    )
    with shown_if_long("Kafka"):
        planned = repairer.plan()
    facts = _facts(planned)
    if not as_json or not yes:
        print_facts(f"what {control_topic(settings.journal)} is to say", facts, to=errors)
    confirm("write it?", yes=yes)
    with shown_if_long("Kafka"):
        repairer.write(planned)
    if as_json:
        print_json(facts | {"repaired": True})
    else:
        print_line(f"{control_topic(settings.journal)} says epoch {planned.epoch}; the next activation is behind it")


def _facts(planned: ControlRepair) -> dict[str, object]:
    identity, found = planned.identity, planned.found.identity
    return {
        "journal": identity.name,
        "uuid": str(UUID(bytes=identity.journal)),
        "shards": identity.shards,
        "epoch": planned.epoch,
        "uuid_found": "none" if found is None else str(UUID(bytes=found.journal)),
        "epoch_found": planned.found.epoch.epoch,
        "unreadable": "; ".join(f"{printable(key)}: {error}" for key, error in planned.found.unreadable.items())
        or "none",
    }
