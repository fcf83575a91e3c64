"""Calls of a shell in another process: how they end, and what becomes of the shell while nobody calls it."""

from __future__ import annotations

import pytest

from journal.errors import (
    ConfigError,
    DeadlineError,
    FatalProducerError,
    GapError,
    HangingTransactionError,
    KafkaRefusedError,
    RouteStopError,
)
from streams.reading.calls import CalledShell, CallsEnded, Channel
from tests.unit.streams.calls_scene import LIMIT_S, Sides, connected

pytestmark = pytest.mark.timeout(30)


# ---- the end -----------------------------------------------------------------------------------------------------


def ended_with(sides: Sides, error: BaseException | None) -> Exception | None:
    """The error as the answering side is told of it; nobody waits for an answer."""
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


def test_the_last_one_of_two_assignments_is_revoked(sides: Sides) -> None:
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


def test_a_shell_that_a_caller_has_stopped_is_not_stopped_again(sides: Sides) -> None:
    sides.called.stop()
    sides.answers.stop()
    assert sides.shell.calls == [("stop",)]


def test_nothing_is_revoked_from_a_shell_that_is_stopped(sides: Sides) -> None:
    """Its stop is the last call."""
    sides.called.assigned([1])
    sides.called.stop()
    sides.answers.revoke()
    assert sides.shell.calls == [("assigned", [1]), ("stop",)]
