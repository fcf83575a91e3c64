"""The threads of `on_change` agents: what is in an agent's way, and until when."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from journal.errors import AgentError, FatalProducerError, KafkaUnavailableError
from streams.agents.agents import Agent
from streams.agents.change_agents import ChangeAgents, RunState
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(30)


class IdleStore:
    """Nothing that a session of these tests asks for."""

    def close(self) -> None: ...


class IdleSession:
    """Meets an error, or follows and has nothing to tell until it is asked to."""

    def __init__(self, error: Exception | None, tell: threading.Event) -> None:
        self.told = 0
        self._error = error
        self._tell = tell

    def open(self) -> None: ...

    def follow(self, should_stop: Callable[[], bool]) -> None:
        if self._error is not None:
            raise self._error
        while not should_stop():
            if self._tell.wait(0.01):
                self.told = 1

    def close(self) -> None: ...


@contextmanager
def agents(error: Exception, tell: threading.Event) -> Iterator[ChangeAgents]:
    """An agent whose first session meets an error."""
    errors = [error]

    def session(*_: object) -> Any:
        return IdleSession(errors.pop() if errors else None, tell)

    def store(*_: object) -> Any:
        return IdleStore()

    running = ChangeAgents([Agent("agent", lambda changes: None, "out")], store, session, fenced_pause_s=0.01)
    running.serve({0})
    try:
        yield running
    finally:
        assert running.close()


def wait_for(running: ChangeAgents, state: RunState) -> str:
    """What is in the agent's way then."""
    wait_until(lambda: running.runs()[0][2] is state)
    return running.runs()[0][3]


@pytest.mark.parametrize("error", [KafkaUnavailableError("away"), FatalProducerError("the coordinator timed out")])
def test_what_was_in_the_way_of_an_idle_agent_is_over_when_it_follows_again(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("streams.agents.change_agents.AGAIN_S", 0.2)
    with agents(error, threading.Event()) as running:
        assert wait_for(running, RunState.WAITING) == str(error)
        assert wait_for(running, RunState.TELLING) == ""


@pytest.mark.parametrize("error", [AgentError("raised"), FatalProducerError("too large", refused_topic="out")])
def test_what_an_agent_is_to_blame_for_is_over_when_it_was_told_again(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("streams.agents.change_agents.AGAIN_S", 0.2)
    tell = threading.Event()
    with agents(error, tell) as running:
        assert wait_for(running, RunState.WAITING) == str(error)
        assert wait_for(running, RunState.TELLING) == str(error)
        tell.set()
        wait_until(lambda: not running.runs()[0][3])
