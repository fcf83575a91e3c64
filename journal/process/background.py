"""Calls in the background, for requests to brokers that need not wait for each other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class InBackground(Protocol):
    """Begins a call and gives its future. The simulation's version gives a future that is done, so that calls run in
    their order."""

    def __call__(self, call: Callable[[], T], /) -> Future[T]: ...


def at_once(call: Callable[[], T], /) -> Future[T]:
    """Make the call at once, in the caller's thread. Its error goes to the future, as it would from a thread."""
    future: Future[T] = Future()
    try:
        future.set_result(call())
    except Exception as error:  # noqa: BLE001  # the future's owner is told
        future.set_exception(error)
    return future


def in_thread(call: Callable[[], T], /) -> Future[T]:
    """Make the call in a thread of its own. The process does not end before that thread."""
    with_one = ThreadPoolExecutor(1, thread_name_prefix="kafka-journal-beside")
    try:
        return with_one.submit(call)
    finally:
        with_one.shutdown(wait=False)
