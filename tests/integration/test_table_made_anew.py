"""The table was deleted, made anew from the WAL, and grew beyond where a copy had read, behind its back: the copy's
next poll meets no error, for the offset that it goes on from is there, and holds something else."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from journal.config import Settings
from journal.journal import BlockingJournal
from journal.kafka.clients import kafka_of
from journal.process.clocks import wall_ms
from journal.topics.made_and_checked import init_journal
from journal.topics.names import table_topic
from tests.support.in_process import Collected, made_journal, running_worker
from tests.support.processes.child import Child, program
from tests.support.processes.command import command_env

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

DEADLINE_S = 60.0
AWAY_S = 6.0
"""A copy whose process was stopped for 5 s is compared with the table before anything else."""


class Standby(Child):
    """A `tests.support.children.standby`."""

    def __init__(self, settings: Settings, log: Path, *words: str) -> None:
        env = command_env(settings.bootstrap_servers, settings.journal, settings.directory)
        env |= {"KAFKA_JOURNAL_SHARDS": str(settings.shards)}
        super().__init__("the standby", program("standby", *words), log, env, listens=True)
        self.start()

    def activate(self) -> dict[str, Any]:
        """Its records once it is active, or the error that it met."""
        self.tell("activate")
        return self.wait_for("activated")


@pytest.fixture
def settings(bootstrap: str, tmp_path: Path) -> Settings:
    return made_journal(bootstrap, tmp_path, shards=1)


@pytest.fixture
def standby(settings: Settings, tmp_path: Path) -> Iterator[Standby]:
    with Standby(settings, tmp_path / "standby.log") as found:
        yield found


def table_end(settings: Settings) -> int:
    reader = kafka_of(settings).reader(table_topic(settings.journal))
    try:
        return reader.start_and_end(0, DEADLINE_S)[1]
    finally:
        reader.close()


def make_table_anew(settings: Settings) -> None:
    """Empty, with another id; the WAL has everything."""
    topic, admin = table_topic(settings.journal), AdminClient({"bootstrap.servers": settings.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(DEADLINE_S)
    until = time.monotonic() + DEADLINE_S
    while topic in admin.list_topics(timeout=DEADLINE_S).topics:
        assert time.monotonic() < until
        time.sleep(0.05)
    times = {"clock": time.monotonic, "wall_ms": wall_ms}
    init_journal(kafka_of(settings), settings, lambda: uuid.uuid4().bytes, timeout_s=DEADLINE_S, **times)


def append(journal: BlockingJournal, records: int) -> list[int]:
    """Adds of new records, each a group of its own."""
    ids = [journal.new_id(0) for _ in range(records)]
    for record_id in ids:
        journal.add(record_id, 45, b"%d" % record_id).wait(DEADLINE_S)
    return ids


def outlive_the_table(settings: Settings, standby: Standby, *, away_s: float) -> None:
    """The standby is stopped; the table is made anew, and grows beyond where its copy stands; the standby goes on."""
    end = table_end(settings)
    standby.pause()
    stopped_at = time.monotonic()
    make_table_anew(settings)
    with running_worker(settings), BlockingJournal(settings, copy_name="active") as active:
        active.activate()
        while table_end(settings) <= end or time.monotonic() < stopped_at + away_s:
            append(active, 50)
    standby.resume()


def appended_and_followed(settings: Settings, standby: Standby) -> None:
    with running_worker(settings), BlockingJournal(settings, copy_name="active") as active:
        active.activate()
        for record_id in append(active, 200)[::2]:
            active.delete(record_id).wait(DEADLINE_S)
        standby.wait_for("fit", fit=True)


def records_of(settings: Settings) -> dict[str, str]:
    """What a copy that never saw the old table has."""
    expected = Collected()
    with running_worker(settings), BlockingJournal(settings, copy_name="fresh") as journal:
        journal.activate(expected)
    return {str(each): record[1].hex() for each, record in expected.records.items()}


def test_a_standby_that_slept_through_the_tables_end_builds_its_copy_anew(settings: Settings, standby: Standby) -> None:
    appended_and_followed(settings, standby)
    outlive_the_table(settings, standby, away_s=AWAY_S)
    with running_worker(settings):
        found = standby.activate()
    assert found["records"] == records_of(settings)


def test_an_activation_on_a_copy_of_two_tables_is_refused_and_the_next_one_has_a_new_copy(
    settings: Settings, standby: Standby, tmp_path: Path
) -> None:
    """Nobody follows this copy, and it was compared with the table a moment before: nothing says that it was away."""
    appended_and_followed(settings, standby)
    standby.stop()
    with Standby(settings, tmp_path / "unfollowed.log", "unfollowed") as unfollowed:
        assert unfollowed.wait_for("fit")["fit"] is False
        outlive_the_table(settings, unfollowed, away_s=0.0)
        with running_worker(settings):
            refused = unfollowed.activate()
            found = unfollowed.activate()
    assert "was made anew" in refused["error"]
    assert found["records"] == records_of(settings)
