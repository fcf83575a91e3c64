"""Calls of librdkafka that may never return: made in a thread that is left behind then."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread
from typing import TypeVar

from journal.errors import DeadlineError

T = TypeVar("T")


def call_within(limit_s: float, call: Callable[[], T]) -> T:
    """What a call gives, or raises.

    Raises DeadlineError when it takes longer than `limit_s`: then it goes on in a thread that nobody waits for, not
    even the end of the process, and holds what it was given for as long as it takes.
    """
    outcome: Future[T] = Future()
    Thread(target=_run, args=(call, outcome), name="kafka-journal-call", daemon=True).start()
    try:
        if not wait((outcome,), limit_s).done:
            raise DeadlineError(f"no end after {limit_s} s")
        return outcome.result()
    finally:
        # An error holds the frames it came through. These must not hold it, or both stay until they are looked for.
        del outcome


def _run(call: Callable[[], T], outcome: Future[T]) -> None:
    try:
        outcome.set_result(call())
    except BaseException as error:  # noqa: BLE001  # whoever waits is told
        outcome.set_exception(error)
        del outcome
