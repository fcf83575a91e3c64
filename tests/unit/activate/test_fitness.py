"""Whether a standby is fit: not while its copy is being built, too far behind, or of an age that nobody knows."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from journal.activate.copy import FIT_LAG_MS
from journal.activate.copy_thread import Fitness, Follower
from journal.activate.warm_state import Following
from journal.config import Settings
from journal.errors import RowError
from journal.load.loading import Loader
from journal.table.open_copy import LocalTables
from journal.topics.control_keys import IDENTITY_KEY, control_row
from journal.topics.names import control_topic, table_topic
from journal.topics.required_topics import topic_configs
from journal.v1.journal_pb2 import ADD, Identity, Mark, Record
from journal.wire.frames import FORMAT, MAGIC
from journal.wire.keys import mark_key, record_key
from journal.wire.rows import mark_name
from tests.simulation.broker import SimulatedBroker
from tests.simulation.faults import Fault, Faults
from tests.simulation.kafka import SimulatedKafka
from tests.support.children.loaders import KeptState
from tests.support.paced import PAUSE_S, PacedTimeline

IDENTITY = Identity(magic=MAGIC, format=FORMAT, journal=b"j" * 16, name="j", shards=1)
SHORT_MS = 50
LIMIT_S = 30.0


class Lost(Faults):
    """Requests of these names have no answer."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self.met = threading.Event()

    def at(self, request: str, node: str) -> Fault:
        if request not in self.names:
            return Fault.NONE
        self.met.set()
        return Fault.LOSE_REQUEST


class Standby:
    """A follower of a table with one mark."""

    def __init__(self, settings: Settings, faults: Lost) -> None:
        self._faults = faults
        self._broker = SimulatedBroker(PacedTimeline(), faults)
        for topic, config in topic_configs(settings).items():
            self._broker.create_topic(topic, 1, 1, config)
        row = control_row(settings.journal, IDENTITY_KEY, IDENTITY)
        self._broker.write(control_topic(settings.journal), 0, [(row.key, row.value)])
        self._settings = settings
        self._mark = b""
        self._records = 0
        self.mark(1)

    def mark(self, offset: int) -> None:
        """A worker's checkpoint."""
        previous = mark_name(self._mark) if self._mark else 0
        mark = Mark(shard=0, offset=offset, epoch=1, records=self._records, previous=previous)
        self._mark = mark.SerializeToString()
        self._broker.write(table_topic(self._settings.journal), 0, [(mark_key(0), self._mark)])

    def add(self, record_id: int) -> None:
        """A checkpoint with a record."""
        row = Record(type=ADD, id=record_id).SerializeToString()
        self._broker.write(table_topic(self._settings.journal), 0, [(record_key(record_id), row)])
        self._records += 1
        self.mark(2)

    def write_stray(self, record_id: int) -> None:
        """A record that the next checkpoint does not count."""
        row = Record(type=ADD, id=record_id).SerializeToString()
        self._broker.write(table_topic(self._settings.journal), 0, [(record_key(record_id), row)])
        self.mark(2)

    def take_back(self, record_id: int) -> None:
        self._broker.write(table_topic(self._settings.journal), 0, [(record_key(record_id), None)])
        self.mark(3)

    def lose(self, name: str) -> None:
        """Returns once such a request was lost: none of before is on its way any more."""
        self._faults.met.clear()
        self._faults.names = frozenset({name})
        assert self._faults.met.wait(LIMIT_S)

    def answer(self) -> None:
        self._faults.names = frozenset()

    @contextmanager
    def followed(
        self, fit_lag_ms: int, loader: Callable[[], Loader] = KeptState, *, later_s: float = 5.0
    ) -> Iterator[None]:
        tables = LocalTables(SimulatedKafka(self._broker), self._settings, self._settings.directory)
        following = Following(tables.store, self._settings.limits, loader)
        tables.listen(following)
        self._follower = Follower(tables, following, fit_lag_ms=fit_lag_ms, later_s=later_s)
        self._faults.names = frozenset({"poll"})
        self._follower.start()
        try:
            yield
        finally:
            self._follower.stop()
            tables.close()

    def wait(self, holds: Callable[[Fitness], bool]) -> Fitness:
        until = time.monotonic() + LIMIT_S
        while not holds(found := self._follower.fitness):
            assert time.monotonic() < until, found
            time.sleep(PAUSE_S)
        return found

    def wait_until_fit(self) -> None:
        self.answer()
        assert self.wait(lambda now: now.fit) == Fitness(True, "", 0, 0, built=True)


def is_behind(now: Fitness) -> bool:
    """And not only left alone for as long, by a machine that is busy."""
    return now.why_not.endswith(" ms behind")


@pytest.fixture
def standby(tmp_path: Path) -> Standby:
    settings = Settings(journal="j", bootstrap_servers="b:1", shards=1, replication=1, min_insync=1, directory=tmp_path)
    return Standby(settings, Lost())


def test_a_standby_is_unfit_until_its_copy_is_built(standby: Standby) -> None:
    with standby.followed(FIT_LAG_MS):
        building = standby.wait(lambda now: now.lag_offsets == 1)
        assert not building.fit
        assert not building.built
        assert building.why_not == "the copy is being built: 1 offset is left"
        standby.wait_until_fit()


def test_a_standby_that_is_behind_for_longer_than_it_may_is_unfit_until_it_has_caught_up(standby: Standby) -> None:
    with standby.followed(SHORT_MS):
        standby.wait_until_fit()
        standby.lose("poll")
        standby.mark(2)
        behind = standby.wait(lambda now: now.lag_offsets == 1 and is_behind(now))
        assert behind.lag_ms > SHORT_MS
        assert behind.built
        assert (behind.fit, behind.why_not) == (False, f"the copy is 1 offset and {behind.lag_ms} ms behind")
        standby.wait_until_fit()


def test_a_standby_that_is_behind_for_no_longer_than_it_may_is_fit(standby: Standby) -> None:
    with standby.followed(FIT_LAG_MS):
        standby.wait_until_fit()
        standby.lose("poll")
        standby.mark(2)
        behind = standby.wait(lambda now: now.lag_offsets > 0)
        assert (behind.fit, behind.why_not) == (True, "")


def test_a_standby_that_does_not_learn_where_the_table_ends_grows_old_and_unfit(standby: Standby) -> None:
    with standby.followed(SHORT_MS):
        standby.wait_until_fit()
        standby.lose("start_and_end")
        unknown = standby.wait(is_behind)
        assert unknown.lag_ms > SHORT_MS
        assert (unknown.fit, unknown.why_not) == (False, f"the copy is 0 offsets and {unknown.lag_ms} ms behind")
        standby.wait_until_fit()


def test_a_standby_whose_state_could_not_be_followed_is_unfit(standby: Standby) -> None:
    class Refusing(KeptState):
        def begin(self, marks: Mapping[int, Mark]) -> None:
            raise RowError("this loader takes nothing")

    with standby.followed(FIT_LAG_MS, Refusing):
        standby.answer()
        said = "the state could not be followed: this loader takes nothing"
        assert not standby.wait(lambda now: now.why_not == said).fit


def test_a_table_with_other_rows_than_its_mark_says_is_scanned_again_with_growing_pauses(
    standby: Standby, caplog: pytest.LogCaptureFixture
) -> None:
    standby.write_stray(1 << 10)
    with caplog.at_level(logging.INFO), standby.followed(FIT_LAG_MS, later_s=0.01):
        standby.answer()
        standby.wait(lambda now: "tried again in 0.04 s" in caplog.text)
        assert "shard 0 has 1 record," in standby.wait(lambda now: "followed:" in now.why_not).why_not
        standby.take_back(1 << 10)
        standby.wait_until_fit()


def test_a_standby_whose_loader_does_not_come_to_an_end_is_unfit(standby: Standby) -> None:
    begun, may_go_on = threading.Event(), threading.Event()

    class Stuck(KeptState):
        def changed(self, *record: object) -> None:
            begun.set()
            assert may_go_on.wait(LIMIT_S)

    with standby.followed(SHORT_MS, Stuck):
        standby.wait_until_fit()
        standby.add(1 << 10)
        assert begun.wait(LIMIT_S)
        stuck = standby.wait(lambda now: not now.fit)
        assert stuck.lag_ms > SHORT_MS
        assert stuck.why_not == f"the copy has not been followed for {stuck.lag_ms} ms"
        may_go_on.set()
        standby.wait(lambda now: now.fit)
