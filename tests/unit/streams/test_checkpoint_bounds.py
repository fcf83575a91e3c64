"""What one checkpoint takes at most, whatever is settled in it."""

from __future__ import annotations

import pytest

from journal.topics.names import control_topic, table_topic, wal_topic
from journal.v1.journal_pb2 import Operation
from journal.wire.keys import mark_key
from streams.worker.worker import Worker
from tests.simulation.broker import SimulatedBroker
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.faults import Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline
from tests.support.build import add, commit, delete, marker, prepare, rollback, wal
from tests.support.shards import shard_config

NAME = "j"
TRANSACTIONS = 8
STAGED = 20
DATA = b"x" * 100
STAGED_BYTES = STAGED * (len(DATA) + 64)
"""The bytes that one transaction has staged, as the limits count them."""

Row = tuple[bytes | None, bytes | None]


def groups() -> list[list[Operation]]:
    staging = [
        [*(add(tx * 1000 + n, DATA, tx=tx) for n in range(STAGED)), prepare(tx, STAGED)]
        for tx in range(1, TRANSACTIONS + 1)
    ]
    settling = [[commit(tx, STAGED)] for tx in range(1, TRANSACTIONS)] + [[rollback(TRANSACTIONS, STAGED)]]
    return [[marker()], *staging, *settling, [delete(1000)]]


class BoundedWorld:
    def __init__(self, checkpoint_bytes_max: int) -> None:
        self.timeline = Timeline()
        self.broker = SimulatedBroker(self.timeline, Faults())
        for topic in (wal_topic(NAME), table_topic(NAME), control_topic(NAME)):
            self.broker.create_topic(topic, 1, 1, {})
        self.frames = [(offset, stamp, frame.SerializeToString()) for offset, stamp, frame in wal(*groups())]
        for _, _, value in self.frames:
            self.broker.write(wal_topic(NAME), 0, [(None, value), (None, b"")])  # a marker takes an offset too
        config = shard_config(NAME, checkpoint_interval_s=0.1, checkpoint_bytes_max=checkpoint_bytes_max)
        disk = Disk()
        self.worker = Worker(
            config,
            SimulatedKafka(self.broker),
            lambda shard: SimulatedStore(disk, Faults(), "node"),
            clock=self.timeline.now,
            wall_ms=lambda: self.timeline.now() * 1000,
            fenced_pause_s=1.0,
        )

    def run(self) -> None:
        """The WAL from where the worker wants it, as many frames at once as there are."""
        at = self.worker.assigned({0})[0]
        end = self.frames[-1][0] + 1
        while self.worker.applied().get(0, 0) < end:
            self.worker.frames(0, [frame for frame in self.frames if frame[0] >= at])
            at = end
            self.timeline.wait(self.worker.tick(), lambda: False)
            at = self.worker.seeks().get(0, at)

    def checkpoints(self) -> list[list[Row]]:
        """The rows of each, without its mark."""
        log = self.broker.log(table_topic(NAME), 0)
        assert log is not None
        checkpoints: list[list[Row]] = [[]]
        for record in log.fetch(0, 0, 10_000, committed=True):
            if record.key == mark_key(0):
                checkpoints.append([])
            else:
                checkpoints[-1].append((record.key, record.value))
        return checkpoints[:-1]

    def table(self) -> dict[bytes | None, bytes]:
        rows = dict(row for rows in self.checkpoints() for row in rows)
        return {key: value for key, value in rows.items() if value is not None}


def settled_in(rows: list[Row]) -> int:
    """Staged operations whose rows a checkpoint takes away."""
    return sum(value is None and key is not None and key.startswith(b"x") for key, value in rows)


@pytest.mark.parametrize(("checkpoint_bytes_max", "settled_max"), [(STAGED_BYTES, 1), (2 * STAGED_BYTES, 2)])
def test_a_checkpoint_takes_outcomes_until_what_they_settle_fills_it(
    checkpoint_bytes_max: int, settled_max: int
) -> None:
    world = BoundedWorld(checkpoint_bytes_max)
    world.run()
    settled = [settled_in(rows) for rows in world.checkpoints()]
    assert sum(settled) == TRANSACTIONS * STAGED
    assert max(settled) == settled_max * STAGED


def test_the_table_is_the_same_wherever_checkpoints_fall() -> None:
    tables = []
    for checkpoint_bytes_max in (1, 1000, STAGED_BYTES, 100 * STAGED_BYTES):
        world = BoundedWorld(checkpoint_bytes_max)
        world.run()
        tables.append(world.table())
    assert len(tables[0]) == (TRANSACTIONS - 1) * STAGED - 1
    assert all(table == tables[0] for table in tables)
