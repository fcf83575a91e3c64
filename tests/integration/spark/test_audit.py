"""The audit finds what was planted, each kind in its own shard; and agrees with what a worker made on real Kafka."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer import Exit

from journal.cli.verify_spark import show
from journal.journal import BlockingJournal
from journal.kafka.control import table_topic
from journal.v1.journal_pb2 import ADD, Position, Record
from journal.verify import Report
from journal.wire.keys import record_key
from loaders.spark.audit import audit, compare, table_marks
from loaders.spark.source import JournalIdentity, JournalSource
from tests.support import spark_plants as plants
from tests.support.build import JOURNAL
from tests.support.in_process import Collected, made_journal, running_worker
from tests.support.processes import command_env, run_command
from tests.support.spark_frames import record_table
from tests.support.spark_history import write_values

COMMAND_TIMEOUT_S = 300.0
QUICK_JAVA = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}
"""For one small job the quick compiler is the faster one."""

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
    plants.damaged: {},
    plants.damaged_ahead: {},
    plants.frame_gone: {},
    plants.trimmed: {},
    plants.wal_gone: {},
    plants.empty: {},
}
"""By what is planted, how many differences of each sort the audit counts."""

STOPS = {plants.damaged: 8, plants.damaged_ahead: 24, plants.frame_gone: 12}
UNCHECKED: dict[plants.Plant, str] = {
    plants.damaged: "they stand at offset 22, where the fold of the WAL did not come",
    plants.frame_gone: "they stand at offset 22, where the fold of the WAL did not come",
    plants.wal_gone: "they stand at offset 22, where the fold of the WAL did not come",
    plants.trimmed: "planted.wal[19] begins at offset 8",
}
PLANTS = list(DIFFERENCES)


@pytest.fixture(scope="module")
def report(spark: SparkSession) -> Report:
    shards = [plants.history(shard, len(PLANTS)) for shard in range(len(PLANTS))]
    for plant, shard in zip(PLANTS, shards, strict=True):
        plant(shard)
    wal = record_table(spark, [record for shard in shards for record in plants.wal_records(shard)])
    table = record_table(spark, [record for shard in shards for record in plants.table_records(shard)])
    journal = JournalIdentity(JOURNAL, len(shards))
    return compare(spark, wal, table, journal, marks=table_marks(table), topic=plants.WAL)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_what_is_planted_is_found_and_nothing_else(plant: plants.Plant, report: Report) -> None:
    shard = report.shards[PLANTS.index(plant)]
    assert shard.differences.counts == DIFFERENCES[plant], shard.lines()
    assert [finding.offset for finding in shard.findings] == ([STOPS[plant]] if plant in STOPS else [])
    assert len(shard.unchecked) == (plant in UNCHECKED)
    assert UNCHECKED.get(plant, "") in "".join(shard.unchecked)


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
    assert "applied: expected 25, found 99" in told(plants.count_changed)[0]
    assert "a mark behind it, found none: no worker wrote it" in told(plants.stray)[0]
    at = PLANTS.index(plants.damaged)
    assert f"{plants.WAL}[{at}]@8: not a frame: it does not parse, or has no magic" in lines


@pytest.mark.kafka
def test_verify_with_spark_agrees_with_a_worker_until_a_row_is_planted(
    spark: SparkSession, bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=2)
    env = command_env(bootstrap, settings.journal, tmp_path / "commands", QUICK_JAVA)
    with running_worker(settings), BlockingJournal(settings) as journal:
        journal.activate(Collected())
        for number in range(1, 40):
            journal.add(number << 10 | number % 2, 1, b"%d" % number)
            journal.update(number << 10 | number % 2, 2, b"update")
        for number in range(1, 20):
            journal.delete(number << 10 | number % 2)
        tx = journal.begin()
        journal.add(100 << 10, 1, b"prepared", tx=tx)
        journal.prepare(tx, b"xid").wait()
        journal.flush().wait()

    with pytest.raises(Exit) as ended:
        show(audit(spark, JournalSource.from_settings(settings)), as_json=False)
    assert (ended.value.exit_code, "the WAL and the tables agree" in capsys.readouterr().out) == (0, True)

    row = Record(type=ADD, id=4 << 10, kind=1, data=b"planted", position=Position(offset=1))
    write_values(settings, table_topic(settings.journal), [(0, record_key(4 << 10), row.SerializeToString())])
    command = ("verify", "--with-spark", "--master", "local[2]", "--json")
    planted = run_command(*command, env=env, timeout_s=COMMAND_TIMEOUT_S)
    assert planted.returncode == 1, planted.stdout + planted.stderr
    found = json.loads(planted.stdout)
    assert [shard["differences"]["counts"] for shard in found["shards"]] == [{"row": 1}, {}]
