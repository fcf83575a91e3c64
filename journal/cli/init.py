"""`kafka-journal init` creates and checks a journal's topics and control rows."""

from __future__ import annotations

import time
import uuid
from typing import Annotated

import typer

from journal.cli.common import Chosen, JsonOption, journal_command, print_json, print_line
from journal.cli.first_contact import first_contact
from journal.cli.standard_streams import note_done
from journal.cli.tables import print_facts
from journal.cli.topic_formats import TopicFormat, described
from journal.config import Settings
from journal.errors import ConfigError, TopicError
from journal.kafka.clients import kafka_of
from journal.process.clocks import wall_ms
from journal.topics.control_rows import ControlRows
from journal.topics.made_and_checked import init_journal
from journal.topics.required_topics import required_topics
from journal.words import called

ShardsOption = Annotated[
    int | None,
    typer.Option(help="Number of WAL partitions, final once something is written.", show_default="8"),
]


@journal_command
def init(
    chosen: Chosen,
    shards: ShardsOption = None,
    replication: Annotated[int | None, typer.Option(help="Number of replicas of each topic.", show_default="1")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the topics that a journal needs, and ask no Kafka.")
    ] = False,
    form: Annotated[
        TopicFormat | None,
        typer.Option("--format", help="How --dry-run prints the topics.", show_default=TopicFormat.KAFKA_TOPICS.value),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create and check the journal's topics and control rows. Run again, it creates what is missing and checks the
    rest."""
    settings = chosen.settings(shards=shards, replication=replication)
    if form is not None and not dry_run:
        raise ConfigError("--format is for --dry-run: give that too")
    if dry_run:
        form = form or (TopicFormat.JSON if as_json else TopicFormat.KAFKA_TOPICS)
        for line in described(settings, required_topics(settings, settings.shards), form):
            print_line(line)
        return
    try:
        rows = made_journal(settings, shards)
    except TopicError as error:
        if as_json and error.faults:
            print_json({"faults": error.faults})
        raise
    identity = rows.require_identity(settings.journal)
    facts = {
        "journal": identity.name,
        "uuid": str(uuid.UUID(bytes=identity.journal)),
        "shards": identity.shards,
        "epoch": rows.epoch.epoch,
    }
    note_done(f"{called(settings.journal)} is made or checked")
    if as_json:
        print_json(facts)
    else:
        print_facts(called(settings.journal), facts)


def made_journal(settings: Settings, shards: int | None) -> ControlRows:
    """The control rows of a journal, once what was missing is created. Raises ConfigError if the journal has another
    number of shards than the requested one."""
    with first_contact(settings):
        rows = init_journal(
            kafka_of(settings),
            settings,
            lambda: uuid.uuid4().bytes,
            clock=time.monotonic,
            wall_ms=wall_ms,
            timeout_s=settings.request_timeout_ms / 1000,
            change_shards=shards is not None,
        )
    identity = rows.require_identity(settings.journal)
    if shards is not None and shards != identity.shards:
        raise ConfigError(
            f"{called(identity.name)} has {identity.shards} shards, and that never changes once it has been written to"
        )
    return rows
