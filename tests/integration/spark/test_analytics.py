"""Queue analytics are what going through the operations one by one gives, in one go and as a stream."""

from __future__ import annotations

import json
import math
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner

from journal.cli.main import app
from journal.cli.spark.analytics import to_json
from journal.errors import ArchiveError, ConfigError, TopicError
from journal.kafka.clients import kafka_of
from journal.topics.marks import records_between
from journal.v1.journal_pb2 import Operation
from journal.v1.store_pb2 import Queue, RecordKind, UpdateKind
from journal.wire.keys import skipped_key
from loaders.spark.analytics.analytics import Analytics, analysed, analytics
from loaders.spark.analytics.follow import Over, WindowsFollower, follow
from loaders.spark.analytics.queue_events import DeadLetters
from loaders.spark.analytics.window_sinks import WHOLE, Sink, WindowSpan, to_delta, to_files, to_topic
from loaders.spark.archive.archive import archive
from loaders.spark.fold.fold import is_one_of
from loaders.spark.read.archived import require_beginning
from loaders.spark.read.source import JournalIdentity, JournalSource
from loaders.spark.stored.manifest import Manifest, ManifestLog, ShardPart
from tests.support.build import JOURNAL, START_MS, add, frame, marker, skipped, update
from tests.support.in_process import made_journal
from tests.support.long_form import long_form
from tests.support.spark.frames import TopicRecord, record_table
from tests.support.spark.history import History, write_values
from tests.support.spark.jobs import KILLED, ended_jobs, jars_of
from tests.support.spark.queue_life import SHARDS, Life, Writer, rows
from tests.support.spark.queue_life import Row as Expected

pytestmark = pytest.mark.timeout(400)

WIDTH_MS = 2_000
SMALL_BATCHES: Mapping[str, Any] = {"width_s": 0.05, "lateness_s": 0, "once": True, "max_offsets": 20}
LIMIT_S = 30.0
IDENTITY = JournalIdentity(JOURNAL, SHARDS)
OF_ANOTHER = frame(99, add(1 << 10, kind=RecordKind.MESSAGE), add(2 << 10, kind=RecordKind.MESSAGE), journal=bytes(16))
BAD = [
    TopicRecord("j.wal", 1, 99_991, START_MS + 10**9, b"garbage"),
    TopicRecord("j.wal", 0, 99_990, START_MS - 10**9, OF_ANOTHER.SerializeToString()),
]


def records_of(spark: SparkSession, records: Iterable[TopicRecord]) -> DataFrame:
    return record_table(spark, "entries", records, IDENTITY).withColumn("skip", F.lit(False))


def nearest_rank(sorted_values: tuple[int, ...], share: float) -> float | None:
    return sorted_values[max(0, math.ceil(share * len(sorted_values)) - 1)] / 1000 if sorted_values else None


def check_rows(found: Iterable[Row], expected: Mapping[tuple[int, str], Expected]) -> None:
    """Every number of every window."""
    told = {(round(row["window_start"].timestamp() * 1000), row["queue"]): row for row in found}
    assert told.keys() == expected.keys()
    for key, wanted in expected.items():
        row = told[key]
        for name in wanted._fields[:-1]:
            assert row[name] == getattr(wanted, name), (key, name)
        for name, share in (("p50_s", 0.5), ("p99_s", 0.99)):
            assert row[name] == nearest_rank(wanted.stayed_ms, share), (key, name)


@pytest.fixture(scope="module")
def written() -> list[TopicRecord]:
    return Writer(seed=7).write(600)


def test_every_number_of_every_window_is_what_the_operations_come_to(
    spark: SparkSession, written: list[TopicRecord]
) -> None:
    """And records that are no frames are counted, and count nowhere: not even their time does."""
    life = Life(written)
    found = analysed(records_of(spark, [*written, *BAD]), "j", WIDTH_MS / 1000)
    check_rows(found.windows.collect(), rows(life, WIDTH_MS))
    check_whole(found, life)
    assert (found.from_ms, found.until_ms) == (written[0].timestamp_ms, life.until)
    assert found.dead_letters == DeadLetters(
        2, "j.wal[0]@99990: frame of another journal: uuid 00000000000000000000000000000000"
    )


def check_whole(found: Analytics, life: Life) -> None:
    left = tuple(sorted(stay.left - stay.entered for stay in life.stays if stay.left is not None))
    total = found.total
    assert (total.came_in, total.went_out) == (len(life.stays), len(left))
    assert total.depth == len(life.stays) - len(left) == sum(queue.depth for queue in found.queues)
    assert total.redeliveries == sum(len(stay.returns) for stay in life.stays) > 0
    assert (total.p50_s, total.p99_s) == (nearest_rank(left, 0.5), nearest_rank(left, 0.99))
    oldest = min(stay.entered for stay in life.stays if stay.left is None)
    assert total.oldest_age_s == (life.until - oldest) / 1000
    assert sum(found.latencies.values()) == len(left)
    assert [(epoch.epoch, epoch.node) for epoch in found.epochs] == [(1, "node-1"), (2, "node-2")]
    assert [queue.came_in for queue in found.queues] == sorted((queue.came_in for queue in found.queues), reverse=True)


def test_a_stream_tells_each_window_once_and_as_a_batch_does(
    spark: SparkSession, written: list[TopicRecord], tmp_path: Path
) -> None:
    """In micro-batches that cut transactions and windows apart; the last one is given again, as after a kill, the first
    one also runs in a job that was overtaken and wakes up late, and in the end the state of the first one is put back.
    Files and a table have each window once all the same."""
    state, aside, files, table = (str(tmp_path / name) for name in ("state", "aside", "files", "table"))
    bad: list[DeadLetters] = []
    asleep, anew, older = (WindowsFollower(spark, IDENTITY, state, 4 * WIDTH_MS, 1_000) for _ in range(3))
    follower = WindowsFollower(spark, IDENTITY, state, 4 * WIDTH_MS, 1_000, bad.append)
    assert [asleep.begin(), follower.begin()] == [False, False]
    assert asleep.name != follower.name
    with pytest.raises(ConfigError, match="another job goes on from the state"):
        asleep.require()
    sinks = [to_files(files), to_delta(table)]
    life = Life(written)
    told: list[Row] = []

    def give(over: Over | None) -> list[Row]:
        assert over is not None
        for sink in sinks:
            sink(*over)
        return over.windows.collect()

    def kept() -> list[list[Row]]:
        tables = (spark.read.parquet(files).drop("batch"), spark.read.format("delta").load(table))
        return [sorted(each.collect()) for each in tables]

    told += give(follower.windows(records_of(spark, written[:300])))
    follower.sent()
    assert follower.unsent() is None
    shutil.copytree(state, aside)
    last = give(follower.windows(records_of(spark, [*written[300:], BAD[0]])))
    told += last
    assert asleep.windows(records_of(spark, [])) is None
    assert (anew.begin(), anew.name, anew.ends) == (True, follower.name, follower.ends)
    assert sorted(give(anew.unsent())) == sorted(last)
    assert kept() == [sorted(told)] * 2
    assert bad == [DeadLetters(1, "j.wal[1]@99991: not a frame: it does not parse")]
    check_of_its_own_journal_and_width(spark, state)
    anew.require()
    shutil.rmtree(state)
    shutil.copytree(aside, state)
    assert older.begin()
    assert older.unsent() is None
    behind = [each for each in written if each.offset >= older.ends[each.partition]]
    assert behind == written[300:]
    much_later = TopicRecord("j.wal", 0, 99_990, life.until + 60_000, frame(50_000, epoch=2).SerializeToString())
    give(older.windows(records_of(spark, [*behind, much_later])))
    newest = max(row["window_start"] for row in told)
    for found in kept():
        assert [row for row in found if row["window_start"] <= newest] == sorted(told)
        assert len(found) > len(told)
    for sink in sinks:
        with pytest.raises(ConfigError, match=r"has the windows before \d+, and the state goes on with 10000000000"):
            sink(spark.range(0), WindowSpan(older.name, 10_000_000_000, 10_000_000_001))
    over = (life.until - 1_000) // (4 * WIDTH_MS) * 4 * WIDTH_MS
    expected = {key: row for key, row in rows(life, 4 * WIDTH_MS).items() if key[0] < over}
    check_rows(told, expected)
    assert len(told) == len(expected)


def check_of_its_own_journal_and_width(spark: SparkSession, state: str) -> None:
    wider = WindowsFollower(spark, IDENTITY, state, 24 * WIDTH_MS, 1_000)
    with pytest.raises(ConfigError, match=r"is of windows of 8 s, not 48 s"):
        wider.begin()
    another = WindowsFollower(spark, JournalIdentity(bytes(16), SHARDS), state, 4 * WIDTH_MS, 1_000)
    with pytest.raises(ConfigError, match=f"of a journal with uuid {JOURNAL.hex()}, not {bytes(16).hex()}"):
        another.begin()


def test_what_comes_behind_the_watermark_counts_in_the_next_window_and_keeps_its_own_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Shard 1 lags: what it has of the fourth second comes when the windows up to the tenth have been told. One of its
    frames an operator had skipped: it is left out."""
    here, there, waits, went, left_out = 900 << 10, 901 << 10 | 1, 2 << 10 | 1, 3 << 10 | 1, 4 << 10 | 1
    begun = START_MS // WIDTH_MS * WIDTH_MS
    numbers = [0, 0]

    def record(shard: int, at_ms: int, *operations: Operation) -> TopicRecord:
        numbers[shard] += 1
        value = frame(numbers[shard], *operations).SerializeToString()
        return TopicRecord("j.wal", shard, numbers[shard], begun + at_ms, value)

    def queue(record_id: int) -> Operation:
        return add(
            record_id, Queue(name=f"queue {record_id & 1}", address="a").SerializeToString(), kind=RecordKind.QUEUE
        )

    def sent(message: int, to: int) -> list[Operation]:
        return [add(message, b"body", kind=RecordKind.MESSAGE), update(message, kind=UpdateKind.ROUTE, subject=to)]

    in_time = [
        record(0, 0, marker()),
        record(0, 0, queue(here)),
        record(1, 0, marker()),
        record(1, 0, queue(there)),
        record(0, 1_000, *sent(1 << 10, here)),
        record(0, 11_500),
    ]
    late = [
        record(1, 3_000, *sent(waits, there), *sent(went, there)),
        record(1, 4_000, update(went, kind=UpdateKind.ACKNOWLEDGE, subject=there)),
        record(1, 4_000, *sent(left_out, there)),
        record(0, 15_500),
    ]
    skip = is_one_of([(1, late[2].offset)])
    follower = WindowsFollower(spark, IDENTITY, str(tmp_path), WIDTH_MS, 1_000)
    follower.begin()
    told = [follower.windows(records_of(spark, batch).withColumn("skip", skip)) for batch in (in_time, late)]
    first, second = (
        {
            (round(row["window_start"].timestamp() * 1000) - begun, row["queue"]): row.asDict()
            for row in (each.windows.collect() if each is not None else [])
        }
        for each in told
    )
    assert {key: row["depth"] for key, row in first.items()} == dict.fromkeys(
        [(start, "queue 0") for start in range(0, 10_000, WIDTH_MS)], 1
    )
    assert first.keys().isdisjoint(second), "a window that was told is not told again"
    counted = second[10_000, "queue 1"]
    assert {name: counted[name] for name in ("came_in", "went_out", "late", "depth")} == {
        "came_in": 2,
        "went_out": 1,
        "late": 3,
        "depth": 1,
    }
    # since the third second, and after one second
    assert (counted["oldest_age_s"], counted["p50_s"]) == (9.0, 1.0)
    after = second[12_000, "queue 1"]
    assert (after["came_in"], after["late"], after["depth"], after["oldest_age_s"]) == (0, 0, 1, 11.0)
    assert {row["late"] for key, row in (first | second).items() if key[1] == "queue 0"} == {0}


@pytest.mark.parametrize("to", [to_files, to_delta], ids=["files", "delta"])
def test_a_place_has_the_newest_windows_of_a_batch_or_those_of_one_stream(
    spark: SparkSession, tmp_path: Path, to: Callable[[str], Sink]
) -> None:
    whole, streamed, other = (str(tmp_path / name) for name in ("whole", "streamed", "other"))
    read = spark.read.format("delta" if to is to_delta else "parquet")

    def numbers(place: str) -> list[int]:
        return sorted(row["id"] for row in read.load(place).collect())

    to(whole)(spark.range(3), WHOLE)
    to(whole)(spark.range(5), WHOLE)
    assert numbers(whole) == list(range(5))
    for number in (0, 1, 1):
        to(streamed)(spark.range(number, number + 1), WindowSpan("one", number, number + 1))
    assert numbers(streamed) == [0, 1]
    with pytest.raises(ConfigError, match="windows of another run: go on with the --state that they are of"):
        to(streamed)(spark.range(1), WindowSpan("another", 0, 1))
    for place in (whole, streamed):
        with pytest.raises(ConfigError, match="windows of another run"):
            to(place)(spark.range(1), WindowSpan("another", 0, 1) if place == whole else WHOLE)
    spark.range(7).write.parquet(other)
    with pytest.raises(ConfigError, match="other things in it"):
        to(other)(spark.range(1), WHOLE)
    assert (numbers(whole), numbers(streamed)) == (list(range(5)), [0, 1])


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--follow", "--once", "--window-s", "0"), "expected 0.001 s or more"),
        (("--follow", "--once", "--window-s", "0.0001"), "expected 0.001 s or more"),
        (("--follow", "--once", "--window-s", "-1"), "expected 0.001 s or more"),
        (("--follow", "--once", "--lateness-s", "inf"), "a lateness of inf s: expected 0 s or more"),
        (("--once",), "--once ends what --follow begins"),
    ],
    ids=["none", "tiny", "negative", "endless", "once"],
)
def test_what_a_stream_cannot_be_asked_is_refused(
    spark: SparkSession, history: History, options: tuple[str, ...], expected: str
) -> None:
    places = ("-b", history.settings.bootstrap_servers, "-j", history.settings.journal)
    ended = CliRunner().invoke(app, ["spark", "analytics", *options, *places])
    assert (ended.exit_code, expected in ended.stderr) == (2, True), ended.output


@pytest.mark.kafka
def test_a_stream_says_how_many_records_operators_had_skipped(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=1)
    source = JournalSource.from_settings(settings)
    write_values(settings, source.wal, [(0, None, b"no frame"), (0, None, b"nor this")])
    write_values(settings, source.table, [(0, skipped_key(0, 1), skipped(1).SerializeToString())])
    bad, left_out = list[DeadLetters](), list[int]()
    told: dict[str, Any] = {"bad_input": bad.append, "left_out": left_out.append}
    follow(spark, source, str(tmp_path / "state"), lambda _windows, _told: None, once=True, **told)
    assert (left_out, bad) == ([1], [DeadLetters(1, f"{source.wal}[0]@0: not a frame: it does not parse")])


@pytest.mark.kafka
def test_a_stream_that_is_stopped_fails_or_is_overtaken_gives_its_sink_nothing_more(
    spark: SparkSession, history: History, tmp_path: Path
) -> None:
    """However much there is to come. What ends a sink ends the stream as it is."""
    state, stop, told = str(tmp_path / "state"), threading.Event(), list[int]()
    stream = partial(follow, spark, history.source, state, **SMALL_BATCHES)

    def stops(_windows: DataFrame, which: WindowSpan) -> None:
        told.append(which.first)
        stop.set()

    def is_wrong(_windows: DataFrame, which: WindowSpan) -> None:
        told.append(which.first)
        raise LookupError("no such queue")

    def another_begins(_windows: DataFrame, which: WindowSpan) -> None:
        told.append(which.first)
        (writer,) = Path(state, "writers").glob("0*")
        writer.with_name("000000009-another").touch()

    stream(stops, stop=stop)
    with pytest.raises(LookupError, match="no such queue"):
        stream(is_wrong)
    with pytest.raises(ConfigError, match="one at a time may, end one"):
        stream(another_begins)
    assert len(told) == 3
    assert told[0] < told[1] == told[2], "what a sink has not taken is given again"
    stream(lambda _windows, _which: None, max_offsets=100)
    first, last = sorted(each.name for each in Path(state, "left").iterdir())
    assert int(first.partition("-")[0]) + 1 == int(last.partition("-")[0]), "what the last two micro-batches left"


@long_form
@pytest.mark.kafka
def test_killed_at_any_moment_a_stream_goes_on_and_has_every_window_once(
    spark: SparkSession, history: History, tmp_path: Path
) -> None:
    moments = ("half", "left", "told")
    source, batch = history.source, 25
    places = (source.bootstrap_servers, jars_of(spark), source.journal, str(tmp_path), str(batch))
    code, said = ended_jobs("analytics_job", *places, *moments)
    assert code == KILLED, said
    whole = {name: [(each / "clock" / "_SUCCESS").exists() for each in left_at(tmp_path / name)] for name in moments}
    assert whole == {"half": [True, False], "left": [True, True], "told": [True, True]}
    windows = {}
    for name in ("whole", *moments):
        files = tmp_path / f"{name}-windows"
        follow(spark, source, str(tmp_path / name), to_files(str(files)), **SMALL_BATCHES | {"max_offsets": batch})
        windows[name] = sorted(spark.read.parquet(str(files)).collect())
        assert int(left_at(tmp_path / name)[-1].name.partition("-")[0]) >= 2
    assert len(windows["whole"]) > 10
    for moment in moments:
        assert windows[moment] == windows["whole"], moment


def left_at(state: Path) -> list[Path]:
    """What micro-batches left, in their order."""
    return sorted((state / "left").glob("*"))


@pytest.mark.kafka
def test_a_topic_gets_each_window_of_the_stream_once(spark: SparkSession, history: History, tmp_path: Path) -> None:
    settings, topic = history.settings, f"{history.settings.journal}-windows"
    cluster = kafka_of(settings).cluster()
    cluster.create(topic, 1, 1, {}, LIMIT_S)
    cluster.close()

    def windows() -> list[dict[str, Any]]:
        reader = kafka_of(settings).reader(topic)
        try:
            start, end = reader.start_and_end(0, LIMIT_S)
            found = records_between(reader, 0, start, end, clock=time.monotonic, stall_s=LIMIT_S, name=topic)
            return [{"key": record.key, **json.loads(record.value or b"")} for record in found]
        finally:
            reader.close()

    with pytest.raises(ConfigError, match="is the journal's own"):
        to_topic(history.source, history.source.table)
    with pytest.raises(TopicError, match="topic nowhere, which the windows are to go to, is not there"):
        to_topic(history.source, "nowhere")(spark.sql("select 'q' as queue"), WHOLE)
    told = []
    stream = ("--follow", "--once", "--window-s", "0.05", "--lateness-s", "0", "--state", str(tmp_path / "state"))
    for _ in range(2):
        assert command(history, "analytics", *stream, "--to", f"topic:{topic}") == ""
        told.append(windows())
    with pytest.raises(ConfigError, match=r"of windows of 0\.05 s, not 10 s"):
        follow(spark, history.source, str(tmp_path / "state"), to_topic(history.source, topic), once=True)
    assert told[0] == told[1]
    assert len({(each["key"], each["window_start"]) for each in told[0]}) == len(told[0])
    assert all(each["key"] == each["queue"].encode() for each in told[0])
    by_queue = {name: [each for each in told[0] if each["queue"] == name] for name in ("orders/eu", "orders/us")}
    waiting, gone = len(history.waiting), len(history.acknowledged)
    came_and_went = {
        name: (sum(each["came_in"] for each in rows_), sum(each["went_out"] for each in rows_))
        for name, rows_ in by_queue.items()
    }
    assert came_and_went == {"orders/eu": (waiting, 0), "orders/us": (gone, gone)}
    last = max(by_queue["orders/eu"], key=lambda each: each["window_start"])
    assert (last["depth"], last["in_doubt"]) == (waiting, 1)
    assert sum(each["redeliveries"] for each in by_queue["orders/eu"]) == 1


def command(history: History, *arguments: str) -> str:
    """What `spark …` prints."""
    places = ("-b", history.settings.bootstrap_servers, "-j", history.settings.journal)
    ended = CliRunner().invoke(app, ["spark", *arguments, *places])
    assert ended.exit_code == 0, ended.output
    return ended.stdout


@pytest.mark.kafka
def test_commands_say_what_queues_were_like(spark: SparkSession, history: History, tmp_path: Path) -> None:
    waiting, gone = len(history.waiting), len(history.acknowledged)
    files, page = tmp_path / "windows", tmp_path / "pages" / "report.html"
    told = json.loads(command(history, "analytics", "--json", "--to", str(files)))
    queues = {each["queue"]: (each["came_in"], each["went_out"], each["depth"]) for each in told["queues"]}
    assert queues == {"orders/eu": (waiting, 0, waiting), "orders/us": (gone, gone, 0)}
    assert (told["total"]["came_in"], told["total"]["in_doubt"], told["dead_letters"]) == (waiting + gone, 1, 0)
    assert [each["epoch"] for each in told["epochs"]] == [1, 2]
    written = spark.read.parquet(str(files)).groupBy("queue").agg(F.sum("came_in")).collect()
    assert {row[0]: row[1] for row in written} == {"orders/eu": waiting, "orders/us": gone}
    reported = json.loads(command(history, "report", "--json", "--to", str(page)))
    assert reported == {**told, "report": str(page)}
    text = page.read_text()
    assert f"Queues of journal {history.settings.journal}" in text
    assert "orders/eu" in text


@pytest.mark.kafka
def test_analytics_of_an_archive_are_those_of_the_wal_and_ask_no_kafka(
    spark: SparkSession, history: History, tmp_path: Path
) -> None:
    path, page, name = str(tmp_path / "archive"), tmp_path / "report.html", history.settings.journal
    archive(spark, history.source, path, once=True, replace_other=True)
    of_wal = analytics(spark, history.source)
    expected = sorted(of_wal.windows.collect())
    assert sum(row["came_in"] for row in expected) == len(history.waiting) + len(history.acknowledged)
    assert of_wal.skipped == 0

    files, told = tmp_path / "windows", to_json(of_wal)
    places = ("--from-archive", path, "-b", "127.0.0.1:1", "-j", name, "--json")
    written = f"windows were written to {files}\n"
    for command_, to, more, said in (("analytics", files, {}, written), ("report", page, {"report": str(page)}, "")):
        ended = CliRunner().invoke(app, ["spark", command_, "--to", str(to), *places])
        assert (ended.exit_code, ended.stderr) == (0, said), ended.output
        assert json.loads(ended.stdout) == told | more
    assert sorted(spark.read.parquet(str(files)).drop("batch").collect()) == expected
    assert "orders/eu" in page.read_text()


def test_an_archive_without_its_beginning_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Depths would be wrong. What of a shard comes in a later batch may begin there."""

    def begun(journal: str, *batches: tuple[ShardPart, ShardPart]) -> None:
        log = ManifestLog(spark, str(tmp_path), journal)
        for number, parts in enumerate(batches, 1):
            log.commit(Manifest(bytes(16), journal, JOURNAL, number, f"b{number}", START_MS, dict(enumerate(parts))))

    later = ShardPart(1, 0, 10, records=9, frames=9, first=1, last=9)
    trimmed = ShardPart(0, 120, 140, records=5, frames=5, first=37, last=41)
    whole = ShardPart(0, 0, 140, records=41, frames=41, first=1, last=41)
    more = ShardPart(0, 140, 150, records=5, frames=5, first=42, last=46)
    begun("late", (trimmed, ShardPart(1, 0, 0)), (more, later))
    begun("whole", (whole, ShardPart(1, 0, 0)), (more, later))
    with pytest.raises(ArchiveError, match=r"\(shard 0 begins at offset 120\)"):
        analytics(spark, JournalSource("127.0.0.1:1", "late"), archive=str(tmp_path))
    require_beginning(spark, str(tmp_path), "whole")
