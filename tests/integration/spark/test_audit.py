"""The audit finds what was planted, each kind in its own shard; and agrees with what a worker made on real Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from typer import Exit
from typer.testing import CliRunner

from journal.cli.main import app
from journal.cli.verify.by_spark import show
from journal.config import Settings
from journal.errors import GapError, RowError
from journal.journal import BlockingJournal
from journal.kafka.clients import kafka_of
from journal.process.clocks import wall_ms
from journal.process.progress import no_progress
from journal.topics.control_reading import read_control
from journal.topics.names import table_topic
from journal.upkeep.trim import Trimming
from journal.v1.journal_pb2 import ADD, Position, Record
from journal.verify import Report, ShardReport
from journal.verify.differences import KEPT_MAX
from journal.wire.keys import mark_key, record_key
from loaders.spark.audit.audit import audit, compare, table_marks
from loaders.spark.read.source import JournalIdentity, JournalSource
from tests.support.build import JOURNAL, START_MS
from tests.support.in_process import Collected, made_journal, running_worker
from tests.support.spark import plants
from tests.support.spark.frames import TopicRecord, record_table
from tests.support.spark.history import write_values

LIMIT_S = 30.0

DIFFERENCES: dict[plants.Plant, dict[str, int]] = {
    plants.nothing: {},
    plants.missing: {"record": 1},
    plants.extra: {"record": 1},
    plants.changed: {"record": 1},
    plants.moved: {"record": 1},
    plants.resurrected: {"record": 1},
    plants.lost_update: {"updates": 1},
    plants.lost_spilled_update: {"updates": 1},
    plants.unspilled: {"row": 1},
    plants.updates_of_none: {"row": 1},
    plants.count_changed: {"mark": 1},
    plants.nonce_changed: {"mark": 1},
    plants.lost_transaction: {"transaction": 1, "row": 1},
    plants.lost_staged: {"staged": 1},
    plants.stray: {"row": 1},
    plants.undecodable: {"row": 1},
    plants.foreign_marks: {"row": 2},
    plants.row_of_another_shard: {"row": 1},
    plants.misplaced_update: {"row": 1, "updates": 1},
    plants.misplaced_staged: {"row": 1, "staged": 1},
    plants.skipped: {"skipped": 1},
    plants.misplaced_skip: {"row": 1},
    plants.damaged: {},
    plants.refused: {"rejected": plants.REFUSED},
    plants.damaged_ahead: {},
    plants.frame_gone: {},
    plants.trimmed: {},
    plants.wal_gone: {},
    plants.empty: {},
}
"""By what is planted, how many differences of each sort the audit counts."""

STOPS = {plants.damaged: 8, plants.damaged_ahead: 24, plants.frame_gone: 12, plants.trimmed: 8, plants.wal_gone: 22}
NOT_COMPARED = {plants.damaged, plants.frame_gone, plants.trimmed, plants.wal_gone}
PLANTS = list(DIFFERENCES)
NOT_TRIMMED = {plants.trimmed, plants.wal_gone, plants.empty, plants.damaged, plants.frame_gone, plants.skipped}
LOOKED_FOR_BESIDE = {
    plants.stray,
    plants.foreign_marks,
    plants.damaged_ahead,
    plants.lost_staged,
    plants.misplaced_staged,
}
"""What `verify` looks for before and after it folds: behind a mark, and how many rows a transaction should have."""
MARKS_AT_TRIM = (2, 6, 12, 16, plants.STANDS_AT)
TRIMMED = [(plant, at) for plant in PLANTS if plant not in NOT_TRIMMED | LOOKED_FOR_BESIDE for at in MARKS_AT_TRIM]
"""The same in shards that were trimmed when their tables stood at an offset."""


@pytest.fixture(scope="module")
def audited(spark: SparkSession) -> tuple[Report, list[ShardReport]]:
    """The audit of all shards; and what `verify` says of those that were trimmed."""
    count = len(PLANTS) + len(TRIMMED)
    shards = [plants.history(shard, count) for shard in range(count)]
    bases = {}
    for shard, (_, at) in zip(shards[len(PLANTS) :], TRIMMED, strict=True):
        bases[shard.shard] = plants.trim(shard, count, at)
    for plant, shard in zip([*PLANTS, *(plant for plant, _ in TRIMMED)], shards, strict=True):
        plant(shard)
    journal = JournalIdentity(JOURNAL, len(shards))
    of_wal = [record for shard in shards for record in plants.wal_records(shard)]
    wal = record_table(spark, "entries", of_wal, journal)
    table = record_table(spark, "rows", [record for shard in shards for record in plants.table_records(shard)])
    found = compare(spark, wal, table, journal, topic=plants.WAL, bases=bases)
    return found, [plants.verified(shard, count, bases[shard.shard]) for shard in shards[len(PLANTS) :]]


@pytest.fixture(scope="module")
def report(audited: tuple[Report, list[ShardReport]]) -> Report:
    return audited[0]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_what_is_planted_is_found_and_nothing_else(plant: plants.Plant, report: Report) -> None:
    shard = report.shards[PLANTS.index(plant)]
    assert shard.differences.counts == DIFFERENCES[plant], shard.lines()
    assert [finding.offset for finding in shard.findings] == ([STOPS[plant]] if plant in STOPS else [])
    not_compared = ["the tables: they stand at offset 22, where the fold of the WAL did not come"]
    assert shard.unchecked == (not_compared if plant in NOT_COMPARED else [])
    assert shard.agrees == (DIFFERENCES[plant].keys() <= {"skipped"} and plant not in STOPS)


@pytest.mark.parametrize(("plant", "at"), TRIMMED, ids=lambda each: getattr(each, "__name__", str(each)))
def test_an_audit_of_a_trimmed_shard_says_what_verify_says(
    plant: plants.Plant, at: int, audited: tuple[Report, list[ShardReport]]
) -> None:
    place = TRIMMED.index((plant, at))
    found, expected = audited[0].shards[len(PLANTS) + place], audited[1][place]
    assert found.differences.counts == expected.differences.counts, [*found.lines(), *expected.lines()]
    assert (found.findings, found.unchecked, found.base) == (expected.findings, expected.unchecked, expected.base)
    assert (found.offset, found.records) == (expected.offset, expected.records)
    assert found.agrees or plant is not plants.nothing


def test_a_difference_says_what_should_be_and_what_is(report: Report) -> None:
    lines = report.lines()

    def told(plant: plants.Plant) -> list[str]:
        return [line for line in lines if line.startswith(f"shard {PLANTS.index(plant)}:")]

    number = PLANTS.index(plants.resurrected)
    what = f"record: id {2 << 10 | number}"
    assert told(plants.resurrected) == [
        f"shard {number}: {what}: expected none: deleted at 4:2:0, found kind 1, 676f6573, at 2:0:0"
    ]
    assert "expected kind 1, 7468726565, at 2:2:0, found none" in told(plants.missing)[0]
    assert "expected 200 bytes, digest" not in told(plants.changed)[0]
    assert "kind 1, 200 bytes, digest" in told(plants.changed)[0]
    assert "expected 3 updates, [0] kind 2, 6669727374" in told(plants.lost_update)[0]
    assert "applied: expected 26, found 99" in told(plants.count_changed)[0]
    assert "a mark behind it, found none: no worker wrote it" in told(plants.stray)[0]
    kept = report.shards[PLANTS.index(plants.refused)].differences.kept
    assert [one.key for one in kept] == [f"operation 20:{index}" for index in sorted(range(KEPT_MAX), key=str)]
    at = PLANTS.index(plants.damaged)
    assert f"{plants.WAL}[{at}]@8: not a frame: it does not parse" in lines
    at = PLANTS.index(plants.trimmed)
    assert any(line.startswith(f"{plants.WAL}[{at}]@8: the WAL begins here, no trim told of") for line in lines)


def test_a_mark_that_does_not_parse_is_named(spark: SparkSession) -> None:
    table = record_table(spark, "rows", [TopicRecord(plants.TABLE, 0, 7, START_MS, b"\xff", mark_key(0))])
    with pytest.raises(RowError, match=r"planted\.table\[0\]@7: the mark does not parse"):
        compare(spark, table, table, JournalIdentity(JOURNAL, 1), topic=plants.WAL)


@pytest.mark.kafka
def test_verify_with_spark_agrees_with_a_worker_until_a_row_is_planted_also_behind_a_trim(
    spark: SparkSession,
    bootstrap: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=2)
    with running_worker(settings):
        with BlockingJournal(settings, copy_name="first") as journal:
            journal.activate(Collected())
            for number in range(1, 40):
                journal.add(number << 10 | number % 2, 1, b"%d" % number)
                journal.update(number << 10 | number % 2, 2, b"update")
            for number in range(1, 20):
                journal.delete(number << 10 | number % 2)
            journal.flush().wait()
            tx = journal.begin()
            journal.add(100 << 10, 1, b"prepared", tx=tx)
            journal.prepare(tx, b"xid").wait()
        with pytest.raises(Exit) as ended:
            show(audit(spark, JournalSource.from_settings(settings)), as_json=False)
        assert (ended.value.exit_code, "the WAL and the tables agree\n" in capsys.readouterr().out) == (0, True)
        with BlockingJournal(settings, copy_name="second") as journal:
            journal.activate(Collected())
            journal.delete(30 << 10).wait()
        starts: dict[int, int] = {}

        def trim_and_tell(table: DataFrame) -> Mapping[int, Row]:
            starts.update(trimmed(settings))
            return table_marks(table)

        with monkeypatch.context() as meanwhile:
            meanwhile.setattr("loaders.spark.audit.audit.table_marks", trim_and_tell)
            with pytest.raises(GapError):
                audit(spark, JournalSource.from_settings(settings))
        assert min(starts.values()) > 0
        with BlockingJournal(settings, copy_name="third") as journal:
            journal.activate(Collected())
            journal.commit(tx)
            journal.update(32 << 10, 2, b"since", replaceable=True)
            journal.delete(34 << 10).wait()

    for id in (4 << 10, 6 << 10):
        row = Record(type=ADD, id=id, kind=1, data=b"planted", position=Position(offset=1))
        write_values(settings, table_topic(settings.journal), [(0, record_key(id), row.SerializeToString())])
    place = ("-b", bootstrap, "-j", settings.journal)
    one = ("--differences-max", "1", "--json")
    planted = CliRunner().invoke(app, ["verify", "--with-spark", *place, "--master", "local[2]", *one])
    assert planted.exit_code == 1, planted.output
    report = json.loads(planted.stdout)
    found = report["shards"]
    assert [shard["differences"]["counts"] for shard in found] == [{"row": 2}, {}]
    assert (len(found[0]["differences"]["kept"]), report["left_out"]) == (1, 1)
    assert [len(shard["unchecked"]) for shard in found] == [1, 0]
    for shard, start in starts.items():
        assert f"the WAL was trimmed to offset {start} by me at " in found[shard]["base"]


def trimmed(settings: Settings) -> dict[int, int]:
    """Where the WAL of each shard begins, once it was trimmed."""
    kafka = kafka_of(settings)
    rows = read_control(kafka, settings.journal, time.monotonic, LIMIT_S)
    with closing(Trimming(kafka, settings, rows, no_progress, without_archive=True)) as trimming:
        plan = trimming.plan("me", wall_ms())
        trimming.delete(plan)
    return {each.shard: each.offset for each in plan}
