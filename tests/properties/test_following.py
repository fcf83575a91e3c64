"""A state that is followed is the state that a load gives, whatever became of the copy meanwhile."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from journal.errors import LocalStorageError, OperatingError
from journal.load.live_records import LiveRecords
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.faults import Faults
from tests.support.followed import COMPACTION_LAG_S, RETENTION_S, FollowedTable
from tests.support.golden import WalEntry
from tests.support.histories import histories

STEPS = st.lists(
    st.tuples(st.sampled_from("cccct."), st.sampled_from("p" * 20 + "owwdrtTx.")),
    min_size=13,
    max_size=13,
)
"""After each frame: a checkpoint; a poll, which the disk may refuse; open again; the copy dropped; time; nothing."""


class RefusingStore(SimulatedStore):
    """A store whose next write fails, before or after it took effect."""

    def __init__(self) -> None:
        self.refused: list[bool] = []
        super().__init__(Disk(), Faults(), "node")

    def write(self, rows, named, *, durable=True) -> None:  # type: ignore[no-untyped-def]
        if not self.refused:
            super().write(rows, named, durable=durable)
            return
        if self.refused.pop():
            super().write(rows, named, durable=durable)
        raise LocalStorageError("the disk refuses")


def take_step(table: FollowedTable, store: RefusingStore, step: str) -> None:
    match step:
        case "c":
            table.checkpoint()
        case "p":
            table.poll()
        case "o":
            table.replica.open(1.0)
        case "r":
            store.clear()
            table.replica.open(1.0)
        case "w" | "d":
            store.refused = [step == "w"]
            try:
                table.poll()
            except OperatingError:
                table.replica.open(1.0)
            store.refused = []
        case "t":
            table.pass_time(COMPACTION_LAG_S * 2, compact=True)
        case "T":
            table.pass_time(RETENTION_S * 1.1, compact=True)
        case "x":
            table.following.restart()


@given(histories(frames_max=12), st.sampled_from([0, 60, 4096]), st.integers(1, 8), STEPS)
def test_a_followed_state_is_what_a_load_gives(
    entries: list[WalEntry], row_bytes_max: int, records_per_poll: int, steps: list[tuple[str, str]]
) -> None:
    store = RefusingStore()
    table = FollowedTable(store, updates_row_bytes_max=row_bytes_max, records_per_poll=records_per_poll)
    for entry, step in zip(entries, steps, strict=False):
        table.take(entry)
        take_step(table, store, step[0])
        take_step(table, store, step[1])
        table.check_warm()
    table.checkpoint()
    table.follow()
    assert table.following.warm
    table.check()


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(-1, 40)), max_size=60))
def test_live_records_count_as_a_dictionary_does(puts: list[tuple[int, int]]) -> None:
    live, expected = LiveRecords(), dict[int, int]()
    for record_id, updates in puts:
        if updates < 0:
            live.drop(record_id)
            expected.pop(record_id, None)
        else:
            live.put(record_id, updates)
            expected[record_id] = updates
    counts = live.counts
    assert set(live.ids) == set(expected)
    assert (sum(counts.records), sum(counts.updates)) == (len(expected), sum(expected.values()))
