"""Options of the data source: what is given is taken, or refused in words; and how tasks share what is to be read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThanOrEqual, Not

from journal.errors import ConfigError
from loaders.spark.read.filters import Narrowed, narrow_ranges, narrowed
from loaders.spark.read.options import ReadOptions
from loaders.spark.read.ranges import ShardRange, cut_ranges
from loaders.spark.read.schemas import table_schema
from loaders.spark.read.source import EARLIEST, JournalSource
from loaders.spark.read.stream_reader import limited

PLACE = {"bootstrap_servers": "b:1", "journal": "orders"}


def test_what_a_source_says_is_what_options_say() -> None:
    source = JournalSource("b:1", "orders", {"sasl.username": "me"}, timeout_s=7.0)
    assert ReadOptions.parse(source.reader_options()).source == source


def test_options_have_defaults_and_places_are_words_offsets_or_times() -> None:
    plain = ReadOptions.parse(PLACE)
    assert (plain.table, plain.topic, plain.start, plain.end) == ("operations", "orders.wal", "beginning", "latest")
    told = {"start": '{"0": 5, "1": -2}', "end": "2026-05-01T12:00:00Z", "shards": "1, 0", "columns": "id, data"}
    given = ReadOptions.parse(PLACE | told)
    assert (given.start, given.shards, given.columns) == ({0: 5, 1: EARLIEST}, (0, 1), ("id", "data"))
    assert given.end == datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"journal": ""}, "needs the options bootstrap_servers and journal"),
        ({"group": "x"}, "kafka_journal has no option group: it has bootstrap_servers, "),
        ({"start": "yesterday"}, "start is yesterday: it must be beginning, earliest, latest, offsets of all shards"),
        ({"start": '{"0": -7}'}, "start is"),
        ({"end": "earliest"}, "end is earliest: it must be latest, offsets"),
        ({"shards": "a"}, "shards is not a list of numbers like 0,1,5: a"),
        ({"max_offsets": "0"}, "max_offsets is not a positive number: 0"),
        ({"partitions": "many"}, "partitions is not a positive number: many"),
        ({"timeout_s": "soon"}, "timeout_s is not a number of seconds: soon"),
    ],
)
def test_an_option_that_cannot_be_is_refused_in_words(wrong: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        ReadOptions.parse(PLACE | wrong)


def test_an_unknown_table_or_column_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="there is no table ops: table is one of operations, frames"):
        table_schema("ops")
    with pytest.raises(ConfigError, match="table frames has no column id: it has shard, offset"):
        table_schema("frames", ["id"])
    assert table_schema("operations", ["id", "data"]).names == ["id", "data"]


def test_each_shard_is_a_task_and_a_large_one_is_several_if_more_are_wanted() -> None:
    starts, ends = {0: 0, 1: 10, 2: 5}, {0: 90, 1: 40, 2: 5}
    assert cut_ranges(starts, ends, None) == [ShardRange(0, 0, 90), ShardRange(1, 10, 40)]
    pieces = [ShardRange(0, 0, 30), ShardRange(0, 30, 60), ShardRange(0, 60, 90), ShardRange(1, 10, 40)]
    assert cut_ranges(starts, ends, 4) == pieces
    assert [piece.end - piece.start for piece in cut_ranges({0: 0}, {0: 2}, 5)] == [1, 1]


def test_filters_leave_the_shards_offsets_and_times_that_may_have_rows() -> None:
    early, late = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)
    left = narrowed(
        [
            In(("shard",), (0, 1, 3)),
            Not(EqualTo(("shard",), 1)),
            GreaterThan(("offset",), 4),
            LessThanOrEqual(("offset",), 8),
            GreaterThanOrEqual(("appended",), late),
            GreaterThan(("appended",), early),
            EqualTo(("position", "offset"), 1),
        ]
    )
    assert left == Narrowed(frozenset({0, 1, 3}), 5, 9, late)
    assert narrow_ranges({0: 0, 1: 7, 2: 0}, {0: 6, 1: 20, 2: 9}, left) == ({0: 5, 1: 7}, {0: 6, 1: 9})
    assert narrowed([EqualTo(("partition",), 2), EqualTo(("offset",), 3)]) == Narrowed(frozenset({2}), 3, 4)


@pytest.mark.parametrize("most", [1, 7, 50, 99, 100, 1000])
def test_shards_share_the_offsets_of_a_micro_batch_and_every_batch_takes_what_it_may(most: int) -> None:
    starts, ends = {0: 0, 1: 5, 2: 0, 3: 0}, {0: 60, 1: 5, 2: 1, 3: 39}
    found = limited(starts, ends, most)
    assert sum(found[shard] - start for shard, start in starts.items()) == min(most, 100)
    assert all(starts[shard] <= end <= ends[shard] for shard, end in found.items())
