"""A journal of a release before 0.1.0: every reader of the WAL refuses its frames, and says what to do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from journal.append.writing import Claim
from journal.config import Settings
from journal.errors import FrameError
from journal.process.clocks import Timing
from journal.table.replica import Replica
from journal.topics.names import control_topic, table_topic, wal_topic
from journal.upkeep.stops import look_ahead
from journal.v1.journal_pb2 import Identity, Mark
from journal.verify import fold_shard
from journal.wal.config import WriterConfig
from journal.wal.fencing import Fence
from journal.wal.read_back import BackReader, ReadBack
from journal.wal.reading import read_tails
from journal.wire.keys import mark_key
from loaders.snapshot import read_snapshot
from streams.agents.agents import Agent, AgentCalls, OperationAgents
from streams.routes.replay_history import ShardHistory
from streams.routes.replay_range import ReplayRange
from streams.worker.shard import ShardWorker
from tests.simulation.broker import SimulatedBroker
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.faults import Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline
from tests.support.build import JOURNAL, NONCE
from tests.support.golden import DIRECTORY
from tests.support.shards import shard_config

LIMIT_S = 5.0
REASON = "frame that was written before 0.1.0: make the journal anew"
IDENTITY = Identity(journal=JOURNAL, name="j", shards=1)
APPLIED = Mark(offset=0, number=1, group=1, epoch=1, node="node-1", nonce=NONCE)
"""The mark of the tables that a worker of that release has left."""
FORMER = [
    bytes.fromhex(each["value"])
    for each in json.loads((DIRECTORY / "refused" / "format-1.json").read_text())["values"]
    if each["what"] in ("a marker of before 0.1.0", "operations of before 0.1.0")
]


class FormerJournal:
    """A journal of that release: its WAL has a marker and a frame of operations, and its table stands at the marker."""

    def __init__(self) -> None:
        self.broker = SimulatedBroker(Timeline(), Faults())
        self.kafka = SimulatedKafka(self.broker)
        self.clock = self.broker.timeline.now
        for topic in (wal_topic("j"), table_topic("j"), control_topic("j")):
            self.broker.create_topic(topic, 1, 1, {})
        for value in FORMER:
            self.broker.write(wal_topic("j"), 0, [(None, value)])
        self.broker.write(table_topic("j"), 0, [(mark_key(0), APPLIED.SerializeToString())])

    def wall_ms(self) -> float:
        return self.clock() * 1000

    def store(self) -> SimulatedStore:
        return SimulatedStore(Disk(), Faults(), "node")


def worker(journal: FormerJournal, **config: object) -> None:
    shard = ShardWorker(
        0,
        shard_config("j", **config),
        journal.kafka,
        journal.store(),
        clock=journal.clock,
        wall_ms=journal.wall_ms,
    )
    shard.recover()
    shard.take([(1, 0, FORMER[1])])
    shard.checkpoint_if_due()
    assert shard.stopped_by
    raise shard.stopped_by


def agents(journal: FormerJournal) -> None:
    worker(
        journal,
        tell=OperationAgents([Agent("agent", lambda each: None, None)], AgentCalls(asyncio.new_event_loop())),
    )


def load_or_dump(journal: FormerJournal) -> None:
    store = journal.store()
    replica = Replica(
        journal.kafka,
        table_topic("j"),
        range(1),
        store,
        b"identity",
        clock=journal.clock,
        wall_ms=journal.wall_ms,
        delete_retention_ms=10**9,
        min_compaction_lag_ms=10**9,
        held_bytes_max=10**6,
    )
    replica.open(LIMIT_S)
    settings = Settings(journal="j", shards=1)
    read_snapshot(
        journal.kafka, settings, IDENTITY, replica, store, now=True, timeout_s=LIMIT_S, clock=journal.clock
    ).close()


def activation(journal: FormerJournal) -> None:
    read_tails(journal.kafka, "j", JOURNAL, 1, journal.clock, LIMIT_S)


def read_back(journal: FormerJournal) -> None:
    timing = Timing(journal.clock, lambda seconds: None, LIMIT_S, LIMIT_S, LIMIT_S)
    config, claim = WriterConfig("j", JOURNAL, 1, 0.0, 0.0, 0.0, 1 << 20), Claim(1, "node-1", NONCE)
    reader = BackReader(journal.kafka, config, claim, Fence(journal.kafka, "j", timing), timing)
    reader.read([0], [1], ReadBack(set(), {}, {}))


def replay(journal: FormerJournal) -> None:
    history = ShardHistory(
        journal.kafka,
        IDENTITY,
        Mark(offset=1, number=2),
        ReplayRange(),
        skips=(),
        trim=None,
        clock=journal.clock,
        timeout_s=LIMIT_S,
    )
    next(history.frames(lambda read, of: None))


@pytest.mark.parametrize(
    "reader", [worker, agents, load_or_dump, activation, read_back, replay], ids=lambda reader: reader.__name__
)
def test_every_reader_of_the_wal_refuses_frames_of_a_release_before_0_1_0(
    reader: Callable[[FormerJournal], None],
) -> None:
    with pytest.raises(FrameError) as refused:
        reader(FormerJournal())
    error = refused.value
    assert error.reason == REASON
    assert (error.topic, error.partition) == ("j.wal", 0)
    assert error.offset in (0, 1)


def test_verify_and_status_say_the_same_of_such_frames() -> None:
    journal = FormerJournal()
    records = [(index, 0, None, value) for index, value in enumerate(FORMER)]
    (finding,) = fold_shard(0, 1, JOURNAL, records, topic="j.wal").findings
    stop = look_ahead(journal.kafka, IDENTITY, APPLIED, (), clock=journal.clock, timeout_s=LIMIT_S).stop
    assert stop is not None
    assert (finding.offset, finding.reason) == (0, REASON)
    assert (stop.offset, stop.reason) == (1, REASON)
