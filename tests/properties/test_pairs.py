"""A record added with an update, and deleted with one, is the same as these operations one by one: accepted or refused
alike, in the same frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from journal.append.completion import Completion
from journal.append.core import Core
from journal.append.group import FrameOrigin, Group
from journal.append.writing import Joining
from journal.errors import JournalError, LockedError, QueueFullError
from journal.limits import Limits
from journal.v1.journal_pb2 import ADD, DELETE, UPDATE
from journal.wire.ids import make_id
from tests.support.cores import Committing, active_core

JOURNAL = b"j" * 16
LIMITS = Limits(
    frame_bytes_max=40_000,
    data_bytes_max=20_000,
    transaction_buffer_operations_max=8,
    transaction_buffer_bytes_max=10_000,
    queue_operations_max=12,
    queue_bytes_max=100_000,
)
LIVE = [make_id(number, number) for number in range(1, 7)]
FIRST = 101
"""What follows the ids that `active_core` has issued."""
TX = 9
KIND, UPDATE_KIND, END_KIND, SUBJECT = 1, 2, 3, 77


class Keeping(Committing):
    """A writer that keeps the frames' bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[bytes | None] = []

    def write(self, group: Group, joining: Joining) -> None:
        self.numbers = group.seal(FrameOrigin(JOURNAL, 3, "node"), self.numbers)
        self.frames += [record.value for record in group.records("wal")]
        super().write(group, joining)


@dataclass
class Side:
    """A journal, and what its calls gave: an id, or the error's type."""

    paired: bool
    writer: Keeping = field(default_factory=Keeping)
    gave: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.core = active_core(self.writer, LIMITS, LIVE)
        self.issued = FIRST

    def call(self, what: Callable[[Core], object]) -> None:
        try:
            gave = what(self.core)
        except JournalError as error:
            self.gave.append(type(error))
        else:
            self.gave.append(None if isinstance(gave, Completion) else gave)

    def add(self, shard: int, data: bytes, subject: int) -> None:
        if self.paired:
            self.call(lambda core: core.add_with_update(shard, KIND, data, UPDATE_KIND, subject)[0])
            return
        record_id = make_id(self.issued, shard)
        operations = [(ADD, record_id, KIND, data, False, 0), (UPDATE, record_id, UPDATE_KIND, b"", False, subject)]
        self.call(lambda core: core.append_all(operations) and record_id)
        if self.gave[-1] is not QueueFullError:
            self.core.new_id(shard)
            self.issued += 1

    def delete(self, record_id: int, data: bytes) -> None:
        if self.paired:
            self.call(lambda core: core.delete_with_update(record_id, END_KIND, data, SUBJECT))
            return
        operations = [(UPDATE, record_id, END_KIND, data, False, SUBJECT), (DELETE, record_id, 0, b"", False, 0)]
        self.call(lambda core: core.append_all(operations))

    def step(self) -> None:
        self.core.step(0.0)


some_data = st.one_of(
    st.binary(max_size=20), st.sampled_from([b"x" * size for size in (16_300, 16_384, 19_900, 20_000, 20_001)])
)
steps = st.one_of(
    st.builds(
        lambda shard, data, subject: lambda side: side.add(shard, data, subject),
        st.integers(0, 3),
        some_data,
        st.sampled_from([0, 1, 2**62]),
    ),
    st.builds(
        lambda record_id, data: lambda side: side.delete(record_id, data),
        st.sampled_from([*LIVE, make_id(FIRST, 0), make_id(FIRST, 1), make_id(FIRST + 1, 1)]),
        st.one_of(st.just(b""), some_data),
    ),
    st.builds(
        lambda record_id: lambda side: side.call(lambda core: core.update(record_id, 5, b"", tx=TX)),
        st.sampled_from(LIVE),
    ),
    st.builds(lambda record_id: lambda side: side.call(lambda core: core.delete(record_id, TX)), st.sampled_from(LIVE)),
    st.just(lambda side: side.call(lambda core: core.transactions.commit(TX))),
    st.just(Side.step),
)


@given(st.lists(steps, max_size=30))
def test_a_pair_is_its_operations_one_by_one(calls: list[Callable[[Side], None]]) -> None:
    paired, single = Side(paired=True), Side(paired=False)
    for call in calls:
        call(paired)
        call(single)
    paired.step()
    single.step()
    assert paired.gave == single.gave
    assert paired.writer.frames == single.writer.frames


def test_a_pair_is_refused_for_a_lock_and_for_a_full_queue() -> None:
    side = Side(paired=True)
    side.core.update(LIVE[0], 5, b"", tx=TX)
    side.core.delete(LIVE[1], TX)
    side.delete(LIVE[0], b"")
    side.delete(LIVE[1], b"")
    assert side.gave == [LockedError, LockedError]
    for _ in range(7):
        side.add(0, b"", 0)
    assert side.gave[2:] == [*(make_id(FIRST + n, 0) for n in range(6)), QueueFullError]
