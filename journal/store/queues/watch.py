"""Tells when a queue has something again, after a take has found too little in it.

A take that came back short has its queue watched. The first message that becomes ready there, for whatever cause, ends
the watch: `taken` names the queue, and `wake` is called once, however many queues there are, until they are looked at.
Queues that nobody waits for cost one test of an attribute for each group of messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from journal.store.model import QueueConfig


class WatchedQueue(Protocol):
    """A queue's entry, as far as the watch knows it."""

    config: QueueConfig
    watch: QueueWatch | None


class QueueWatch:
    """The watched queues of one store. The store's lock guards it, but for `group_done`."""

    def __init__(self) -> None:
        self._woken: list[WatchedQueue] = []
        self._wake: Callable[[], None] | None = None
        self._waiting = 0
        """The number of queues that are watched."""
        self._refused: dict[str, WatchedQueue] = {}
        """Watched queues whose takes were refused, because the node did not know that it is still active; by name."""
        self._told = False
        """`wake` was called, and nobody has looked since."""

    @property
    def on(self) -> bool:
        """Whether somebody wants to be told."""
        return self._wake is not None

    def begin(self, wake: Callable[[], None]) -> None:
        """Have `wake` called, in any thread and perhaps with the store's lock held: it must neither wait nor call the
        store."""
        self._wake = wake

    @property
    def refused(self) -> bool:
        """Whether a take was refused since `look_again` was called."""
        return bool(self._refused)

    def watch(self, entry: WatchedQueue, *, refused: bool = False) -> None:
        """Watch a queue in which a take found too little, or was `refused`."""
        if self._wake is None:
            return
        if entry.watch is None:
            entry.watch = self
            self._waiting += 1
        if refused:
            self._refused[entry.config.name] = entry

    def look_again(self) -> None:
        """The node knows that it is active: tell of the queues whose takes were refused."""
        refused, self._refused = self._refused, {}
        for entry in refused.values():
            if entry.watch is not None:
                self.has_something(entry)

    def has_something(self, entry: WatchedQueue) -> None:
        """A watched queue has something again, or is gone."""
        entry.watch = None
        self._waiting -= 1
        self._woken.append(entry)
        self.tell()

    def group_done(self, _: object) -> None:
        """A group is durable, and what it brings comes to the queues at the next call of the store. This is called in
        the thread that writes."""
        if self._waiting:
            self.tell()

    def tell(self) -> None:
        """Call `wake`, unless it was called and nobody has looked since."""
        if not self._told and self._wake is not None:
            self._told = True
            self._wake()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Somebody looks: what comes meanwhile is not told, and what comes afterwards is told again."""
        self._told = True
        try:
            yield
        finally:
            self._told = False

    def taken(self) -> list[str]:
        """The names of the queues that have something, or are gone, each once."""
        names = [each.config.name for each in self._woken]
        self._woken.clear()
        return list(dict.fromkeys(names))
