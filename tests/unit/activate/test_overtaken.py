"""An active journal and the local copy that it reads: marks of a newer epoch there mean that another node is active."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from journal.activate.copy import TableCopy
from journal.activate.runtime import JournalRuntime
from journal.append.state import JournalState
from journal.config import Settings
from journal.errors import FencedError, JournalError
from journal.topics.control_keys import IDENTITY_KEY, control_row
from journal.topics.control_reading import read_control
from journal.topics.names import control_topic
from journal.topics.required_topics import topic_configs
from journal.v1.journal_pb2 import Epoch, Identity, Mark
from journal.wire.frames import FORMAT, MAGIC
from tests.simulation.kafka import SimulatedKafka
from tests.support.activations import FollowedBroker, write_mark
from tests.support.paced import PAUSE_S, PacedTimeline

SHARDS = 2
IDENTITY = Identity(magic=MAGIC, format=FORMAT, journal=b"j" * 16, name="j", shards=SHARDS)
LIMIT_S = 30.0
FENCE_CHECK_MS = 4321
EPOCH = 1
"""The epoch of a journal's first activation."""


class Active:
    """A journal that is active, and the table that its workers write."""

    def __init__(self, settings: Settings) -> None:
        self._broker = FollowedBroker(PacedTimeline())
        for topic, config in topic_configs(settings).items():
            self._broker.create_topic(topic, 1 if topic == control_topic(settings.journal) else SHARDS, 1, config)
        row = control_row(settings.journal, IDENTITY_KEY, IDENTITY)
        self._broker.write(control_topic(settings.journal), 0, [(row.key, row.value)])
        for shard in range(SHARDS):
            self.mark(shard, -1, 0)
        self.critical: list[JournalError] = []
        self.told = threading.Event()
        self.copy = TableCopy(settings, kafka=SimulatedKafka(self._broker))
        self.copy.open()
        self.runtime = JournalRuntime(settings, copy=self.copy, on_critical=self._on_critical)
        self.runtime.start()
        assert self.runtime.run_activation().epoch == EPOCH

    def _on_critical(self, error: JournalError) -> None:
        self.critical.append(error)
        self.told.set()

    def mark(self, shard: int, offset: int, epoch: int) -> None:
        counter = self.epoch_row()
        mark = Mark(shard=shard, offset=offset, epoch=epoch, nonce=counter.nonce if epoch == counter.epoch else b"")
        write_mark(self._broker, mark)

    def wait_until_seen(self, shard: int, offset: int) -> None:
        until = time.monotonic() + LIMIT_S
        while self.copy.mark(shard).offset != offset:
            assert time.monotonic() < until, self.copy.mark(shard)
            time.sleep(PAUSE_S)

    def epoch_row(self) -> Epoch:
        return read_control(SimulatedKafka(self._broker), "j", time.monotonic, LIMIT_S).epoch

    def close(self) -> None:
        self.runtime.close()
        self.copy.close()


@pytest.fixture
def active(tmp_path: Path) -> Iterator[Active]:
    settings = Settings(
        journal="j",
        bootstrap_servers="b:1",
        shards=SHARDS,
        replication=1,
        min_insync=1,
        directory=tmp_path,
        fence_check_ms=FENCE_CHECK_MS,
    )
    with closing(Active(settings)) as active:
        yield active


def test_a_journal_whose_copy_shows_a_newer_epoch_in_one_shard_is_fenced_though_it_writes_nothing(
    active: Active,
) -> None:
    active.mark(1, 1, EPOCH + 1)
    assert active.told.wait(LIMIT_S)
    (error,) = active.critical
    assert isinstance(error, FencedError)
    assert error.epoch == EPOCH + 1
    assert active.runtime.state is JournalState.FENCED
    assert not active.runtime.current
    with pytest.raises(FencedError):
        active.runtime.require_core().add(1 << 10, 1, b"x")


def test_the_epochs_row_says_how_often_its_node_commits(active: Active) -> None:
    assert active.epoch_row().fence_check_ms == FENCE_CHECK_MS


def test_a_journal_whose_copy_goes_on_in_its_own_epoch_stays_active(active: Active) -> None:
    for shard in range(SHARDS):
        active.mark(shard, 1, EPOCH)
        active.wait_until_seen(shard, 1)
        active.mark(shard, 2, EPOCH)
        active.wait_until_seen(shard, 2)
    assert (active.runtime.state, active.critical) == (JournalState.ACTIVE, [])
