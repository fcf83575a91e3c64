"""What an agent of Faust's own has met is told until it has been through something else since."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import faust
import pytest
from mode import Service

from streams.agents.faust_agents import WatchedAgent, troubles_of


class GivenStream:
    """A stream like Faust's: each event goes through its processors in the task that asks for it."""

    def add_processor(self, processor: Callable[[Any], Any]) -> None:
        self.take = processor


@pytest.mark.parametrize("concurrency", [1, 2])
def test_an_agent_that_has_been_through_other_events_since_is_in_trouble_no_more(
    concurrency: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its actors, each of which has a stream and a task of its own, take events in turns."""
    monkeypatch.setattr(faust.Agent, "stream", lambda _: GivenStream())

    async def run() -> None:
        app = faust.App("watched", broker="kafka://127.0.0.1:1", store="memory://", Agent=WatchedAgent)
        agent = app.agent(name="careful")(lambda _: None)
        agent.trouble = "it raised"
        turns: list[asyncio.Queue[str]] = [asyncio.Queue() for _ in range(concurrency)]
        taken = asyncio.Semaphore(0)

        async def act(turn: asyncio.Queue[str]) -> None:
            stream = agent.stream()
            while True:
                stream.take(await turn.get())
                taken.release()

        actors = [asyncio.create_task(act(turn)) for turn in turns]
        told = []
        for _ in range(3):
            for turn in turns:
                turn.put_nowait("event")
                await taken.acquire()
            told.append(dict(troubles_of(app)))
        for actor in actors:
            actor.cancel()
        assert told == [{"careful": "it raised"}, {}, {}]

    asyncio.run(run())


def test_a_service_of_the_app_that_has_crashed_is_told_by_its_name() -> None:
    async def run() -> None:
        app = faust.App("watched", broker="kafka://127.0.0.1:1", store="memory://")
        service = app.service(type("Careful", (Service,), {}))
        careful = service(beacon=app.beacon, loop=asyncio.get_running_loop())
        assert dict(troubles_of(app)) == {}
        await careful.crash(LookupError("of the service"))
        assert troubles_of(app)[careful.label] == "LookupError('of the service')"

    asyncio.run(run())
