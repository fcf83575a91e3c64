"""The whole chain, as an operator runs it: archived, trimmed, archived on, checked, replayed into a new journal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from journal.cli.main import app
from journal.config import Settings
from journal.errors import GapError
from journal.journal import BlockingJournal
from journal.v1.store_pb2 import RecordKind
from loaders.spark.fold.fold import State, state_as_of
from loaders.spark.read.readers import read_wal
from loaders.spark.read.source import JournalSource
from tests.support.in_process import Collected, made_journal, running_worker
from tests.support.spark.history import PLAIN, plain_id, wal_of

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]

SHARDS = 2
LIMIT_S = 60.0


def epoch(settings: Settings, added: Sequence[int] = (), deleted: Sequence[int] = (), in_doubt: int = 0) -> Collected:
    """One activation that adds records with an update each, deletes some and leaves one more in doubt: what it found.

    Each record is a group of its own."""
    found = Collected()
    with BlockingJournal(settings) as journal:
        journal.activate(found)
        for number in added:
            journal.add(plain_id(number), PLAIN, b"%d" % number)
            journal.update(plain_id(number), PLAIN + 1, b"update", replaceable=True).wait(LIMIT_S)
        for number in deleted:
            journal.delete(plain_id(number)).wait(LIMIT_S)
        if in_doubt:
            tx = journal.begin()
            journal.add(plain_id(in_doubt), PLAIN, b"in doubt", tx=tx)
            journal.prepare(tx, b"xid").wait(LIMIT_S)
    return found


def run(settings: Settings, *arguments: str, code: int = 0) -> str:
    places = ("-b", settings.bootstrap_servers, "-j", settings.journal)
    env = {"KAFKA_JOURNAL_DIRECTORY": str(settings.directory)}
    ended = CliRunner().invoke(app, [*arguments, *places], env=env)
    assert ended.exit_code == code, ended.output
    return ended.stdout if code == 0 else " ".join(ended.output.split())


def told(settings: Settings, *arguments: str) -> Any:
    return json.loads(run(settings, *arguments, "--json"))


def check_state(state: State, expected: Collected) -> None:
    found = state.records.collect()
    assert {row["id"]: (row["kind"], bytes(row["data"])) for row in found} == expected.records
    updates = {
        row["id"]: [(one["kind"], bytes(one["data"]), one["subject"]) for one in row["updates"]]
        for row in found
        if row["updates"]
    }
    assert updates == expected.updates
    assert {row["tx"] for row in state.transactions.collect()} == set(expected.in_doubt)


def test_what_is_trimmed_behind_the_archive_s_mark_is_nowhere_missed(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    settings = made_journal(bootstrap, tmp_path / "source", shards=SHARDS)
    source, path = JournalSource.from_settings(settings), str(tmp_path / "archive")
    with running_worker(settings):
        epoch(settings, range(1, 20), range(1, 6))
        archived = told(settings, "spark", "archive", "--to", path, "--once")["offsets"]
        at_archive = epoch(settings, range(20, 40), range(6, 10))
        epoch(settings, in_doubt=40)
    before = wal_of(settings)[1]

    trimmed = told(settings, "trim", "--yes")
    assert trimmed["deleted"]
    assert [(shard["offset"], shard["held_by"]) for shard in trimmed["shards"]] == [
        (offset, f"the archive at {path}") for offset in archived
    ]
    with pytest.raises(GapError, match="has been trimmed"):
        read_wal(spark, source)
    on = told(settings, "spark", "archive", "--to", path, "--once")
    assert on["records"] > 0
    assert all(now > then for now, then in zip(on["offsets"], archived, strict=True))

    with running_worker(settings):
        at_end = epoch(settings, [41])
    left = wal_of(settings)[1]
    assert {(shard, offset) for shard, offset, _ in before} - {(shard, offset) for shard, offset, _ in left}
    frames = {(shard, offset): each.number for shard, offset, each in [*before, *left]}
    both = read_wal(spark, source, include_archive=path).frames.collect()
    assert sorted((row["shard"], row["offset"], row["number"]) for row in both) == sorted(
        (*place, number) for place, number in frames.items()
    )
    report = told(settings, "verify", "--with-spark", "--archive", path)
    assert (report["agrees"], report["complete"]) == (True, True)
    assert sum(shard["wal_records"] for shard in report["shards"]) == len(frames)
    assert [shard["base"] for shard in report["shards"]] == ["", ""]

    offsets = {shard: offset - 1 for shard, offset in enumerate(archived)}
    check_state(state_as_of(spark, source, offsets=offsets, archive=path), at_archive)
    last = min(row["appended"] for row in both if row["epoch"] == 4)
    then = datetime.fromtimestamp(last.timestamp() - 0.001, UTC)
    check_state(state_as_of(spark, source, time=then, archive=path), at_end)

    target = made_journal(bootstrap, tmp_path / "target", shards=SHARDS + 1)
    (tx,) = at_end.in_doubt
    refused = run(target, "spark", "replay", "--from", path, "--in-doubt", "refuse", code=1)
    assert f"transactions {tx} are in doubt" in refused
    with running_worker(target):
        told(target, "spark", "replay", "--from", path)
        found = epoch(target)
    replayed = {record_id: each for record_id, each in found.records.items() if each[0] != RecordKind.REPLAY}
    assert replayed == at_end.records
    assert {record_id: found.updates[record_id] for record_id in at_end.updates} == at_end.updates
    assert {each: data for each, (data, _) in found.in_doubt.items()} == {tx: b"xid"}
