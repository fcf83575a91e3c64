"""Calls beside the caller's thread: for what waits for brokers, and not for each other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class InBackground(Protocol):
    """Begins a call and gives its future. A simulation's gives one that is done: its order is that of the calls."""

    def __call__(self, call: Callable[[], T], /) -> Future[T]: ...


def at_once(call: Callable[[], T], /) -> Future[T]:
    """Not in the background at all; what it raises is the future's, as in a thread."""
    future: Future[T] = Future()
    try:
        future.set_result(call())
    except Exception as error:  # noqa: BLE001  # whoever asks for the result is told
        future.set_exception(error)
    return future


def in_thread(call: Callable[[], T], /) -> Future[T]:
    """In a thread of its own, which the end of the process waits for."""
    with_one = ThreadPoolExecutor(1, thread_name_prefix="kafka-journal-beside")
    try:
        return with_one.submit(call)
    finally:
        with_one.shutdown(wait=False)
