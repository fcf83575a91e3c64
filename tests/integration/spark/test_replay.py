"""An archive replayed into a new journal is the source's state, as a whole or in part, and everything of it once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from journal.cli.activating import activated_journal
from journal.cli.main import app
from journal.cli.spark_replay import source_of
from journal.config import Settings
from journal.errors import ArchiveError, CorruptionError
from journal.journal import BlockingJournal
from journal.runtime import no_progress
from journal.v1.journal_pb2 import PREPARE
from journal.v1.store_pb2 import Queue, RecordKind, UpdateKind
from loaders.replay import Replaying, ReplayResult
from loaders.replay_state import ReplayTarget, Selected
from loaders.spark.archive import archive
from loaders.spark.replaying import Filter, Selection, open_archive
from tests.support.in_process import Collected, made_journal, running_worker
from tests.support.spark_history import PLAIN, History, message_of, plain_id, wal_of
from tests.support.store_node import start

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]

TARGET_SHARDS = 5
KILLED = -signal.SIGKILL
JOB_TIMEOUT_S = 300.0
APPENDS_BEFORE_DEATH = 4


@pytest.fixture(scope="module")
def archived(spark: SparkSession, history: History, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The history's archive, which nothing writes to any more."""
    path = str(tmp_path_factory.mktemp("replayed") / "archive")
    archive(spark, history.source, path, once=True, replace_other=True)
    return path


@pytest.fixture
def target(bootstrap: str, tmp_path: Path) -> Settings:
    """A new journal of another number of shards."""
    return made_journal(bootstrap, tmp_path, shards=TARGET_SHARDS)


def selected(spark: SparkSession, path: str, filter_: Filter) -> Selection:
    return Selection(spark, path, open_archive(spark, path), filter_)


def replayed(
    spark: SparkSession, path: str, target: Settings, filter_: Filter, *, remapped: bool = False
) -> ReplayResult:
    selection, loader = selected(spark, path, filter_), ReplayTarget()
    with activated_journal(target, take_over=True, progress=no_progress, loader=loader) as (journal, _):
        of = source_of(selection, path, filter_, remapped=remapped)
        replaying = Replaying(journal, target.limits, of, loader, operator="me", now_ms=lambda: 0.0)
        reached, kept = replaying.progress.reached, frozenset(replaying.progress.kept)
        rows = selection.operations(reached, kept).toLocalIterator()
        return replaying.run(Selected(*row) for row in rows)


def loaded(settings: Settings) -> Collected:
    """What the next activation is told, without what tells of replays."""
    found = Collected()
    with activated_journal(settings, take_over=True, progress=no_progress, loader=found):
        for record_id, (kind, _) in list(found.records.items()):
            if kind == RecordKind.REPLAY:
                del found.records[record_id], found.updates[record_id]
    return found


def staged(of: Collected) -> Mapping[int, tuple[bytes, set[bytes]]]:
    """What is in doubt, in whatever shards its operations are."""
    return {
        tx: (data, {operation.SerializeToString() for operation in operations})
        for tx, (data, operations) in of.in_doubt.items()
    }


def command(target: Settings, path: str, *options: str) -> Any:
    places = ["-j", target.journal, "-b", target.bootstrap_servers, "--from", path, "--take-over", "--json"]
    env = {"KAFKA_JOURNAL_DIRECTORY": str(target.directory)}
    result = CliRunner().invoke(app, ["spark", "replay", *places, *options], env=env)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_replayed_journal_is_the_source_and_a_second_run_adds_nothing(
    spark: SparkSession, history: History, archived: str, target: Settings
) -> None:
    with running_worker(target):
        counted = command(target, archived, "--dry-run")
        first = command(target, archived)
        second = command(target, archived)
        found = loaded(target)
        with BlockingJournal(target, copy_name="reader") as journal, start(journal) as store:
            bodies = []
            while (taken := store.take("orders/eu", "consumer")) is not None:
                bodies.append(taken.message)
    by_type = [row["operations"] for row in counted["counts"] if row["type"] != "PREPARE"]
    assert first["operations"] == sum(by_type) > 200
    assert (first["left_out"], first["in_doubt"]) == (0, [history.prepared[0]])
    assert (second["operations"], second["before"], second["in_doubt"]) == (
        0,
        first["operations"] - len(found.in_doubt[history.prepared[0]][1]),
        [],
    )
    assert found.records == history.loaded.records
    assert found.updates == history.loaded.updates
    assert staged(found) == staged(history.loaded)
    held = {history.held, history.prepared[2]}
    in_order = sorted(enumerate(history.waiting), key=lambda each: (-message_of(each[0]).priority, each[0]))
    assert bodies == [message for _, message in in_order if message not in held]


def test_a_journal_as_of_a_time_is_what_it_was(
    spark: SparkSession, history: History, archived: str, target: Settings
) -> None:
    """Before its second activation, which deleted three records."""
    records, frames = wal_of(history.settings)
    second = min(record.timestamp_ms for record, (*_, frame) in zip(records, frames, strict=True) if frame.epoch == 2)
    until = datetime.fromtimestamp((second - 1) / 1000, UTC)
    with running_worker(target):
        replayed(spark, archived, target, Filter(until=until))
        found = loaded(target)
    gone = {plain_id(1), plain_id(2), plain_id(50)}
    assert gone < set(found.records)
    assert {record_id: each for record_id, each in found.records.items() if record_id not in gone} == (
        history.loaded.records
    )
    assert staged(found) == staged(history.loaded)


def test_one_queue_comes_with_its_messages_and_none_of_the_others(
    spark: SparkSession, history: History, archived: str, target: Settings
) -> None:
    """With ids of the target's own. Of a transaction in doubt there is what concerns the queue and its address: what
    waits to be acknowledged, and the duplicate-detection id of the message that is another queue's."""
    with running_worker(target):
        result = replayed(spark, archived, target, Filter(queues=("orders/eu",)), remapped=True)
        found = loaded(target)
        with BlockingJournal(target, copy_name="reader") as journal, start(journal) as store:
            taken = []
            while (delivery := store.take("orders/eu", "consumer")) is not None:
                taken.append(store.message(delivery.message).body)
            (waiting,) = store.in_doubt()
    assert result.left_out == 0
    by_kind: dict[int, list[bytes]] = {}
    for kind, data in found.records.values():
        by_kind.setdefault(kind, []).append(data)
    assert set(by_kind) == {RecordKind.ADDRESS, RecordKind.QUEUE, RecordKind.MESSAGE}
    assert [Queue.FromString(data).name for data in by_kind[RecordKind.QUEUE]] == ["orders/eu"]
    assert len(by_kind[RecordKind.MESSAGE]) == len(history.waiting)
    ((_, operations),) = found.in_doubt.values()
    assert {operation.kind for operation in operations} == {UpdateKind.ACKNOWLEDGE, UpdateKind.DUPLICATE}
    assert waiting is not None
    held = {history.held, history.prepared[2]}
    in_order = sorted(enumerate(history.waiting), key=lambda each: (-message_of(each[0]).priority, each[0]))
    assert taken == [message_of(number).body for number, message in in_order if message not in held]


def test_filters_leave_what_they_say(spark: SparkSession, history: History, archived: str) -> None:
    def ids_of(**filter_: Any) -> list[tuple[str, int]]:
        rows = selected(spark, archived, Filter(**filter_)).operations().where("not in_doubt").collect()
        return [(row["type"], row["id"]) for row in rows]

    only = ids_of(ids=(plain_id(61), plain_id(61)))
    assert only == [("ADD", plain_id(61))]
    assert sorted(ids_of(epochs=(2, 9))) == sorted(("DELETE", plain_id(number)) for number in (1, 2, 50))
    day = datetime(2000, 1, 1, tzinfo=UTC).date()
    assert ids_of(days=(day, day)) == []
    everything = ids_of()
    assert everything.count(("ADD", plain_id(1))) == 1
    of_address = ids_of(addresses=("orders",))
    assert set(of_address) == {each for each in everything if each[1] in {one[1] for one in of_address}}
    assert plain_id(61) not in {record_id for _, record_id in of_address}
    with pytest.raises(ArchiveError, match="no queue nowhere"):
        ids_of(queues=("nowhere",))
    with pytest.raises(CorruptionError, match=f"{history.settings.journal}.wal"):
        ids_of(skip=((0, 0),))  # the first marker


def test_a_transaction_that_was_replayed_in_doubt_is_not_replayed_again_by_its_settled_effect(
    spark: SparkSession, history: History, archived: str
) -> None:
    prepared: dict[int, int] = {}
    tx = 0
    for shard, offset, frame in wal_of(history.settings)[1]:
        for operation in frame.operations:
            if operation.type == PREPARE and operation.tx != history.prepared[0]:
                tx, prepared[shard] = operation.tx, offset
    assert set(prepared) == {0, 1, 2}
    ids = {plain_id(number) for number in range(61, 70)}
    selection = selected(spark, archived, Filter())

    def those(kept: tuple[int, ...]) -> set[int]:
        return {row["id"] for row in selection.operations(prepared, kept).collect()} & ids

    assert those(()) == ids
    assert those((tx,)) == set()


def test_killed_in_the_middle_and_run_again_nothing_comes_twice_or_comes_back(
    spark: SparkSession, history: History, archived: str, target: Settings
) -> None:
    with running_worker(target):
        code, said = killed_job(target, archived)
        assert code == KILLED, said
        there = sorted(record_id for record_id, (kind, _) in loaded(target).records.items() if kind == PLAIN)
        consumed = there[::2]
        with activated_journal(target, take_over=True, progress=no_progress) as (journal, _):
            for record_id in consumed:
                journal.delete(record_id)
            journal.flush().wait()
        result = replayed(spark, archived, target, Filter())
        found = loaded(target)
    assert consumed
    assert result.before > 0
    assert set(found.records) == set(history.loaded.records) - set(consumed)
    assert {record_id: each for record_id, each in history.loaded.updates.items() if record_id in found.records} == (
        found.updates
    )
    assert staged(found) == staged(history.loaded)


def killed_job(target: Settings, path: str) -> tuple[int, str]:
    """A replay that dies in the middle: its exit code, and what it said."""
    arguments = (target.bootstrap_servers, target.journal, str(target.directory), path, str(APPENDS_BEFORE_DEATH))
    job = subprocess.Popen(
        [sys.executable, "-m", "tests.support.replay_job", *arguments],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        _, said = job.communicate(timeout=JOB_TIMEOUT_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
    return job.returncode, said.decode(errors="replace")
