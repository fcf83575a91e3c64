"""Readers of a real journal: what was written is there once, as it was written, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from typer.testing import CliRunner

from journal.cli.main import app
from journal.errors import ConfigError, GapError, KafkaUnavailableError, TopicError
from journal.v1.journal_pb2 import Epoch, Frame, OperationType
from journal.wire.keys import skipped_key
from loaders.spark.fold.fold import is_skipped, state_as_of
from loaders.spark.read.data_source import KafkaJournal
from loaders.spark.read.loading import load
from loaders.spark.read.options import ReadOptions
from loaders.spark.read.readers import (
    Table,
    Wal,
    read_table,
    read_transactions,
    read_wal,
    stream_table,
    stream_wal,
)
from loaders.spark.read.schemas import table_schema
from loaders.spark.read.source import EARLIEST, JournalSource, identity
from loaders.spark.read.stream_reader import StreamReader
from loaders.spark.session.failures import journal_errors
from loaders.spark.tables.store_columns import messages, with_store_columns
from tests.support.build import add, frame, marker, skipped
from tests.support.children.stream_job import streamed, written
from tests.support.in_process import made_journal
from tests.support.spark.history import (
    EXPIRES_MS,
    SENT_MS,
    SHARDS,
    XID,
    History,
    message_of,
    trim,
    uuid_of,
    wal_of,
    write_values,
)
from tests.support.spark.jobs import KILLED, ended_jobs, jars_of

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900, func_only=True)]


def in_order(frames: Iterable[tuple[int, int, Frame]]) -> list[tuple[Any, ...]]:
    return sorted(
        (shard, offset, index, each.epoch, each.group, OperationType.Name(op.type), op.id, op.data, op.subject, op.tx)
        for shard, offset, each in frames
        for index, op in enumerate(each.operations())
    )


def found_operations(operations: DataFrame) -> list[tuple[Any, ...]]:
    names = ("shard", "offset", "index", "epoch", "group", "type", "id", "data", "subject", "tx")
    found = operations.select(*names).collect()
    return sorted((*row[:6], row["id"] or 0, bytes(row["data"] or b""), row[8] or 0, row[9] or 0) for row in found)


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def utc(moment: datetime | None) -> datetime | None:
    """What `collect` gives: local time without a zone."""
    return None if moment is None else moment.astimezone(UTC)


@pytest.fixture(scope="module")
def wal(spark: SparkSession, history: History) -> Wal:
    return read_wal(spark, history.source)


@pytest.fixture(scope="module")
def table(spark: SparkSession, history: History) -> Table:
    return read_table(spark, history.source)


# ---- the WAL -----------------------------------------------------------------------------------------------


def test_every_operation_of_the_wal_is_there_once_and_what_was_aborted_is_not(wal: Wal, history: History) -> None:
    _, frames = wal_of(history.settings)
    assert found_operations(wal.operations) == in_order(frames)
    assert wal.dead_letters.count() == 0
    placed = {(row["shard"], row["offset"], row["number"], row["count"]) for row in wal.frames.collect()}
    assert placed == {(shard, offset, each.number, each.count) for shard, offset, each in frames}
    assert any(not each.count for _, _, each in frames)


def test_a_part_of_the_wal_is_what_lies_between_its_offsets(spark: SparkSession, history: History) -> None:
    _, frames = wal_of(history.settings)
    middle = {shard: sorted(offset for of, offset, _ in frames if of == shard)[1] for shard in range(SHARDS)}
    later = read_wal(spark, history.source, starting=middle)
    earlier = read_wal(spark, history.source, ending=middle)
    assert found_operations(later.operations) == in_order(each for each in frames if each[1] >= middle[each[0]])
    assert found_operations(earlier.operations) == in_order(each for each in frames if each[1] < middle[each[0]])


def test_a_stream_of_the_wal_gives_every_operation_once(spark: SparkSession, history: History) -> None:
    wal = stream_wal(spark, history.source, max_offsets=100)
    query = wal.operations.writeStream.format("memory").queryName("streamed").trigger(availableNow=True).start()
    query.awaitTermination()
    assert found_operations(spark.table("streamed")) == in_order(wal_of(history.settings)[1])


def test_the_data_source_takes_columns_shards_offsets_and_times_and_shares_a_shard_among_tasks(
    spark: SparkSession, history: History
) -> None:
    records, frames = wal_of(history.settings)
    offsets = sorted(record.offset for record in records if record.partition == 1)
    bounds = {"start": json.dumps({"1": offsets[1]}), "end": json.dumps({"1": offsets[-1]}), "partitions": "3"}
    spark.dataSource.register(KafkaJournal)
    some = {"table": "frames", "columns": "value,offset", "shards": "1", **bounds}
    reader = spark.read.format("kafka_journal").options(**history.source.reader_options())
    part = reader.options(**some).load()
    found = sorted((row["offset"], bytes(row["value"])) for row in part.collect())
    assert found == [(r.offset, r.value) for r in records if r.partition == 1 and offsets[1] <= r.offset < offsets[-1]]
    assert (part.columns, part.rdd.getNumPartitions()) == (["value", "offset"], 3)
    reader = spark.read.format("kafka_journal").options(**history.source.reader_options())
    for end, count in (("2000-01-01T00:00:00Z", 0), ("2100-01-01", len(in_order(frames)))):
        assert reader.option("end", end).load().count() == count
    with pytest.raises(Exception, match=r"ConfigError: table frames has no column id"):
        reader.options(table="frames", columns="id").load()


def test_a_batch_takes_filters_where_spark_pushes_them(spark: SparkSession, history: History) -> None:
    wanted = "shard = 1 and offset > 2 and appended > timestamp '2000-01-01'"
    whole = read_wal(spark, history.source).operations.where(wanted)
    expected, tasks = found_operations(whole), whole.rdd.getNumPartitions()
    with pushed_filters(spark):
        part = read_wal(spark, history.source).operations.where(wanted)
        assert found_operations(part) == expected != []
        assert (part.rdd.getNumPartitions(), tasks) == (1, SHARDS)


@contextmanager
def pushed_filters(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        yield
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_stream_that_is_killed_and_continued_gives_every_operation_once(
    spark: SparkSession, history: History, tmp_path: Path
) -> None:
    place, source = str(tmp_path), history.source
    code, log = ended_jobs("stream_job", source.bootstrap_servers, source.journal, place, jars_of(spark))
    assert code == KILLED, log
    found = found_operations(spark.read.parquet(f"{place}/rows"))
    expected = in_order(wal_of(history.settings)[1])
    assert 0 < len(found) < len(expected)
    written(streamed(spark, source.bootstrap_servers, source.journal), place, once=True).awaitTermination()
    assert found_operations(spark.read.parquet(f"{place}/rows")) == expected


def test_operations_of_a_store_say_what_they_are_about(wal: Wal, history: History) -> None:
    decoded = with_store_columns(wal.operations)
    rows = decoded.where("what IS NOT NULL AND tx IS NULL").collect()
    settled = [row for row in rows if row["what"] == "ACKNOWLEDGE"]
    assert [row["id"] for row in sorted(settled, key=lambda row: row["offset"])] == history.acknowledged
    assert all(row["acknowledged_at"] == row["appended"] and row["reason"] == "CONSUMED" for row in settled)
    (first,) = [row for row in rows if row["what"] == "MESSAGE" and row["id"] == history.waiting[3]]
    check_message(first, 3)
    queues = {row["id"]: row["queue"] for row in rows if row["what"] == "QUEUE"}
    routed = {row["id"] for row in rows if row["what"] == "ROUTE" and queues[row["queue_id"]] == "orders/us"}
    assert routed == set(history.acknowledged)
    given_back = [row["deliveries"] for row in rows if row["what"] == "REFERENCE" and row["id"] == history.held]
    assert max(given_back) == 1


def check_message(row: Row, number: int) -> None:
    sent = message_of(number)
    assert (row["address"], bytes(row["body"]), row["body_bytes"]) == ("orders", sent.body, len(sent.body))
    assert row["priority"] == sent.priority
    assert row["headers"] == {"number": str(number)}
    bulk = "true" if sent.properties["bulk"] else "false"
    assert row["properties"] == {"tenant": "eu", "bulk": bulk, "weight": "0.5", "raw": "AP8="}
    assert bytes(row["duplicate_id"]) == sent.duplicate_id
    assert utc(row["sent_at"]) == at(SENT_MS + number)
    assert utc(row["expires_at"]) == (at(EXPIRES_MS) if sent.expires else None)


# ---- the table ---------------------------------------------------------------------------------------------


def test_the_records_of_the_table_are_those_of_a_load(table: Table, history: History) -> None:
    rows = table.records.collect()
    assert {row["id"]: (row["kind"], bytes(row["data"])) for row in rows} == history.loaded.records
    updates = {
        row["id"]: [(each["kind"], bytes(each["data"]), each["subject"]) for each in row["updates"]]
        for row in rows
        if row["updates"]
    }
    assert updates == history.loaded.updates
    marks = {row["shard"]: (row["epoch"], row["records"]) for row in table.marks.collect()}
    assert marks == {shard: (2, sum(row["shard"] == shard for row in rows)) for shard in range(history.settings.shards)}
    assert table.skipped.count() == table.dead_letters.count() == 0


def test_messages_are_those_that_wait_in_a_queue_and_how(table: Table, history: History) -> None:
    found = messages(table.records).collect()
    by_id = {row["message"]: row for row in found}
    assert sorted(by_id) == sorted(history.waiting)
    assert {row["queue"] for row in found} == {"orders/eu"}
    for number, message in enumerate(history.waiting):
        check_message(by_id[message], number)
        held = message == history.held
        assert by_id[message]["deliveries"] == (1 if held else 0)
        assert by_id[message]["holder"] == ("slow" if held else None)


def test_a_stream_of_the_table_has_deletions_and_marks(spark: SparkSession, history: History) -> None:
    changes = stream_table(spark, history.source, max_offsets=200).changes
    query = changes.writeStream.format("memory").queryName("changes").trigger(availableNow=True).start()
    query.awaitTermination()
    rows = sorted(spark.table("changes").collect(), key=lambda row: row["offset"])
    state: dict[int, tuple[int, bytes]] = {}
    for row in rows:
        if row["row"] == "RECORD" and row["deleted"]:
            state.pop(row["id"], None)
        elif row["row"] == "RECORD":
            state[row["id"]] = (row["kind"], bytes(row["data"]))
    assert state == history.loaded.records
    assert any(row["deleted"] for row in rows)
    last = {row["shard"]: row for row in rows}
    assert {row["row"] for row in last.values()} == {"MARK"}  # a mark is the last row of its transaction


def test_a_transaction_in_doubt_has_its_xid_and_its_operations(spark: SparkSession, history: History) -> None:
    found = read_transactions(spark, history.source)
    tx, added, acknowledged = history.prepared
    (row,) = found.transactions.collect()
    assert (row["tx"], row["prepared"], row["operations"]) == (tx, True, found.operations.count())
    assert (row["xid"]["format_id"], bytes(row["xid"]["gtrid"]), bytes(row["xid"]["bqual"])) == XID
    operations = with_store_columns(found.operations).orderBy("position").collect()
    assert {op["tx"] for op in operations} == {tx}
    about = [(op["type"], op["what"], op["id"]) for op in operations if op["what"] != "DUPLICATE"]
    assert about == [
        ("ADD", "MESSAGE", added),
        ("UPDATE", "ROUTE", added),
        ("UPDATE", "ACKNOWLEDGE", acknowledged),
    ]


# ---- bad input ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def damaged(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> JournalSource:
    """A journal without a worker: frames 1 to 6 in shard 0 with garbage between, trimmed below the fourth record."""
    settings = made_journal(bootstrap, tmp_path_factory.mktemp("damaged"), shards=2)
    journal = uuid_of(settings)
    values = [
        frame(number, marker() if number == 1 else add(number << 10), journal=journal).SerializeToString()
        for number in range(1, 6)
    ]
    values[4:4] = [b"garbage", frame(1, journal=bytes(16)).SerializeToString()]
    write_values(settings, f"{settings.journal}.wal", [(0, None, value) for value in values])
    write_values(settings, f"{settings.journal}.wal", [(1, None, values[0])])
    epoch = Epoch(journal=journal, epoch=1).SerializeToString()
    write_values(settings, f"{settings.journal}.control", [(0, b"epoch", epoch)])
    bad_rows = [(0, b"key", b"value"), (0, b"m\x00\x00", b"\xff")]
    skip = (0, skipped_key(0, 5), skipped(5, raw=values[5]).SerializeToString())
    write_values(settings, f"{settings.journal}.table", [*bad_rows, skip])
    trim(settings, {0: 3})
    return JournalSource.from_settings(settings)


def test_a_trimmed_wal_is_an_error_that_names_what_is_gone(spark: SparkSession, damaged: JournalSource) -> None:
    gone = r"shard 0: the WAL begins at offset 3 with frame 4, frames 1 to 3 are gone \("
    with pytest.raises(GapError, match=f"{gone}include_archive=True .*, starting={{shard: EARLIEST, ...}} takes what"):
        read_wal(spark, damaged)
    with pytest.raises(GapError, match=f"{gone}starting="):
        stream_wal(spark, damaged)
    with pytest.raises(GapError, match=r"shard 0: asked from offset 1 on, the WAL begins at offset 3 with frame 4 \("):
        read_wal(spark, damaged, starting={0: 1, 1: 0})


def test_a_query_that_goes_on_notices_what_was_made_anew_trimmed_or_lost(damaged: JournalSource) -> None:
    """Spark's questions to a reader of micro-batches, with offsets as a checkpoint keeps them."""
    options = ReadOptions.parse(damaged.reader_options() | {"start": "earliest", "max_offsets": "2"})
    reader = StreamReader(options, table_schema("operations"))
    start = reader.initialOffset()
    assert start["shards"] == {"0": 3, "1": 0}
    reader.prepareForTriggerAvailableNow()
    ends = [start]
    while len(ends) == 1 or ends[-1] != ends[-2]:
        ends.append(reader.latestOffset(ends[-1], reader.getDefaultReadLimit()))
    whole = reader.latestOffset(start, ReadAllAvailable())
    assert (ends[-1], len(ends)) == (whole, 5)
    for what, text in (
        ({"journal": "00"}, "was made anew: its uuid was 00: start the query with another checkpointLocation"),
        ({"topic": "none"}, "was made anew: its id was none: start the query"),
        ({"shards": {"0": 1, "1": 0}}, "has been trimmed: shard 0: asked from offset 1 on, the WAL begins at offset 3"),
    ):
        with pytest.raises(GapError, match=text):
            reader.partitions(start | what, whole)
    with pytest.raises(GapError, match="records up to offset 99 were asked for, and committed ones end here"):
        reader.partitions(start, whole | {"shards": {"0": 99, "1": 0}})
    with pytest.raises(GapError, match="the end of what is committed went back, from 99 to "):
        reader.latestOffset(start | {"shards": {"0": 99, "1": 0}}, ReadAllAvailable())
    with pytest.raises(ConfigError, match=r"the query has read the shards \[0\], which are not those of now"):
        reader.latestOffset(start | {"shards": {"0": 3}}, ReadAllAvailable())
    reader.stop()


def test_the_command_shows_what_is_left_of_a_trimmed_wal_if_it_is_asked_to(
    spark: SparkSession, damaged: JournalSource
) -> None:
    places = ("-b", damaged.bootstrap_servers, "-j", damaged.journal, "--master", "local[2]")
    gone = CliRunner().invoke(app, ["spark", "read", "wal", *places])
    assert (gone.exit_code, "are gone (--archive PATH reads it from there" in gone.stderr) == (1, True), gone.output
    left = CliRunner().invoke(app, ["spark", "read", "wal", "--from-trimmed", "--json", *places])
    assert left.exit_code == 0, left.output
    assert [row["id"] for row in json.loads(left.stdout) if row["id"]] == [4 << 10, 5 << 10]
    for option in (["--from-trimmed"], ["--archive", "anywhere"]):
        other = CliRunner().invoke(app, ["spark", "read", "table", *option, *places])
        assert (other.exit_code, f"{option[0]} is of the WAL" in other.stderr) == (2, True), other.output
    both = CliRunner().invoke(app, ["spark", "read", "wal", "--from-trimmed", "--archive", "anywhere", *places])
    assert (both.exit_code, "give one of them" in both.stderr) == (2, True), both.output


def test_offsets_that_leave_a_shard_out_are_refused(spark: SparkSession, damaged: JournalSource) -> None:
    """One that is left out would be read, or folded, to its end."""
    for part in ({0: 3}, {}, {0: 3, 1: 0, 2: 0}):
        for read in (read_wal, stream_wal):
            with pytest.raises(ConfigError, match=r"offsets are of all 2 shards \(0 to 1\), not of"):
                read(spark, damaged, starting=part)
        with pytest.raises(ConfigError, match="of all 2 shards"):
            read_wal(spark, damaged, ending=part)
        with pytest.raises(ConfigError, match="of all 2 shards"):
            state_as_of(spark, damaged, offsets=part)


def test_what_is_no_frame_is_a_dead_letter_beside_the_operations(spark: SparkSession, damaged: JournalSource) -> None:
    wal = read_wal(spark, damaged, starting={0: EARLIEST, 1: EARLIEST})
    letters = wal.dead_letters.orderBy("offset").collect()
    assert [(row["topic"], row["partition"], row["offset"], row["reason"]) for row in letters] == [
        (damaged.wal, 0, 4, "not a frame: it does not parse"),
        (damaged.wal, 0, 5, f"frame of another journal: uuid {'00' * 16}"),
    ]
    assert bytes(letters[0]["value"]) == b"garbage"
    assert [row["id"] for row in wal.operations.orderBy("offset").collect() if row["id"]] == [4 << 10, 5 << 10]


def test_what_is_no_row_is_a_dead_letter_beside_the_records(spark: SparkSession, damaged: JournalSource) -> None:
    letters = read_table(spark, damaged).dead_letters.orderBy("offset").collect()
    assert [(row["offset"], bytes(row["value"]), row["reason"]) for row in letters] == [
        (0, b"value", "not a table key: 6b6579"),
        (1, b"\xff", "a value that does not parse as what its key says"),
    ]


def test_what_operators_had_skipped_is_known(spark: SparkSession, damaged: JournalSource) -> None:
    (row,) = read_table(spark, damaged).skipped.collect()
    assert (row["shard"], row["offset"], row["operator"]) == (0, 5, "someone")
    wal = load(spark, damaged, "wal", starting={0: EARLIEST, 1: EARLIEST})
    left_out = wal.where(is_skipped(spark, damaged)).select("shard", "offset").collect()
    assert [tuple(each) for each in left_out] == [(0, 5)]


def test_a_journal_that_does_not_exist_is_an_error_with_the_command_that_makes_it(
    spark: SparkSession, bootstrap: str
) -> None:
    with pytest.raises(TopicError, match="kafka-journal init -j nowhere"):
        read_table(spark, JournalSource(bootstrap, "nowhere"))


def test_a_broker_that_does_not_answer_is_a_typed_error(spark: SparkSession) -> None:
    source = JournalSource("127.0.0.1:1", "nowhere", timeout_s=0.5)
    with pytest.raises(KafkaUnavailableError):
        identity(source)
    with pytest.raises(KafkaUnavailableError):
        read_table(spark, source)


@pytest.mark.parametrize("starting", [None, {0: 1}], ids=["whole", "part"])
def test_records_that_are_trimmed_while_they_are_read_are_an_error(
    spark: SparkSession, bootstrap: str, tmp_path: Path, starting: dict[int, int] | None
) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=1)
    journal, source = uuid_of(settings), JournalSource.from_settings(settings)
    values = [frame(number, add(1 << 10), journal=journal).SerializeToString() for number in (1, 2, 3)]
    write_values(settings, source.wal, [(0, None, value) for value in values])
    wal, streamed = (read(spark, source, starting=starting) for read in (read_wal, stream_wal))
    trim(settings, {0: 2})
    with pytest.raises(GapError), journal_errors():
        wal.operations.collect()
    query = streamed.operations.writeStream.format("memory").queryName("gone").trigger(availableNow=True).start()
    with pytest.raises(GapError), journal_errors():
        query.awaitTermination()
