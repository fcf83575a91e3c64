"""Calls of librdkafka that may never return. Each runs in a thread that can be abandoned."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread
from typing import TypeVar

from journal.errors import DeadlineError

T = TypeVar("T")


def call_within(limit_s: float, call: Callable[[], T]) -> T:
    """Make a call in a thread of its own and give its result, or raise its error.

    Raises DeadlineError when the call takes longer than `limit_s`. The call then goes on in its thread. Nobody waits
    for that thread, not even the end of the process, and the thread keeps its arguments in memory until the call
    returns.
    """
    outcome: Future[T] = Future()
    Thread(target=_run, args=(call, outcome), name="kafka-journal-call", daemon=True).start()
    try:
        if not wait((outcome,), limit_s).done:
            raise DeadlineError(f"the call has not ended after {limit_s} s")
        return outcome.result()
    finally:
        # An error holds the frames that it came through. If these frames held the error too, both would stay in memory
        # until the garbage collector finds the cycle.
        del outcome


def _run(call: Callable[[], T], outcome: Future[T]) -> None:
    try:
        outcome.set_result(call())
    except BaseException as error:  # noqa: BLE001  # the waiting thread is told
        outcome.set_exception(error)
        del outcome
