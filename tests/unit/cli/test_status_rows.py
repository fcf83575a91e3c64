"""Rows and staged transactions, counted in the tables themselves: when, and when not."""

from __future__ import annotations

from pathlib import Path

import pytest

from journal.cli.status.rows import UNASKED_OFFSETS_MAX, CountedRows, ShardRows, count_rows, counted_rows
from journal.config import Settings, load_settings
from journal.errors import RowError, TopicError
from journal.fold.engine import Fold
from journal.process.progress import no_progress
from journal.topics.control_rows import ControlRows
from journal.topics.names import table_topic
from journal.v1.journal_pb2 import Identity, Mark
from journal.wire.keys import transaction_key
from tests.simulation.broker import SimulatedBroker
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline
from tests.support.build import JOURNAL, DictBase, add, marker, prepare, skipped, update, wal

CONTROL = ControlRows(identity=Identity(journal=JOURNAL, name="j", shards=1))


def test_each_key_of_a_shard_is_a_row_and_what_is_not_prepared_is_a_staged_transaction() -> None:
    base = DictBase()
    fold = Fold(Mark(offset=-1), base, updates_row_bytes_max=4096)
    operations = [add(2), update(2, b"u"), add(4, tx=7), add(6, tx=7), prepare(7, 2), add(8, tx=9), add(10, tx=11)]
    for offset, timestamp, each in wal([marker()], operations):
        fold.apply(offset, timestamp, each)
    fold.skip(skipped(4), 0, None)
    base.write(fold.changes())
    other = Fold(Mark(shard=1, offset=-1), base, updates_row_bytes_max=4096)
    for offset, timestamp, each in wal([marker()], [add(1)], [add(3)]):
        other.apply(offset, timestamp, each)
    base.write(other.changes())

    counted = count_rows(base, {0: fold.mark, 1: other.mark}, no_progress)
    # record, its updates, 3 parts, 4 staged operations, mark, skipped record; and 2 records, mark
    assert counted == {0: ShardRows(4, 11, 2), 1: ShardRows(4, 3, 0)}


def test_a_row_of_no_transaction_is_named() -> None:
    with pytest.raises(RowError, match=transaction_key(7, 0).hex()):
        count_rows(DictBase({transaction_key(7, 0): b"\xff"}), {0: Mark()}, no_progress)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return load_settings(journal="j")


def test_large_tables_are_not_read_unless_that_is_asked_for(settings: Settings) -> None:
    broker = SimulatedBroker(Timeline())
    broker.create_topic(table_topic("j"), 1, 1, {})
    broker.write(table_topic("j"), 0, [(b"", None)] * (UNASKED_OFFSETS_MAX + 1))
    counted = counted_rows(SimulatedKafka(broker), settings, CONTROL, None, no_progress)
    assert counted == CountedRows({}, "the tables have 100,001 offsets: --rows counts them")


def test_what_cannot_be_counted_is_an_error_only_where_it_was_asked_for(settings: Settings) -> None:
    kafka = SimulatedKafka(SimulatedBroker(Timeline()))
    assert counted_rows(kafka, settings, CONTROL, False, no_progress) == CountedRows()
    unasked = counted_rows(kafka, settings, CONTROL, None, no_progress)
    assert (unasked.shards, table_topic("j") in unasked.missing) == ({}, True)
    with pytest.raises(TopicError):
        counted_rows(kafka, settings, CONTROL, True, no_progress)
