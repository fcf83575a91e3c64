"""The worker's shell called from another process: what calls take and give, frames on their way, either side gone."""

from __future__ import annotations

import fcntl
import marshal
import resource
import socket
import struct
import threading
import time
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from journal.errors import (
    ConfigError,
    CorruptionError,
    DeadlineError,
    DisconnectedError,
    FatalProducerError,
    FrameError,
    GapError,
    HangingTransactionError,
    KafkaRefusedError,
    RouteStopError,
)
from journal.fold.sorted_frame import SortedFrame
from journal.fold.sorting import sort_frame
from journal.v1.journal_pb2 import Frame
from streams.agents.agents import in_daemon_thread
from streams.reading.calls import BUSY_TICK_S, POSTED_MAX, CalledShell, CallsEnded, Channel, Inbox, ShellAnswers
from streams.reading.records import Prepared
from streams.reading.shell import WorkerShell
from tests.support.build import JOURNAL, NONCE, add, commit, delete, frame, marker, replace, update, wal

pytestmark = pytest.mark.timeout(30)

LIMIT_S = 20.0
LARGE_BYTES = 9 * 1024 * 1024
"""More than is received into without being asked for."""

SIZE = struct.Struct("<Q")


class Shell(WorkerShell):
    """Notes what it is asked to do, answers what a test says, and takes frames when it lets it."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.offsets: dict[int, int] = {}
        self.wanted: set[int] = set()
        self.sought: dict[int, int] = {}
        self.marks: dict[int, int] = {}
        self.tick_s = 0.5
        self.fails: Exception | None = None
        self.is_busy = False
        """Whether each batch waits for `let`."""
        self._takes = threading.Semaphore(0)
        self._called = threading.Condition()

    def _note(self, *call: Any) -> None:
        with self._called:
            self.calls.append(call)
            self._called.notify_all()
        if self.fails is not None:
            raise self.fails

    def named(self, name: str) -> list[tuple[Any, ...]]:
        """What these calls took."""
        return [call[1:] for call in list(self.calls) if call[0] == name]

    def until_called(self, name: str, count: int) -> None:
        with self._called:
            assert self._called.wait_for(lambda: len(self.named(name)) >= count, LIMIT_S)

    def let(self, count: int = 1) -> None:
        self._takes.release(count)

    def assigned(self, shards: Collection[int]) -> Mapping[int, int]:
        self._note("assigned", shards)
        return self.offsets

    def revoked(self, shards: Collection[int]) -> None:
        self._note("revoked", shards)

    def frames(self, shard: int, records: Sequence[Prepared]) -> None:
        self._note("frames", shard, records)
        if self.is_busy:
            assert self._takes.acquire(timeout=LIMIT_S)

    def unsorted(self) -> Collection[int]:
        return self.wanted

    def unreadable(self, shard: int, error: CorruptionError) -> None:
        self._note("unreadable", shard, error)

    def tick(self) -> float:
        self._note("tick")
        return self.tick_s

    def seeks(self) -> Mapping[int, int]:
        sought, self.sought = self.sought, {}
        return sought

    def applied(self) -> Mapping[int, int]:
        return self.marks

    def stop(self) -> None:
        self._note("stop")

    def abandon(self) -> None:
        self._note("abandon")


class Sides:
    """A shell, who calls it, and who answers in another thread, as the worker and its reader have them."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.calling, self.answering = Channel(theirs), Channel(ours)
        self.shell = Shell()
        self.called = CalledShell(self.calling)
        self.answers = ShellAnswers(self.shell)
        self.ended = beside(self._answer_all)

    def _answer_all(self) -> None:
        inbox = Inbox(self.answering)
        try:
            while True:
                self.answers.answer(self.answering, inbox.take())
        finally:
            self.answering.disconnect()

    def close(self) -> None:
        self.shell.let(100)
        self.calling.disconnect()
        wait([self.ended], LIMIT_S)
        self.calling.close()
        self.answering.close()

    def post(self, shard: int, *offsets: int) -> None:
        """Frames of which only these are known."""
        self.called.frames(shard, [(offset, 1, b"raw") for offset in offsets])

    def settle(self) -> None:
        """All that is on its way is there, and answered."""
        while self.called.tick() == BUSY_TICK_S:
            time.sleep(0.001)

    def applied(self) -> list[tuple[int, int]]:
        """Shard and offset of each record that the shell was given, in this order."""
        return [(shard, offset) for shard, records in self.shell.named("frames") for offset, _, _ in records]

    def received(self, *values: bytes | SortedFrame) -> list[bytes | SortedFrame]:
        """These, the values of a shard's records, as they come to the shell."""
        self.called.frames(3, [(2 * n, 100 + n, value) for n, value in enumerate(values)])
        self.settle()
        shard, records = self.shell.named("frames")[-1]
        assert shard == 3
        assert [each[:2] for each in records] == [(2 * n, 100 + n) for n in range(len(values))]
        return [value for _, _, value in records]


def beside(function: Callable[..., Any], *arguments: object) -> Future[Any]:
    """In a thread that a test which fails need not wait for."""
    return in_daemon_thread(partial(function, *arguments))


@pytest.fixture
def sides() -> Iterator[Sides]:
    made = Sides()
    yield made
    made.close()


@contextmanager
def connected() -> Iterator[tuple[socket.socket, Channel]]:
    """A channel, and the bare socket of its other side."""
    theirs, ours = socket.socketpair()
    with theirs, ours:
        try:
            yield theirs, Channel(ours)
        finally:
            for each in (theirs, ours):
                Channel(each).disconnect()


def message(*content: Any) -> bytes:
    data = marshal.dumps(content)
    return SIZE.pack(len(data)) + data


def comparable(value: bytes | SortedFrame) -> bytes | tuple[Any, ...]:
    """Ids as numbers, whichever way they came, and runs as tuples."""
    if isinstance(value, bytes):
        return value
    return (*value[:-1], [tuple(numbers(part) for part in run) for run in value.runs])


def numbers(part: Any) -> list[Any]:
    return part if isinstance(part, list) else list(array("q", part))


def sorted_of(value: Frame, offset: int = 0) -> SortedFrame:
    return sort_frame(value.SerializeToString(), offset, JOURNAL, 0, 1)


# ---- what each call takes and gives ------------------------------------------------------------------------------


def test_shards_that_are_assigned_arrive_and_so_do_the_offsets_to_read_them_from(sides: Sides) -> None:
    sides.shell.offsets = {0: 7, 5: 2**62}
    assert sides.called.assigned(frozenset({0, 3, 5})) == {0: 7, 5: 2**62}
    ((shards,),) = sides.shell.named("assigned")
    assert sorted(shards) == [0, 3, 5]


def test_none_may_be_assigned_and_none_may_be_ready(sides: Sides) -> None:
    assert sides.called.assigned([]) == {}
    assert sides.shell.calls == [("assigned", [])]


def test_shards_that_are_revoked_arrive(sides: Sides) -> None:
    sides.called.revoked(frozenset({4}))
    assert sides.shell.calls == [("revoked", [4])]


def test_records_arrive_as_they_lie_in_the_wal(sides: Sides) -> None:
    values = [each.SerializeToString() for _, _, each in wal([marker()], [add(1, b"a"), delete(1)])]
    assert sides.received(*values, b"", b"garbage") == [*values, b"", b"garbage"]


def test_sorted_records_arrive_with_all_that_was_found_of_them(sides: Sides) -> None:
    given = sorted_of(frame(2, add(1, b"one"), add(2), update(3, b"u"), delete(4), add(2**40)), 8)
    (received,) = sides.received(given)
    assert isinstance(received, SortedFrame)
    assert comparable(received) == comparable(given)
    assert (received.number, received.previous, received.operations, received.nonce) == (2, 1, 5, b"")
    ((added, added_rows, updated, _, deleted, others),) = received.runs
    assert [numbers(ids) for ids in (added, updated, deleted)] == [[1, 2, 2**40], [3], [4]]
    assert added_rows == given.runs[0].added_rows
    assert others == []


def test_so_does_a_frame_of_several_runs_with_transactions_and_replaceable_updates(sides: Sides) -> None:
    operations = [add(1), update(1, b"u"), replace(1, b"r"), add(2, tx=9), commit(9, 1), delete(1), delete(3)]
    given = sorted_of(frame(2, *operations, epoch=7, node="näme", group=11, last=False, issued=5), 6)
    assert len(given.runs) > 2
    (received,) = sides.received(given)
    assert comparable(received) == comparable(given)


def test_so_does_an_epochs_marker(sides: Sides) -> None:
    given = sorted_of(frame(1, marker(NONCE), epoch=3))
    (received,) = sides.received(given)
    assert isinstance(received, SortedFrame)
    assert received == given
    assert (received.epoch, received.nonce, received.runs) == (3, NONCE, [])


def test_sorted_records_and_others_come_in_their_order(sides: Sides) -> None:
    first, second, third = (each for _, _, each in wal([marker()], [add(1)], [delete(1)]))
    given = (sorted_of(first), second.SerializeToString(), b"garbage", sorted_of(third, 4))
    received = sides.received(*given)
    assert [comparable(each) for each in received] == [comparable(each) for each in given]


def test_no_records_at_all_arrive_too(sides: Sides) -> None:
    assert sides.received() == []


@pytest.mark.parametrize("kind", [CorruptionError, GapError, FrameError])
def test_why_a_shard_cannot_be_read_keeps_its_kind_and_its_place(sides: Sides, kind: type[CorruptionError]) -> None:
    error = kind("the batch is damaged: ü", topic="wal", partition=2, offset=2**40)
    sides.called.unreadable(2, error)
    ((shard, received),) = sides.shell.named("unreadable")
    assert (shard, type(received)) == (2, kind)
    assert str(received) == str(error) == f"wal[2]@{2**40}: the batch is damaged: ü"
    assert (received.reason, received.topic, received.partition, received.offset) == (error.reason, "wal", 2, 2**40)


def test_a_tick_says_when_the_next_one_is_wanted_and_what_to_seek_which_is_told_once(sides: Sides) -> None:
    sides.shell.tick_s, sides.shell.sought = 0.125, {1: 40, 2: 0}
    assert sides.called.seeks() == {}
    assert sides.called.tick() == 0.125
    assert sides.called.seeks() == {1: 40, 2: 0}
    assert sides.called.seeks() == {}
    sides.shell.tick_s = 0.0
    assert sides.called.tick() == 0.0
    assert sides.called.seeks() == {}
    assert sides.shell.calls == [("tick",), ("tick",)]


CALLS: dict[str, Callable[[CalledShell], object]] = {
    "assigned": lambda called: called.assigned([0]),
    "revoked": lambda called: called.revoked([0]),
    "unreadable": lambda called: called.unreadable(0, GapError("gone", topic="wal", partition=0, offset=1)),
    "tick": lambda called: called.tick(),
    "stop": lambda called: called.stop(),
}
"""Those that wait for their answer."""


@pytest.mark.parametrize("name", CALLS)
def test_each_answer_says_what_is_applied_and_which_shards_are_wanted_unsorted(sides: Sides, name: str) -> None:
    called, shell = sides.called, sides.shell
    assert (called.applied(), set(called.unsorted())) == ({}, set())
    shell.marks, shell.wanted = {0: 12, 6: 2**50}, {1, 4}
    CALLS[name](called)
    assert (called.applied(), set(called.unsorted())) == ({0: 12, 6: 2**50}, {1, 4})
    shell.marks, shell.wanted = {}, set()
    assert (called.applied(), set(called.unsorted())) == ({0: 12, 6: 2**50}, {1, 4})
    called.tick()
    assert (called.applied(), set(called.unsorted())) == ({}, set())


def test_the_answer_to_frames_says_it_too(sides: Sides) -> None:
    sides.shell.marks, sides.shell.wanted = {0: 12}, {1}
    sides.post(0, 11)
    sides.settle()
    assert (sides.called.applied(), set(sides.called.unsorted())) == ({0: 12}, {1})
    assert len(sides.shell.named("tick")) == 1


def test_its_stop_is_the_shells_and_to_abandon_it_is_not_its_own_affair(sides: Sides) -> None:
    sides.called.stop()
    sides.called.abandon()
    sides.called.ended(None)
    with pytest.raises(CallsEnded):
        sides.ended.result(LIMIT_S)
    assert sides.shell.calls == [("stop",)]


def test_calls_are_made_in_their_order(sides: Sides) -> None:
    for _ in range(3):
        for call in CALLS.values():
            call(sides.called)
    assert [call[0] for call in sides.shell.calls] == list(CALLS) * 3


def test_what_the_shell_raises_ends_the_answers_and_its_call_gets_none(sides: Sides) -> None:
    sides.shell.fails = LookupError("of the shell")
    with pytest.raises(DisconnectedError):
        sides.called.tick()
    with pytest.raises(LookupError, match="of the shell"):
        sides.ended.result(LIMIT_S)


# ---- frames on their way -----------------------------------------------------------------------------------------


def test_frames_are_sent_before_those_before_them_are_applied_but_only_so_many(sides: Sides) -> None:
    sides.shell.is_busy = True
    for offset in range(POSTED_MAX):
        sides.post(0, offset)
    one_more = beside(sides.post, 1, 9)
    sides.shell.until_called("frames", 1)
    assert not one_more.done()
    sides.shell.let()
    one_more.result(LIMIT_S)
    sides.shell.let(POSTED_MAX)
    sides.settle()
    assert sides.applied() == [*((0, offset) for offset in range(POSTED_MAX)), (1, 9)]


def test_frames_beyond_that_are_sent_when_the_first_have_their_answer() -> None:
    """Which they say themselves: how many answers there were before them."""
    with connected() as (bare, answering):
        called = CalledShell(Channel(bare))
        for offset in range(POSTED_MAX):
            called.frames(0, [(offset, 1, b"raw")])
        one_more = beside(called.frames, 1, [(9, 1, b"raw")])
        assert [answering.receive()[:3] for _ in range(POSTED_MAX)] == [("frames", 0, 0)] * POSTED_MAX
        answering.send((None, (1.0, {}), {}, []))
        assert answering.receive()[:3] == ("frames", 1, 1)
        one_more.result(LIMIT_S)


def test_a_tick_waits_for_no_frames_and_when_they_are_applied_gives_what_came_of_them(sides: Sides) -> None:
    sides.shell.is_busy, sides.shell.tick_s = True, 0.125
    sides.post(0, 1)
    assert sides.called.tick() == BUSY_TICK_S
    sides.post(0, 2)
    sides.shell.until_called("frames", 1)
    assert sides.called.tick() == BUSY_TICK_S
    assert (sides.called.seeks(), sides.called.applied()) == ({}, {})
    sides.shell.marks, sides.shell.sought = {0: 3}, {1: 40}
    sides.shell.let(2)
    while (wanted_s := sides.called.tick()) == BUSY_TICK_S:
        time.sleep(0.001)
    assert wanted_s == 0.125 - BUSY_TICK_S, "the answer may have been there for as long"
    assert (sides.called.seeks(), sides.called.applied()) == ({1: 40}, {0: 3})
    assert [call[0] for call in sides.shell.calls] == ["frames", "tick", "frames", "tick"]


def test_behind_frames_the_shell_has_ticked_and_is_asked_for_the_next_tick_only(sides: Sides) -> None:
    sides.post(0, 1)
    sides.settle()
    assert len(sides.shell.named("tick")) == 1
    sides.called.tick()
    assert len(sides.shell.named("tick")) == 2


@pytest.mark.parametrize("name", [name for name in CALLS if name != "tick"])
def test_what_a_tick_said_is_old_when_something_else_has_been_called_since(sides: Sides, name: str) -> None:
    sides.post(0, 1)
    CALLS[name](sides.called)
    before = len(sides.shell.named("tick"))
    sides.called.tick()
    assert len(sides.shell.named("tick")) == before + 1


@pytest.mark.parametrize("name", [name for name in CALLS if name != "tick"])
def test_every_other_call_comes_behind_the_frames_before_it(sides: Sides, name: str) -> None:
    sides.shell.is_busy = True
    sides.post(0, 1)
    sides.post(0, 2)
    calling = beside(CALLS[name], sides.called)
    sides.shell.until_called("frames", 1)
    assert not calling.done()
    sides.shell.let(2)
    calling.result(LIMIT_S)
    assert [call[0] for call in sides.shell.calls] == ["frames", "tick", "frames", "tick", name]


def test_frames_of_a_shard_that_was_wanted_from_elsewhere_meanwhile_are_not_applied_and_others_are(
    sides: Sides,
) -> None:
    sides.shell.is_busy = True
    sides.post(0, 1)
    sides.shell.until_called("frames", 1)
    sides.post(0, 2)
    sides.shell.sought = {0: 1}
    sides.shell.let()
    sides.post(1, 9)
    sides.shell.let()
    sides.settle()
    assert sides.applied() == [(0, 1), (1, 9)]
    assert sides.called.seeks() == {0: 1}


def test_they_are_applied_again_once_it_has_been_told_from_where(sides: Sides) -> None:
    sides.shell.sought = {0: 1}
    sides.post(0, 1)
    sides.settle()
    sides.post(0, 2)
    sides.settle()
    assert sides.applied() == [(0, 1)]
    assert sides.called.seeks() == {0: 1}
    sides.post(0, 1)
    sides.post(0, 2)
    sides.settle()
    assert sides.applied() == [(0, 1), (0, 1), (0, 2)]


def test_what_was_told_twice_is_read_from_where_it_was_told_last(sides: Sides) -> None:
    sides.shell.sought = {0: 1, 1: 5}
    sides.post(0, 1)
    sides.settle()
    sides.shell.sought = {0: 7}
    sides.post(1, 6)
    sides.post(2, 6)
    sides.settle()
    assert sides.called.seeks() == {0: 7, 1: 5}
    assert sides.applied() == [(0, 1), (2, 6)]


def test_a_shard_that_is_wanted_from_elsewhere_is_not_said_to_be_unreadable_where_it_was(sides: Sides) -> None:
    sides.shell.is_busy, sides.shell.sought = True, {0: 1}
    sides.post(0, 1)
    sides.shell.let()
    for shard in (0, 1):
        sides.called.unreadable(shard, GapError("gone", topic="wal", partition=shard, offset=9))
    assert [shard for shard, _ in sides.shell.named("unreadable")] == [1]
    sides.settle()
    assert sides.called.seeks() == {0: 1}
    sides.called.unreadable(0, GapError("gone", topic="wal", partition=0, offset=9))
    assert [shard for shard, _ in sides.shell.named("unreadable")] == [1, 0]


@pytest.mark.parametrize("name", ["assigned", "revoked"])
def test_what_was_wanted_before_a_rebalance_is_not_sought_after_it(sides: Sides, name: str) -> None:
    sides.shell.sought = {0: 1}
    sides.post(0, 1)
    CALLS[name](sides.called)
    assert sides.called.seeks() == {}
    sides.post(0, 2)
    sides.settle()
    assert sides.applied() == [(0, 1), (0, 2)]


def test_what_the_shell_raises_for_frames_the_next_calls_learn(sides: Sides) -> None:
    sides.shell.fails = LookupError("of the shell")
    sides.post(0, 1)
    with pytest.raises(LookupError, match="of the shell"):
        sides.ended.result(LIMIT_S)
    with pytest.raises(DisconnectedError):
        sides.called.stop()


# ---- messages ----------------------------------------------------------------------------------------------------


def test_a_message_may_be_larger_than_what_is_received_into_and_small_ones_follow_it(sides: Sides) -> None:
    large = bytes(range(256)) * (LARGE_BYTES // 256)
    assert sides.received(large) == [large]
    assert sides.received(b"small") == [b"small"]
    row = sorted_of(frame(2, add(1, large)))
    (received,) = sides.received(row)
    assert comparable(received) == comparable(row)


def test_what_was_received_stays_as_it_was_when_more_is_received() -> None:
    with connected() as (theirs, channel):
        theirs.sendall(message(b"first" * 50) + message(b"second" * 50))
        first = channel.receive()
        assert channel.receive() == (b"second" * 50,)
        assert first == (b"first" * 50,)


def test_a_message_may_come_in_pieces() -> None:
    sent = message("tick", 1.5)
    with connected() as (theirs, channel):
        receiving = beside(channel.receive)
        for at in range(len(sent)):
            assert not receiving.done()
            theirs.sendall(sent[at : at + 1])
        assert receiving.result(LIMIT_S) == ("tick", 1.5)


def test_a_message_is_seen_whatever_the_number_of_the_descriptor() -> None:
    """A process with many shards has thousands."""
    number = 1024
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, number + 10), hard))
    try:
        theirs, ours = socket.socketpair()
        with theirs, ours, socket.socket(fileno=fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, number)) as high:
            assert high.fileno() >= number
            channel = Channel(high)
            assert not channel.has_message()
            theirs.sendall(message("tick"))
            assert channel.has_message()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_channel_says_whether_something_has_come() -> None:
    with connected() as (theirs, channel):
        assert not channel.has_message()
        theirs.sendall(message("one"))
        assert channel.has_message()
        channel.receive()
        assert not channel.has_message()
        theirs.close()
        assert channel.has_message()


def test_messages_are_received_while_their_owner_is_busy_and_are_taken_in_their_order() -> None:
    large = bytes(LARGE_BYTES)
    with connected() as (theirs, channel):
        inbox = Inbox(channel)
        beside(theirs.sendall, message(1, large) + message(2, large)).result(LIMIT_S)
        assert inbox.take() == (1, large)
        assert inbox.take() == (2, large)


def test_all_that_came_before_the_other_side_was_gone_is_taken_first() -> None:
    with connected() as (theirs, channel):
        inbox = Inbox(channel)
        theirs.sendall(message("one") + message("two") + b"\5")
        theirs.close()
        assert [inbox.take(), inbox.take()] == [("one",), ("two",)]
        with pytest.raises(DisconnectedError, match="the other process is gone"):
            inbox.take()


# ---- the other side gone -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [b"", b"\1\0\0", SIZE.pack(100), SIZE.pack(100) + b"within"])
def test_who_waits_for_a_message_learns_that_the_other_side_is_gone_before_or_within_it(part: bytes) -> None:
    with connected() as (theirs, channel):
        theirs.sendall(part)
        receiving = beside(channel.receive)
        theirs.close()
        with pytest.raises(DisconnectedError, match="the other process is gone"):
            receiving.result(LIMIT_S)


def test_so_does_who_sends_one_also_while_nobody_takes_it() -> None:
    with connected() as (theirs, channel):
        sending = beside(channel.send, bytes(LARGE_BYTES))
        theirs.recv(1)
        theirs.close()
        with pytest.raises(DisconnectedError, match="the other process is gone"):
            sending.result(LIMIT_S)
        with pytest.raises(DisconnectedError, match="the other process is gone"):
            channel.send("again")


def test_who_waits_for_the_answer_of_a_call_learns_it_and_so_does_every_later_call() -> None:
    with connected() as (theirs, channel):
        called = CalledShell(channel)
        calling = beside(called.tick)
        theirs.recv(SIZE.size, socket.MSG_WAITALL)
        theirs.close()
        with pytest.raises(DisconnectedError):
            calling.result(LIMIT_S)
        for call in CALLS.values():
            with pytest.raises(DisconnectedError):
                call(called)
        with pytest.raises(DisconnectedError):
            called.frames(0, [])
        with pytest.raises(DisconnectedError):
            called.ended(None)


def test_who_has_frames_on_their_way_learns_it_with_the_next_tick() -> None:
    with connected() as (theirs, channel):
        called = CalledShell(channel)
        called.frames(0, [])
        assert called.tick() == BUSY_TICK_S
        theirs.close()
        with pytest.raises(DisconnectedError):
            called.tick()


def test_who_answers_learns_it_between_calls(sides: Sides) -> None:
    sides.called.tick()
    sides.calling.close()
    with pytest.raises(DisconnectedError):
        sides.ended.result(LIMIT_S)


def test_a_call_is_made_though_whoever_called_has_gone() -> None:
    shell = Shell()
    with connected() as (theirs, channel):
        theirs.close()
        ShellAnswers(shell).answer(channel, ("revoked", [1]))
    assert shell.calls == [("revoked", [1])]


@pytest.mark.parametrize("own", [True, False])
def test_a_channel_is_disconnected_from_another_thread_while_one_waits_on_either_side(sides: Sides, own: bool) -> None:
    sides.shell.is_busy = True
    sides.post(0, 1)
    calling = beside(sides.called.stop)
    sides.shell.until_called("frames", 1)
    (sides.calling if own else sides.answering).disconnect()
    with pytest.raises(DisconnectedError):
        calling.result(LIMIT_S)
    sides.shell.let()
    with pytest.raises(DisconnectedError):
        sides.ended.result(LIMIT_S)
    assert sides.shell.named("stop") == []


def test_one_that_is_disconnected_or_closed_already_may_be_disconnected_again() -> None:
    with connected() as (theirs, channel):
        channel.disconnect()
        channel.disconnect()
        assert theirs.recv(1) == b""
        channel.close()
        channel.disconnect()
        with pytest.raises(DisconnectedError):
            channel.send("more")
        with pytest.raises(DisconnectedError):
            channel.receive()


# ---- the end -----------------------------------------------------------------------------------------------------


def ended_with(sides: Sides, error: BaseException | None) -> Exception | None:
    """As the answering side is told of it; nobody waits for an answer."""
    sides.called.ended(error)
    with pytest.raises(CallsEnded) as ended:
        sides.ended.result(LIMIT_S)
    assert sides.shell.calls == []
    return ended.value.error


def test_an_end_without_an_error_has_none(sides: Sides) -> None:
    assert ended_with(sides, None) is None


@pytest.mark.parametrize("kind", [KafkaRefusedError, DeadlineError, HangingTransactionError])
def test_an_operating_error_comes_as_what_it_is(sides: Sides, kind: type[Exception]) -> None:
    error = ended_with(sides, kind("reading j.wal: ü"))
    assert type(error) is kind
    assert str(error) == "reading j.wal: ü"


@pytest.mark.parametrize(
    "given",
    [
        LookupError("nothing"),
        KeyboardInterrupt("now"),
        RouteStopError("the route", offset=5, retried=True),
        GapError("gone", topic="wal", partition=0, offset=1),
        FatalProducerError("fenced", fenced=True),
    ],
)
def test_any_other_error_comes_with_its_name_and_what_it_says(sides: Sides, given: BaseException) -> None:
    error = ended_with(sides, given)
    assert type(error) is RuntimeError
    assert str(error) == f"the process that reads the WAL ended: {type(given).__name__}: {given}"


def test_an_error_that_says_nothing_is_one_all_the_same(sides: Sides) -> None:
    assert isinstance(ended_with(sides, ValueError()), RuntimeError)


def test_a_mistake_in_the_configuration_comes_as_what_it_is(sides: Sides) -> None:
    """A command says it in a line and ends with 2."""
    assert isinstance(ended_with(sides, ConfigError("no such property")), ConfigError)


def test_frames_that_are_on_their_way_are_applied_before_the_end(sides: Sides) -> None:
    sides.shell.is_busy = True
    sides.post(0, 1)
    sides.post(0, 2)
    sides.called.ended(KafkaRefusedError("no"))
    sides.shell.let(2)
    with pytest.raises(CallsEnded):
        sides.ended.result(LIMIT_S)
    assert sides.applied() == [(0, 1), (0, 2)]


def test_an_error_that_was_said_is_not_lost_where_its_process_ends_before_its_frames_are_answered(sides: Sides) -> None:
    sides.shell.is_busy = True
    sides.post(0, 1)
    sides.called.ended(KafkaRefusedError("no"))
    sides.shell.until_called("frames", 1)
    sides.calling.close()
    sides.shell.let()
    with pytest.raises(CallsEnded):
        sides.ended.result(LIMIT_S)


# ---- the shell, while nobody calls it ----------------------------------------------------------------------------


def test_what_was_given_and_not_taken_back_is_revoked_once(sides: Sides) -> None:
    sides.called.assigned([2, 0])
    sides.answers.revoke()
    sides.answers.revoke()
    assert sides.shell.calls == [("assigned", [2, 0]), ("revoked", [2, 0])]


def test_nothing_is_revoked_that_was_not_given_or_has_been_taken_back(sides: Sides) -> None:
    sides.answers.revoke()
    sides.called.assigned([])
    sides.answers.revoke()
    sides.called.assigned([1])
    sides.called.revoked([1])
    sides.answers.revoke()
    assert sides.shell.calls == [("assigned", []), ("assigned", [1]), ("revoked", [1])]


def test_of_two_assignments_the_last_one_is_revoked(sides: Sides) -> None:
    sides.called.assigned([0, 1])
    sides.called.assigned([1, 2])
    sides.answers.revoke()
    assert sides.shell.named("revoked") == [([1, 2],)]


def test_whoever_calls_next_has_heard_nothing_and_its_frames_are_applied() -> None:
    sides = Sides()
    shell, answers = sides.shell, sides.answers
    for _ in range(5):
        sides.called.tick()
    shell.sought = {0: 1}
    sides.post(0, 1)
    sides.settle()
    sides.close()
    answers.revoke()
    with connected() as (theirs, channel):
        called = CalledShell(Channel(theirs))
        called.frames(0, [(7, 1, b"raw")])
        answers.answer(channel, channel.receive())
        shell.sought = {0: 7}
        called.frames(0, [(8, 1, b"raw")])
        called.frames(0, [(9, 1, b"raw")])
        for _ in range(2):
            answers.answer(channel, channel.receive())
    assert sides.applied() == [(0, 1), (0, 7), (0, 8)]


def test_the_shell_is_stopped_if_nobody_has_called_for_it_and_once_only(sides: Sides) -> None:
    sides.answers.stop()
    sides.answers.stop()
    assert sides.shell.calls == [("stop",)]


def test_it_is_not_stopped_again_if_somebody_has_called_for_it(sides: Sides) -> None:
    sides.called.stop()
    sides.answers.stop()
    assert sides.shell.calls == [("stop",)]


def test_nothing_is_revoked_from_a_shell_that_is_stopped(sides: Sides) -> None:
    """Its stop is the last call."""
    sides.called.assigned([1])
    sides.called.stop()
    sides.answers.revoke()
    assert sides.shell.calls == [("assigned", [1]), ("stop",)]
