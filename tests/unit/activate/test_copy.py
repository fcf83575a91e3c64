"""A local copy that nobody follows: what an activation that takes it much later finds out first. The end of one that is
followed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from journal.activate.copy import TableCopy
from journal.activate.warm_state import CHUNK
from journal.config import Settings
from journal.disk.slots import take_slot
from journal.errors import LocalStorageError, OperatingError
from journal.load.loading import LoadedUpdate, NullLoader
from journal.process.clocks import LONG_AGO
from journal.topics.control_keys import IDENTITY_KEY, control_row
from journal.topics.names import control_topic, table_topic
from journal.topics.required_topics import topic_configs
from journal.v1.journal_pb2 import Identity, Mark, Record
from journal.wire.frames import FORMAT, MAGIC
from journal.wire.keys import mark_key, record_key
from journal.wire.rows import mark_name
from tests.simulation.broker import SimulatedBroker
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline
from tests.support.children.loaders import KeptState
from tests.support.damaged import flip
from tests.support.waiting import wait_until

IDENTITY = Identity(magic=MAGIC, format=FORMAT, journal=b"j" * 16, name="j", shards=1)
AT, AGAIN_AT = 7, 3
RECORDS = 2000


class Cluster:
    """A journal's topics, with one mark in the table."""

    def __init__(self, settings: Settings) -> None:
        self._configs = topic_configs(settings)
        self._table = table_topic(settings.journal)
        self.broker = SimulatedBroker(Timeline())
        for topic in self._configs:
            self._create(topic)
        row = control_row(settings.journal, IDENTITY_KEY, IDENTITY)
        self.broker.write(control_topic(settings.journal), 0, [(row.key, row.value)])
        self._mark = b""
        self.mark(AT)

    def _create(self, topic: str) -> None:
        self.broker.create_topic(topic, 1, 1, self._configs[topic])

    def mark(self, offset: int, records: int = 0) -> None:
        previous = mark_name(self._mark) if self._mark else 0
        self._mark = Mark(shard=0, offset=offset, epoch=1, records=records, previous=previous).SerializeToString()
        self.broker.write(self._table, 0, [(mark_key(0), self._mark)])

    def add(self, records: int) -> None:
        self.broker.write(
            self._table, 0, [(record_key(id), Record(id=id).SerializeToString()) for id in range(1, records + 1)]
        )
        self.mark(AT + 1, records)

    def delete_table(self) -> None:
        self.broker.delete_topic(self._table)

    def make_table(self) -> None:
        """Another one, with something else at the offset where a copy of the former one goes on."""
        self._create(self._table)
        self.mark(AGAIN_AT)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(journal="j", bootstrap_servers="b:1", shards=1, replication=1, min_insync=1, directory=tmp_path)


@pytest.fixture
def cluster(settings: Settings) -> Cluster:
    return Cluster(settings)


@pytest.fixture
def copy(settings: Settings, cluster: Cluster) -> Iterator[TableCopy]:
    """Open, at the table's mark, and given back."""
    with closing(TableCopy(settings, kafka=SimulatedKafka(cluster.broker))) as copy:
        copy.open()
        assert mark_of(copy) == AT
        yield copy


def mark_of(copy: TableCopy, *, look_long_ago: bool = False) -> int:
    """Where it stands when an activation has read the table to its end; then it is given back."""
    tables, _ = copy.lend()
    while tables.replica.behind(tables.replica.ends(1.0)) or not tables.replica.readable:
        tables.replica.poll(0.0)
    found = tables.mark(0).offset
    if look_long_ago:
        tables.compared_at = LONG_AGO
    copy.give_back()
    return found


def test_a_copy_last_compared_long_ago_is_compared_and_built_anew_if_the_table_is_another(
    cluster: Cluster, copy: TableCopy
) -> None:
    assert mark_of(copy, look_long_ago=True) == AT
    cluster.delete_table()
    cluster.make_table()
    assert mark_of(copy) == AGAIN_AT


def test_a_copy_whose_table_cannot_be_known_is_not_used_and_is_there_for_the_next_try(
    cluster: Cluster, copy: TableCopy
) -> None:
    assert mark_of(copy, look_long_ago=True) == AT
    cluster.delete_table()
    with pytest.raises(OperatingError):
        copy.lend()
    cluster.make_table()
    assert mark_of(copy) == AGAIN_AT


def test_a_row_that_cannot_be_read_for_damage_has_the_copy_built_anew(
    settings: Settings, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.add(RECORDS)
    kafka = SimulatedKafka(cluster.broker)
    with closing(TableCopy(settings, kafka=kafka)) as copy:
        copy.open()
        assert mark_of(copy) == AT + 1
    flip(settings.journal_directory / "node")
    with closing(TableCopy(settings, kafka=kafka)) as copy:
        copy.open()
        copy.follow(NullLoader)

        def is_whole() -> bool:
            try:
                return all(copy.get(record_key(id)) is not None for id in range(1, RECORDS + 1))
            except LocalStorageError:
                return False

        assert not is_whole()
        wait_until(is_whole)
    assert caplog.text.count("is damaged, and built anew") == 1


def test_a_scan_for_a_state_that_nobody_needs_any_more_ends_and_none_begins(cluster: Cluster, copy: TableCopy) -> None:
    made: list[KeptState] = []

    class Ending(KeptState):
        def record(
            self,
            record_id: int,
            kind: int,
            data: bytes,
            updates: Sequence[LoadedUpdate],
            position: tuple[int, int, int],
        ) -> None:
            super().record(record_id, kind, data, updates, position)
            copy.end_following()

    def loader() -> KeptState:
        made.append(Ending())
        return made[-1]

    cluster.add(3 * CHUNK)
    assert mark_of(copy) == AT + 1
    copy.follow(loader)
    wait_until(lambda: bool(made) and made[0].scanned >= CHUNK)
    copy.lend()
    copy.give_back()
    copy.close()
    assert [state.scanned for state in made] == [CHUNK]


def test_a_directory_that_is_deleted_while_it_is_followed_is_held_again_and_the_copy_built_anew(
    settings: Settings, cluster: Cluster, tmp_path: Path
) -> None:
    slot = take_slot(tmp_path / "state", "node")
    with closing(TableCopy(settings, slot=slot, kafka=SimulatedKafka(cluster.broker))) as copy:
        copy.open()
        copy.follow(KeptState)
        (tmp_path / "state").rename(tmp_path / "gone")
        wait_until(lambda: (slot.path / "CURRENT").exists() and copy.fitness().built)
        slot.require()
        assert mark_of(copy) == AT
    slot.release()
    assert take_slot(tmp_path / "state", "node").path == slot.path
