"""Groups that take in what was consumed: their place among other groups, and what their failure leaves of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from journal.append.completion import Completion
from journal.append.group import Group
from journal.append.operations import NewRecords
from journal.append.writing import Joining
from journal.errors import FencedError, FullError, JournalError, NotTakenInError, RecordMissingError, StateError
from journal.kafka.ports import Consumed, Sent
from journal.limits import Limits
from journal.local.journal import LocalJournal
from journal.v1.journal_pb2 import ADD
from journal.wire.ids import make_id
from tests.support.cores import Committing, active_core

LIMITS = Limits(queue_operations_max=10, transaction_buffer_operations_max=5)
CONSUMED = Consumed("group", {("orders", 0): 7})


class JoinedStore(Committing):
    """A writer that also takes what may join a group. `takes_in` false: consumed records never get in."""

    def __init__(self) -> None:
        super().__init__()
        self.takes_in = True
        self.joined: list[Group] = []

    def write(self, group: Group, joining: Joining) -> None:
        joined = None
        if group.consumed is None:
            joined = joining(group.operations, 1 << 20, complete=False)
        if joined is not None:
            self.joined.append(joined)
        self.written.append(group)
        refused = group.consumed is not None and not self.takes_in
        for each in (group, joined):
            if each is not None:
                each.completion.resolve(NotTakenInError("no offsets") if refused else None)


class TakingScene:
    """An active core on that writer."""

    def __init__(self) -> None:
        self.writer = JoinedStore()
        self.core = active_core(self.writer, LIMITS)

    def take_in(self, *ids: int, beside: tuple[Sent, ...] = ()) -> Completion:
        return self.core.take_in([(ADD, each, 1, b"in", False, 0) for each in ids], CONSUMED, beside)

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            assert self.core.step(0.0)


@pytest.fixture
def scene() -> TakingScene:
    return TakingScene()


def test_consumed_records_are_written_between_what_was_accepted_before_them_and_what_comes_later(
    scene: TakingScene,
) -> None:
    before = scene.core.add(1, 1, b"before")
    taken_in = scene.take_in(2, 3)
    after = scene.core.add(4, 1, b"after")
    scene.step(3)
    assert [group.completion for group in scene.writer.written] == [before, taken_in, after]
    assert [group.consumed for group in scene.writer.written] == [None, CONSUMED, None]
    assert scene.writer.joined == []


def test_records_for_other_topics_are_in_the_group_of_the_consumed_records(scene: TakingScene) -> None:
    letter = Sent("letters", 0, b"k", b"v", (("why", b"because"),))
    scene.take_in(2, beside=(letter,))
    scene.step()
    assert scene.writer.written[0].beside == (letter,)


def test_offsets_without_records_are_a_group(scene: TakingScene) -> None:
    taken_in = scene.take_in()
    scene.step()
    assert taken_in.done
    assert (scene.writer.written[0].frames, scene.writer.written[0].operations) == (1, 0)


def test_a_second_batch_is_refused_until_the_first_is_done(scene: TakingScene) -> None:
    scene.take_in(2)
    with pytest.raises(StateError):
        scene.take_in(3)
    scene.step()
    scene.take_in(3)


def test_a_batch_that_does_not_fit_the_queue_of_what_waits_is_refused(scene: TakingScene) -> None:
    for record_id in range(1, 9):
        scene.core.add(record_id, 1, b"")
    with pytest.raises(FullError):
        scene.take_in(20, 21, 22)
    scene.step()
    scene.take_in(20, 21, 22)


def test_a_failed_batch_leaves_nothing_and_fails_nobody_else(scene: TakingScene) -> None:
    scene.writer.takes_in = False
    before, taken_in = scene.core.add(1, 1, b""), scene.take_in(2)
    after = scene.core.add(4, 1, b"")
    flushed = scene.core.flush()
    scene.step(3)
    assert isinstance(taken_in.error, NotTakenInError)
    assert [each.error for each in (before, after, flushed)] == [None, None, None]
    with pytest.raises(RecordMissingError):
        scene.core.delete(2)
    scene.writer.takes_in = True
    again = scene.take_in(2)
    scene.step()
    assert again.done
    assert again.error is None


def test_new_records_that_failed_can_be_taken_in_again(scene: TakingScene) -> None:
    scene.writer.takes_in = False
    new = NewRecords(1, [make_id(5, 3), make_id(6, 3)], [b"in", b"in"], 2, 7)
    failed = scene.core.take_in([new], CONSUMED)
    scene.step()
    assert isinstance(failed.error, NotTakenInError)
    with pytest.raises(RecordMissingError):
        scene.core.delete(new.ids[0])
    scene.writer.takes_in = True
    again = scene.core.take_in([new], CONSUMED)
    scene.step()
    assert (again.done, again.error) == (True, None)
    scene.core.delete(new.ids[1])


def test_a_flush_does_not_wait_for_consumed_records(scene: TakingScene) -> None:
    scene.take_in(2)
    assert scene.core.flush().done


def test_consumed_records_and_what_waits_before_them_are_told_when_the_node_is_fenced(scene: TakingScene) -> None:
    before, taken_in = scene.core.add(1, 1, b""), scene.take_in(2)
    scene.core.step_down(FencedError("another node", epoch=4))
    errors: list[JournalError | None] = [before.error, taken_in.error]
    assert all(isinstance(error, FencedError) for error in errors)


def test_a_journal_that_closes_writes_consumed_records_first(scene: TakingScene) -> None:
    before, taken_in = scene.core.add(1, 1, b""), scene.take_in(2)
    scene.core.begin_close()
    scene.step(2)
    assert not scene.core.step(0.0)
    assert (before.done, taken_in.done) == (True, True)


def test_a_journal_in_a_directory_takes_nothing_in(tmp_path: Path) -> None:
    with LocalJournal(tmp_path) as journal:
        journal.activate()
        with pytest.raises(StateError):
            journal.take_in([], CONSUMED)
