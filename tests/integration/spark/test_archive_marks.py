"""What the archive's marks hold, and what is read of a WAL that is archived, trimmed or repaired meanwhile."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from journal.errors import ArchiveError, CorruptionError, GapError
from journal.topics.control_keys import skip_key
from journal.v1.journal_pb2 import Archive, SkipRequest
from journal.wire.keys import skipped_key
from loaders.spark.analytics.analytics import analytics
from loaders.spark.archive import archive as archiving
from loaders.spark.fold.fold import state_as_of
from loaders.spark.read.archived import newest_manifest, read_manifests
from loaders.spark.read.loading import load_stream
from loaders.spark.read.readers import read_wal
from loaders.spark.read.source import JournalSource
from loaders.spark.replay.replaying import Filter, Selection
from loaders.spark.stored.manifest import Manifest
from loaders.spark.stored.table_stores import TableFormat
from tests.support.build import add, frame, skipped
from tests.support.spark.history import write_values
from tests.support.spark.written_wal import SHARDS, Written, make_written

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900, func_only=True)]

NOTHING = dict.fromkeys(range(SHARDS), 0)


@pytest.fixture
def journal(bootstrap: str, tmp_path: Path) -> Written:
    return make_written(bootstrap, tmp_path)


def elsewhere(journal: Written, name: str) -> Written:
    """The same journal with another place for its archive."""
    return Written(journal.settings, f"{journal.path}-{name}", journal.numbers)


def test_an_archive_that_takes_another_s_place_holds_the_wal_before_it_has_anything(
    journal: Written, spark: SparkSession
) -> None:
    journal.run(spark)
    stopped = threading.Event()
    stopped.set()
    other = elsewhere(journal, "other")
    assert other.run(spark, replace_other=True, stop=stopped).batches == 0
    assert journal.marks() == NOTHING
    with pytest.raises(ArchiveError, match=f"is archived to {other.path}"):
        journal.run(spark)
    # it is begun, and gone on with as it is
    begun = {mark.archive for mark in journal.mark_rows().values()}
    ends = other.run(spark).ends
    assert {newest_manifest(spark, other.path, other.source.journal).archive} == begun
    assert journal.marks() == ends
    assert other.archived(spark) == journal.wal()


def test_a_job_whose_archive_was_replaced_while_it_ran_is_refused_and_the_marks_stay_the_other_s(
    journal: Written, spark: SparkSession
) -> None:
    other = elsewhere(journal, "other")

    def replaced(manifest: Manifest) -> None:
        if manifest.number == 1:
            other.run(spark.newSession(), replace_other=True)

    with pytest.raises(ArchiveError, match=f"is archived to {other.path} by now"):
        journal.run(spark, max_offsets=20, told=replaced)
    assert {mark.path for mark in journal.mark_rows().values()} == {other.path}
    assert journal.marks() == newest_manifest(spark, other.path, other.source.journal).ends()


def test_what_is_trimmed_between_the_look_at_the_wal_and_the_first_batch_is_an_error(
    journal: Written, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trimmed_first(*arguments: Any, **options: Any) -> DataFrame:
        journal.trim(5, 0)
        return load_stream(*arguments, **options)

    monkeypatch.setattr(archiving, "load_stream", trimmed_first)
    with pytest.raises(GapError):
        journal.run(spark)
    assert journal.marks() == NOTHING


def test_control_rows_that_do_not_parse_or_are_of_another_journal_count_as_absent(
    journal: Written, spark: SparkSession
) -> None:
    old = Archive(journal=bytes(16), shard=1, offset=7, archive=b"another", path="/old").SerializeToString()
    rows = [(0, b"archive/0", b"\xff"), (0, b"trim/0", b"\xff"), (0, b"archive/1", old)]
    write_values(journal.settings, journal.source.control, rows)
    assert journal.run(spark).records == 30 * SHARDS
    assert journal.archived(spark) == journal.wal()


def test_the_archive_that_the_journal_s_marks_are_of_is_read_with_the_wal(
    journal: Written, spark: SparkSession
) -> None:
    source = journal.source
    with pytest.raises(ArchiveError, match="has no archive: name the archive's path"):
        read_wal(spark, source, include_archive=True)
    ends = journal.run(spark).ends
    whole = sorted(journal.wal())
    journal.trim(ends[0] - 3, ends[1])
    with pytest.raises(GapError, match=r"\(include_archive=True reads it from the archive, starting="):
        read_wal(spark, source)
    journal.frames(2)
    found = read_wal(spark, source, include_archive=True).frames.select("shard", "offset").collect()
    assert len(found) == len(set(found)) == len(whole) + 2 * SHARDS
    # one that lacks the beginning is as good as none
    late = elsewhere(journal, "late")
    late.run(spark, replace_other=True, from_trimmed=True)
    with pytest.raises(ArchiveError, match=r"without its beginning \(shard 0 begins at offset"):
        read_wal(spark, source, include_archive=late.path)
    with pytest.raises(ArchiveError, match="without its beginning"):
        state_as_of(spark, source, time=datetime.now(UTC), archive=late.path)


@pytest.mark.parametrize("epoch", [1, 9])
def test_a_frame_that_operators_had_skipped_does_not_keep_later_ones_from_the_archive(
    journal: Written, spark: SparkSession, epoch: int
) -> None:
    """The frame has a number or an epoch that was never there. A job archives it, and the frames behind it, before an
    operator has it skipped."""
    source = journal.source
    wrong = frame(1000, add(1024), journal=journal.uuid, epoch=epoch).SerializeToString()
    journal.foreign(wrong)
    assert journal.run(spark).faults == 1
    offset = max(row[1] for row in journal.wal() if row[0] == 0)
    journal.frames(2)
    if epoch == 1:
        with pytest.raises(GapError, match="or have the frame skipped"):
            journal.run(spark)
    row = skipped(offset, raw=wrong).SerializeToString()
    write_values(journal.settings, source.table, [(0, skipped_key(0, offset), row)])
    result = journal.run(spark)
    part = newest_manifest(spark, journal.path, source.journal).parts[0]
    assert (result.faults, part.last, part.epoch) == (0, journal.numbers[0], 1)
    journal.frames(2)
    assert journal.run(spark).faults == 0
    assert journal.archived(spark) == journal.wal()


def test_an_archive_says_what_operators_had_skipped_to_who_has_nothing_but_the_archive(
    journal: Written, spark: SparkSession
) -> None:
    """Also if there is nothing else to archive, and of a skip that was asked for only what a worker did."""
    source = journal.source
    name, nowhere = source.journal, JournalSource("127.0.0.1:1", source.journal)
    broken = frame(journal.numbers[0] + 1, add(-1024), journal=journal.uuid)
    journal.foreign(broken.SerializeToString())
    offset = max(row[1] for row in journal.wal() if row[0] == 0)
    place = (0, offset)
    assert journal.run(spark, check_operations=True).first_damaged == (source.wal, *place)
    with pytest.raises(CorruptionError, match=f"so does --skip 0:{offset}"):
        Selection(spark, journal.path, newest_manifest(spark, journal.path, name), Filter())

    request = SkipRequest(journal=journal.uuid, shard=0, offset=offset).SerializeToString()
    of_another = SkipRequest(journal=bytes(16), shard=0, offset=1).SerializeToString()
    requests = [(0, skip_key(*place), request), (0, skip_key(0, 1), of_another)]
    write_values(journal.settings, source.control, requests)
    asked = journal.run(spark)
    assert (asked.batches, asked.skipped, newest_manifest(spark, journal.path, name).number) == (0, 0, 1)
    row = skipped(offset, raw=broken.SerializeToString()).SerializeToString()
    write_values(journal.settings, source.table, [(0, skipped_key(*place), row)])
    for number in (2, 2):
        done = journal.run(spark)
        manifest = newest_manifest(spark, journal.path, name)
        assert (done.batches, done.records, done.skipped, manifest.number) == (0, 0, 1, number)
    assert manifest.skipped == (place,)
    journal.frames(2)
    assert journal.run(spark).skipped == 1
    assert journal.archived(spark) == journal.wal()
    assert journal.marks() == newest_manifest(spark, journal.path, name).ends()

    found = analytics(spark, nowhere, archive=journal.path)
    assert (found.skipped, found.dead_letters.count) == (1, 0)
    manifests = read_manifests(spark, journal.path, name).orderBy("number").select("number", "skipped").collect()
    assert [(row["number"], [tuple(each) for each in row["skipped"]]) for row in manifests] == [
        (1, []),
        (2, [place]),
        (3, [place]),
    ]
    selection = Selection(spark, journal.path, newest_manifest(spark, journal.path, name), Filter())
    operations = sum(row["operations"] for row in selection.counts())
    assert operations == sum(journal.numbers) - SHARDS  # all but the markers

    # an archive that begins when all skips are known
    delta = elsewhere(journal, "delta")
    assert delta.run(spark, replace_other=True, kept_as=TableFormat.DELTA).skipped == 1
    journal.frames(1)
    assert delta.run(spark, kept_as=TableFormat.DELTA).records == SHARDS
    assert delta.archived(spark) == journal.wal()
