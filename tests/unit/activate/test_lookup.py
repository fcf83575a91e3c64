"""Records read back from a WAL that was trimmed meanwhile: the tables have them, and so does the local copy, soon."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from journal.activate.copy import TableCopy
from journal.activate.lookup import Lookup
from journal.config import load_settings
from journal.errors import DeadlineError
from journal.load.loading import NullLoader
from journal.topics.control_keys import IDENTITY_KEY, control_row
from journal.topics.names import control_topic, table_topic, wal_topic
from journal.topics.required_topics import topic_configs
from journal.v1.journal_pb2 import ADD, Identity, Mark, Record
from journal.wire.frames import FORMAT, MAGIC
from journal.wire.keys import mark_key, record_key
from tests.simulation.broker import SimulatedBroker
from tests.simulation.kafka import SimulatedKafka
from tests.support.build import JOURNAL, add, frame, marker
from tests.support.paced import PacedTimeline

IDENTITY = Identity(magic=MAGIC, format=FORMAT, journal=JOURNAL, name="j", shards=1)
LIMIT_S = 30.0
NUMBER = 5


class Scene:
    """A journal whose WAL was trimmed up to its end."""

    def __init__(self, directory: Path) -> None:
        settings = load_settings(None, journal="j", bootstrap_servers="nowhere:1", directory=directory)
        self._broker = SimulatedBroker(PacedTimeline())
        self.kafka = SimulatedKafka(self._broker)
        for topic, config in topic_configs(settings).items():
            self._broker.create_topic(topic, 1, 1, config)
        row = control_row("j", IDENTITY_KEY, IDENTITY)
        self._broker.write(control_topic("j"), 0, [(row.key, row.value)])
        frames = [frame(1, marker()), frame(2, add(NUMBER, b"data"))]
        self._broker.write(wal_topic("j"), 0, [(None, each.SerializeToString()) for each in frames])
        self.kafka.cluster().delete_records(wal_topic("j"), {0: 2}, LIMIT_S)
        self.copy = TableCopy(settings, kafka=self.kafka)

    def checkpoint(self) -> None:
        """What the worker had written before the trim comes to the copy."""
        mark = Mark(shard=0, offset=1, epoch=1, records=1)
        rows = [
            (record_key(NUMBER), Record(type=ADD, id=NUMBER, data=b"data").SerializeToString()),
            (mark_key(0), mark.SerializeToString()),
        ]
        self._broker.write(table_topic("j"), 0, rows)

    def lookup(self, clock: Callable[[], float]) -> Lookup:
        return Lookup(self.kafka, "j", IDENTITY, self.copy, clock)


def test_what_was_trimmed_comes_from_the_copy_once_it_has_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    looks = itertools.count()

    def clock() -> float:
        if next(looks) == NUMBER:
            scene.checkpoint()
        return 0.0

    with closing(scene.copy), closing(scene.lookup(clock)) as lookup:
        scene.copy.open()
        scene.copy.follow(NullLoader)
        assert lookup.read_at(NUMBER, (1, 1), LIMIT_S) == b"data"


def test_a_lookup_of_what_was_trimmed_is_late_if_the_copy_never_has_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    seconds = itertools.count()
    with closing(scene.copy), closing(scene.lookup(lambda: float(next(seconds)))) as lookup:
        scene.copy.open()
        scene.copy.follow(NullLoader)
        with pytest.raises(DeadlineError, match="lacks what was trimmed"):
            lookup.read_at(NUMBER, (1, 1), 10.0)
