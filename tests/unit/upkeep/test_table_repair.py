"""`repair table`: what it writes to a table with rows that no worker wrote, and loads after it."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

import pytest

from journal.errors import CountError, FatalProducerError, RepairError, StaleReadError
from journal.kafka.ports import GroupMember, Kafka
from journal.load.loading import require_counted
from journal.table.replica import Replica
from journal.topics.names import table_topic, wal_topic, worker_group, worker_id
from journal.upkeep.table_repair import TableRepairer
from journal.v1.journal_pb2 import ADD, Identity, Mark, Record
from journal.wire.ids import make_id
from journal.wire.keys import mark_key, record_key
from journal.wire.rows import mark_name
from tests.simulation.broker import SimulatedBroker
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.faults import Fault, Faults, SimulatedCrash
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline
from tests.support.build import JOURNAL
from tests.support.deposed import DeposedKafka

TABLE = table_topic("j")
LIMIT_S = 2.0
SHARD, SHARDS = 1, 2
IDENTITY = Identity(journal=JOURNAL, shards=SHARDS)


def key(number: int, shard: int = SHARD) -> bytes:
    return record_key(make_id(number, shard))


def row(number: int, data: bytes) -> bytes:
    return Record(type=ADD, id=make_id(number, SHARD), data=data).SerializeToString()


class Table:
    """One shard of a table to which a worker has written: three records at two marks."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.broker = SimulatedBroker(Timeline(), faults or Faults())
        self.broker.create_topic(TABLE, SHARDS, 1, {})
        self.kafka = DeposedKafka(self.broker)
        self._mark = b""
        self.checkpoint(1, {1: b"a", 2: b"a"}, records=2)
        self.checkpoint(2, {3: b"a"}, records=3)
        self.copy = self.replica()

    def write(self, *rows: tuple[bytes, bytes | None]) -> None:
        self.broker.write(TABLE, SHARD, list(rows))

    def checkpoint(self, offset: int, rows: dict[int, bytes], *, records: int) -> None:
        previous = mark_name(self._mark) if self._mark else 0
        mark = Mark(shard=SHARD, offset=offset, number=offset, epoch=1, records=records, previous=previous)
        self._mark = mark.SerializeToString()
        self.write(*((key(number), row(number, data)) for number, data in rows.items()), (mark_key(SHARD), self._mark))

    def replica(self) -> tuple[Replica, SimulatedStore]:
        store, now = SimulatedStore(Disk(), Faults(), "reader"), self.broker.timeline.now
        replica = Replica(
            SimulatedKafka(self.broker, "reader"),
            TABLE,
            [SHARD],
            store,
            b"identity",
            clock=now,
            wall_ms=lambda: now() * 1000,
            delete_retention_ms=10**9,
            min_compaction_lag_ms=10**6,
            held_bytes_max=10**6,
        )
        replica.open(LIMIT_S)
        replica.catch_up(LIMIT_S)
        return replica, store

    def repairer(
        self, *, delete: Collection[bytes] = (), recount: bool = False, kafka: Kafka | None = None
    ) -> TableRepairer:
        store = SimulatedStore(Disk(), Faults(), "repair")
        now = self.broker.timeline.now
        return TableRepairer(
            kafka or self.kafka,
            "j",
            IDENTITY,
            SHARD,
            store,
            clock=now,
            timeout_s=LIMIT_S,
            delete=delete,
            recount=recount,
        )

    def repair(self, *, delete: Collection[bytes] = (), recount: bool = False, kafka: Kafka | None = None) -> None:
        repairing = self.repairer(delete=delete, recount=recount, kafka=kafka)
        repairing.write(repairing.plan())

    def loaded(self) -> dict[bytes, bytes]:
        """Data by key, as in a copy that follows and in a new copy. Both must have the numbers in the marks."""
        found = []
        for replica, store in (self.copy, self.replica()):
            replica.poll(LIMIT_S)
            assert replica.readable
            require_counted(store, replica.marks())
            found.append({name: Record.FromString(value).data for name, value in store.scan(b"r")})
        assert found[0] == found[1]
        return found[0]


THREE = {key(1): b"a", key(2): b"a", key(3): b"a"}


def test_rows_behind_the_last_mark_go_and_what_they_hid_comes_back() -> None:
    table = Table()
    table.write((key(7), row(7, b"stray")), (key(2), row(2, b"stray")), (key(1), None))
    table.repair()
    assert table.loaded() == THREE
    with pytest.raises(RepairError, match="nothing to mend"):
        table.repairer().plan()


def test_a_row_with_an_impossible_key_stops_the_repair_of_its_table() -> None:
    table = Table()
    table.write((b"not a key", b"x"))
    with pytest.raises(RepairError, match=r"j.table\[1\]@\d+: not a table key.*made anew from the WAL"):
        table.repairer().plan()


def test_rows_of_another_shard_are_deleted_wherever_they_are() -> None:
    table, stray = Table(), key(7, shard=0)
    table.write((stray, b"x"))
    table.checkpoint(3, {}, records=3)
    assert dict(table.repairer().plan().changes) == {stray: None}
    table.repair()
    replica, store = table.replica()
    require_counted(store, replica.marks())
    assert {name for name, _ in store.scan(b"r")} == THREE.keys()


def test_a_row_before_a_mark_is_deleted_only_if_it_is_named() -> None:
    table = Table()
    table.write((key(7), row(7, b"stray")))
    table.checkpoint(3, {}, records=3)
    with pytest.raises(RepairError, match=r"would have 4 records.* says 3 records.*--record"):
        table.repairer().plan()
    with pytest.raises(RepairError, match="has no row"):
        table.repairer(delete=[key(8)]).plan()
    with pytest.raises(RepairError, match="would have 2 records"):
        table.repairer(delete=[key(7), key(1)]).plan()
    table.repair(delete=[key(7)])
    assert table.loaded() == THREE


def test_lost_rows_stay_lost_if_the_operator_says_so() -> None:
    table = Table()
    table.write((key(2), None))
    table.checkpoint(3, {}, records=3)
    with pytest.raises(CountError):
        table.loaded()
    with pytest.raises(RepairError, match="--recount"):
        table.repairer().plan()
    table.repair(recount=True)
    assert table.loaded().keys() == THREE.keys() - {key(2)}


def test_a_shard_that_a_worker_has_is_left_alone() -> None:
    table = Table()
    table.write((key(7), row(7, b"stray")))
    member = GroupMember("m", "worker-1", "host", [(wal_topic("j"), SHARD)])
    table.broker.groups[worker_group("j")] = [member]
    with pytest.raises(RepairError, match="worker worker-1 at host has shard 1"):
        table.repairer().plan()


def test_a_worker_that_nobody_knew_of_is_fenced() -> None:
    table = Table()
    table.write((key(7), row(7, b"stray")))
    worker = table.kafka.transactional_producer(worker_id("j", SHARD))
    worker.init(LIMIT_S)
    table.repair()
    with pytest.raises(FatalProducerError):
        worker.send_rows(TABLE, SHARD, [(key(9), b"x")], LIMIT_S)
    assert table.loaded() == THREE


def test_a_repair_whose_plan_has_changed_writes_nothing() -> None:
    table = Table()
    table.write((key(7), row(7, b"stray")))
    repairing = table.repairer()
    agreed = repairing.plan()
    table.write((key(8), row(8, b"stray")))
    with pytest.raises(RepairError, match="went on meanwhile"):
        repairing.write(agreed)
    table.repair()
    assert table.loaded() == THREE


def test_a_repair_that_read_from_a_deposed_leader_writes_nothing() -> None:
    table = Table()
    table.write((key(7), row(7, b"stray")))
    table.kafka.depose(TABLE)
    table.write((key(8), row(8, b"stray")))
    with pytest.raises(StaleReadError, match="Nothing is written"):
        table.repair()
    table.kafka.reads_left.clear()
    table.repair()
    assert table.loaded() == THREE


class At(Faults):
    """A crash at one request of a node."""

    def __init__(self, fault: Fault = Fault.NONE, step: int = 0) -> None:
        self.steps = 0
        self._fault = fault
        self._step = step

    def at(self, request: str, node: str) -> Fault:
        if node != "mender":
            return Fault.NONE
        self.steps += 1
        return self._fault if self.steps == self._step else Fault.NONE


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
def test_a_table_repair_killed_at_any_step_has_written_all_or_nothing_and_can_be_repeated(fault: Fault) -> None:
    counting = At()
    table = Table(counting)
    table.write((key(7), row(7, b"stray")), (key(2), row(2, b"stray")))
    table.repair(kafka=SimulatedKafka(table.broker, "mender"))
    assert counting.steps
    for step in range(1, counting.steps + 1):
        table = Table(At(fault, step))
        table.write((key(7), row(7, b"stray")), (key(2), row(2, b"stray")))
        with pytest.raises(SimulatedCrash):
            table.repair(kafka=SimulatedKafka(table.broker, "mender"))
        with suppress(RepairError):  # there is nothing to mend any more
            table.repair()
        assert table.loaded() == THREE
