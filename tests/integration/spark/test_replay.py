"""An archive replayed into a new journal is the source's state, as a whole or in part, and everything of it once."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from journal.cli.activating import activated_journal
from journal.cli.main import app
from journal.cli.spark.replay import source_of
from journal.config import Settings
from journal.errors import ArchiveError, ConfigError, CorruptionError
from journal.journal import BlockingJournal
from journal.process.progress import no_progress
from journal.v1.journal_pb2 import Operation
from journal.v1.store_pb2 import Address, Message, Queue, RecordKind, UpdateKind
from loaders.replay import Replaying, ReplayResult
from loaders.replay_state import ReplayTarget, Selected
from loaders.spark.archive.archive import archive
from loaders.spark.replay.replaying import Filter, Selection, open_archive
from tests.support.build import add, commit, delete, frame, marker, prepare, rollback, update
from tests.support.children.store import start
from tests.support.in_process import Collected, made_journal, running_worker
from tests.support.processes.child import program
from tests.support.spark.archive import plant_archive
from tests.support.spark.history import PLAIN, History, message_of, plain_id, wal_of
from tests.support.spark.replay import write_replay

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]

TARGET_SHARDS = 5
KILLED = -signal.SIGKILL
JOB_TIMEOUT_S = 300.0
PLAIN_BEFORE_DEATH = 10
UNTIL_IN_DOUBT = 0


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


@pytest.fixture(scope="module")
def whole(spark: SparkSession, archived: str) -> Selection:
    """All of it."""
    return selected(spark, archived, Filter())


def replayed(
    selection: Selection, path: str, target: Settings, filter_: Filter, *, remapped: bool = False
) -> ReplayResult:
    loader = ReplayTarget()
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
                del found.records[record_id]
                found.updates.pop(record_id, None)  # a shard that it has not come to has none
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
        replayed(selected(spark, archived, Filter(until=until)), archived, target, Filter(until=until))
        found = loaded(target)
    gone = {plain_id(1), plain_id(2), plain_id(50)}
    assert gone < set(found.records)
    assert {record_id: each for record_id, each in found.records.items() if record_id not in gone} == (
        history.loaded.records
    )
    assert staged(found) == staged(history.loaded)


def test_one_queue_comes_with_its_messages_and_none_of_the_others(
    history: History, archived: str, whole: Selection, target: Settings
) -> None:
    """With ids of the target's own. Of a transaction in doubt there is what concerns the queue and its address: what
    waits to be acknowledged, and the duplicate-detection id of the message that is another queue's."""
    with running_worker(target):
        asked = Filter(queues=("orders/eu",))
        result = replayed(whole.with_filter(asked), archived, target, asked, remapped=True)
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


DAYS = [date(2023, 11, 14), date(2023, 11, 15), date(2023, 11, 16)]
QUEUE_A, QUEUE_B, MESSAGE_A, MESSAGE_B, IN_TX = 11, 13, 14, 15, 16
TX = 7
PREPARED_AT, SETTLED_AT = 4, 6
AT_A = [("ADD", 10), ("ADD", QUEUE_A), ("ADD", MESSAGE_A), ("UPDATE", MESSAGE_A)]
AT_B = [("ADD", 12), ("ADD", QUEUE_B), ("ADD", MESSAGE_B), ("UPDATE", MESSAGE_B)]
OF_TX = [("ADD", IN_TX), ("UPDATE", IN_TX)]
CONSUMED = [("UPDATE", IN_TX), ("DELETE", IN_TX)]


@pytest.fixture(scope="module")
def planted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two addresses with a queue and a message each; on the second day a transaction sends one more to A, and is
    prepared; on the third, in the next epoch, it is committed, and what it sent is consumed. A third address is added
    by a transaction that is rolled back."""
    first, second, third = (int(datetime.combine(day, time(), UTC).timestamp() * 1000) for day in DAYS)

    def message(id: int, address: str, queue: int, tx: int = 0) -> list[Operation]:
        data = Message(address=address).SerializeToString()
        route = update(id, kind=UpdateKind.ROUTE, subject=queue, replaceable=True, tx=tx)
        return [add(id, data, kind=RecordKind.MESSAGE, tx=tx), route]

    def place(name: str, id: int, tx: int = 0) -> list[Operation]:
        queue = Queue(name=f"queue {name}", address=name).SerializeToString()
        address = Address(name=name).SerializeToString()
        return [add(id, address, kind=RecordKind.ADDRESS, tx=tx), add(id + 1, queue, kind=RecordKind.QUEUE, tx=tx)]

    acknowledged = update(IN_TX, kind=UpdateKind.ACKNOWLEDGE, subject=QUEUE_A)
    frames = [
        (first, frame(1, marker())),
        (first, frame(2, *place("A", 10), *place("B", 12))),
        (second - 1, frame(3, *message(MESSAGE_A, "A", QUEUE_A), *message(MESSAGE_B, "B", QUEUE_B))),
        (second, frame(4, *message(IN_TX, "A", QUEUE_A, TX))),
        (second, frame(5, prepare(TX, 2, b"xid"))),
        (third, frame(6, marker(), epoch=2)),
        (third, frame(7, commit(TX, 2), epoch=2)),
        (third, frame(8, acknowledged, epoch=2)),
        (third, frame(9, delete(IN_TX), epoch=2)),
        (third, frame(10, *place("C", 17, TX + 1), rollback(TX + 1, 2), epoch=2)),
    ]
    path = str(tmp_path_factory.mktemp("planted") / "archive")
    plant_archive(spark, path, frames)
    return path


@pytest.fixture(scope="module")
def small(spark: SparkSession, planted: str) -> Selection:
    """All of it."""
    return selected(spark, planted, Filter())


def test_filters_leave_what_they_say(spark: SparkSession, planted: str, small: Selection) -> None:
    def ids_of(**filter_: Any) -> list[tuple[str, int]]:
        rows = small.with_filter(Filter(**filter_)).operations().collect()
        return [(row["type"], row["id"]) for row in rows]

    # within a group in the order of the WAL
    everything = [*AT_A[:2], *AT_B[:2], *AT_A[2:], *AT_B[2:], *OF_TX, *CONSUMED]
    assert ids_of() == everything
    assert ids_of(ids=(QUEUE_B, MESSAGE_A)) == [("ADD", QUEUE_B), *AT_A[2:]]
    assert ids_of(epochs=(2, 9)) == [*OF_TX, *CONSUMED]
    assert ids_of(days=(DAYS[0], DAYS[0])) == everything[:8]
    assert ids_of(days=(DAYS[1], DAYS[1])) == [], "what was prepared then took effect on the next day"
    assert ids_of(days=(DAYS[1], DAYS[2])) == [*OF_TX, *CONSUMED]
    assert ids_of(addresses=("A",)) == [*AT_A, *OF_TX, *CONSUMED]
    assert ids_of(addresses=("B",)) == AT_B
    assert ids_of(addresses=("B",), days=(DAYS[2], DAYS[2])) == []
    with pytest.raises(ArchiveError, match="no queue nowhere"):
        ids_of(queues=("nowhere",))
    with pytest.raises(ArchiveError, match="no address C, nowhere"):
        ids_of(addresses=("A", "C", "nowhere"))
    with pytest.raises(ArchiveError, match="no queue queue C"):
        ids_of(queues=("queue C",))
    with pytest.raises(CorruptionError, match=r"planted\.wal"):
        selected(spark, planted, Filter(skip=((0, 0),)))  # the first marker
    with pytest.raises(ConfigError, match="make another one"):
        ids_of(until=datetime(2000, 1, 1, tzinfo=UTC))


def test_a_transaction_that_was_replayed_in_doubt_is_replayed_only_with_what_came_later(small: Selection) -> None:
    """Its settled effect is not: it was settled in the target. What was done since to what it added is."""

    def behind(offset: int, kept: tuple[int, ...]) -> list[tuple[str, int]]:
        return [(row["type"], row["id"]) for row in small.operations({0: offset}, kept).collect()]

    assert behind(PREPARED_AT, ()) == [*OF_TX, *CONSUMED]
    assert behind(PREPARED_AT, (TX,)) == CONSUMED
    assert behind(SETTLED_AT, ()) == CONSUMED
    # another one of that number, which was not prepared yet
    assert behind(PREPARED_AT - 1, (TX,)) == [*OF_TX, *CONSUMED]


def test_killed_in_the_middle_and_run_again_nothing_comes_twice_or_comes_back(
    history: History, archived: str, whole: Selection, target: Settings, tmp_path: Path
) -> None:
    """Killed in the middle, again as soon as a transaction is in doubt, and whatever was consumed or settled then."""
    of = source_of(whole, archived, Filter(), remapped=False)
    operations = [Selected(*row) for row in whole.operations().collect()]
    write_replay(tmp_path / "replay", of, operations)
    plain = [place for place, each in enumerate(operations, 1) if (each.type, each.kind) == ("ADD", PLAIN)]
    with running_worker(target):
        code, said = killed_job(target, tmp_path / "replay", plain[PLAIN_BEFORE_DEATH])
        assert code == KILLED, said
        there = sorted(record_id for record_id, (kind, _) in loaded(target).records.items() if kind == PLAIN)
        consumed = there[::2]
        with activated_journal(target, take_over=True, progress=no_progress) as (journal, _):
            for record_id in consumed:
                journal.delete(record_id)
            journal.flush().wait()
        code, said = killed_job(target, tmp_path / "replay", UNTIL_IN_DOUBT)
        assert code == KILLED, said
        in_doubt = loaded(target)
        with activated_journal(target, take_over=True, progress=no_progress) as (journal, _):
            journal.rollback(history.prepared[0]).wait()
        result = replayed(whole, archived, target, Filter())
        found = loaded(target)
    assert consumed
    assert result.before > 0
    assert (result.operations, result.in_doubt) == (0, [])
    assert set(found.records) == set(history.loaded.records) - set(consumed)
    assert {record_id: each for record_id, each in history.loaded.updates.items() if record_id in found.records} == (
        found.updates
    )
    assert staged(in_doubt) == staged(history.loaded)
    assert found.in_doubt == {}


def test_a_record_that_is_skipped_later_does_not_begin_another_replay(
    spark: SparkSession, target: Settings, tmp_path: Path
) -> None:
    """What was consumed by then does not come back."""
    path = str(tmp_path / "archive")
    first = [(0, frame(1, marker())), (0, frame(2, add(1024), add(2048)))]
    broken = frame(3, add(-3072))
    plant_archive(spark, path, first)
    with running_worker(target):
        assert replayed(selected(spark, path, Filter()), path, target, Filter()).operations == 2
        with activated_journal(target, take_over=True, progress=no_progress) as (journal, _):
            journal.delete(1024).wait()
        plant_archive(spark, path, [(0, broken), (0, frame(3, add(4096)))], number=2, start=len(first))
        with pytest.raises(CorruptionError, match=r"so does --skip 0:2\)"):
            selected(spark, path, Filter())
        skipping = Filter(skip=((0, 2),))
        result = replayed(selected(spark, path, skipping), path, target, skipping)
        found = loaded(target)
    assert (result.before, result.operations) == (2, 1)
    assert set(found.records) == {2048, 4096}


def killed_job(target: Settings, file: Path, until: int) -> tuple[int, str]:
    """A replay that dies in the middle: its exit code, and what it said."""
    arguments = (target.bootstrap_servers, target.journal, str(target.directory), str(file), str(until))
    ended = subprocess.run(
        program("replay_job", *arguments),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=JOB_TIMEOUT_S,
    )
    return ended.returncode, ended.stderr.decode(errors="replace")
