"""`kafka-journal destroy` deletes a journal for good: its topics, its groups, and what this machine keeps of it."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from journal.cli.common import (
    Chosen,
    JsonOption,
    YesOption,
    confirm_by_name,
    journal_command,
    operator,
    print_json,
    print_note,
    shown_if_long,
)
from journal.cli.first_contact import first_contact
from journal.cli.reading import copies_directory
from journal.cli.standard_streams import note_done
from journal.cli.tables import print_facts
from journal.config import Settings
from journal.errors import ActiveNodeError, ConfigError, LocalStorageError, NoJournalError
from journal.kafka.clients import kafka_of
from journal.process.clocks import wall_ms
from journal.topics.control_rows import ControlRows
from journal.topics.names import wal_topic
from journal.upkeep.destroying import Destroyer, Destruction
from loaders.node.liveness import is_writing, last_active


@journal_command
def destroy(
    chosen: Chosen,
    name: Annotated[str, typer.Argument(help="The journal's name.")],
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete a journal for good: its topics, its consumer groups, and the local copies of this machine.

    It is refused while a node or worker is there. If it is interrupted, run it again: until then every other command
    refuses the journal.
    """
    if chosen.journal is not None:
        raise ConfigError("destroy takes the journal's name as its argument, and no -j")
    settings = replace(chosen, journal=name).settings()
    destroyer = Destroyer(
        kafka_of(settings),
        settings,
        operator=operator(),
        nonce=os.urandom(16),
        clock=time.monotonic,
        wall_ms=wall_ms,
    )
    with first_contact(settings):
        found = destroyer.plan()
    _require_silence(settings, found)
    local = [each for each in (settings.journal_directory, copies_directory() / settings.journal) if each.exists()]
    if not (found.topics or found.groups or local):
        raise NoJournalError(f"there is no journal {settings.journal}: nothing of it is in Kafka, or on this machine")
    if not yes:
        for what in (*found.topics, *found.groups, *local):
            print_note(f"is to be deleted: {what}")
    confirm_by_name(f"Type {settings.journal} to delete all of it", settings.journal, yes=yes)
    with shown_if_long("destroy"):
        destroyer.delete(found, lambda: _delete_local(local))
    deleted = {
        "topics": list(found.topics),
        "groups": list(found.groups),
        "directories": [str(directory) for directory in local],
    }
    remains = what_remains(settings, found)
    note_done(f"journal {settings.journal} is deleted")
    if as_json:
        print_json({"journal": settings.journal, "deleted": deleted, "remains": remains})
        return
    print_facts(f"deleted of journal {settings.journal}", {what: ", ".join(each) for what, each in deleted.items()})
    for line in remains:
        print_note(f"remains: {line}")


def _require_silence(settings: Settings, found: Destruction) -> None:
    """Raises ActiveNodeError if the WAL grows, as it does while a broker has the journal that is a member of no
    group."""
    last, topic = last_active(found.rows), wal_topic(settings.journal)
    if last is None or last.released or found.rows.destroyed or not found.rows.identity or topic not in found.topics:
        return
    with shown_if_long("other nodes"):
        grows = is_writing(
            kafka_of(settings),
            settings.journal,
            found.rows.identity.shards,
            clock=time.monotonic,
            pause=time.sleep,
            watch_s=last.silence_s(settings.fence_check_ms / 1000),
        )
    if grows:
        raise ActiveNodeError(
            f"node {last.node} is active in epoch {last.epoch} of journal {settings.journal}: stop it"
        )


def _delete_local(directories: Sequence[Path]) -> None:
    for directory in directories:
        try:
            shutil.rmtree(directory)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise LocalStorageError(f"{directory} cannot be deleted: {error}; mend that, and call again") from error


def what_remains(settings: Settings, found: Destruction) -> list[str]:
    """Names of things that stay: they are no part of the journal, or are on other machines."""
    rows = found.rows
    hosts = {node.status.host for node in rows.nodes.values()} - {socket.gethostname(), ""}
    return [
        *(f"the archive at {path}" for path in sorted({archive.path for archive in rows.archives.values()})),
        *(f"the local copies on {host}" for host in sorted(hosts)),
        *_topics_of_others(settings, rows),
        "tables and analytics that Spark has written, and copies of nodes and workers elsewhere, if there are any",
    ]


def _topics_of_others(settings: Settings, rows: ControlRows) -> list[str]:
    """The topics of routes, as the settings name them, and of sources, as the control rows do."""
    routing = settings.routing
    letters = {each.dead_letter_topic for each in routing.routes} | {each.dead_letter_topic for each in routing.sources}
    letters.add(routing.dead_letter_topic)
    targets = {target.topic for route in routing.routes for target in route.targets} | letters - {""}
    topics = sorted(targets) or (["those in the routes' settings, which this command has not"] if rows.routes else [])
    taken = sorted({topic for source in rows.source_topics.values() if source is not None for topic in source.ids})
    return [
        *(f"topic of a route: {topic}" for topic in topics),
        *(f"topic of a source: {topic}" for topic in taken),
    ]
