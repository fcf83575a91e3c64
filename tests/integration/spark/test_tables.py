"""Journal tables are what a computation over the whole journal gives, whatever became of the jobs that kept them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from typer.testing import CliRunner, Result

from journal.cli.main import app
from journal.config import Settings
from journal.errors import ConfigError
from journal.v1.journal_pb2 import OperationType
from journal.v1.store_pb2 import Acknowledgement, RecordKind, Reference, UpdateKind
from journal.v1.store_pb2 import Message as MessageData
from journal.v1.store_pb2 import Queue as QueueData
from loaders.spark.readers import read_table, read_transactions
from loaders.spark.store_columns import messages
from loaders.spark.table_stores import TableFormat
from loaders.spark.tables import keep_tables, read_kept
from tests.support.spark_history import History, uuid_of, wal_of
from tests.support.spark_jobs import jars_of

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900, func_only=True)]

LINES_MAX = 8
DELAY_S_MAX = 2.0


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
            reason = Acknowledgement.Reason.Name(Acknowledgement.FromString(op.data).reason)
            references[op.subject] |= {"settled_at": at, "reason": reason}

    for shard, offset, frame in sorted(frames, key=lambda each: each[:2]):
        at = appended[shard, offset]
        for op in frame.operations:
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


@pytest.fixture(scope="module")
def killed(spark: SparkSession, history: History, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where jobs keep tables in each format that were killed, together, a random moment behind a random one of their
    first lines."""
    path = tmp_path_factory.mktemp("killed") / "tables"
    seed = SystemRandom().randrange(10**6)
    print("seed", seed)
    chance = Random(seed)
    source, formats = history.source, [each.value for each in TableFormat]
    job = subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.support.tables_job"),
            *(source.bootstrap_servers, source.journal, str(path), jars_of(spark), *formats),
        ],
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines: list[str] = []
    left, delay_s = {each: chance.randint(1, LINES_MAX) for each in formats}, chance.random() * DELAY_S_MAX
    with ThreadPoolExecutor(1) as drain:
        assert job.stdout is not None
        assert job.stderr is not None
        said = drain.submit(job.stderr.read)
        try:
            while max(left.values()) > 0 and (line := job.stdout.readline()):
                lines.append(line.strip())
                left[line.split()[0]] -= 1
            with suppress(subprocess.TimeoutExpired):
                job.wait(delay_s)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
        code = job.wait()
        print("killed behind", lines)
        assert (code, max(left.values()) <= 0) == (-signal.SIGKILL, True), said.result().splitlines()[-40:]
    return path


def command(history: History, path: Path, kept_as: TableFormat) -> Result:
    source = history.source
    place = ("-b", source.bootstrap_servers, "-j", source.journal, "--to", str(path))
    return CliRunner().invoke(app, ["spark", "tables", *place, "--format", kept_as.value, "--once", "--json"])


@pytest.mark.parametrize("kept_as", TableFormat, ids=lambda each: each.value)
def test_tables_are_what_the_readers_give_though_the_job_that_keeps_them_is_killed(
    spark: SparkSession, history: History, killed: Path, kept_as: TableFormat
) -> None:
    path = killed / kept_as.value
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

    # nothing new, and not for another format
    assert keep_tables(spark, history.source, str(path), kept_as=kept_as, once=True).batches == 0
    other = next(each for each in TableFormat if each is not kept_as)
    refused = command(history, path, other)
    assert (refused.exit_code, f"--format {kept_as.value}" in refused.stderr) == (2, True), refused.output


def test_tables_without_their_checkpoint_are_not_gone_on_with(
    spark: SparkSession, history: History, tmp_path: Path
) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "a file").write_text("")
    with pytest.raises(ConfigError, match="keep the tables elsewhere"):
        keep_tables(spark, history.source, str(foreign), once=True)
    lost = tmp_path / "lost"
    (lost / "progress").mkdir(parents=True)
    uuid = uuid_of(history.settings).hex()
    (lost / "journal.json").write_text(json.dumps({"format": 1, "journal": "j", "uuid": uuid, "tables": "delta"}))
    with pytest.raises(ConfigError, match="no checkpoint to go on from"):
        keep_tables(spark, history.source, str(lost), once=True)
    (lost / "checkpoint" / "offsets").mkdir(parents=True)
    (lost / "seen").touch()
    os.utime(lost / "seen", (0, 0))
    with pytest.raises(ConfigError, match="deletions may be gone"):
        keep_tables(spark, history.source, str(lost), once=True, retention_ms=1000)
    (lost / "journal.json").write_text(json.dumps({"format": 1, "journal": "j", "uuid": "00", "tables": "delta"}))
    with pytest.raises(ConfigError, match="the tables of journal j with uuid 00"):
        keep_tables(spark, history.source, str(lost), once=True)
    with pytest.raises(ConfigError, match="has no table lives"):
        read_kept(spark, str(tmp_path / "nowhere"), "lives")
