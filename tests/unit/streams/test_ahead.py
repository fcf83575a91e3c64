"""Reading ahead: one read at a time, given once, to the turn that began it, without what is sought meanwhile."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Collection, Coroutine
from typing import Any

import pytest

from journal.errors import GapError, KafkaRefusedError
from streams.reading.ahead import Batches, ReadAhead

ZERO: Batches = {0: [(5, 1, b"a")]}
BOTH: Batches = {0: [(6, 1, b"b")], 1: [(7, 1, b"c")]}
LONG_S = 60.0


class Reads:
    """Reads that end when a test says how."""

    def __init__(self) -> None:
        self.asked: list[tuple[Collection[int], int]] = []
        self.dropped = 0
        self.fails_when_dropped = False
        self._ends: list[asyncio.Future[Batches]] = []

    async def __call__(self, shards: Collection[int], wait_ms: int) -> Batches:
        self.asked.append((shards, wait_ms))
        self._ends.append(asyncio.get_running_loop().create_future())
        try:
            return await self._ends[-1]
        except asyncio.CancelledError:
            self.dropped += 1
            if self.fails_when_dropped:
                raise KafkaRefusedError("while it was dropped") from None
            raise

    async def until_begun(self, count: int = 1) -> None:
        while len(self.asked) < count:
            await asyncio.sleep(0)

    def give(self, batches: Batches) -> None:
        self._ends[-1].set_result(batches)

    def fail(self, error: Exception) -> None:
        self._ends[-1].set_exception(error)


def run(test: Callable[[Reads, ReadAhead], Coroutine[Any, Any, None]]) -> None:
    """In a loop of its own, in which nothing goes wrong that nobody is told of."""
    unheard: list[dict[str, Any]] = []

    async def heard() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
        reads = Reads()
        ahead = ReadAhead(reads)
        try:
            await test(reads, ahead)
        finally:
            ahead.close()
            await turns_of_the_loop()
        gc.collect()

    asyncio.run(heard())
    assert unheard == []


async def turns_of_the_loop() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_reading_ahead_reads_once_however_often_it_is_begun_and_again_once_that_is_taken() -> None:
    async def test(reads: Reads, ahead: ReadAhead) -> None:
        ahead.begin(1, {0}, 100)
        ahead.begin(1, {0, 1}, 200)
        await reads.until_begun()
        reads.give(ZERO)
        await turns_of_the_loop()
        ahead.begin(1, {0, 1}, 300)
        assert await ahead.take(1, LONG_S) == ZERO
        assert reads.asked == [({0}, 100)]
        ahead.begin(1, {0, 1}, 400)
        await reads.until_begun(2)
        assert reads.asked[1:] == [({0, 1}, 400)]

    run(test)


def test_what_was_read_ahead_is_given_once_and_nothing_where_nothing_was_begun() -> None:
    async def test(reads: Reads, ahead: ReadAhead) -> None:
        assert await ahead.take(1, LONG_S) == {}
        ahead.begin(1, {0}, 100)
        await reads.until_begun()
        reads.give(ZERO)
        assert await ahead.take(1, LONG_S) == ZERO
        assert await ahead.take(1, LONG_S) == {}
        assert len(reads.asked) == 1

    run(test)


def test_a_read_under_way_is_waited_for() -> None:
    async def test(reads: Reads, ahead: ReadAhead) -> None:
        ahead.begin(1, {0}, 100)
        taking = asyncio.ensure_future(ahead.take(1, LONG_S))
        await reads.until_begun()
        await turns_of_the_loop()
        assert not taking.done()
        reads.give(ZERO)
        assert await taking == ZERO

    run(test)


@pytest.mark.parametrize("timeout_s", [0.0, 0.001])
def test_a_wait_that_ends_before_the_read_gets_nothing_and_the_next_wait_gets_all(timeout_s: float) -> None:
    async def test(reads: Reads, ahead: ReadAhead) -> None:
        ahead.begin(1, {0}, 100)
        assert await ahead.take(1, timeout_s) == {}
        await reads.until_begun()
        assert await ahead.take(1, timeout_s) == {}
        reads.give(ZERO)
        assert await ahead.take(1, LONG_S) == ZERO
        assert len(reads.asked) == 1
        assert reads.dropped == 0

    run(test)


def test_a_wait_that_is_cancelled_leaves_the_read_to_the_next_wait() -> None:
    async def test(reads: Reads, ahead: ReadAhead) -> None:
        ahead.begin(1, {0}, 100)
        await reads.until_begun()
        taking = asyncio.ensure_future(ahead.take(1, LONG_S))
        await turns_of_the_loop()
        taking.cancel()
        await turns_of_the_loop()
        assert taking.cancelled()
        reads.give(ZERO)
        assert await ahead.take(1, LONG_S) == ZERO
        assert reads.dropped == 0

    run(test)


def test_a_read_of_a_turn_that_is_over_is_dropped_and_the_next_turn_reads_anew() -> None:
    async def test(reads: Reads, ahead: ReadAhead) -> None:
        ahead.begin(1, {0}, 100)
        await reads.until_begun()
        ahead.begin(2, {0, 1}, 200)
        reads.give(ZERO)
        assert await ahead.take(2, LONG_S) == {}
        ahead.begin(2, {0, 1}, 200)
        await reads.until_begun(2)
        reads.give(BOTH)
        assert await ahead.take(2, LONG_S) == BOTH
        assert reads.asked == [({0}, 100), ({0, 1}, 200)]

    run(test)


@pytest.mark.parametrize("error", [GapError("gone", topic="wal", partition=0, offset=5), KafkaRefusedError("no")])
def test_an_error_of_a_turn_that_is_over_is_dropped(error: Exception) -> None:
    async def test(reads: Reads, ahead: ReadAhead) -> None:
        ahead.begin(1, {0}, 100)
        await reads.until_begun()
        reads.fail(error)
        assert await ahead.take(2, LONG_S) == {}
        assert await ahead.take(1, LONG_S) == {}

    run(test)


def test_an_error_is_raised_once_to_the_turn_that_began_the_read_which_then_reads_again() -> None:
    async def test(reads: Reads, ahead: ReadAhead) -> None:
        error = GapError("gone", topic="wal", partition=0, offset=5)
        ahead.begin(1, {0, 1}, 100)
        await reads.until_begun()
        reads.fail(error)
        with pytest.raises(GapError) as raised:
            await ahead.take(1, LONG_S)
        assert raised.value is error
        assert await ahead.take(1, LONG_S) == {}
        ahead.begin(1, {1}, 100)
        await reads.until_begun(2)
        reads.give(ZERO)
        assert await ahead.take(1, LONG_S) == ZERO

    run(test)


def test_a_read_under_way_is_over_before_shards_are_left_out_and_others_are_still_given() -> None:
    async def test(reads: Reads, ahead: ReadAhead) -> None:
        ahead.begin(1, {0, 1}, 100)
        await reads.until_begun()
        leaving = asyncio.ensure_future(ahead.leave_out({0}))
        await turns_of_the_loop()
        assert not leaving.done()
        reads.give(BOTH)
        await leaving
        assert await ahead.take(1, LONG_S) == {1: BOTH[1]}

    run(test)


def test_shards_are_left_out_of_what_was_read_already_and_each_time_some_more() -> None:
    async def test(reads: Reads, ahead: ReadAhead) -> None:
        ahead.begin(1, {0, 1, 2}, 100)
        await reads.until_begun()
        reads.give({**BOTH, 2: []})
        await turns_of_the_loop()
        await ahead.leave_out({0})
        await ahead.leave_out({2})
        assert await ahead.take(1, LONG_S) == {1: BOTH[1]}

    run(test)


def test_what_is_read_next_has_all_shards_again() -> None:
    async def test(reads: Reads, ahead: ReadAhead) -> None:
        ahead.begin(1, {0, 1}, 100)
        await reads.until_begun()
        reads.give(BOTH)
        await ahead.leave_out({0, 1})
        assert await ahead.take(1, LONG_S) == {}
        ahead.begin(1, {0, 1}, 100)
        await reads.until_begun(2)
        reads.give(BOTH)
        assert await ahead.take(1, LONG_S) == BOTH

    run(test)


def test_nothing_is_left_out_of_what_is_begun_later() -> None:
    async def test(reads: Reads, ahead: ReadAhead) -> None:
        await ahead.leave_out({0, 1})
        ahead.begin(1, {0, 1}, 100)
        await reads.until_begun()
        reads.give(BOTH)
        assert await ahead.take(1, LONG_S) == BOTH

    run(test)


def test_an_error_does_not_end_who_waits_to_leave_shards_out() -> None:
    async def test(reads: Reads, ahead: ReadAhead) -> None:
        ahead.begin(1, {0, 1}, 100)
        await reads.until_begun()
        reads.fail(KafkaRefusedError("no"))
        await ahead.leave_out({0})
        with pytest.raises(KafkaRefusedError):
            await ahead.take(1, LONG_S)

    run(test)


def test_what_is_wrong_with_a_shard_is_raised_when_another_is_left_out() -> None:
    async def test(reads: Reads, ahead: ReadAhead) -> None:
        ahead.begin(1, {0, 1}, 100)
        await reads.until_begun()
        reads.fail(GapError("gone", topic="wal", partition=1, offset=5))
        await ahead.leave_out({0})
        with pytest.raises(GapError):
            await ahead.take(1, LONG_S)

    run(test)


def test_what_is_wrong_with_a_shard_that_is_left_out_is_not_raised() -> None:
    """Where it is read from now it may be whole: that is to be read and checkpointed before it stops."""

    async def test(reads: Reads, ahead: ReadAhead) -> None:
        ahead.begin(1, {0, 1}, 100)
        await reads.until_begun()
        reads.fail(GapError("gone", topic="wal", partition=1, offset=5))
        await ahead.leave_out({1})
        assert await ahead.take(1, LONG_S) == {}

    run(test)


def test_a_read_under_way_at_the_close_ends_in_silence() -> None:
    async def test(reads: Reads, ahead: ReadAhead) -> None:
        ahead.begin(1, {0}, 100)
        await reads.until_begun()
        ahead.close()
        await turns_of_the_loop()
        assert reads.dropped == 1
        assert await ahead.take(1, LONG_S) == {}

    run(test)


def test_a_read_that_fails_as_it_is_dropped_ends_in_silence() -> None:
    async def test(reads: Reads, ahead: ReadAhead) -> None:
        reads.fails_when_dropped = True
        ahead.begin(1, {0}, 100)
        await reads.until_begun()
        ahead.close()
        await turns_of_the_loop()
        assert reads.dropped == 1

    run(test)


def test_an_error_that_nobody_has_taken_is_silent_at_the_close() -> None:
    async def test(reads: Reads, ahead: ReadAhead) -> None:
        ahead.begin(1, {0}, 100)
        await reads.until_begun()
        reads.fail(KafkaRefusedError("no"))
        await turns_of_the_loop()
        ahead.close()
        assert await ahead.take(1, LONG_S) == {}

    run(test)


def test_reading_ahead_may_be_closed_any_number_of_times_with_nothing_under_way() -> None:
    async def test(reads: Reads, ahead: ReadAhead) -> None:
        ahead.close()
        ahead.begin(1, {0}, 100)
        ahead.close()
        ahead.close()
        await turns_of_the_loop()
        assert reads.asked == []

    run(test)
