"""The agents of a service: what they are called with, what they return, and how they are called.

An agent is a plain or async function. It returns nothing or an iterable of outputs, or it yields outputs. A plain agent
is called in the thread of its shard. An async agent runs in the app's event loop while that thread waits. So a shard
calls its agents one at a time and in order, and a slow agent holds up its own shard only.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from journal.errors import AgentError, ConfigError
from journal.fold.rows import Happened
from journal.kafka.ports import Sent
from journal.v1.journal_pb2 import Operation
from streams.agents.facts import FrameFacts

T = TypeVar("T")

AGENT_TIMEOUT_S = 60.0
"""The time limit of one call of an agent. An async agent that takes longer is cancelled, and its call has failed; a
plain agent goes on, and `/health` names it."""


ANY_PARTITION = -1
"""The partition of an output for which the Kafka client chooses the partition by the key."""


class Told(NamedTuple):
    """An operation that took effect. An agent may be told the same one several times; (shard, position) then stays the
    same.

    `position` is (offset, index, ordinal), in WAL order. An ordinal above 0 is the operation's place within a
    transaction that the COMMIT at (offset, index) has settled.
    """

    shard: int
    position: tuple[int, int, int]
    frame: FrameFacts
    operation: Operation


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent: a function of the service, and the name that its topic and its transactional ids contain."""

    name: str
    function: Callable[[Any], Any]
    to: str | None
    """The topic to which its outputs go."""
    every_s: float = 0.0
    """How often an `on_change` agent is called even if nothing has changed; 0 means never."""
    timeout_s: float = AGENT_TIMEOUT_S


def in_daemon_thread(call: Callable[[], T], /) -> Future[T]:
    """Make a call in a new thread that does not delay the end of the process, because a plain agent may never
    return."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001  # whoever asks for the result is told
            future.set_exception(error)

    threading.Thread(target=run, name="worker-checkpoint", daemon=True).start()
    return future


class AgentCalls:
    """Calls agents from the threads of shards. The event loop is the app's, which runs as long as shards do."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._under_way: dict[tuple[str, int], tuple[Agent, float]] = {}
        """Calls that have not returned, by agent and shard: the agent, and when the call began."""

    def late(self) -> list[tuple[str, int, str]]:
        """Calls that have exceeded their time limit: agent, shard, and a text for people. Thread-safe."""
        now = time.monotonic()
        return [
            (name, shard, f"agent {name}, shard {shard}: has not returned for {now - since:.0f} s")
            for (name, shard), (agent, since) in list(self._under_way.items())
            if now - since > agent.timeout_s
        ]

    def call(self, agent: Agent, shard: int, tellings: Sequence[Any]) -> list[Sent]:
        """Call an agent with one item after the other; returns its outputs in order. Raises AgentError."""
        self._under_way[agent.name, shard] = agent, time.monotonic()
        try:
            return self._call(agent, shard, tellings)
        finally:
            del self._under_way[agent.name, shard]

    def _call(self, agent: Agent, shard: int, tellings: Sequence[Any]) -> list[Sent]:
        sent: list[Sent] = []

        def give(outputs: Iterable[Any]) -> None:
            sent.extend(_record(agent, shard, output) for output in outputs)

        try:
            if _is_async(agent.function):
                self._in_loop(agent, shard, _tell_async(agent, shard, tellings, give))
            else:
                for told in tellings:
                    give(agent.function(told) or ())
        except AgentError:
            raise
        # the agent is the user's code, and any exception of it means that the items were not processed
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            raise AgentError(f"agent {agent.name}, shard {shard}: {error!r}") from error
        return sent

    def _in_loop(self, agent: Agent, shard: int, telling: Any) -> None:
        future = asyncio.run_coroutine_threadsafe(telling, self._loop)
        try:
            future.result(agent.timeout_s)
        except TimeoutError as error:
            if future.done():
                raise
            future.cancel()
            raise AgentError(f"agent {agent.name}, shard {shard}: took longer than {agent.timeout_s:g} s") from error
        except CancelledError as error:
            raise AgentError(f"agent {agent.name}, shard {shard}: was cancelled") from error


def _is_async(function: Callable[[Any], Any]) -> bool:
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    return inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)


async def _tell_async(agent: Agent, shard: int, tellings: Sequence[Any], give: Callable[[Iterable[Any]], None]) -> None:
    try:
        for told in tellings:
            answer = agent.function(told)
            if inspect.isasyncgen(answer):
                async for output in answer:
                    give((output,))
            else:
                give(await answer or ())
    except SystemExit as error:  # this exception would end the app's event loop
        raise AgentError(f"agent {agent.name}, shard {shard}: {error!r}") from error


def _record(agent: Agent, shard: int, output: Any) -> Sent:
    if agent.to is None:
        raise AgentError(f"agent {agent.name}, shard {shard}: it gave an output and has no topic: declare one with to=")
    if not (isinstance(output, tuple) and len(output) == 2 and all(isinstance(part, _PARTS) for part in output)):
        what = f"{output!r} is no output: key and value as a tuple, each bytes, str or None"
        raise AgentError(f"agent {agent.name}, shard {shard}: {what}")
    key, value = (part.encode() if isinstance(part, str) else part for part in output)
    return Sent(agent.to, ANY_PARTITION, key, value)


_PARTS = (bytes, str, type(None))


class OperationAgents:
    """Calls the `on_operation` agents with the operations of a checkpoint, before the checkpoint is committed. The
    outputs go into the checkpoint's transaction. The threads that checkpoint shards call this, several at once."""

    def __init__(self, agents: Sequence[Agent], calls: AgentCalls) -> None:
        self._agents = agents
        self._calls = calls
        self.told = dict.fromkeys((agent.name for agent in agents), 0)
        """The number of operations that each agent was told, for metrics."""
        self.errors: dict[tuple[str, int], str] = {}
        """Errors by agent and shard. An error stays until the agent has succeeded; if Kafka refused its output, until a
        checkpoint is committed."""
        self._refused: set[tuple[str, int]] = set()

    def __call__(self, shard: int, happened: Sequence[Happened], frames: Mapping[int, FrameFacts]) -> list[Sent]:
        """Call all agents, and return their outputs. Raises AgentError."""
        tellings = [
            Told(shard, (offset, index, ordinal), frames[offset], op) for op, offset, index, ordinal in happened
        ]
        sent: list[Sent] = []
        for agent in self._agents:
            try:
                sent += self._calls.call(agent, shard, tellings)
            except AgentError as error:
                self.errors[agent.name, shard] = str(error)
                raise
            if (agent.name, shard) not in self._refused:
                self.errors.pop((agent.name, shard), None)
            self.told[agent.name] += len(tellings)
        return sent

    def blame(self, shard: int, topic: str, reason: str) -> AgentError | None:
        """The error of the agents that send to `topic`, after Kafka has refused a record of it; None if no agent sends
        to it."""
        given = [agent.name for agent in self._agents if agent.to == topic]
        for name in given:
            self.errors[name, shard] = f"agent {name}, shard {shard}: topic {topic} refuses what it gives: {reason}"
            self._refused.add((name, shard))
        return AgentError("; ".join(self.errors[name, shard] for name in given)) if given else None

    def committed(self, shard: int) -> None:
        """Note that the shard's checkpoint is committed, with all outputs for it."""
        for agent in self._agents:
            if (agent.name, shard) in self._refused:
                self._refused.discard((agent.name, shard))
                self.errors.pop((agent.name, shard), None)

    def forget(self, shard: int) -> None:
        """Forget the shard's errors, because another worker has the shard now."""
        for agent in self._agents:
            self._refused.discard((agent.name, shard))
            self.errors.pop((agent.name, shard), None)


def check_agent(agent: Agent, others: Iterable[Agent], own_topics: Container[str]) -> None:
    """Check an agent. Raises ConfigError. `own_topics` are the journal's topics, to which no agent may send."""
    if not agent.name or not all(char.isascii() and (char.isalnum() or char in "-_") for char in agent.name):
        raise ConfigError(f"agent {agent.name!r}: a name is letters, digits, - and _; give one with name=")
    if any(other.name == agent.name for other in others):
        raise ConfigError(f"there are two agents {agent.name!r}: give one of them another name=")
    if agent.to is not None and agent.to in own_topics:
        raise ConfigError(f"agent {agent.name}: {agent.to} is the journal's own topic, which nobody else writes")
    if agent.every_s < 0 or agent.timeout_s <= 0:
        raise ConfigError(f"agent {agent.name}: every_s is not below 0, timeout_s above it")
