"""`kafka-journal repair control` writes the journal's identity and epoch anew, from its WAL and tables."""

from __future__ import annotations

import time
from typing import Annotated
from uuid import UUID

import typer

from journal.cli.common import Chosen, JsonOption, YesOption, journal_command
from journal.cli.first_contact import require_listening
from journal.cli.repairing import repair
from journal.cli.text import printable
from journal.kafka.clients import kafka_of
from journal.process.clocks import wall_ms
from journal.topics.names import control_topic
from journal.upkeep.control_repair import ControlRepair, ControlRepairer


@journal_command
def control(
    chosen: Chosen,
    uuid: Annotated[
        UUID | None, typer.Option(help="The uuid that `init` printed, if no frame is left that has it.")
    ] = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write the journal's identity and epoch anew, from WAL and tables, if the control rows have lost them.

    Unreadable rows that an activation needs are replaced, and what they said is lost. The active node is fenced; the
    next activation takes the epoch after the one that is written.
    """
    settings = chosen.settings()
    require_listening(settings)
    repairer = ControlRepairer(
        kafka_of(settings), settings, clock=time.monotonic, wall_ms=wall_ms, uuid=uuid.bytes if uuid else b""
    )
    topic = control_topic(settings.journal)

    def written(planned: ControlRepair) -> str:
        return f"{topic} says epoch {planned.epoch}; the next activation is behind it"

    repair(repairer, f"what {topic} is to say", _facts, written, yes=yes, as_json=as_json)


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
