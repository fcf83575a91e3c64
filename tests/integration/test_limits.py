"""Data at, under and over the limit; the largest frame and rows, keys and numbers; the largest transaction. Real Kafka
has its own idea of what is too large, so these go all the way: WAL, tables, a copy made anew, verify."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from journal.append.completion import Completion
from journal.cli.script import apply_operation
from journal.config import Settings
from journal.errors import FullError, InvalidOperationError
from journal.journal import BlockingJournal
from journal.kafka.clients import kafka_of
from journal.limits import FRAME_OVERHEAD_BYTES, ID_MAX, KIND_MAX, OPERATION_OVERHEAD_BYTES, SUBJECT_MAX, Limits
from journal.load.loading import LoadCounts
from journal.topics.marks import MarkReader
from journal.topics.names import table_topic
from journal.v1.journal_pb2 import Mark
from tests.support.children.loaders import CollectingLoader
from tests.support.judgement import judge, made_journal
from tests.support.node_history import Activation
from tests.support.processes.command import command_env, run_command
from tests.support.processes.worker import WorkerProcess
from tests.support.script_model import Line, encode

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

LARGEST = Limits().frame_bytes_max - FRAME_OVERHEAD_BYTES - OPERATION_OVERHEAD_BYTES
"""The largest data_bytes_max that a frame has room for."""


def noise(size: int, seed: int = 0) -> bytes:
    """Data that does not compress."""
    return random.Random(seed).randbytes(size)


def active(settings: Settings) -> tuple[BlockingJournal, Activation]:
    """A journal in this process that was activated, and its history so far."""
    journal, loader = BlockingJournal(settings), CollectingLoader()
    journal.start()
    journal.activate(loader)
    return journal, loader.activation()


def append(journal: BlockingJournal, activation: Activation, lines: Sequence[Line]) -> None:
    """All of them, in one group, and wait for it; but for what they only prepare, which waits for its outcome."""
    completions: list[Completion] = []
    for line in lines:
        numbered: Line = {"n": len(activation.submitted) + 1, **line}
        activation.submitted.append(numbered)
        raw = numbered.pop("raw", b"")
        if raw or line["op"] == "add":
            numbered["data"] = encode(raw)
        completions.append(apply_operation(journal, numbered | {"data": raw}, line=0))
    prepared = {line["tx"] for line in lines if line["op"] == "prepare"}
    for line, completion in zip(activation.submitted[-len(lines) :], completions, strict=True):
        if line["op"] == "prepare" or line.get("tx") not in prepared:
            completion.wait(60)
            activation.done.add(line["n"])


@pytest.mark.parametrize("shards", [1, 8])
def test_the_largest_data_goes_through_kafka_end_to_end(bootstrap: str, tmp_path: Path, shards: int) -> None:
    limits = Limits(data_bytes_max=LARGEST)
    settings = made_journal(bootstrap, shards, tmp_path, limits=limits, node="n" * 200)
    with WorkerProcess(bootstrap, settings.journal, tmp_path / "worker").start(ready=False) as worker:
        journal, history = active(settings)
        largest: Line = {"kind": KIND_MAX, "subject": SUBJECT_MAX, "replaceable": True}
        append(
            journal,
            history,
            [
                {"op": "add", "id": ID_MAX, "kind": KIND_MAX, "raw": noise(LARGEST)},
                {"op": "add", "id": 1, "raw": noise(LARGEST - 1)},
                {"op": "add", "id": 2, "raw": b""},
                {"op": "update", "id": ID_MAX, "raw": noise(LARGEST, 1), **largest},
                {"op": "update", "id": ID_MAX, "raw": noise(LARGEST, 2), "kind": KIND_MAX, "subject": SUBJECT_MAX},
                {"op": "update", "id": 1, "raw": noise(4096), "kind": 1},
                {"op": "add", "id": 3, "raw": noise(LARGEST, 3), "tx": ID_MAX},
                {"op": "update", "id": ID_MAX, "raw": noise(LARGEST, 4), "tx": ID_MAX, **largest},
                {"op": "delete", "id": 2, "tx": ID_MAX},
                {"op": "prepare", "tx": ID_MAX, "raw": noise(LARGEST, 5)},
            ],
        )
        refused: list[Callable[[], Completion]] = [
            lambda: journal.add(4, 0, noise(LARGEST + 1)),
            lambda: journal.update(1, 0, noise(LARGEST + 1)),
            lambda: journal.add(4, 0, noise(LARGEST + 1), tx=1),
            lambda: journal.prepare(1, noise(LARGEST + 1)),
            lambda: journal.add(ID_MAX + 1, 0, b""),
            lambda: journal.add(0, 0, b""),
            lambda: journal.add(4, KIND_MAX + 1, b""),
            lambda: journal.update(1, 0, b"", subject=SUBJECT_MAX + 1),
            lambda: journal.add(4, 0, b"", tx=ID_MAX + 1),
        ]
        for call in refused:
            with pytest.raises(InvalidOperationError):
                call()
        append(journal, history, [{"op": "add", "id": 4, "tx": 1}, {"op": "commit", "tx": 1}])
        journal.close()

        journal, settled = active(settings)
        append(journal, settled, [{"op": "commit", "tx": ID_MAX}])
        journal.close()
        found = judge(settings, [history, settled])
        sizes = [len(value or b"") for wal in found.evidence.wal for _, _, _, value in wal]
        assert limits.frame_bytes_max - FRAME_OVERHEAD_BYTES < max(sizes) <= limits.frame_bytes_max
        assert worker.terminate() == 0


@pytest.mark.parametrize("shards", [1, 8])
def test_the_largest_record_of_a_foreign_client_can_be_skipped(bootstrap: str, tmp_path: Path, shards: int) -> None:
    settings = made_journal(bootstrap, shards, tmp_path)
    wal = f"{settings.journal}.wal"
    env = command_env(bootstrap, settings.journal, tmp_path / "command")
    with WorkerProcess(bootstrap, settings.journal, tmp_path / "worker").start(ready=False) as worker:
        journal, history = active(settings)
        append(journal, history, [{"op": "add", "id": 1024}])
        offset = produce_largest(bootstrap, wal)
        append(journal, history, [{"op": "add", "id": 2048}])
        worker.wait_for_log(f"{wal}[0]@{offset}")
        skipped = run_command("repair", "skip", 0, offset, "--yes", env=env)
        assert skipped.returncode == 0, skipped.stderr
        journal.close()
        again = CollectingLoader()
        with BlockingJournal(settings, copy_name="again") as successor:
            successor.activate(again)
        assert [line["id"] for line in again.lines] == [1024, 2048]
        assert worker.terminate() == 0


def produce_largest(bootstrap: str, topic: str) -> int:
    """The largest record that the topic takes; its offset."""
    size = Limits().message_bytes_max
    while isinstance(answer := produce(bootstrap, topic, noise(size)), KafkaError):
        assert answer.code() == KafkaError.MSG_SIZE_TOO_LARGE
        size -= 1
    print(f"a record of {size} bytes")
    return answer


def produce(bootstrap: str, topic: str, value: bytes) -> int | KafkaError:
    """By a client that knows nothing of journals: the record's offset, or why it was refused."""
    answers: list[int | KafkaError] = []

    def report(error: KafkaError | None, message: Message) -> None:
        answers.append(error if error is not None else message.offset() or 0)

    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 2_000_000})
    producer.produce(topic, value, partition=0, on_delivery=report)
    assert producer.flush(30) == 0
    return answers[0]


# ---- the largest transaction -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [1, 8])
def test_the_largest_transaction_is_settled_within_the_worker_time_out(
    bootstrap: str, tmp_path: Path, shards: int
) -> None:
    limits = Limits()
    operations = limits.staged_operations_max
    size = limits.staged_bytes_max // operations - OPERATION_OVERHEAD_BYTES
    settings = made_journal(bootstrap, shards, tmp_path)
    with WorkerProcess(bootstrap, settings.journal, tmp_path / "worker").start(ready=False) as worker:
        journal, _ = active(settings)
        data = noise(size)
        began = time.monotonic()
        for record_id in range(1, operations + 1):
            journal.add(record_id, 1, data, tx=7)
        with pytest.raises(FullError):
            journal.add(operations + 1, 1, data, tx=7)
        journal.prepare(7, b"xid").wait(60)
        staged = time.monotonic()
        wait_for_marks(settings, lambda marks: all(mark.prepared == 1 for mark in marks))
        caught_up = time.monotonic()
        journal.commit(7).wait(60)
        wait_for_marks(settings, lambda marks: sum(mark.records for mark in marks) == operations)
        settled = time.monotonic()
        print(
            f"{operations} operations of {size} bytes: staged in {staged - began:.2f} s, in the tables "
            f"{caught_up - staged:.2f} s later; settled in {settled - caught_up:.2f} s "
            f"of {settings.transaction_timeout_ms / 1000:g} s"
        )
        journal.close()
        counts = CollectingLoader()
        with BlockingJournal(settings) as successor:
            report = successor.activate(counts)
        assert (report.counts, report.in_doubt) == (LoadCounts(operations, 0, 0, 0), [])
        assert worker.terminate() == 0
        assert "WARNING" not in worker.log()


def wait_for_marks(settings: Settings, reached: Callable[[list[Mark]], bool]) -> None:
    """Until the shards' tables stand there."""
    marks = MarkReader(kafka_of(settings), table_topic(settings.journal), time.monotonic)
    until = time.monotonic() + 60
    while not reached(found := [marks.newest(shard, 30).mark for shard in range(settings.shards)]):
        assert time.monotonic() < until, found
        time.sleep(0.02)
    marks.close()
