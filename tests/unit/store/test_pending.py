"""What an operation of the store gives back: its id at once, and the same outcome to whoever asks in whichever way."""

from __future__ import annotations

import asyncio

import pytest

from journal.append.completion import Completion
from journal.errors import DeadlineError, FencedError, JournalError
from journal.store.pending import Pending


def test_the_id_of_an_operation_is_known_at_once_and_given_when_its_group_is_durable() -> None:
    completion = Completion()
    first, second = Pending(1, completion), Pending(2, completion)
    assert (first.id, first.done, first.error) == (1, False, None)
    with pytest.raises(DeadlineError):
        first.wait(0)
    told: list[JournalError | None] = []
    first.add_callback(told.append)

    async def awaited() -> tuple[int, int]:
        waiting = asyncio.gather(_id_of(first), _id_of(second))
        await asyncio.sleep(0)
        completion.resolve()
        one, two = await waiting
        return one, two

    assert asyncio.run(awaited()) == (1, 2)
    assert (first.wait(), second.wait(0)) == (1, 2)
    assert told == [None]
    assert first.done
    assert first.error is None


async def _id_of(pending: Pending) -> int:
    return await pending


def test_an_error_of_the_group_reaches_whoever_waits_awaits_or_is_called_back() -> None:
    pending = Pending(1, Completion())
    error = FencedError("another node")
    told: list[JournalError | None] = []
    pending.add_callback(told.append)
    pending.completion.resolve(error)
    with pytest.raises(FencedError):
        pending.wait()
    with pytest.raises(FencedError):
        asyncio.run(_id_of(pending))
    assert told == [error]
    assert pending.error is error


def test_an_operation_without_a_completion_is_done_from_the_start() -> None:
    pending = Pending(7)
    assert pending.done
    assert pending.wait(0) == 7
    assert asyncio.run(_id_of(pending)) == 7
