"""The archive has every committed record of the WAL once, whatever becomes of the jobs that write it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner

from journal.cli.main import app
from journal.errors import ArchiveError, ConfigError, GapError, RowError
from journal.kafka.clients import kafka_of
from journal.topics.control_keys import IDENTITY_KEY, control_row
from journal.v1.journal_pb2 import Frame, Identity
from journal.wire.frames import FORMAT, MAGIC
from loaders.spark.analytics.analytics import analytics
from loaders.spark.archive.result import ArchiveResult
from loaders.spark.read.archived import joined, newest_manifest, read_archive, read_manifests
from loaders.spark.read.readers import read_table, read_transactions, read_wal, stream_table, stream_wal
from loaders.spark.read.source import identity
from loaders.spark.stored.archive_frames import DeltaFrames, ParquetFrames, all_frames, kept_in
from loaders.spark.stored.manifest import Manifest
from loaders.spark.stored.table_stores import TableFormat
from tests.support.build import add, frame
from tests.support.spark.frames import TopicRecord, record_table
from tests.support.spark.jobs import JOB_TIMEOUT_S
from tests.support.spark.killed import Killed
from tests.support.spark.written_wal import LIMIT_S, SHARDS, Written, bytes_of, make_written

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900, func_only=True)]

NOON_MS = 1_700_049_600_000


@pytest.fixture
def journal(bootstrap: str, tmp_path: Path) -> Written:
    return make_written(bootstrap, tmp_path)


def test_the_archive_is_what_a_consumer_reads(journal: Written, spark: SparkSession) -> None:
    journal.frames(10, commit=False)
    journal.foreign(b"no frame at all", b"a key")
    journal.foreign(None)
    journal.frames(10)
    result = journal.run(spark, max_offsets=50)
    assert journal.archived(spark) == journal.wal()
    assert result.batches > 1
    assert (result.records, result.foreign, result.faults) == (82, 2, 0)
    (no_frame,) = [offset for _, offset, key, _ in journal.wal() if key == b"a key"]
    assert result.first_foreign == (journal.source.wal, 0, no_frame)
    assert journal.marks() == result.ends == newest_manifest(spark, journal.path, journal.settings.journal).ends()

    # nothing new, then a little
    again = journal.run(spark)
    assert (again.batches, again.ends, again.first_foreign) == (0, result.ends, None)
    journal.frames(1)
    assert journal.run(spark).records == SHARDS
    assert journal.archived(spark) == journal.wal()

    # the columns say what the bytes do
    rows = read_archive(spark, journal.path).where("shard = 1").orderBy("offset").collect()
    for row in rows:
        value = Frame.FromString(bytes(row["value"]))
        assert (row["number"], row["group"], row["epoch"]) == (value.number, value.group, value.epoch)
        assert (row["node"], row["last"], row["count"]) == (value.node, value.last, value.count)
        assert (row["previous"], row["issued"], row["bytes"]) == (value.previous, value.issued, len(row["value"]))
        assert (bytes(row["uuid"]), row["journal"]) == (journal.uuid, journal.settings.journal)
        assert row["day"] == row["appended"].date()
    (foreign,) = read_archive(spark, journal.path).where("key is not null").collect()
    assert (foreign["shard"], foreign["offset"]) == (0, no_frame)
    assert (bytes(foreign["value"]), foreign["uuid"], foreign["number"]) == (b"no frame at all", None, None)

    # each manifest goes on where the one before it ended
    parts = read_manifests(spark, journal.path).select("number", F.explode("shards").alias("part")).collect()
    for shard in range(SHARDS):
        chain = [row["part"] for row in sorted(parts, key=lambda row: row["number"]) if row["part"]["shard"] == shard]
        starts, ends = [part["start"] for part in chain], [part["end"] for part in chain]
        assert starts == [0, *ends[:-1]]
    assert sum(row["part"]["records"] for row in parts) == len(journal.wal())


def test_a_run_goes_on_where_the_manifests_end_whatever_the_session_says_of_checkpoints(
    journal: Written, spark: SparkSession, tmp_path: Path
) -> None:
    setting = "spark.sql.streaming.checkpointLocation"
    kept = tmp_path / "checkpoints"
    journal.frames(10)

    def fail(_manifest: Manifest) -> None:
        raise LookupError("of the first batch")

    spark.conf.set(setting, kept.as_uri())
    try:
        # what Spark then does with the second batch does not count
        with pytest.raises(LookupError, match="of the first batch"):
            journal.run(spark, max_offsets=30, told=fail)
        assert journal.run(spark).batches == 1
    finally:
        spark.conf.unset(setting)
    assert journal.archived(spark) == journal.wal()
    assert not kept.exists()


def test_killed_at_any_moment_nothing_is_archived_twice_and_nothing_is_missing(
    spark: SparkSession, killed: Killed
) -> None:
    jobs, journal = killed.archives, killed.archives["files"]
    for moment, of in jobs.items():
        manifest = newest_manifest(spark, of.path, of.source.journal)
        assert manifest.number == {"files": 1, "manifest": 2, "delta": 1}[moment]
        # what is archived is a beginning of the WAL, whole
        ends = manifest.ends()
        assert of.archived(spark) == [row for row in of.wal() if row[1] < ends[row[0]]]
        behind = {shard: mark for shard, mark in of.marks().items() if mark < ends[shard]}
        assert bool(behind) == (moment == "manifest")
        of.frames(3)
    files = list(Path(journal.path, "frames").rglob("*.parquet"))
    cut_off_at = 3

    def cut_off(manifest: Manifest) -> None:
        if manifest.number == cut_off_at:
            raise ArchiveError("cut off behind the marks")

    with pytest.raises(ArchiveError, match="cut off"):
        journal.run(spark, max_offsets=40, told=cut_off)
    assert journal.marks() == newest_manifest(spark, journal.path, journal.source.journal).ends()
    in_delta, before = jobs["delta"], delta_records(spark, jobs["delta"])
    assert len(before) > len(in_delta.archived(spark)), "a batch is in the table, and in no manifest"
    for moment, of in jobs.items():
        of.run(spark, kept_as=TableFormat.DELTA if moment == "delta" else TableFormat.PARQUET)
        assert of.archived(spark) == of.wal()
        assert of.marks() == newest_manifest(spark, of.path, of.source.journal).ends()
    assert delta_records(spark, in_delta) == in_delta.wal()
    named = {
        file
        for row in read_manifests(spark, journal.path).collect()
        for part in row["shards"]
        for file in part["files"]
    }
    assert len([file for file in files if str(file.relative_to(journal.path)) not in named]) > 0, "none was cut off"


# ---- several journals of one archive -----------------------------------------------------------------------


def some_records(spark: SparkSession, count: int = 3) -> DataFrame:
    values = [TopicRecord("a.wal", 0, offset, NOON_MS, b"%d" % offset) for offset in range(count)]
    return record_table(spark, "wal", values).coalesce(1)


def held(rows: DataFrame, gate: Path, *, at: int = 0) -> DataFrame:
    """Rows of which a task gets those from an offset on once there is a file `open`; it says so with a file `begun`."""

    def wait(offset: int) -> bool:
        if offset >= at:
            (gate / "begun").touch()
            while not (gate / "open").exists():
                time.sleep(0.05)
        return True

    # an Arrow function would get all rows at once, before any is written
    return rows.where(F.udf(wait, "boolean", useArrow=False)("offset"))


@contextmanager
def meanwhile(gate: Path, job: Future[Any]) -> Iterator[None]:
    """While a job is held."""
    try:
        while not (gate / "begun").exists():
            assert not job.done(), job.result()
            time.sleep(0.05)
        yield
    finally:
        (gate / "open").touch()
    job.result(JOB_TIMEOUT_S)


def test_two_jobs_that_write_at_the_same_moment_take_nothing_from_each_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "archive")
    slow, quick = (ParquetFrames(spark, path, "orders", b"uuid") for _ in range(2))
    rows = held(some_records(spark, 60_000), tmp_path, at=50_000)  # a task has begun a file with those before
    with ThreadPoolExecutor(1) as thread:
        writing = thread.submit(slow.write, rows, slow.new_batch(1))
        with meanwhile(tmp_path, writing):
            quick.write(some_records(spark), quick.new_batch(1))
    assert all_frames(spark, path, "orders").count() == 60_003


# ---- in Delta Lake -----------------------------------------------------------------------------------------


def delta_records(spark: SparkSession, of: Written) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """What anybody who reads the table finds, who knows nothing of manifests."""
    rows = spark.read.format("delta").load(f"{of.path}/table").select("shard", "offset", "key", "value").collect()
    return sorted((row[0], row[1], bytes_of(row[2]), bytes_of(row[3])) for row in rows)


def places_of(entries: DataFrame) -> list[tuple[int, int]]:
    """The place of each operation; a frame has one of them."""
    return sorted((row["shard"], row["offset"]) for row in entries.select("shard", "offset").collect())


def places_in(wal: Iterable[tuple[int, int, bytes | None, bytes | None]]) -> list[tuple[int, int]]:
    return [each[:2] for each in wal]


def test_in_delta_lake_the_archive_is_the_same_and_goes_on_in_that_format_only(
    journal: Written, spark: SparkSession
) -> None:
    journal.foreign(b"no frame at all", b"a key")
    first = journal.run(spark, kept_as=TableFormat.DELTA, max_offsets=50)
    assert (first.batches > 1, first.records, first.foreign) == (True, 61, 1)
    assert journal.archived(spark) == delta_records(spark, journal) == journal.wal()
    before = journal.wal()
    journal.trim(*(first.ends[shard] for shard in range(SHARDS)))
    journal.frames(2)
    found = sorted(before + journal.wal())
    assert places_of(joined(spark, journal.source, identity(journal.source), journal.path)) == places_in(found)
    with pytest.raises(ConfigError, match="go on with --format delta"):
        journal.run(spark)
    oldest, *rest = sorted(Path(journal.path, "manifest", journal.source.journal).glob("*.json"))
    for manifest in rest:  # as a backup has them
        manifest.unlink()
        manifest.with_name(f".{manifest.name}.crc").unlink()
    of_oldest = sum(part["records"] for part in json.loads(oldest.read_text())["shards"])
    again = journal.run(spark, kept_as=TableFormat.DELTA)
    assert again.records == 61 - of_oldest + 2 * SHARDS
    assert journal.archived(spark) == delta_records(spark, journal) == found


def test_in_delta_lake_a_job_that_ended_in_its_first_write_is_gone_on_with(
    journal: Written, spark: SparkSession
) -> None:
    """The job that ended left files in the table's folder, and a log without a commit."""
    table = Path(journal.path, "table")
    left = table / f"journal={journal.source.journal}" / "day=2026-11-21" / "shard=0"
    spark.range(3).selectExpr("id as offset").write.parquet(str(left))
    (table / "_delta_log").mkdir()
    assert kept_in(spark, journal.path) is None
    journal.run(spark, kept_as=TableFormat.DELTA)
    assert kept_in(spark, journal.path) is TableFormat.DELTA
    assert journal.archived(spark) == delta_records(spark, journal) == journal.wal()


def test_in_delta_lake_two_journals_may_make_the_table_at_the_same_moment(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "archive")
    slow, quick = (DeltaFrames(spark, path, name, name.encode() * 4) for name in ("slow", "quick"))
    slow_batch, quick_batch = slow.new_batch(1), quick.new_batch(1)
    late, early = slow.write(some_records(spark), slow_batch), quick.write(some_records(spark), quick_batch)
    assert late is not None
    assert early is not None
    with ThreadPoolExecutor(1) as thread:
        held_up = late._replace(rows=held(late.rows, tmp_path))
        with meanwhile(tmp_path, thread.submit(slow.commit, 1, slow_batch, held_up)):
            quick.commit(1, quick_batch, early)
    table = spark.read.format("delta").load(f"{path}/table")
    assert sorted(map(tuple, table.groupBy("journal").count().collect())) == [("quick", 3), ("slow", 3)]


def test_in_delta_lake_a_batch_of_another_job_s_number_is_refused(journal: Written, spark: SparkSession) -> None:
    """One that was asleep, say, while the other one archived everything."""

    def other_job(manifest: Manifest) -> None:
        if manifest.number == 1:
            journal.run(spark.newSession(), kept_as=TableFormat.DELTA)

    with pytest.raises(ArchiveError, match="another job writes there"):
        journal.run(spark, kept_as=TableFormat.DELTA, max_offsets=20, told=other_job)
    assert journal.archived(spark) == delta_records(spark, journal) == journal.wal()


# ---- gaps and other journals ---------------------------------------------------------------------------------


def test_the_archive_and_what_the_wal_has_behind_it_have_no_gap_and_no_overlap(
    journal: Written, spark: SparkSession
) -> None:
    before = journal.wal()
    ends = journal.run(spark).ends
    journal.trim(*(ends[shard] for shard in range(SHARDS)))
    journal.frames(5)
    found = sorted(before + journal.wal())
    assert places_of(joined(spark, journal.source, identity(journal.source), journal.path)) == places_in(found)
    source = journal.source
    places = ("-b", source.bootstrap_servers, "-j", source.journal, "--master", "local[2]", "--limit", "1000", "--json")
    shown = CliRunner().invoke(app, ["spark", "read", "wal", "--archive", journal.path, *places])
    assert shown.exit_code == 0, shown.output
    assert {(row["shard"], row["offset"]) for row in json.loads(shown.stdout)} == set(places_in(found))
    # and the archive goes on, though what it has is gone
    journal.run(spark)
    assert read_archive(spark, journal.path).count() == len(found)


def test_what_was_trimmed_before_it_was_archived_is_named(journal: Written, spark: SparkSession) -> None:
    first = journal.run(spark).ends
    journal.frames(10)
    journal.trim(first[0] + 4, first[1])
    with pytest.raises(GapError, match=f"shard 0: asked from offset {first[0]} on, the WAL begins at offset"):
        journal.run(spark)
    other = Written(journal.settings, f"{journal.path}-late", journal.numbers)
    with pytest.raises(GapError, match="--from-trimmed"):
        other.run(spark, replace_other=True)
    with pytest.raises(ArchiveError, match="is archived to"):
        other.run(spark, from_trimmed=True)
    other.run(spark, replace_other=True, from_trimmed=True)
    assert other.archived(spark) == journal.wal()
    part = newest_manifest(spark, other.path, journal.settings.journal).parts[0]
    assert part.start == journal.wal()[0][1]
    with pytest.raises(ArchiveError, match="is archived to"):
        journal.run(spark)


def test_a_journal_made_anew_is_not_archived_behind_the_old_one(journal: Written, spark: SparkSession) -> None:
    journal.run(spark)
    row = Identity(magic=MAGIC, format=FORMAT, journal=bytes(16), name=journal.settings.journal, shards=SHARDS)
    producer = kafka_of(journal.settings).plain_producer()
    producer.send([control_row(journal.settings.journal, IDENTITY_KEY, row)], LIMIT_S)
    producer.close()
    journal.frames(10)
    with pytest.raises(ArchiveError, match="it was made anew"):
        journal.run(spark)


@pytest.mark.parametrize("kept_as", TableFormat)
def test_a_wal_that_begins_anew_is_not_archived_behind_the_old_one(
    journal: Written, spark: SparkSession, kept_as: TableFormat
) -> None:
    journal.run(spark, kept_as=kept_as)
    before = journal.wal()
    journal.numbers = [0] * SHARDS
    journal.frames(10)
    for _ in range(2):
        with pytest.raises(GapError, match="it is not the one that was archived"):
            journal.run(spark, kept_as=kept_as)
    assert journal.archived(spark) == before
    if kept_as is TableFormat.DELTA:
        assert delta_records(spark, journal) == before, "it is in the table"
    # and in another place it is archived as it is
    other = Written(journal.settings, f"{journal.path}-anew", journal.numbers)
    other.run(spark, kept_as=kept_as, replace_other=True)
    assert other.archived(spark) == journal.wal()


def test_frames_that_do_not_follow_are_archived_and_counted(journal: Written, spark: SparkSession) -> None:
    journal.frames(5, epoch=2)
    stale = frame(journal.numbers[0] + 3, add(1024), journal=journal.uuid)
    journal.foreign(stale.SerializeToString())
    assert journal.run(spark).faults == 0
    journal.frames(1, epoch=2)
    assert journal.run(spark).faults == 0
    again = frame(2, add(1024), journal=journal.uuid, epoch=2)
    journal.foreign(again.SerializeToString())
    journal.frames(1, epoch=2)
    assert journal.run(spark).faults == 2, "one that comes again, and the one behind it"
    assert journal.archived(spark) == journal.wal()


def test_a_job_that_runs_on_ends_when_it_is_told_to(journal: Written, spark: SparkSession) -> None:
    stop = threading.Event()
    archived = threading.Event()
    results: list[ArchiveResult] = []
    job = threading.Thread(
        target=lambda: results.append(
            journal.run(spark, once=False, every_s=0.2, stop=stop, told=lambda _: archived.set())
        )
    )
    job.start()
    assert archived.wait(60.0)
    stop.set()
    job.join(60.0)
    assert results[0].ends == newest_manifest(spark, journal.path, journal.settings.journal).ends()


def test_one_of_two_jobs_that_keep_an_archive_is_refused(journal: Written, spark: SparkSession) -> None:
    journal.run(spark)
    journal.frames(2)

    def other_job(_: object) -> None:
        later = Path(journal.path, "manifest", journal.settings.journal, f"{3:012d}.json")
        later.write_text(json.dumps({}))

    stolen = threading.Event()
    with pytest.raises(ArchiveError, match="another job has written"):
        journal.run(spark, max_offsets=2, told=other_job, stop=stolen)


def test_what_went_wrong_first_is_what_ends_a_job(journal: Written, spark: SparkSession) -> None:
    """A program that is told of batches may be wrong itself; what came of it in Spark is not what anybody wants to
    know."""

    def is_wrong(_: object) -> None:
        (query,) = spark.streams.active
        checkpoint = urlsplit(query._jsq.streamingQuery().resolvedCheckpointRoot()).path
        Path(checkpoint, "commits", "0").touch()  # ends the query behind this batch
        raise LookupError("no such queue")

    with pytest.raises(LookupError, match="no such queue"):
        journal.run(spark, told=is_wrong)


def test_the_command_archives_and_says_what_it_did(journal: Written, spark: SparkSession) -> None:
    """What is no frame of the journal is named, the first of it, and is no reason to fail."""
    name, source = journal.settings.journal, journal.source
    arguments = ["spark", "archive", "-b", source.bootstrap_servers, "-j", name, "--to", journal.path, "--once"]
    ended = CliRunner().invoke(app, [*arguments, "--json"])
    assert ended.exit_code == 0, ended.output
    told = json.loads(ended.stdout)
    assert (told["records"], told["foreign"], told["first_foreign"], told["faults"]) == (30 * SHARDS, 0, None, 0)
    assert told["offsets"] == [end for _, end in sorted(journal.marks().items())]
    assert "batch 1 is archived: offsets below" in ended.stderr
    assert journal.archived(spark) == journal.wal()

    of_another = frame(1, add(1024), journal=bytes(16)).SerializeToString()
    journal.foreign(of_another)
    journal.foreign(b"no frame at all")
    ended = CliRunner().invoke(app, arguments)
    assert ended.exit_code == 0, ended.output
    (offset,) = [offset for _, offset, _, value in journal.wal() if value == of_another]
    first = f"{source.wal}[0]@{offset}"
    assert f"no frames of this journal among them: 2; the first: {first}\n" in ended.stdout


def test_a_damaged_operation_is_archived_as_a_frame_and_a_dead_letter_of_who_reads_it(
    journal: Written, spark: SparkSession
) -> None:
    """Only what a frame says before its operations is parsed on the way, unless more is asked for."""
    journal.foreign(frame(journal.numbers[0] + 1, add(-1024), journal=journal.uuid).SerializeToString())
    result = journal.run(spark)
    assert (result.records, result.foreign, result.first_foreign, result.faults) == (61, 0, None, 0)
    assert (result.damaged, result.first_damaged) == (None, None)
    (letter,) = read_wal(spark, journal.source, include_archive=journal.path).dead_letters.collect()
    at = max(offset for shard, offset, *_ in journal.wal() if shard == 0)
    assert (letter["partition"], letter["offset"]) == (0, at)

    journal.foreign(b"no frame at all")
    other = f"{journal.path}-other"
    arguments = ["spark", "archive", "-b", journal.source.bootstrap_servers, "-j", journal.source.journal, "--once"]
    asked = [*arguments, "--to", other, "--replace", "--check-operations"]
    ended = CliRunner().invoke(app, asked)
    assert ended.exit_code == 0, ended.output
    first = f"{journal.source.wal}[0]@{at}"
    assert f"frames with operations that must not be there: 1; the first: {first}\n" in ended.stdout
    ended = CliRunner().invoke(app, [*asked, "--json"])
    told = json.loads(ended.stdout)
    assert (told["records"], told["foreign"], told["damaged"], told["first_damaged"]) == (0, 0, 0, None)


def test_a_journal_of_another_format_is_neither_read_nor_archived(journal: Written, spark: SparkSession) -> None:
    """Its control row says so before anything of it is taken for a frame."""
    name = journal.settings.journal
    row = Identity(magic=MAGIC, format=FORMAT + 1, journal=journal.uuid, name=name, shards=SHARDS)
    producer = kafka_of(journal.settings).plain_producer()
    producer.send([control_row(name, IDENTITY_KEY, row)], LIMIT_S)
    producer.close()
    reads: list[Callable[[], object]] = [
        lambda: identity(journal.source),
        lambda: read_wal(spark, journal.source),
        lambda: read_table(spark, journal.source),
        lambda: stream_wal(spark, journal.source),
        lambda: stream_table(spark, journal.source),
        lambda: read_transactions(spark, journal.source),
        lambda: analytics(spark, journal.source),
        lambda: journal.run(spark),
    ]
    said = f"the journal has format {FORMAT + 1}, this kafka-journal reads {FORMAT}"
    for read in reads:
        with pytest.raises(RowError, match=rf"{name}\.control\[0\]@\d+: {said}"):
            read()
    assert not Path(journal.path).exists()
