"""The `on_change` agents of a service: for each agent and each shard that the service has, a thread with a session.

Who has a shard is advice here too: a session fences the one before it, and one that was fenced tells nothing more. So
an agent may be told the same by two processes for a moment, and only one of them can send what it gave.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from enum import Enum

from journal.disk.ports import LocalStore
from journal.errors import (
    AgentError,
    CorruptionError,
    FatalProducerError,
    LocalDamageError,
    OperatingError,
    ReopenError,
)
from journal.words import shortened
from streams.agents.agents import Agent
from streams.agents.change_session import ChangeSession
from streams.agents.facts import AGENTS_END_S

log = logging.getLogger(__name__)

AGAIN_S = 1.0
"""The pause after an error, before the shard is taken over again."""


class RunState(Enum):
    """How an agent is doing in a shard."""

    OPENING = "opening"
    TELLING = "telling"
    WAITING = "waiting"  # after an error, to try again
    STOPPED = "stopped"  # at something that cannot be read
    ENDED = "ended"


MakeSession = Callable[[Agent, int, LocalStore], ChangeSession]


class ChangeAgents:
    """All `on_change` agents of a service. Called by the worker's thread, but for `runs`."""

    def __init__(
        self,
        agents: Sequence[Agent],
        stores: Callable[[Agent, int], LocalStore],
        session: MakeSession,
        *,
        fenced_pause_s: float,
    ) -> None:
        """`stores` opens an agent's copy of a shard. `fenced_pause_s`: what fenced it most likely keeps the shard."""
        self._agents = agents
        self._stores = stores
        self._session = session
        self._fenced_pause_s = fenced_pause_s
        self._runs: dict[tuple[str, int], _AgentRun] = {}
        self._ending: dict[tuple[str, int], _AgentRun] = {}
        self._told_before = dict.fromkeys((agent.name for agent in agents), 0)
        """Runs in shards that were given back, until they end."""

    def serve(self, shards: Collection[int]) -> None:
        """Tell of these shards and no others. Does not wait: an agent that is being told of another is told to its end,
        and can send nothing once somebody else has the shard."""
        for key in [key for key in self._runs if key[1] not in shards]:
            run = self._ending[key] = self._runs.pop(key)
            run.stop.set()
            self._told_before[run.agent.name] += run.told
        for shard in sorted(shards):
            for agent in self._agents:
                key = (agent.name, shard)
                if key not in self._runs:
                    self._runs[key] = _AgentRun(
                        agent, shard, self._stores, self._session, self._fenced_pause_s, self._ending.pop(key, None)
                    )

    def close(self) -> bool:
        """Tell nothing more, and wait a while until what is being told is told; whether it is, and no copy in use."""
        self.serve(())
        until = time.monotonic() + AGENTS_END_S
        for run in self._ending.values():
            run.join(max(0.0, until - time.monotonic()))
            if not run.ended:
                log.warning("agent %s, shard %d: left while it is being told", run.agent.name, run.shard)
        return all(run.ended for run in self._ending.values())

    def runs(self) -> list[tuple[str, int, RunState, str]]:
        """All runs: agent, shard, state, and what is in its way."""
        return [(run.agent.name, run.shard, run.state, run.trouble) for run in list(self._runs.values())]

    def told(self) -> dict[str, int]:
        """Number of checkpoints that each agent was told."""
        counts = dict(self._told_before)
        for run in list(self._runs.values()):
            counts[run.agent.name] += run.told
        return counts


class _AgentRun:
    """One agent in one shard."""

    def __init__(
        self,
        agent: Agent,
        shard: int,
        stores: Callable[[Agent, int], LocalStore],
        session: MakeSession,
        fenced_pause_s: float,
        before: _AgentRun | None,
    ) -> None:
        """`before` is the one whose store it takes over, once that has ended."""
        self.agent = agent
        self.shard = shard
        self.stop = threading.Event()
        self.state = RunState.OPENING
        self._met = ""
        self._blamed = False
        """Whether the agent itself is to blame for the error: that is over once it has been told the same again."""
        self._told_before = 0
        self._session: ChangeSession | None = None
        self._stores = stores
        self._make = session
        self._fenced_pause_s = fenced_pause_s
        self._damaged = False
        self._before = before
        self._thread = threading.Thread(target=self._run, name=f"agent-{agent.name}-{shard}", daemon=True)
        self._thread.start()

    @property
    def told(self) -> int:
        session = self._session
        return self._told_before + (0 if session is None else session.told)

    @property
    def trouble(self) -> str:
        """The error in its way; one of the agent itself stays until something has been told since."""
        session = self._session
        return "" if session is not None and session.told and self.state is RunState.TELLING else self._met

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        while self._before is not None and not self._before.ended:
            self._before.join(AGAIN_S)
        self._before = None
        while not self.stop.is_set():
            try:
                self._with_store()
            except OperatingError as error:
                self._wait(error)
            except Exception as error:
                log.exception("agent %s, shard %d stopped", self.agent.name, self.shard)
                self._stop_for(error)
        if self.state is not RunState.STOPPED:
            self.state = RunState.ENDED

    def _with_store(self) -> None:
        store = self._stores(self.agent, self.shard)
        try:
            while not self.stop.is_set():
                self._life(store)
        finally:
            store.close()

    def _life(self, store: LocalStore) -> None:
        """Run one session, whatever ends it."""
        if self._damaged:
            store.clear()
            self._damaged = False
        self.state = RunState.OPENING
        session = self._session = self._make(self.agent, self.shard, store)
        try:
            session.open()
            if not self._blamed:
                self._met = ""
            self.state = RunState.TELLING
            session.follow(self.stop.is_set)
        except ReopenError as error:
            log.info("agent %s, shard %d: %s", self.agent.name, self.shard, error)
        except LocalDamageError as error:
            self._damaged = True
            self._wait(error)
        except OperatingError as error:
            self._wait(error)
        except CorruptionError as error:
            log.error("agent %s, shard %d stopped: %s", self.agent.name, self.shard, error)
            self._stop_for(error)
        finally:
            session.close()
            self._session, self._told_before = None, self.told

    def _stop_for(self, error: Exception) -> None:
        """Stop: tell nothing more here until the shard is given back."""
        self.state, self._met = RunState.STOPPED, shortened(str(error) or repr(error))
        self.stop.wait()

    def _wait(self, error: OperatingError) -> None:
        self.state, self._met = RunState.WAITING, str(error)
        fatal = error if isinstance(error, FatalProducerError) else None
        self._blamed = isinstance(error, AgentError) or (fatal is not None and bool(fatal.refused_topic))
        fenced = fatal is not None and fatal.fenced
        pause_s = self._fenced_pause_s if fenced else AGAIN_S
        trace = error if isinstance(error, AgentError) else None
        log.warning(
            "agent %s, shard %d: again in %g s: %s", self.agent.name, self.shard, pause_s, error, exc_info=trace
        )
        self.stop.wait(pause_s)
