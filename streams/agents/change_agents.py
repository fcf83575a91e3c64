"""The `on_change` agents of a service: a thread with a session for each agent and each shard that the service has.

The assignment of a shard is only advice. A new session fences the one before it, and a fenced session calls its agent
no more. So two processes may call an agent with the same change for a moment, but only one of them can send the
outputs.
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
"""The pause after an error, before the session is opened again."""


class RunState(Enum):
    """What an agent does in a shard."""

    OPENING = "opening"
    TELLING = "telling"
    WAITING = "waiting"  # it waits after an error, until the next try
    STOPPED = "stopped"  # stopped, because something cannot be read
    ENDED = "ended"


MakeSession = Callable[[Agent, int, LocalStore], ChangeSession]


class ChangeAgents:
    """All `on_change` agents of a service. The worker's thread calls it; any thread may call `runs`."""

    def __init__(
        self,
        agents: Sequence[Agent],
        stores: Callable[[Agent, int], LocalStore],
        session: MakeSession,
        *,
        fenced_pause_s: float,
    ) -> None:
        """`stores` opens an agent's copy of a shard. `fenced_pause_s` is the pause after a session was fenced, because
        the process that fenced it most likely keeps the shard."""
        self._agents = agents
        self._stores = stores
        self._session = session
        self._fenced_pause_s = fenced_pause_s
        self._runs: dict[tuple[str, int], _AgentRun] = {}
        self._ending: dict[tuple[str, int], _AgentRun] = {}
        """Runs in shards that were given back, until they have ended."""
        self._told_before = dict.fromkeys((agent.name for agent in agents), 0)
        """For each agent, the number of checkpoints that it was told in shards that were given back."""

    def serve(self, shards: Collection[int]) -> None:
        """Run the agents in these shards and no others. It does not wait: in other shards a call under way goes on to
        its end, but cannot send its outputs once another process has the shard."""
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
        """End all runs, and wait a while for calls under way. Returns whether all runs have ended; then no copy is in
        use."""
        self.serve(())
        until = time.monotonic() + AGENTS_END_S
        for run in self._ending.values():
            run.join(max(0.0, until - time.monotonic()))
            if not run.ended:
                log.warning(
                    "agent %s, shard %d: given up while the agent is told its changes",
                    run.agent.name,
                    run.shard,
                )
        return all(run.ended for run in self._ending.values())

    def runs(self) -> list[tuple[str, int, RunState, str]]:
        """All runs: agent, shard, state, and the error that holds up the run."""
        return [(run.agent.name, run.shard, run.state, run.trouble) for run in list(self._runs.values())]

    def told(self) -> dict[str, int]:
        """The number of checkpoints that each agent was told."""
        counts = dict(self._told_before)
        for run in list(self._runs.values()):
            counts[run.agent.name] += run.told
        return counts


class _AgentRun:
    """The run of one agent in one shard."""

    def __init__(
        self,
        agent: Agent,
        shard: int,
        stores: Callable[[Agent, int], LocalStore],
        session: MakeSession,
        fenced_pause_s: float,
        before: _AgentRun | None,
    ) -> None:
        """`before` is the earlier run whose store this one takes over, once that has ended."""
        self.agent = agent
        self.shard = shard
        self.stop = threading.Event()
        self.state = RunState.OPENING
        self._met = ""
        self._blamed = False
        """Whether the agent itself has caused the error. The error then stays until a call of the agent has
        succeeded."""
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
        """The error that holds up the run. An error of the agent itself stays until a later call has succeeded."""
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
        """Run one session until it ends, and handle every error that ends it."""
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
        """Stop: do not call the agent again until the shard is given back."""
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
            "agent %s, shard %d: told again in %g s: %s",
            self.agent.name,
            self.shard,
            pause_s,
            error,
            exc_info=trace,
        )
        self.stop.wait(pause_s)
