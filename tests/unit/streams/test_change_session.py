"""`on_change` sessions on the simulated Kafka: a fault at every step, two of them at once, time away, compaction."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from random import Random

import pytest

from journal.errors import (
    AbortableProducerError,
    AgentError,
    CountError,
    FatalProducerError,
    LocalDamageError,
    OperatingError,
    ReopenError,
    RowError,
)
from journal.kafka.ports import READ_MS, Kafka, Reader, Sent
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
from tests.simulation.producers import SimulatedTransactionalProducer
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


_OPENING = "disk_open"
"""The copy is opened by whoever makes the session: what that meets, no session knows."""


class FaultAt(Faults):
    """A fault at each of these steps."""

    def __init__(self, fault: Fault = Fault.NONE, *steps: int) -> None:
        self.step = 0
        self.requests: list[str] = []
        self._fault = fault
        self._at = steps

    def at(self, request: str, node: str) -> Fault:
        if request == _OPENING:
            return Fault.NONE
        self.step += 1
        self.requests.append(request)
        return self._fault if self.step in self._at else Fault.NONE


class FaultsByChance(Faults):
    """Any fault, at about one step in thirty."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def at(self, request: str, node: str) -> Fault:
        if request == _OPENING:
            return Fault.NONE
        return self._chance.choice(FAULTS) if self._chance.random() < 1 / 30 else Fault.NONE


class World:
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


def run_through(world: World, crash: Random | None) -> None:
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


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_at_any_step_changes_nothing_of_what_is_given(fault: Fault, elsewhere: bool) -> None:
    counting = FaultAt()
    run_through(World(counting), None)
    for step in range(1, counting.step + 1):
        world = World(FaultAt(fault, step))
        run_through(world, None if elsewhere else Random(step))
        world.away(30.0)
        assert world.given() == NUMBERED, f"{fault} at step {step}"


def test_a_second_crash_while_the_copy_is_brought_to_where_the_agent_stands_changes_nothing() -> None:
    counting = FaultAt()
    run_through(World(counting), None)
    writes = [step for step, request in enumerate(counting.requests, 1) if request == "disk_write"]
    for first in writes:
        for second in range(first + 1, first + 25):
            world = World(FaultAt(Fault.CRASH_BEFORE, first, second))
            run_through(world, Random(first))
            assert world.given() == NUMBERED, f"crashes at steps {first} and {second}"


@pytest.mark.parametrize("seed", range(60))
def test_many_faults_change_nothing_either(seed: int) -> None:
    chance = Random(seed)
    world = World(FaultsByChance(chance))
    run_through(world, chance)
    world.away(30.0)
    assert world.given() == NUMBERED


def test_a_copy_that_is_ahead_of_where_another_went_on_is_built_anew() -> None:
    tellings: list[list[tuple[int, bytes]]] = []

    def quiet(changes: Changes) -> Iterator[tuple[bytes, str]]:
        told = [(change.id, change.new.data) for change in changes.records() if change.new is not None]
        tellings.append(told)
        if not told or changes.first:
            yield b"", json.dumps(changes.mark.offset)

    world = World(agent=quiet)
    world.agent = Agent("agent", quiet, OUT, every_s=1e-6)
    world.checkpoint({1: b"a"})
    world.checkpoint({})
    first = world.session()
    first.open()
    world.checkpoint({2: b"b", 3: b"c"})
    first.follow(lambda: [(2, b"b"), (3, b"c")] in tellings)
    elsewhere = world.session(Disk(), SimulatedKafka(world.broker, records_per_poll=1))
    elsewhere.open()
    before = len(world.given())
    elsewhere.follow(lambda: len(world.given()) > before)
    tellings.clear()
    world.tell_until(lambda: [] in tellings)
    assert tellings[0] == [(2, b"b"), (3, b"c")]


def test_one_that_was_paused_while_another_took_over_gives_nothing_more() -> None:
    world = World()
    world.checkpoint(CHECKPOINTS[0])
    paused = world.session()
    paused.open()

    def other_takes_over() -> bool:
        if world.written == 1 and world.given():
            world.checkpoint(CHECKPOINTS[1])
            world.tell_until(lambda: len(world.given()) == 4, Disk())
            world.checkpoint(CHECKPOINTS[3])
        return False

    with pytest.raises(FatalProducerError) as raised:
        paused.follow(other_takes_over)
    assert raised.value.fenced
    assert world.given() == NUMBERED[:4]
    world.tell_until(lambda: len(world.given()) == 6)
    assert world.given() == NUMBERED


def test_an_agent_that_raises_leaves_no_trace_and_is_told_the_same_again() -> None:
    tellings: list[list[tuple[int, bool]]] = []

    def moody(changes: Changes) -> Iterator[tuple[bytes, str]]:
        tellings.append([(change.id, changes.first) for change in changes.records()])
        yield from number(changes)
        if len(tellings) == 1:
            raise ValueError("not today")

    world = World(agent=moody)
    world.checkpoint(CHECKPOINTS[0])
    with pytest.raises(AgentError, match="agent agent, shard 0: ValueError"):
        world.tell_until(lambda: False)
    assert world.given() == []
    world.tell_until(lambda: len(world.given()) == 2)
    assert world.given() == NUMBERED[:2]
    assert tellings == [[(1, True), (2, True)]] * 2


class AbortingOnce(SimulatedKafka):
    """Its first transaction cannot be committed."""

    has_aborted = False

    def transactional_producer(self, transactional_id: str) -> SimulatedTransactionalProducer:
        kafka, producer = self, super().transactional_producer(transactional_id)
        send = producer.send

        def once(records: Iterable[Sent], timeout_s: float) -> list[int]:
            offsets = send(records, timeout_s)
            if not kafka.has_aborted:
                kafka.has_aborted = True
                raise AbortableProducerError("not enough replicas")
            return offsets

        producer.send = once  # type: ignore[method-assign]
        return producer


def test_a_transaction_that_cannot_be_committed_is_an_error_like_others_and_not_tried_again_at_once() -> None:
    world = World()
    world.checkpoint(CHECKPOINTS[0])
    kafka = AbortingOnce(world.broker)
    session = world.session(kafka=kafka)
    session.open()
    with pytest.raises(AbortableProducerError):
        session.follow(lambda: False)
    assert world.given() == []
    session = world.session(kafka=kafka)
    session.open()
    session.follow(world.until(lambda: len(world.given()) == 2))
    assert world.given() == NUMBERED[:2]


def test_a_telling_counts_once_it_is_committed() -> None:
    world = World()
    world.checkpoint(CHECKPOINTS[0])
    world.broker.topics[OUT].config["max.message.bytes"] = "4"
    session = world.session()
    session.open()
    with pytest.raises(FatalProducerError) as raised:
        session.follow(lambda: False)
    assert raised.value.refused_topic == OUT
    assert session.told == 0
    world.broker.topics[OUT].config["max.message.bytes"] = "1000"
    session = world.session()
    session.open()
    session.follow(world.until(lambda: bool(world.given())))
    assert session.told == 1


# ---- time away -----------------------------------------------------------------------------------------------------


class Seen:
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


class NoLeaderEpochs(SimulatedKafka):
    """A Kafka that says of no record who wrote it."""

    def reader(self, topic: str, *, committed: bool = True, wait_ms: int = READ_MS) -> Reader:
        reader = super().reader(topic, committed=committed, wait_ms=wait_ms)
        poll = reader.poll
        reader.poll = lambda timeout_s: [  # type: ignore[method-assign]
            record._replace(leader_epoch=None) for record in poll(timeout_s)
        ]
        return reader


def after_a_week_end(*, keep_copy: bool) -> tuple[World, Seen]:
    """An agent that stood at mark 0 and comes back to marks 1 and 2, of which the first is no state any more."""
    seen = Seen()
    world = World(agent=seen)
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


def test_what_came_while_an_agent_was_away_for_long_is_told_as_one_change() -> None:
    _, seen = after_a_week_end(keep_copy=True)
    (telling,) = seen.tellings
    assert telling == (True, 3, [(3, None, b"b"), (1, b"a", b"c"), (2, b"a", None), (4, None, b"d")])


def test_the_time_is_told_with_the_mark_that_was_told_last_and_not_with_one_that_was_only_read() -> None:
    seen = Seen()
    world = World(agent=seen)
    world.checkpoint({1: b"a"})
    world.tell_until(lambda: bool(world.given()))
    for data in (b"b", b"c", b"d"):
        world.checkpoint({1: data, 2: data})
    world.away(3 * LAG_S)
    world.agent = Agent("agent", seen, OUT, every_s=1e-6)
    session = world.session(kafka=SimulatedKafka(world.broker, records_per_poll=1))
    session.open()
    seen.tellings.clear()
    session.follow(world.until(lambda: any(rows for _, _, rows in seen.tellings)))
    *only_time, change = seen.tellings
    assert {mark for _, mark, _ in only_time} == {0}
    assert change == (True, 3, [(1, b"a", b"d"), (2, None, b"d")])


def test_without_its_copy_an_agent_is_told_that_old_values_may_be_missing() -> None:
    world, seen = after_a_week_end(keep_copy=False)
    (telling,) = seen.tellings
    assert telling[0] is False
    assert {(record_id, new) for record_id, _, new in telling[2]} >= {(1, b"c"), (3, b"b"), (4, b"d")}
    world.checkpoint({4: b"e"})
    world.tell_until(lambda: len(seen.tellings) == 2)
    assert seen.tellings[-1] == (True, 4, [(4, b"d", b"e")])


def test_an_agent_away_for_longer_than_tombstones_are_kept_begins_anew() -> None:
    seen = Seen()
    world = World(agent=seen)
    world.checkpoint({1: b"a", 2: b"a"})
    world.tell_until(lambda: bool(world.given()))
    world.checkpoint({1: None})
    world.away(2 * RETENTION_S, compact=True)
    world.away(2 * RETENTION_S, compact=True)
    states: list[bytes | None] = []

    def anew(changes: Changes) -> Iterator[tuple[bytes, str]]:
        states.append(changes.state.get(b"told"))
        yield from seen(changes)

    world.agent = Agent("agent", anew, OUT)
    world.tell_until(lambda: len(world.given()) == 2)
    assert states == [None]
    assert seen.tellings[-1] == (True, 1, [(2, None, b"a")])


@pytest.mark.parametrize("keep_copy", [True, False])
def test_an_agent_away_for_too_long_begins_anew_on_a_machine_whose_clock_was_set_back(keep_copy: bool) -> None:
    seen = Seen()
    world = World(agent=seen)
    world.checkpoint({1: b"a", 2: b"a"})
    world.tell_until(lambda: bool(world.given()))
    world.clock_behind_s = 10 * RETENTION_S
    world.checkpoint({1: None})
    world.away(2 * RETENTION_S, compact=True)
    world.away(2 * RETENTION_S, compact=True)
    world.checkpoint({3: b"a"})
    if not keep_copy:
        world.disk = Disk()
    world.tell_until(lambda: len(world.given()) == 2)
    assert seen.tellings[-1] == (True, 2, [(2, None, b"a"), (3, None, b"a")])


def test_an_agent_that_was_told_nothing_for_weeks_and_is_restarted_goes_on() -> None:
    seen = Seen()
    world = World(agent=seen)
    world.checkpoint({1: b"a"})
    session = world.session()
    session.open()
    session.follow(world.until(lambda: bool(world.given())))
    for _ in range(40):
        world.away(RETENTION_S / 10)
        weeks_end = world.timeline.now() + 10.0
        session.follow(lambda: world.timeline.now() > weeks_end)  # noqa: B023
    session.close()
    world.checkpoint({2: b"a"})
    world.tell_until(lambda: len(world.given()) == 2)
    assert seen.tellings[-1] == (True, 1, [(2, None, b"a")])


# ---- a table that has lost its tail ----------------------------------------------------------------------------------

GROWN_AGAIN = (True, 4, [(1, None, b"a"), (4, None, b"b"), (5, None, b"b"), (6, None, b"b")])


def grow_again(world: World) -> None:
    """The last mark is lost; the worker folds the same frames again, in other checkpoints, and one more behind them."""
    world.lose_last_mark()
    world.checkpoint({3: None, 4: b"b", 5: b"b"})
    world.checkpoint({6: b"b"})


def told_up_to_mark_two() -> tuple[World, Seen]:
    seen = Seen()
    world = World(agent=seen)
    for rows in ({1: b"a"}, {3: b"a"}, {2: b"a"}):
        world.checkpoint(rows)
    return world, seen


def test_an_agent_of_a_table_that_loses_its_tail_and_grows_again_begins_anew() -> None:
    world, seen = told_up_to_mark_two()
    session = world.session()
    session.open()
    session.follow(world.until(lambda: bool(world.given())))
    grow_again(world)
    session.follow(world.until(lambda: len(world.given()) == 2))
    session.close()
    assert seen.tellings[-1] == GROWN_AGAIN


@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_agent_that_comes_back_to_a_table_that_lost_its_tail_and_grew_again_begins_anew(elsewhere: bool) -> None:
    world, seen = told_up_to_mark_two()
    world.tell_until(lambda: bool(world.given()))
    grow_again(world)
    if elsewhere:
        world.disk = Disk()
    world.tell_until(lambda: len(world.given()) == 2)
    assert seen.tellings[-1] == GROWN_AGAIN


def test_an_agent_that_stands_beyond_the_end_of_its_table_begins_anew() -> None:
    world, seen = told_up_to_mark_two()
    world.tell_until(lambda: bool(world.given()))
    world.lose_last_mark()
    world.tell_until(lambda: len(world.given()) == 2)
    assert seen.tellings[-1] == (True, 1, [(1, None, b"a"), (3, None, b"a")])


def test_an_agent_begins_anew_at_a_mark_that_does_not_name_the_one_that_it_was_told_up_to() -> None:
    world, seen = told_up_to_mark_two()
    session = world.session()
    session.open()
    session.follow(world.until(lambda: bool(world.given())))
    strange = Mark(shard=0, offset=5, epoch=1, records=3, previous=1)
    world.broker.write(world.table, 0, [(mark_key(0), strange.SerializeToString())])
    session.follow(world.until(lambda: len(world.given()) == 2))
    assert seen.tellings[-1] == (True, 5, [(1, None, b"a"), (2, None, b"a"), (3, None, b"a")])


def test_where_marks_were_compacted_away_the_counts_tell_that_a_table_is_not_what_an_agent_was_told() -> None:
    world, seen = told_up_to_mark_two()
    session = world.session(kafka=NoLeaderEpochs(world.broker))
    session.open()
    session.follow(world.until(lambda: bool(world.given())))
    session.close()
    grow_again(world)
    world.away(3 * LAG_S, compact=True)
    world.checkpoint({1: b"c"})
    session = world.session(kafka=NoLeaderEpochs(world.broker))
    session.open()
    session.follow(world.until(lambda: len(world.given()) == 2))
    assert seen.tellings[-1] == (True, 5, [(1, None, b"c"), (4, None, b"b"), (5, None, b"b"), (6, None, b"b")])


def test_an_agent_is_not_told_of_a_table_that_has_lost_a_row() -> None:
    world, seen = told_up_to_mark_two()
    world.broker.write(world.table, 0, [(record_key(1), None)])
    world.checkpoint({})
    with pytest.raises(CountError, match=r"has 2 records.* says 3 records"):
        world.tell_until(lambda: bool(world.given()))
    assert seen.tellings == []


def test_a_memory_of_another_journal_is_refused() -> None:
    world = World()
    world.checkpoint(CHECKPOINTS[0])
    world.broker.write(
        memory_topic(JOURNAL, "agent"), 0, [(b"p", json.dumps({"offset": 1, "table": "00", "stood_ms": 1}).encode())]
    )
    with pytest.raises(RowError, match="another journal"):
        world.session().open()
    world.broker.write(memory_topic(JOURNAL, "agent"), 0, [(b"?", b"")])
    with pytest.raises(RowError, match="no agent's memory"):
        world.session().open()


def test_a_repeated_end_of_a_transaction_makes_the_session_take_over_anew() -> None:
    faults = FaultAt()
    run_through(World(faults), None)
    reopened = 0
    for step in range(1, faults.step + 1):
        world = World(FaultAt(Fault.REPEATED, step))
        world.checkpoint(CHECKPOINTS[0])
        try:
            world.tell_until(lambda world=world: bool(world.given()))  # type: ignore[misc]
        except ReopenError:
            reopened += 1
    assert reopened
