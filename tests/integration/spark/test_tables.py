"""Journal tables are what a computation over the whole journal gives, whatever became of the jobs that kept them."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner, Result

from journal.cli.main import app
from journal.config import Settings
from journal.errors import ConfigError, GapError
from journal.kafka.clients import kafka_of
from journal.topics.control_keys import EPOCH_KEY, control_row
from journal.v1.journal_pb2 import Epoch, OperationType
from journal.v1.store_pb2 import Acknowledgement, RecordKind, Reference, UpdateKind
from journal.v1.store_pb2 import Message as MessageData
from journal.v1.store_pb2 import Queue as QueueData
from journal.wire.keys import skipped_key
from loaders.spark.read.readers import read_table, read_transactions
from loaders.spark.read.source import JournalSource
from loaders.spark.session.wire import table_of
from loaders.spark.stored.files import Files
from loaders.spark.stored.table_batches import TableBatch
from loaders.spark.stored.table_stores import DeltaStore, TableFormat, TableStore, open_store
from loaders.spark.tables.store_columns import messages
from loaders.spark.tables.tables import TablesBatch, TablesResult, keep_tables, read_kept
from loaders.spark.tables.tables_place import ALL_TABLES
from tests.support.build import skipped
from tests.support.in_process import made_journal
from tests.support.spark.history import WAIT_S, History, trim, uuid_of, wal_of, write_values
from tests.support.spark.killed import Killed

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900, func_only=True)]

JOB_TIMEOUT_S = 300.0


# ---- the whole journal at once -----------------------------------------------------------------------------


def plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, Row):
        return tuple(plain(each) for each in value)
    if isinstance(value, list):
        return tuple(plain(each) for each in value)
    if isinstance(value, dict):
        return tuple(sorted(value.items()))
    return value


def in_order(table: DataFrame, columns: list[str]) -> list[tuple[Any, ...]]:
    return sorted((plain(row) for row in table.select(*columns).collect()), key=repr)


def lives_of(settings: Settings) -> dict[tuple[int, int], dict[str, Any]]:
    """By (message, queue), from the WAL frame by frame; times as ms since 1970."""
    records, frames = wal_of(settings)
    appended = {(record.partition, record.offset): record.timestamp_ms for record in records}
    there: dict[int, dict[str, Any]] = {}
    over: list[dict[str, Any]] = []
    queues: dict[int, str] = {}
    staged: dict[tuple[int, int], list[Any]] = {}

    def apply(op: Any, at: int) -> None:
        if op.type == OperationType.ADD and op.kind == RecordKind.QUEUE:
            queues[op.id] = QueueData.FromString(op.data).name
        elif op.type == OperationType.ADD and op.kind == RecordKind.MESSAGE:
            address = MessageData.FromString(op.data).address
            there[op.id] = {"message": op.id, "address": address, "added_at": at, "deleted_at": None, "in": {}}
        elif op.type == OperationType.DELETE and op.id in there:
            over.append(there.pop(op.id) | {"deleted_at": at})
        elif op.type == OperationType.UPDATE and op.id in there:
            refer(there[op.id]["in"], op, at)

    def refer(references: dict[int, dict[str, Any]], op: Any, at: int) -> None:
        if op.kind == UpdateKind.ROUTE:
            references[op.subject] = {"routed_at": at, "deliveries": 0}
        elif op.kind == UpdateKind.REFERENCE:
            told = Reference.FromString(op.data)
            references[op.subject]["deliveries"] = told.deliveries
            if told.holder:
                references[op.subject].setdefault("delivered_at", at)
        elif op.kind == UpdateKind.ACKNOWLEDGE:
            settled = Acknowledgement.FromString(op.data)
            reason = Acknowledgement.Reason.Name(settled.reason)
            if settled.delivered:
                references[op.subject].setdefault("delivered_at", settled.delivered)
            if settled.deliveries:
                references[op.subject]["deliveries"] = settled.deliveries
            references[op.subject] |= {"settled_at": at, "reason": reason}

    for shard, offset, frame in sorted(frames, key=lambda each: each[:2]):
        at = appended[shard, offset]
        for op in frame.operations():
            waiting = (shard, op.tx)
            if op.type == OperationType.COMMIT:
                for each in staged.pop(waiting, []):
                    apply(each, at)
            elif op.type == OperationType.ROLLBACK:
                staged.pop(waiting, None)
            elif op.tx and op.type != OperationType.PREPARE:
                staged.setdefault(waiting, []).append(op)
            else:
                apply(op, at)
    return {
        (life["message"], queue): {
            **{name: life[name] for name in ("address", "added_at", "deleted_at")},
            "queue": queues.get(queue),
            **{name: reference.get(name) for name in REFERENCE_COLUMNS},
        }
        for life in [*there.values(), *over]
        for queue, reference in (life["in"] or {0: {"deliveries": 0}}).items()
    }


REFERENCE_COLUMNS = ("routed_at", "delivered_at", "deliveries", "settled_at", "reason")
TIMES = ("added_at", "routed_at", "delivered_at", "settled_at", "deleted_at")
PLAIN = ("address", "queue", "deliveries", "reason")


def kept_lives(spark: SparkSession, path: Path) -> dict[tuple[int, int], dict[str, Any]]:
    times = [f"cast(cast({name} as decimal(20, 6)) * 1000 as bigint) as {name}" for name in TIMES]
    rows = read_kept(spark, str(path), "lives").selectExpr("message", "queue_id", *PLAIN, *times).collect()
    found = {(row["message"], row["queue_id"] or 0): row.asDict() for row in rows}
    assert len(found) == len(rows), "a life that is there twice"
    return {key: {name: row[name] for name in (*PLAIN, *TIMES)} for key, row in found.items()}


def check_tables(spark: SparkSession, settings: Settings, history: History, path: Path) -> None:
    kept = read_kept(spark, str(path), "messages")
    expected = messages(read_table(spark, history.source).records)
    assert in_order(kept, expected.columns) == in_order(expected, expected.columns)
    in_doubt = read_transactions(spark, history.source).transactions.where("prepared").drop("prepared")
    assert in_order(read_kept(spark, str(path), "in_doubt"), in_doubt.columns) == in_order(in_doubt, in_doubt.columns)
    assert kept_lives(spark, path) == lives_of(settings)


# ---- jobs --------------------------------------------------------------------------------------------------


class Sleeping(DeltaStore):
    """Falls asleep before the last change of its first batch."""

    def __init__(self, files: Files) -> None:
        super().__init__(files)
        self.asleep, self.awake = threading.Event(), threading.Event()
        self.went_on = False

    def overwrite(self, table: str, fresh: DataFrame) -> None:
        if table == "progress":
            self.asleep.set()
            assert self.awake.wait(JOB_TIMEOUT_S)
        super().overwrite(table, fresh)
        self.went_on |= self.awake.is_set()


@contextmanager
def sleeping_job(spark: SparkSession, source: JournalSource, path: Path) -> Iterator[None]:
    """A job that sleeps meanwhile, and is refused when it wakes up."""
    store = Sleeping(Files(spark, str(path)))
    with ThreadPoolExecutor(1) as thread:
        job = thread.submit(
            keep_tables,
            spark.newSession(),
            source,
            str(path),
            once=True,
            kept_as=TableFormat.DELTA,
            opened=lambda _files, _kept_as: store,
        )
        try:
            while not store.asleep.wait(1.0) and not job.done():
                pass
            yield
        finally:
            store.awake.set()
        with pytest.raises(ConfigError, match="another job keeps the tables"):
            job.result(JOB_TIMEOUT_S)
        assert store.went_on, "it was refused before its late change"


def command(history: History, path: Path, kept_as: TableFormat) -> Result:
    source = history.source
    place = ("-b", source.bootstrap_servers, "-j", source.journal, "--to", str(path))
    return CliRunner().invoke(app, ["spark", "tables", *place, "--format", kept_as.value, "--once", "--json"])


@pytest.mark.parametrize("kept_as", TableFormat, ids=lambda each: each.value)
def test_tables_are_what_the_readers_give_though_the_job_that_keeps_them_is_killed(
    spark: SparkSession, history: History, killed: Killed, kept_as: TableFormat
) -> None:
    """In Delta Lake, another job goes on first, and wakes up when the last one has ended."""
    path = killed.tables / kept_as.value
    is_delta = kept_as is TableFormat.DELTA
    with sleeping_job(spark, history.source, path) if is_delta else nullcontext():
        ended = command(history, path, kept_as)
    assert ended.exit_code == 0, ended.output
    told = json.loads(ended.stdout)
    check_tables(spark, history.settings, history, path)
    rows = {
        "messages": len(history.waiting),
        "in_doubt": 1,
        "lives": len(lives_of(history.settings)),
        "dead_letters": 0,
    }
    assert (told["rows"], told["dead_letters"], told["gaps"]) == (rows, 0, 0)
    assert "is in the tables" in ended.stderr
    assert "to be applied" in ended.stderr

    # nothing new, and not for another format
    assert keep_tables(spark, history.source, str(path), kept_as=kept_as, once=True).batches == 0
    other = next(each for each in TableFormat if each is not kept_as)
    refused = command(history, path, other)
    assert (refused.exit_code, f"--format {kept_as.value}" in refused.stderr) == (2, True), refused.output


def test_a_batch_changes_nothing_back_that_a_later_one_has_changed(spark: SparkSession, tmp_path: Path) -> None:
    """Two jobs keep the same tables in Delta Lake; one of them sleeps, and goes on with an old batch."""
    asleep, awake = (DeltaStore(Files(spark, str(tmp_path / "tables"))) for _ in range(2))

    def rows(*pairs: tuple[int, str]) -> DataFrame:
        told = [{"key": key, "said": said} for key, said in pairs]
        return table_of(spark, "key int, said string", told).localCheckpoint()

    def kept(table: str) -> list[tuple[int, str]]:
        found = awake.read(spark, table)
        assert found is not None
        return sorted(map(tuple, found.collect()))

    asleep.begin(TableBatch(5, {}, {}))
    for batch, said in ((5, "five"), (6, "six")):
        awake.begin(TableBatch(batch, {}, {}))
        awake.replace("merged", ["key"], rows((1, said), (2, said)))
        awake.overwrite("whole", rows((1, said)))
    asleep.replace("merged", ["key"], rows((1, "five")), rows((2, "")).select("key"))
    asleep.overwrite("whole", rows((1, "five")))
    assert (kept("merged"), kept("whole")) == ([(1, "six"), (2, "six")], [(1, "six")])
    asleep.begin(TableBatch(7, {}, {}))
    asleep.replace("merged", ["key"], rows((1, "seven")), rows((2, "")).select("key"))
    assert kept("merged") == [(1, "seven")]
    # else Delta would omit what the session writes later to tables of its own
    assert spark.conf.get("spark.databricks.delta.write.txnVersion", None) is None


def test_dead_letters_are_kept_skips_are_counted_and_a_job_that_lags_is_not_up_to_date(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=1)
    source, path = JournalSource.from_settings(settings), tmp_path / "tables"
    files = Files(spark, str(path))
    write_values(settings, source.wal, [(0, None, b"no frame"), (0, None, b"nor this")])
    skip = (0, skipped_key(0, 1), skipped(1).SerializeToString())
    write_values(settings, source.table, [(0, b"no key", b"no row"), skip])
    before, until = list[int](), list[int]()

    def newest(directory: str) -> str:
        return max(name for name in files.names(directory) if not name.startswith("."))

    def until_ms() -> int:
        return int(newest("until").partition("-")[0])

    def opened(files: Files, kept_as: TableFormat) -> TableStore:
        before.append(int(time.time() * 1000))
        return open_store(files, kept_as)

    def another_job_begins(batch: TablesBatch) -> None:
        assert (batch.records, batch.dead_letters, batch.skipped) == (4, 3, 1)
        until.append(until_ms())
        files.write_new("writers/999999999-another", "")
        write_values(settings, source.table, [(0, b"m00", b"\xff")])

    def keep(**options: Any) -> TablesResult:
        return keep_tables(spark, source, str(path), kept_as=TableFormat.PARQUET, opened=opened, **options)

    with pytest.raises(ConfigError, match="another job keeps the tables"):
        keep(every_s=0.1, told=another_job_begins)
    assert until[0] <= before[0], "it has nothing that was written since it began"
    files.delete(f"until/{newest('until')}")
    files.write_new(f"until/{0:015d}-{1:012d}-anybody", "")
    result = keep(once=True, told=lambda _batch: until.append(until_ms()))
    assert (result.dead_letters, result.rows["dead_letters"]) == (1, 4)
    millis = F.expr("unix_millis(timestamp)").alias("ms")
    letters = read_kept(spark, str(path), "dead_letters").select("topic", "offset", "reason", millis).collect()
    assert {(row["topic"], row["offset"], row["reason"].partition(": Error")[0]) for row in letters} == {
        (source.wal, 0, "not a frame: it does not parse"),
        (source.wal, 1, "not a frame: it does not parse"),
        (source.table, 0, "not a table key: 6e6f206b6579"),
        (source.table, 2, "a value that does not parse as what its key says"),
    }
    assert until[1] == max(row["ms"] for row in letters), "what it had read by then"
    assert until_ms() >= before[1]


@pytest.mark.parametrize("kept_as", TableFormat, ids=lambda each: each.value)
def test_files_beside_tables_that_come_from_a_backup_lose_no_row_in_silence(
    spark: SparkSession, bootstrap: str, tmp_path: Path, kept_as: TableFormat
) -> None:
    """What does not go together is refused, with both positions; all of it put back is gone on with."""
    settings = made_journal(bootstrap, tmp_path, shards=1)
    source, path, aside = JournalSource.from_settings(settings), tmp_path / "tables", tmp_path / "aside"

    def keep(letters: int, told: Callable[[TablesBatch], None] | None = None) -> int:
        write_values(settings, source.wal, [(0, None, b"no frame")] * letters)
        return keep_tables(spark, source, str(path), kept_as=kept_as, once=True, told=told).rows["dead_letters"]

    def is_wrong(_batch: TablesBatch) -> None:
        raise LookupError("no such queue")

    # an error of a program that is told of batches ends the job as it is, and the batch is kept
    with pytest.raises(LookupError, match="no such queue"):
        keep(5, is_wrong)
    shutil.copytree(path, aside)
    assert keep(3) == 8
    beside = {each.name for each in path.iterdir() if each.is_dir()} - {*ALL_TABLES, "pending", "writers"}
    for name in beside:
        shutil.rmtree(path / name)
        shutil.copytree(aside / name, path / name)
    with pytest.raises(ConfigError, match=rf"has batch 1, .* ends with batch 0, which ends at {source.wal}\[0\]@5"):
        keep(4)
    if kept_as is TableFormat.DELTA:
        return  # what follows is the same for every table
    shutil.rmtree(path)
    shutil.copytree(aside, path)
    assert keep(0) == 12
    newest = max(path.glob("batches/*.json"))
    newest.with_name(f".{newest.name}.crc").unlink()
    newest.write_text(newest.read_text().replace('{"0": 12}', '{"0": 99}'))
    with pytest.raises(GapError, match=r"from 99 to 12"):  # the WAL lost its tail
        keep(0)


def test_a_job_that_was_killed_before_its_first_batch_looks_again_where_the_wal_begins(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=1)
    source, path, uuid = JournalSource.from_settings(settings), tmp_path / "tables", uuid_of(settings)
    producer = kafka_of(settings).plain_producer()
    producer.send([control_row(settings.journal, EPOCH_KEY, Epoch(journal=uuid, epoch=1))], WAIT_S)
    producer.close()
    write_values(settings, source.wal, [(0, None, b"one"), (0, None, b"two")])
    trim(settings, {0: 1})
    path.mkdir()
    described = {"format": 3, "journal": settings.journal, "uuid": uuid.hex(), "tables": "parquet"}
    (path / "journal.json").write_text(json.dumps(described))

    with pytest.raises(GapError, match="shard 0: the WAL begins at offset 1"):
        keep_tables(spark, source, str(path), kept_as=TableFormat.PARQUET, once=True)


def test_a_place_of_other_things_is_refused(spark: SparkSession, history: History, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    with pytest.raises(ConfigError, match="keep the tables elsewhere"):
        keep_tables(spark, history.source, str(tmp_path), once=True)
    with pytest.raises(ConfigError, match="has no table lives"):
        read_kept(spark, str(tmp_path / "nowhere"), "lives")
