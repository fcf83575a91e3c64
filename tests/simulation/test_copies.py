"""Local copies and time: what a replica takes for a state after it was away, stopped, or slow."""

from __future__ import annotations

from random import Random

import pytest

from journal.errors import CountError
from journal.table.age import note_checkpoint
from journal.table.replica import Replica
from journal.v1.journal_pb2 import ADD, Mark, Record
from journal.wire.keys import mark_key, record_key
from journal.wire.rows import mark_name
from tests.simulation.broker import SimulatedBroker
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.faults import Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.partition import PartitionLog
from tests.simulation.timeline import Timeline

COMPACTION_LAG_S = 2.0
RETENTION_S = 60.0
HELD_BYTES_MAX = 1000
SOON_S = 1.0

_TOPIC = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(int(COMPACTION_LAG_S * 1000)),
    "delete.retention.ms": str(int(RETENTION_S * 1000)),
}


class Table:
    """A table topic, and the local copy of one reader."""

    def __init__(self, shards: int = 1) -> None:
        self.timeline = Timeline()
        self.broker = SimulatedBroker(self.timeline)
        self.broker.create_topic("table", shards, 1, _TOPIC)
        self.disk = Disk()
        self.clock_behind_s = 0.0
        """How far the wall clock of the reader's machine is behind."""
        self._shards = shards
        self._marks: dict[int, list[tuple[int, frozenset[int], bytes]]] = {shard: [] for shard in range(shards)}
        """Where the table ends behind each mark, the records that live then, and its row."""

    def checkpoint(self, offset: int, rows: dict[int, bytes | None], shard: int = 0) -> None:
        """Data by record, and the mark at `offset`."""
        marks = self._marks[shard]
        _, live, before = marks[-1] if marks else (0, frozenset[int](), b"")
        live = frozenset((live | rows.keys()) - {id for id, data in rows.items() if data is None})
        mark = Mark(shard=shard, offset=offset, epoch=1, records=len(live), previous=mark_name(before) if before else 0)
        records = [(record_key(id), None if data is None else row(id, data)) for id, data in rows.items()]
        value = mark.SerializeToString()
        self.broker.write("table", shard, [*records, (mark_key(shard), value)])
        marks.append((self.log(shard).end, live, value))

    def log(self, shard: int = 0) -> PartitionLog:
        log = self.broker.log("table", shard)
        assert log is not None
        return log

    def lose_last_mark(self, shard: int = 0) -> None:
        """A power cut takes the newest checkpoint; another leader goes on, and the worker from the mark before."""
        marks = self._marks[shard]
        marks.pop()
        self.log(shard).lose(marks[-1][0])

    def pass_time(self, seconds: float, *, compact: bool = False) -> None:
        self.timeline.wait(seconds, lambda: False)
        if compact:
            for shard in range(self._shards):
                self.broker.compact("table", shard)

    def replica(self, records_per_poll: int = 100) -> Replica:
        """The copy as its next owner opens it."""
        replica = Replica(
            SimulatedKafka(self.broker, records_per_poll=records_per_poll),
            "table",
            range(self._shards),
            SimulatedStore(self.disk, Faults(), "node"),
            b"identity",
            clock=self.timeline.now,
            wall_ms=lambda: (self.timeline.now() - self.clock_behind_s) * 1000,
            delete_retention_ms=int(RETENTION_S * 1000),
            min_compaction_lag_ms=int(COMPACTION_LAG_S * 1000),
            held_bytes_max=HELD_BYTES_MAX,
        )
        replica.open(SOON_S)
        return replica

    def up_to_date(self, records_per_poll: int = 100) -> Replica:
        replica = self.replica(records_per_poll)
        replica.catch_up(SOON_S)
        return replica

    def records(self) -> dict[int, bytes]:
        """What the copy holds."""
        rows = [Record.FromString(value) for key, value in self.disk.rows.items() if key[:1] == b"r"]
        return {record.id: record.data for record in rows}


def row(id: int, data: bytes) -> bytes:
    return Record(type=ADD, id=id, data=data).SerializeToString()


def marks_on_the_way(replica: Replica, until: int) -> list[int]:
    """The marks that a replica shows, one poll after the other, up to that one."""
    shown = [replica.mark(0).offset]
    for _ in range(100):
        if shown[-1] == until:
            return shown
        replica.poll(SOON_S)
        if replica.mark(0).offset != shown[-1]:
            shown.append(replica.mark(0).offset)
    raise AssertionError(shown)


# ---- building ----------------------------------------------------------------------------------------------------


def test_a_copy_that_took_longer_than_the_compaction_lag_is_readable_without_another_row() -> None:
    table = Table()
    table.checkpoint(3, {})
    replica = table.replica()
    table.pass_time(2 * COMPACTION_LAG_S)
    replica.catch_up(SOON_S)
    assert replica.readable
    assert replica.mark(0).offset == 3


def test_a_new_copy_is_readable_at_the_newest_mark_and_not_before() -> None:
    table = Table()
    for offset in range(3):
        table.checkpoint(offset, {offset + 1: b"a"})
    assert marks_on_the_way(table.replica(records_per_poll=1), 2) == [-1, 2]


# ---- away --------------------------------------------------------------------------------------------------------


def after_compaction() -> Table:
    """A copy stands at mark 0; of the marks after it only 3 and 4 have their state in the topic."""
    table = Table()
    table.checkpoint(0, {1: b"a"})
    table.up_to_date()
    table.checkpoint(1, {2: b"a", 3: b"a"})
    table.checkpoint(2, {4: b"a"})
    table.pass_time(COMPACTION_LAG_S / 2)
    table.checkpoint(3, {2: b"b", 1: None})
    table.pass_time(COMPACTION_LAG_S * 2, compact=True)
    table.checkpoint(4, {5: b"a"})
    return table


def test_a_copy_that_was_away_shows_no_mark_in_a_part_of_the_log_that_may_have_been_compacted() -> None:
    table = after_compaction()
    assert marks_on_the_way(table.replica(records_per_poll=1), 4) == [0, -1, 4]
    assert table.records() == {2: b"b", 3: b"a", 4: b"a", 5: b"a"}


def test_a_copy_that_is_stopped_while_it_follows_shows_no_mark_of_a_compacted_part() -> None:
    table = Table()
    table.checkpoint(0, {1: b"a"})
    replica = table.up_to_date(records_per_poll=1)
    table.checkpoint(1, {2: b"a", 3: b"a"})
    assert marks_on_the_way(replica, 1) == [0, 1]
    table.checkpoint(2, {2: b"b"})
    table.pass_time(COMPACTION_LAG_S)
    table.checkpoint(3, {2: b"c"})
    table.pass_time(COMPACTION_LAG_S * 2, compact=True)
    table.checkpoint(4, {3: None})
    assert marks_on_the_way(replica, 4) == [1, -1, 4]
    assert table.records() == {1: b"a", 2: b"c"}


def test_a_copy_that_was_away_shows_every_mark_that_is_younger_than_the_compaction_lag() -> None:
    table = Table()
    table.checkpoint(0, {1: b"a"})
    table.up_to_date()
    table.pass_time(10 * COMPACTION_LAG_S)
    for offset in (1, 2, 3):
        table.checkpoint(offset, {1: b"%d" % offset})
    assert marks_on_the_way(table.replica(records_per_poll=1), 3) == [0, 1, 2, 3]


def test_a_newest_mark_of_long_ago_is_shown_and_the_copy_stays_a_state_meanwhile() -> None:
    table = Table()
    table.checkpoint(0, {1: b"a"})
    replica = table.up_to_date(records_per_poll=1)
    table.checkpoint(1, {})
    table.pass_time(10 * COMPACTION_LAG_S, compact=True)
    assert marks_on_the_way(replica, 1) == [0, 1]
    table.checkpoint(2, {})
    table.pass_time(10 * COMPACTION_LAG_S, compact=True)
    assert marks_on_the_way(table.replica(records_per_poll=1), 2) == [1, 2]


def test_old_foreign_rows_behind_the_last_mark_make_no_copy_wait_for_another_one() -> None:
    table = Table()
    table.checkpoint(0, {1: b"a"})
    following = table.up_to_date()
    for id in (2, 3):
        table.broker.write("table", 0, [(record_key(id), b"foreign")])
    table.pass_time(COMPACTION_LAG_S * 2)
    following.poll(SOON_S)
    assert following.mark(0).offset == 0
    opened = table.up_to_date()
    assert opened.mark(0).offset == 0
    assert table.records() == {1: b"a"}
    table.checkpoint(1, {})
    assert marks_on_the_way(opened, 1) == [0, 1]


def test_what_a_compacted_log_has_left_of_many_checkpoints_needs_no_room_for_held_rows() -> None:
    table = Table()
    table.checkpoint(0, {1: b"a"})
    table.up_to_date()
    for offset in range(1, 10):
        table.checkpoint(offset, {offset: b"a" * (HELD_BYTES_MAX // 2)})
    table.pass_time(COMPACTION_LAG_S * 2, compact=True)
    replica = table.up_to_date()
    assert replica.mark(0).offset == 9
    assert len(table.records()) == 9


def test_a_catch_up_that_takes_longer_than_the_compaction_lag_ends_at_the_newest_mark() -> None:
    table = after_compaction()
    replica = table.replica(records_per_poll=1)
    for offset in range(5, 9):
        replica.poll(SOON_S)
        table.checkpoint(offset, {6: b"%d" % offset})
        table.pass_time(COMPACTION_LAG_S, compact=True)
    assert marks_on_the_way(replica, 8) == [-1, 8]
    assert table.records()[6] == b"8"


def test_a_copy_that_was_away_takes_in_the_rows_of_other_shards_meanwhile() -> None:
    table = Table(shards=2)
    table.checkpoint(0, {1: b"a"}, shard=0)
    table.checkpoint(0, {2: b"a"}, shard=1)
    replica = table.up_to_date(records_per_poll=1)
    for offset in (1, 2, 3):
        table.checkpoint(offset, {1: b"%d" % offset}, shard=0)
    table.pass_time(COMPACTION_LAG_S * 2, compact=True)
    table.checkpoint(1, {2: b"b"}, shard=1)
    while replica.readable:
        replica.poll(SOON_S)
    assert table.disk.named[b"building"] == b"\x01"
    while replica.mark(1).offset != 1:
        replica.poll(SOON_S)
    replica.catch_up(SOON_S)
    assert (replica.mark(0).offset, replica.mark(1).offset) == (3, 1)
    assert table.disk.named[b"building"] == b"\x00"
    assert table.records() == {1: b"3", 2: b"b"}


def built_but_for_the_last_shard() -> tuple[Table, Replica]:
    """A new copy of two shards: one stands at its newest mark and has taken in another since, one is being built."""
    table = Table(shards=2)
    table.checkpoint(0, {1: b"a", 3: b"a"}, shard=0)
    table.checkpoint(0, dict.fromkeys(range(100, 120), b"a"), shard=1)
    replica = table.replica(records_per_poll=1)
    while replica.mark(0).offset != 0:
        replica.poll(SOON_S)
    table.checkpoint(1, {1: b"b", 3: None}, shard=0)
    while replica.mark(0).offset != 1:
        replica.poll(SOON_S)
    assert not replica.readable
    return table, replica


def test_a_shard_that_can_be_read_before_the_others_goes_on_and_is_noted_with_them() -> None:
    table, replica = built_but_for_the_last_shard()
    assert table.disk.named.keys() & {b"position/0", b"position/1"} == set()
    replica.catch_up(SOON_S)
    assert table.disk.named.keys() >= {b"position/0", b"position/1"}
    assert table.disk.named[b"building"] == b"\x00"
    assert table.records() == {1: b"b"} | dict.fromkeys(range(100, 120), b"a")


@pytest.mark.parametrize("seed", range(5))
def test_a_copy_that_crashes_before_its_last_shard_can_be_read_is_whole_when_it_is_built_again(seed: int) -> None:
    table, _ = built_but_for_the_last_shard()
    table.disk.crash(Random(seed))
    table.checkpoint(2, {4: b"a"}, shard=0)
    table.up_to_date()
    assert table.records() == {1: b"b", 4: b"a"} | dict.fromkeys(range(100, 120), b"a")


# ---- crashes while building again ----------------------------------------------------------------------------------


def test_a_copy_whose_owner_crashed_while_it_was_building_again_goes_on_from_its_last_state() -> None:
    table = after_compaction()
    before = table.replica(records_per_poll=1)
    while before.readable:
        before.poll(SOON_S)
    before.poll(SOON_S)
    table.pass_time(COMPACTION_LAG_S * 2, compact=True)
    replica = table.replica(records_per_poll=1)
    behind = table.broker.topics["table"].logs[0].end
    assert not replica.readable
    assert 0 < replica.lag(0) < behind
    assert marks_on_the_way(replica, 4) == [-1, 4]
    assert table.records() == {2: b"b", 3: b"a", 4: b"a", 5: b"a"}


def test_a_copy_that_never_was_a_state_is_built_from_nothing_again() -> None:
    table = after_compaction()
    table.disk = Disk()
    table.replica(records_per_poll=1).poll(SOON_S)
    table.disk.rows[record_key(9)] = b"a ghost"
    replica = table.up_to_date()
    assert replica.mark(0).offset == 4
    assert table.records() == {2: b"b", 3: b"a", 4: b"a", 5: b"a"}


# ---- tombstones ----------------------------------------------------------------------------------------------------


def missed_tombstone(table: Table) -> None:
    """Record 1 is deleted, and nothing in the topic says so any more."""
    table.checkpoint(1, {1: None})
    table.checkpoint(2, {2: b"a"})
    table.pass_time(COMPACTION_LAG_S * 2, compact=True)
    table.pass_time(RETENTION_S * 1.1, compact=True)
    table.checkpoint(3, {2: b"b"})


def test_a_copy_that_was_away_for_longer_than_tombstones_are_kept_is_built_from_nothing() -> None:
    table = Table()
    table.checkpoint(0, {1: b"a"})
    table.up_to_date()
    missed_tombstone(table)
    table.up_to_date()
    assert table.records() == {2: b"b"}


def test_a_copy_that_was_not_polled_for_longer_than_tombstones_are_kept_is_built_from_nothing() -> None:
    table = Table()
    table.checkpoint(0, {1: b"a"})
    replica = table.up_to_date()
    missed_tombstone(table)
    assert marks_on_the_way(replica, 3) == [0, 3]
    assert table.records() == {2: b"b"}


def test_a_copy_that_stands_at_the_end_of_an_idle_log_is_kept_however_long_that_lasts() -> None:
    table = Table()
    table.checkpoint(0, {1: b"a"})
    replica = table.up_to_date(records_per_poll=1)
    for _ in range(4):
        replica.poll(RETENTION_S / 2)
    table.checkpoint(1, {2: b"a"})
    assert marks_on_the_way(replica, 1) == [0, 1]
    assert table.records() == {1: b"a", 2: b"a"}


# ---- a table that has lost what it had ---------------------------------------------------------------------------


def lost_since(table: Table, copied: Disk) -> Table:
    """The same table after Kafka lost its end, and with as many offsets as before: of foreign rows, which nobody marks.
    The copy is of what it was."""
    table.disk = copied
    for record_id in range(100, 104):
        table.broker.write("table", 0, [(record_key(record_id), b"foreign")])
    return table


def test_a_copy_whose_mark_the_table_has_lost_is_built_anew() -> None:
    whole = Table()
    whole.checkpoint(0, {1: b"a"})
    whole.checkpoint(1, {1: b"b", 2: b"a"})
    whole.up_to_date()
    rest = Table()
    rest.checkpoint(0, {1: b"a"})
    table = lost_since(rest, whole.disk)
    replica = table.up_to_date()
    assert replica.mark(0).offset == 0
    assert {id: value for id, value in table.records().items() if id < 100} == {1: b"a"}


def test_a_copy_at_the_end_of_a_table_looks_for_its_mark_once() -> None:
    table = Table()
    table.checkpoint(0, {1: b"a"})
    table.up_to_date()
    replica = table.replica()
    assert (replica.mark(0).offset, replica.lag(0)) == (0, 1)
    assert replica.poll(SOON_S) == 1
    assert (replica.mark(0).offset, replica.lag(0)) == (0, 0)
    assert table.records() == {1: b"a"}


def test_a_copy_that_was_away_for_too_long_is_built_anew_on_a_machine_whose_clock_is_behind() -> None:
    table = Table()
    table.clock_behind_s = 10 * RETENTION_S
    table.checkpoint(0, {1: b"a"})
    table.up_to_date()
    missed_tombstone(table)
    table.up_to_date()
    assert table.records() == {2: b"b"}


def test_a_copy_that_was_away_while_nobody_wrote_is_counted_as_nothing_tells_for_how_long_that_was() -> None:
    table = Table()
    table.clock_behind_s = 10 * RETENTION_S
    table.checkpoint(0, {1: b"a"})
    table.up_to_date()
    table.checkpoint(1, {1: None})
    table.checkpoint(2, {2: b"a"})
    table.pass_time(COMPACTION_LAG_S * 2, compact=True)
    table.pass_time(RETENTION_S * 1.1, compact=True)
    table.up_to_date()
    assert table.records() == {2: b"a"}


# ---- a table that has lost its tail and grew again beyond where a copy stands --------------------------------------


def grown_again(table: Table) -> None:
    """Mark 2 is lost; the worker folds the same frames again, in other checkpoints, and one more behind them."""
    table.lose_last_mark()
    table.checkpoint(3, {3: None, 4: b"b", 5: b"b"})
    table.checkpoint(4, {6: b"b"})


def followed_to_mark_two() -> Table:
    table = Table()
    table.checkpoint(0, {1: b"a"})
    table.checkpoint(1, {3: b"a"})
    table.checkpoint(2, {2: b"a"})
    return table


def test_a_copy_of_a_table_that_lost_its_tail_and_grew_again_is_built_anew() -> None:
    table = followed_to_mark_two()
    table.up_to_date()
    grown_again(table)
    table.up_to_date()
    assert table.records() == {1: b"a", 4: b"b", 5: b"b", 6: b"b"}


def test_a_copy_that_follows_a_table_which_loses_its_tail_and_grows_again_is_built_anew() -> None:
    table = followed_to_mark_two()
    replica = table.up_to_date()
    grown_again(table)
    assert marks_on_the_way(replica, 4) == [2, -1, 4]
    assert table.records() == {1: b"a", 4: b"b", 5: b"b", 6: b"b"}


def without_a_leader_epoch(table: Table) -> None:
    """The copy does not know who wrote the mark that it stands at, as a worker's own does not."""
    table.disk.named |= note_checkpoint(0, table.log().end, int(table.timeline.now() * 1000))


def test_without_a_leader_epoch_the_mark_that_is_not_there_tells_that_a_table_lost_its_tail() -> None:
    table = followed_to_mark_two()
    table.up_to_date()
    without_a_leader_epoch(table)
    grown_again(table)
    table.up_to_date()
    assert table.records() == {1: b"a", 4: b"b", 5: b"b", 6: b"b"}


def test_a_mark_that_does_not_name_the_one_before_it_tells_that_a_table_lost_its_tail() -> None:
    table = followed_to_mark_two()
    replica = table.up_to_date()
    strange = Mark(shard=0, offset=5, epoch=1, records=3, previous=1)
    table.broker.write("table", 0, [(mark_key(0), strange.SerializeToString())])
    assert marks_on_the_way(replica, 5) == [2, -1, 5]


def test_where_the_marks_were_compacted_away_the_counts_tell_that_a_table_lost_its_tail() -> None:
    table = followed_to_mark_two()
    table.up_to_date()
    without_a_leader_epoch(table)
    grown_again(table)
    table.pass_time(COMPACTION_LAG_S * 2, compact=True)
    table.checkpoint(5, {1: b"c"})
    table.up_to_date()
    assert table.records() == {1: b"c", 4: b"b", 5: b"b", 6: b"b"}


def test_a_table_that_has_lost_a_row_is_told_once_its_copy_was_built_anew() -> None:
    table = Table()
    table.checkpoint(0, {1: b"a", 2: b"a"})
    table.up_to_date()
    table.checkpoint(1, {2: None})
    table.broker.write("table", 0, [(record_key(1), None)])
    table.pass_time(COMPACTION_LAG_S * 2, compact=True)
    table.checkpoint(2, {3: b"a"})
    with pytest.raises(CountError, match=r"has 1 record,.* says 2 records"):
        table.up_to_date()
