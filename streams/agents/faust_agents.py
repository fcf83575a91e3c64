"""The plain Faust agents of a service, and its other services: which of them have met an error, and which one.

Faust starts an agent anew that raised, and passes over what it raised at, so nothing but the log would tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any
from weakref import WeakSet

import faust
from faust.agents.actor import Actor
from faust.types.agents import ActorRefT
from faust.types.streams import StreamT
from mode import Service

from journal.words import shortened


class WatchedAgent(faust.Agent):
    """An agent that keeps its error until it has dealt with another event since."""

    trouble = ""
    """The error that it raised, or that it takes no more events; empty: there is none."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._taking: WeakSet[asyncio.Task[Any]] = WeakSet()
        """What has taken an event since the trouble. With some concurrency they are several, which take turns."""

    def stream(self, *arguments: Any, **options: Any) -> StreamT[Any]:
        stream = super().stream(*arguments, **options)
        stream.add_processor(self._taken)
        return stream

    def _taken(self, value: Any) -> Any:
        """Give the next event. Whoever asks for one is done with the one before it; one that raised does not ask
        again."""
        task = asyncio.current_task()
        assert task is not None, "streams are iterated in tasks"
        if task in self._taking:
            self.trouble = ""
        self._taking.add(task)
        return value

    async def _execute_actor(self, coro: Awaitable[Any], aref: ActorRefT) -> None:
        await super()._execute_actor(coro, aref)
        self._taking.clear()
        reason = aref.crash_reason
        if reason is None and not self.should_stop:
            self.trouble = "it has returned, and takes nothing more"
        elif reason is not None and not isinstance(reason, asyncio.CancelledError):  # as in a rebalance
            self.trouble = shortened(repr(reason))


def troubles_of(app: faust.App) -> Mapping[str, str]:
    """By name, the errors of Faust agents, and why services of the app have ended that nobody started anew."""
    found = {name: agent.trouble for name, agent in app.agents.items() if agent.trouble}
    for node in app.beacon.traverse():
        service = getattr(node, "data", None)  # the tree has also what is no service
        if isinstance(service, Service) and not isinstance(service, Actor) and service.crashed:
            found[service.label] = shortened(repr(service.crash_reason))
    return found
