"""Completions: awaited, waited for, called back."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from journal.append.completion import Completion, completed
from journal.errors import DeadlineError, FencedError


def test_any_number_of_tasks_of_several_loops_can_await_one_completion():
    completion = Completion()
    waiting = threading.Barrier(3)
    done: list[int] = []

    async def wait_all(number: int) -> None:
        async def one() -> None:
            await completion

        tasks = [asyncio.create_task(one()) for _ in range(5)]
        await asyncio.sleep(0)
        waiting.wait()
        await asyncio.gather(*tasks)
        done.append(number)

    threads = [threading.Thread(target=asyncio.run, args=(wait_all(number),)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    waiting.wait()
    completion.resolve()
    for thread in threads:
        thread.join()
    assert sorted(done) == [1, 2]


def test_who_begins_to_wait_as_it_is_done_is_not_left_waiting():
    async def scenario(completion: Completion, begun: threading.Barrier) -> None:
        begun.wait()
        await asyncio.wait_for(asyncio.gather(*(_await(completion) for _ in range(20))), 10.0)

    with ThreadPoolExecutor(1) as thread:
        for _ in range(200):
            completion, begun = Completion(), threading.Barrier(2)
            waiting = thread.submit(asyncio.run, scenario(completion, begun))
            begun.wait()
            completion.resolve()
            waiting.result()


def test_a_loop_that_was_closed_is_no_error():
    completion = Completion()
    loop = asyncio.new_event_loop()
    task = loop.create_task(_await(completion))
    loop.run_until_complete(asyncio.sleep(0))
    task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    completion.resolve()
    assert completion.done


def test_a_cancelled_task_does_not_disturb_the_others():
    async def scenario() -> None:
        completion = Completion()

        async def one() -> str:
            await completion
            return "done"

        cancelled, other = asyncio.create_task(one()), asyncio.create_task(one())
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.sleep(0)
        completion.resolve()
        assert await other == "done"
        assert cancelled.cancelled()

    asyncio.run(scenario())


def test_an_error_reaches_everyone_who_asks():
    completion = Completion()
    seen: list[object] = []
    completion.add_callback(seen.append)
    error = FencedError("another node")
    completion.resolve(error)
    completion.add_callback(seen.append)
    assert seen == [error, error]
    with pytest.raises(FencedError):
        completion.wait()
    with pytest.raises(FencedError):
        asyncio.run(_await(completion))


async def _await(completion: Completion) -> None:
    await completion


def test_a_wait_that_runs_out_of_time_says_so_and_the_completion_stays_pending():
    completion = Completion()
    with pytest.raises(DeadlineError):
        completion.wait(0.0)
    assert not completion.done


def test_an_outcome_is_told_once():
    completion = completed()
    with pytest.raises(AssertionError):
        completion.resolve()


def test_a_callback_that_fails_keeps_nothing_from_those_behind_it(caplog: pytest.LogCaptureFixture):
    completion, seen = Completion(), []

    def fail(_: object) -> None:
        raise RuntimeError("the caller's own")

    completion.add_callback(fail)
    completion.add_callback(seen.append)
    completion.resolve()
    assert seen == [None]
    assert "the caller's own" in caplog.text


def test_an_error_that_is_told_again_and_again_does_not_grow() -> None:
    completion = completed(FencedError("another node is active", epoch=2))

    def waited() -> int:
        with pytest.raises(FencedError) as met:
            completion.wait()
        return len(met.traceback)

    def awaited() -> int:
        with pytest.raises(FencedError) as met:
            asyncio.run(_await(completion))
        return len(met.traceback)

    for tell in (waited, awaited):
        first = tell()
        assert [tell() for _ in range(3)] == [first] * 3
