"""Errors of a service's plain Faust agents, and of its other Faust services.

When an agent raises an error, Faust skips the event and starts the agent again, so only the log would show the error.
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
    """A Faust agent that keeps its last error until it has processed another event."""

    trouble = ""
    """The error that the agent raised, or the fact that it takes no more events; empty if there is none."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._taking: WeakSet[asyncio.Task[Any]] = WeakSet()
        """Tasks of the agent's concurrent instances that have taken an event since the last error. Several instances
        share the agent's events."""

    def stream(self, *arguments: Any, **options: Any) -> StreamT[Any]:
        stream = super().stream(*arguments, **options)
        stream.add_processor(self._taken)
        return stream

    def _taken(self, value: Any) -> Any:
        """Give the next event. An instance that asks for the next event has processed the last one; an instance that
        raised an error does not ask again."""
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
        # a rebalance also cancels the agent
        elif reason is not None and not isinstance(reason, asyncio.CancelledError):
            self.trouble = shortened(repr(reason))


def troubles_of(app: faust.App) -> Mapping[str, str]:
    """Errors of Faust agents, and of the app's services that have ended and were not started again, by name."""
    found = {name: agent.trouble for name, agent in app.agents.items() if agent.trouble}
    for node in app.beacon.traverse():
        service = getattr(node, "data", None)  # the tree also contains objects that are no services
        if isinstance(service, Service) and not isinstance(service, Actor) and service.crashed:
            found[service.label] = shortened(repr(service.crash_reason))
    return found
