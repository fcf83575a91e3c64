"""What waits for the writer is packed into groups of a bounded size, of which a transaction takes as many as it may."""

from __future__ import annotations

import pytest

from journal.append.core import Core
from journal.append.group import Group
from journal.append.writing import Joining
from journal.errors import InvalidOperationError, QueueFullError
from journal.limits import OPERATION_OVERHEAD_BYTES, Limits
from journal.v1.journal_pb2 import ADD
from tests.support.cores import Committing, active_core

DATA = b"x" * 36
SIZE = len(DATA) + OPERATION_OVERHEAD_BYTES
LIMITS = Limits(
    group_bytes_max=4 * SIZE,
    queue_bytes_max=4096,
    data_bytes_max=2048,
    transaction_buffer_bytes_max=4096,
    transaction_buffer_operations_max=30,
    queue_operations_max=30,
)
QUEUED_MAX = 30


class Packing:
    def __init__(self, limits: Limits = LIMITS, writer: Committing | None = None) -> None:
        self.writer = writer or Committing()
        self.core: Core = active_core(self.writer, limits)
        self._next = 0

    def add(self, count: int = 1) -> None:
        for _ in range(count):
            self.core.add(self._next + 1, 1, DATA)
            self._next += 1

    def add_together(self, count: int) -> None:
        ids = range(self._next + 1, self._next + count + 1)
        self._next += count
        self.core.append_all([(ADD, each, 1, DATA, False, 0) for each in ids])

    def write_all(self) -> list[int]:
        """Operations of each group, in the order in which they were written."""
        while not self.core.flush().done:
            self.core.step(0.0)
        return [group.operations for group in self.writer.written]


def test_a_group_is_complete_when_the_next_operation_would_make_it_too_large() -> None:
    packing = Packing()
    packing.add(10)
    assert packing.write_all() == [4, 4, 2]


def test_what_belongs_together_is_in_one_group_however_much_it_is() -> None:
    packing = Packing()
    packing.add(3)
    packing.add_together(2)
    packing.add_together(9)
    packing.add(1)
    packing.core.transactions.begin(7)
    for record_id in range(100, 106):
        packing.core.add(record_id, 1, DATA, 7)
    packing.core.transactions.commit(7)
    packing.add(1)
    assert packing.write_all() == [3, 2, 9, 1, 6, 1]


def test_the_queues_bound_counts_all_groups_and_room_is_for_whoever_comes_first() -> None:
    packing = Packing()
    packing.add(QUEUED_MAX)
    with pytest.raises(QueueFullError):
        packing.add()
    with pytest.raises(QueueFullError):
        packing.core.append_all([(ADD, 100, 1, DATA, False, 0)], wait=False)
    room = packing.core.room()
    assert not room.done
    packing.core.step(0.0)
    assert room.done
    packing.add(4)
    with pytest.raises(QueueFullError):
        packing.add()


def test_bytes_that_wait_in_all_groups_are_bounded() -> None:
    packing = Packing(LIMITS.model_copy(update={"queue_operations_max": 1000}))
    packing.add(4096 // SIZE)
    with pytest.raises(QueueFullError):
        packing.add()
    with pytest.raises(InvalidOperationError, match="queue_bytes_max"):
        packing.add_together(4096 // SIZE + 1)


class Joined(Committing):
    """A writer that takes all that may join, into transactions of a bounded size."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__()
        self.transactions: list[list[int]] = []
        """Operations of each one's groups."""
        self._bytes_max = bytes_max

    def write(self, group: Group, joining: Joining) -> None:
        groups = [group]
        for complete in (True, False):
            while True:
                operations, size = sum(each.operations for each in groups), sum(each.bytes for each in groups)
                more = joining(operations, self._bytes_max - size, complete=complete)
                if more is None:
                    break
                groups.append(more)
        self.transactions.append([each.operations for each in groups])
        for each in groups:
            each.completion.resolve()


@pytest.mark.parametrize(
    ("groups", "transactions"),
    [(3, [[4, 4, 3]]), (2, [[4, 4], [3]]), (1, [[4], [4], [3]])],
)
def test_groups_join_a_transaction_in_their_order_as_far_as_it_has_room(
    groups: int, transactions: list[list[int]]
) -> None:
    writer = Joined(groups * LIMITS.group_bytes_max)
    packing = Packing(writer=writer)
    packing.add(11)
    packing.write_all()
    assert writer.transactions == transactions
