"""A table that checkpoints fill, and an agent that is told its changes by one session after another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from random import Random

from journal.errors import (
    LocalDamageError,
    OperatingError,
)
from journal.kafka.ports import READ_MS, Kafka, Reader
from journal.topics.names import memory_topic
from journal.v1.journal_pb2 import ADD, Mark, Operation
from journal.wire.keys import mark_key, record_key
from journal.wire.rows import mark_name, position_bytes
from streams.agents.agents import Agent, AgentCalls
from streams.agents.change_copy import ChangeConfig
from streams.agents.change_session import ChangeSession
from streams.agents.changes import Changes
from tests.simulation.broker import SimulatedBroker
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.faults import Fault, Faults, SimulatedCrash
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.partition import PartitionLog
from tests.simulation.timeline import Timeline

JOURNAL = "j"
OUT = "out"
LAG_S = 600.0
RETENTION_S = 7 * 86_400.0
REQUEST_S = 5.0
FAULTS = [fault for fault in Fault if fault is not Fault.NONE]

SESSIONS_MAX = 50

Rows = dict[int, bytes | None]
CHECKPOINTS: list[Rows] = [{1: b"a", 2: b"a"}, {2: b"b", 3: b"b"}, {}, {1: None, 3: b"c"}]

NUMBERED = [
    [1, 1, "", "a"],
    [2, 2, "", "a"],
    [3, 2, "a", "b"],
    [4, 3, "", "b"],
    [5, 1, "a", ""],
    [6, 3, "b", "c"],
]
"""What `number` gives of those checkpoints."""


def record_row(record_id: int, data: bytes) -> bytes:
    return Operation(type=ADD, id=record_id, kind=1, data=data).SerializeToString() + position_bytes(0, 0, 0)


def number(changes: Changes) -> Iterator[tuple[bytes, str]]:
    """Every change of a record, with a count of them all that is kept in the state."""
    for change in changes.records():
        count = int(changes.state.get(b"count") or b"0") + 1
        changes.state.put(b"count", b"%d" % count)
        old, new = ("" if each is None else each.data.decode() for each in (change.old, change.new))
        yield b"", json.dumps([count, change.id, old, new])


OPENING = "disk_open"
"""The copy is opened by whoever makes the session: what that meets, no session knows."""


class FaultsByChance(Faults):
    """Any fault, at about one step in thirty."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def at(self, request: str, node: str) -> Fault:
        if request == OPENING:
            return Fault.NONE
        return self._chance.choice(FAULTS) if self._chance.random() < 1 / 30 else Fault.NONE


class ChangeWorld:
    """A table that grows, an agent, and what it gave."""

    def __init__(self, faults: Faults | None = None, agent: Callable[[Changes], object] = number) -> None:
        self.faults = faults or Faults()
        self.timeline = Timeline()
        self.broker = SimulatedBroker(self.timeline, self.faults)
        config = {"min.compaction.lag.ms": str(int(LAG_S * 1000)), "delete.retention.ms": str(int(RETENTION_S * 1000))}
        self.table = f"{JOURNAL}.table"
        for topic in (self.table, memory_topic(JOURNAL, "agent")):
            self.broker.create_topic(topic, 1, 1, {"cleanup.policy": "compact", **config})
        self.broker.create_topic(OUT, 1, 1, {})
        self.disk = Disk()
        self.agent = Agent("agent", agent, OUT)
        self.written = 0
        self.clock_behind_s = 0.0
        """How far the wall clock of the agent's machine is behind."""
        self._marks: list[tuple[int, frozenset[int], bytes]] = [(0, frozenset(), b"")]
        """Where the table ends behind each mark, the records that live then, and its row."""
        self.loop = asyncio.new_event_loop()

    def checkpoint(self, rows: Rows) -> None:
        _, live, before = self._marks[-1]
        live = frozenset((live | rows.keys()) - {id for id, data in rows.items() if data is None})
        previous = mark_name(before) if before else 0
        mark = Mark(shard=0, offset=self.written, epoch=1, records=len(live), previous=previous)
        records = [(record_key(id), None if data is None else record_row(id, data)) for id, data in rows.items()]
        value = mark.SerializeToString()
        self.broker.write(self.table, 0, [*records, (mark_key(0), value)])
        self._marks.append((self.log().end, live, value))
        self.written += 1

    def log(self) -> PartitionLog:
        log = self.broker.log(self.table, 0)
        assert log is not None
        return log

    def lose_last_mark(self) -> None:
        """A power cut takes the newest checkpoint; another leader goes on, and the worker from the mark before."""
        self._marks.pop()
        self.log().lose(self._marks[-1][0])

    def given(self) -> list[object]:
        log = self.broker.log(OUT, 0)
        assert log is not None
        return [json.loads(record.value or b"") for record in log.fetch(0, 0, 1000, committed=True)]

    def session(self, disk: Disk | None = None, kafka: Kafka | None = None) -> ChangeSession:
        return ChangeSession(
            self.agent,
            0,
            ChangeConfig(
                journal=JOURNAL,
                table_identity=b"table",
                memory_identity="memory",
                request_timeout_s=REQUEST_S,
                delete_retention_ms=int(RETENTION_S * 1000),
                min_compaction_lag_ms=int(LAG_S * 1000),
                held_bytes_max=1_000_000,
            ),
            kafka or SimulatedKafka(self.broker),
            SimulatedStore(disk or self.disk, self.faults, "node"),
            AgentCalls(self.loop),
            clock=self.timeline.now,
            wall_ms=lambda: (self.timeline.now() - self.clock_behind_s) * 1000,
        )

    def away(self, seconds: float, *, compact: bool = False) -> None:
        self.timeline.wait(seconds, lambda: False)
        if compact:
            self.broker.compact(self.table, 0)

    def until(self, done: Callable[[], bool]) -> Callable[[], bool]:
        """A `should_stop`, which gives up after an hour of the simulation's."""
        ends = self.timeline.now() + 3600

        def should_stop() -> bool:
            assert self.timeline.now() < ends, self.given()
            return done()

        return should_stop

    def tell_until(self, done: Callable[[], bool], disk: Disk | None = None) -> None:
        session = self.session(disk)
        session.open()
        session.follow(self.until(done))
        session.close()


def run_through(world: ChangeWorld, crash: Random | None) -> None:
    """All checkpoints, each once what was before is told, by one process after another; with `crash`: on one disk."""

    def write_when_told() -> bool:
        told = len(world.given())
        if world.written < len(CHECKPOINTS) and told == (0, 2, 4, 4)[world.written]:
            world.checkpoint(CHECKPOINTS[world.written])
        return told == len(NUMBERED)

    write_when_told()
    for _ in range(SESSIONS_MAX):
        session = world.session()
        try:
            session.open()
            session.follow(world.until(write_when_told))
        except SimulatedCrash:
            if crash is None:
                world.disk = Disk()
            else:
                world.disk.crash(crash)
        except LocalDamageError:
            world.disk.clear()
        except OperatingError:
            world.away(1.0)
        else:
            return
        finally:
            session.close()
    raise AssertionError(f"{SESSIONS_MAX} sessions were not enough")


class SeenChanges:
    """An agent that only notes."""

    def __init__(self) -> None:
        self.tellings: list[tuple[bool, int, list[tuple[int, bytes | None, bytes | None]]]] = []

    def __call__(self, changes: Changes) -> Iterator[tuple[bytes, str]]:
        rows = [
            (change.id, change.old and change.old.data, change.new and change.new.data) for change in changes.records()
        ]
        self.tellings.append((changes.old_known, changes.mark.offset, rows))
        changes.state.put(b"told", b"%d" % changes.mark.offset)
        yield b"", json.dumps(changes.mark.offset)


def after_a_week_end(*, keep_copy: bool) -> tuple[ChangeWorld, SeenChanges]:
    """An agent that stood at mark 0 and comes back to marks 1 and 2, of which the first is no state any more."""
    seen = SeenChanges()
    world = ChangeWorld(agent=seen)
    world.checkpoint({1: b"a", 2: b"a"})
    world.tell_until(lambda: bool(world.given()))
    world.checkpoint({1: b"b", 3: b"b"})
    world.checkpoint({1: b"c", 2: None})
    world.away(3 * LAG_S, compact=True)
    world.checkpoint({4: b"d"})
    if not keep_copy:
        world.disk = Disk()
    seen.tellings.clear()
    world.tell_until(lambda: bool(seen.tellings) and seen.tellings[-1][1] == world.written - 1)
    return world, seen


class NoLeaderEpochs(SimulatedKafka):
    """A Kafka that says of no record who wrote it."""

    def reader(self, topic: str, *, committed: bool = True, wait_ms: int = READ_MS) -> Reader:
        reader = super().reader(topic, committed=committed, wait_ms=wait_ms)
        poll = reader.poll
        reader.poll = lambda timeout_s: [  # type: ignore[method-assign]
            record._replace(leader_epoch=None) for record in poll(timeout_s)
        ]
        return reader
