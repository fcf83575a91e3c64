"""The channel between two processes: messages of any size, in order, and what happens when one side has gone."""

from __future__ import annotations

import fcntl
import resource
import socket

import pytest

from journal.errors import (
    DisconnectedError,
)
from streams.reading.calls import BUSY_TICK_S, CalledShell, Channel, Inbox, ShellAnswers
from tests.unit.streams.calls_scene import (
    CALLS,
    LARGE_BYTES,
    LIMIT_S,
    SIZE,
    NotingShell,
    Sides,
    beside,
    connected,
    message,
)

pytestmark = pytest.mark.timeout(30)


# ---- messages ----------------------------------------------------------------------------------------------------


def test_a_message_may_be_larger_than_what_is_received_into_and_small_ones_follow_it(sides: Sides) -> None:
    large = bytes(range(256)) * (LARGE_BYTES // 256)
    assert sides.received(large) == [large]
    assert sides.received(b"small") == [b"small"]


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


def test_who_sends_a_message_that_nobody_takes_learns_that_the_other_side_is_gone() -> None:
    with connected() as (theirs, channel):
        sending = beside(channel.send, bytes(LARGE_BYTES))
        theirs.recv(1)
        theirs.close()
        with pytest.raises(DisconnectedError, match="the other process is gone"):
            sending.result(LIMIT_S)
        with pytest.raises(DisconnectedError, match="the other process is gone"):
            channel.send("again")


def test_a_call_that_waits_for_its_answer_learns_that_the_shell_is_gone_and_so_does_every_later_call() -> None:
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


def test_a_caller_with_frames_on_their_way_learns_with_the_next_tick_that_the_shell_is_gone() -> None:
    with connected() as (theirs, channel):
        called = CalledShell(channel)
        called.frames(0, [])
        assert called.tick() == BUSY_TICK_S
        theirs.close()
        with pytest.raises(DisconnectedError):
            called.tick()


def test_who_answers_learns_between_calls_that_the_caller_is_gone(sides: Sides) -> None:
    sides.called.tick()
    sides.calling.close()
    with pytest.raises(DisconnectedError):
        sides.ended.result(LIMIT_S)


def test_a_call_is_made_though_whoever_called_has_gone() -> None:
    shell = NotingShell()
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


def test_a_channel_that_is_disconnected_or_closed_may_be_disconnected_again() -> None:
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
