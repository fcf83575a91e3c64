"""`trim` on a real Kafka: what it deletes, what it leaves alone, and that everything that reads the WAL goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from journal.config import Settings
from journal.errors import CountError, LocalDamageError
from journal.journal import BlockingJournal
from journal.kafka.clients import kafka_of
from journal.kafka.ports import Sent
from journal.topics.control_keys import archive_key, control_row
from journal.topics.made_and_checked import open_journal
from journal.topics.names import table_topic, wal_topic
from journal.v1.journal_pb2 import ADD, Archive, Position, Record
from journal.wire.keys import record_key
from tests.support.in_process import Collected, made_journal, running_worker
from tests.support.processes.command import command_env, run_command

pytestmark = pytest.mark.kafka

SHARDS = 2


class Trimmed:
    """A journal, its commands, and what its nodes append."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._env = command_env(settings.bootstrap_servers, settings.journal, settings.directory / "commands")

    def command(self, *arguments: str, code: int = 0) -> str:
        """What it prints, or says when it is to fail."""
        ended = run_command(*arguments, env=self._env)
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout if code == 0 else " ".join(ended.stderr.split())

    def json(self, *arguments: str) -> Any:
        return json.loads(self.command(*arguments, "--json"))

    def starts(self) -> list[int]:
        return [shard["wal_start"] for shard in self.json("status")["shards"]]

    def dump(self) -> list[Any]:
        lines = [json.loads(line) for line in self.command("dump", "--now").splitlines()]
        return sorted(lines, key=lambda line: (line["type"], line.get("id", line.get("tx"))))

    def epoch(self, *ids: int, delete: tuple[int, ...] = ()) -> dict[int, tuple[int, bytes]]:
        """One activation that adds and deletes records; what it loaded."""
        loaded = Collected()
        with BlockingJournal(self.settings) as journal:
            journal.activate(loaded)
            for record_id in ids:
                journal.add(record_id, 1, b"%d" % record_id)
                journal.update(record_id, 2, b"update")
            for record_id in delete:
                journal.delete(record_id)
            journal.flush().wait()
        return loaded.records


@pytest.fixture
def journal(bootstrap: str, tmp_path: Path) -> Iterator[Trimmed]:
    """With two epochs in its WAL, and no worker."""
    made = Trimmed(made_journal(bootstrap, tmp_path, shards=SHARDS))
    with running_worker(made.settings):
        made.epoch(1, 2, 3, 4, 5)
        made.epoch(6, 7, delete=(1, 2))
        yield made


def test_what_is_trimmed_is_gone_and_everything_goes_on(journal: Trimmed, tmp_path: Path) -> None:
    before = journal.dump()
    whole = journal.json("verify")
    assert (whole["agrees"], [shard["base"] for shard in whole["shards"]]) == (True, ["", ""])
    dry = journal.json("trim", "--without-archive", "--dry-run")
    assert not dry["deleted"]
    assert [(shard["wal_start"], shard["trimmed"]) for shard in journal.json("status")["shards"]] == [(0, None)] * 2
    done = journal.json("trim", "--without-archive", "--yes")
    assert [shard["offset"] for shard in done["shards"]] == [shard["offset"] for shard in dry["shards"]]
    assert {shard["held_by"] for shard in done["shards"]} == {"the last transaction"}
    assert journal.starts() == [shard["offset"] for shard in done["shards"]]
    assert all(start > 0 for start in journal.starts())
    told = [shard["trimmed"] for shard in journal.json("status")["shards"]]
    assert [(trim["offset"], trim["archived"]) for trim in told] == [(start, False) for start in journal.starts()]
    assert "no archive has what was deleted" in journal.command("status")
    assert journal.dump() == before
    report = journal.json("verify")
    assert (report["agrees"], report["complete"]) == (True, True)
    assert all(shard["base"].startswith("checked from offset ") for shard in report["shards"])
    assert not journal.json("trim", "--without-archive", "--yes")["deleted"]

    # a node activates, and a worker and copies that have nothing yet come up
    assert set(journal.epoch(8, delete=(3, 4))) == {3, 4, 5, 6, 7}
    assert "cannot check: what the " in journal.command("verify")
    fresh = journal.settings.model_copy(update={"directory": tmp_path / "fresh"})
    assert set(Trimmed(fresh).epoch(9)) == {5, 6, 7, 8}
    again = journal.json("trim", "--without-archive", "--yes")
    assert again["deleted"]
    assert journal.json("verify")["complete"]


def test_a_worker_starts_anew_on_a_trimmed_journal(bootstrap: str, tmp_path: Path) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=SHARDS)
    journal = Trimmed(settings)
    with running_worker(settings):
        journal.epoch(1, 2, 3)
        journal.epoch(4)
    journal.command("trim", "--without-archive", "--yes")
    with running_worker(settings.model_copy(update={"directory": tmp_path / "another machine"})):
        assert set(journal.epoch(5, delete=(1, 4))) == {1, 2, 3, 4}
        assert set(journal.epoch()) == {2, 3, 5}
    assert journal.json("verify")["agrees"]


def test_bodies_of_the_active_node_are_still_read_from_the_wal(bootstrap: str, tmp_path: Path) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=1)
    trimmed = Trimmed(settings)
    with ExitStack() as worker:
        worker.enter_context(running_worker(settings))
        trimmed.epoch(1, 2)
        with BlockingJournal(settings) as journal:
            journal.activate()
            worker.close()
            completion = journal.add(3, 1, b"not in any table")
            completion.wait()
            assert trimmed.json("trim", "--without-archive", "--yes")["deleted"]
            assert journal.read_at(3, completion.offsets[0], 30.0) == b"not in any table"
            journal.add(4, 1, b"goes on").wait()


def test_a_transaction_in_doubt_holds_the_wal_until_it_is_settled(bootstrap: str, tmp_path: Path) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=1)
    trimmed = Trimmed(settings)
    with running_worker(settings):
        with BlockingJournal(settings) as journal:
            journal.activate()
            journal.add(1, 1, b"before").wait()
            tx = journal.begin()
            journal.add(2, 1, b"in doubt", tx=tx)
            journal.prepare(tx, b"xid").wait()
        trimmed.epoch(3)
        trimmed.epoch(4)
        held = trimmed.json("trim", "--without-archive", "--yes")["shards"][0]
        assert held["held_by"] == f"transaction {tx}, which is not settled"
        assert trimmed.json("verify")["complete"]
        with BlockingJournal(settings) as journal:
            journal.activate()
            journal.commit(tx).wait()
        assert trimmed.json("verify")["agrees"]
        free = trimmed.json("trim", "--without-archive", "--yes")["shards"][0]
        assert free["offset"] > held["offset"]
        assert trimmed.json("verify")["complete"]
        assert set(trimmed.epoch()) == {1, 2, 3, 4}


def test_a_trim_without_an_archive_has_to_be_asked_for_and_one_with_an_archive_keeps_to_its_mark(
    journal: Trimmed,
) -> None:
    assert "has no archive" in journal.command("trim", "--yes", code=1)
    assert journal.starts() == [0, 0]
    settings = journal.settings
    kafka = kafka_of(settings)
    rows = open_journal(kafka, settings, clock=time.monotonic, timeout_s=30.0)
    uuid = rows.require_identity(settings.journal).journal
    # only the first shard has an archive's mark: the other is not archived at all yet
    row = Archive(journal=uuid, shard=0, offset=1, archive=bytes(16), path="/a")
    producer = kafka.plain_producer()
    producer.send([control_row(settings.journal, archive_key(0), row)], 30.0)
    producer.close()
    assert "is archived to /a" in journal.command("trim", "--without-archive", "--yes", code=1)
    done = journal.json("trim", "--yes")
    assert [(shard["offset"], shard["held_by"]) for shard in done["shards"]] == [
        (1, "the archive at /a"),
        (0, "the archive"),
    ]
    assert journal.starts() == [1, 0]
    assert "an archive has what was deleted" in journal.json("verify")["shards"][0]["base"]


def test_what_somebody_else_deleted_is_found_and_not_certified_by_a_trim(journal: Trimmed) -> None:
    journal.epoch(8)
    cluster = kafka_of(journal.settings).cluster()
    cluster.delete_records(wal_topic(journal.settings.journal), {0: 1}, 30.0)
    cluster.close()
    journal.command("verify", code=1)
    assert "could not be compared" in journal.command("trim", "--without-archive", "--yes", code=1)
    assert journal.starts() == [1, 0]


def test_tables_that_differ_from_the_wal_keep_it(journal: Trimmed) -> None:
    record = Record(type=ADD, id=1024, kind=1, data=b"planted", position=Position())
    kafka = kafka_of(journal.settings)
    producer = kafka.plain_producer()
    topic = table_topic(journal.settings.journal)
    producer.send([Sent(topic, 0, record_key(1024), record.SerializeToString())], 30.0)
    producer.close()
    with pytest.raises(LocalDamageError, match="built anew when it is used again"):
        journal.epoch(10)
    with pytest.raises(CountError, match=r"shard 0 has 3 records, .* says 2 records"):
        journal.epoch(10)
    assert "differ from the WAL" in journal.command("trim", "--without-archive", "--yes", code=1)
    assert journal.starts() == [0, 0]
