"""The journal's part of a service's app: its worker, agents and view, as one service that Faust starts and stops.

Calls that block are made in threads. The first error of the worker crashes the app; an agent's error only holds up its
shard.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from mode import Service

from journal.config import Settings
from journal.disk.ports import LocalStore
from journal.disk.rocks import open_copy
from journal.disk.rocks_options import SHARD_FILES
from journal.disk.slots import Slot, take_slot
from journal.errors import ConfigError, CorruptionError, TopicError
from journal.kafka.clients import kafka_of
from journal.kafka.ports import Kafka
from journal.process.clocks import wall_ms
from journal.process.descriptors import require_descriptors
from journal.table.opening import identity_of_copy, patiently
from journal.topics.commands import create_command
from journal.topics.made_and_checked import open_journal
from journal.v1.journal_pb2 import Identity, NodeStatus, RoutesReport, SourcesReport
from journal.words import counted
from streams.agents.agents import Agent, AgentCalls, OperationAgents
from streams.agents.change_agents import ChangeAgents
from streams.agents.change_copy import ChangeConfig
from streams.agents.change_memory import make_memory
from streams.agents.change_session import ChangeSession
from streams.apps.sources import NodeReports
from streams.apps.view import GlobalView, StateLoader
from streams.reading.app import StreamWorker
from streams.reading.group_settings import GroupSettings, group_settings
from streams.reading.records import Record
from streams.reading.shell import WorkerShell
from streams.worker.service import SHARD_DESCRIPTORS, WORKER_DESCRIPTORS, make_worker
from streams.worker.trimming import with_trims
from streams.worker.worker import Worker

log = logging.getLogger(__name__)

T = TypeVar("T")

STANDSTILL_S = 30.0
"""How long a worker with shards may make no turn until it counts as stuck. It normally turns every second, but not
during a rebalance, or while Kafka or a disk does not answer."""


class JournalHost(Service):
    """The journal's service in the app. Its state (`Watched`) may be asked for at any time."""

    mundane_level = "debug"

    def __init__(
        self,
        settings: Settings,
        *,
        name: str,
        worker: bool,
        standby: bool,
        view: Callable[[], StateLoader] | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.settings = settings
        self.operation_agents: list[Agent] = []
        self.change_agents: list[Agent] = []
        self.on_failed: Callable[[BaseException], Awaitable[None]] | None = None
        self.of_faust: Callable[[], Mapping[str, str]] = dict
        """The errors of Faust's own agents and services, by name."""
        self.failure: BaseException | None = None
        self._name = name
        self._has_worker = worker
        self._standby = standby
        self._kafka: Kafka = kafka_of(settings)
        self.view = None if view is None else GlobalView(settings, view, kafka=self._kafka)
        self._reports = NodeReports(self._kafka, settings)
        self._slot: Slot | None = None
        self._shell: AgentShell | None = None
        self._served: WorkerShell | None = None
        self._calls: AgentCalls | None = None
        self._opening: asyncio.Task[WorkerShell | None] | None = None
        self._group: GroupSettings | None = None
        self._worker: StreamWorker | None = None
        self._operations: OperationAgents | None = None
        self._changes: ChangeAgents | None = None

    # ---- life ------------------------------------------------------------------------------------------------------

    async def on_start(self) -> None:
        """Start the worker and the view. Raises TopicError, KafkaUnavailableError, LocalStorageError, ConfigError."""
        if not self._has_worker and (self.operation_agents or self.change_agents):
            raise ConfigError("an app without a worker has no shards to tell its agents of: leave worker=False out")
        calls = self._calls = AgentCalls(asyncio.get_running_loop())
        opening = self._opening = asyncio.create_task(asyncio.to_thread(self._open, calls))
        try:
            shell = await asyncio.shield(opening)
        except BaseException:
            await self._close_opened(opening)
            raise
        if shell is None or self._group is None or self.should_stop:
            return
        worker = self._worker = StreamWorker(shell, self._group)
        self.add_future(self._run(worker))

    async def _run(self, worker: StreamWorker) -> None:
        await worker.start()
        error = await worker.ended()
        if error is not None and self.failure is None:
            self.failure = error
            if self.on_failed is not None:
                await self.on_failed(error)

    async def on_stop(self) -> None:
        if self._worker is not None:
            await self._worker.stop()
        if self._opening is not None:
            await self._close_opened(self._opening)

    async def _close_opened(self, opening: asyncio.Task[WorkerShell | None]) -> None:
        """Wait for the thread that opens the parts. It cannot be cancelled, so the parts that it still opens are closed
        after it has ended."""
        await asyncio.wait([opening])
        await asyncio.to_thread(self._close)

    # ---- calls that block -------------------------------------------------------------------------------------------

    def _open(self, calls: AgentCalls) -> WorkerShell | None:
        settings, kafka = self.settings, self._kafka
        timeout_s = settings.request_timeout_ms / 1000
        rows = self._patiently(lambda: open_journal(kafka, settings, clock=time.monotonic, timeout_s=timeout_s))
        identity = rows.require_identity(settings.journal)
        self._check_outputs(timeout_s)
        slot = self._slot = take_slot(settings.journal_directory, self._name)
        self._group = group_settings(settings, slot.path.name, identity.shards)
        if self.view is not None:
            self.view.start(slot.path / "view" if self._has_worker else slot)
        if not self._has_worker:
            return None
        if self.operation_agents:
            self._operations = OperationAgents(self.operation_agents, calls)
        if self.change_agents:
            self._changes = self._make_changes(identity, slot, calls, timeout_s)
        tell = self._operations
        worker = self._patiently(lambda: make_worker(kafka, settings, identity, slot, standby=self._standby, tell=tell))
        self._shell = AgentShell(worker, self._changes)
        self._served = with_trims(self._shell, kafka, settings, rows)
        return self._served

    def _patiently(self, start: Callable[[], T]) -> T:
        return patiently(start, given_up=lambda: self.should_stop)

    def _check_outputs(self, timeout_s: float) -> None:
        """Check the agents' topics. Raises TopicError for a missing one, so that it is not noticed only by a failing
        checkpoint."""
        agents = {agent.to: agent.name for agent in (*self.operation_agents, *self.change_agents) if agent.to}
        cluster = self._kafka.cluster()
        try:
            found = cluster.describe(agents, timeout_s)
        finally:
            cluster.close()
        for topic, name in agents.items():
            if topic not in found:
                servers = self.settings.bootstrap_servers
                raise TopicError(
                    f"topic {topic}, to which agent {name} gives, is not there: {create_command(servers, topic)}"
                )

    def _make_changes(self, identity: Identity, slot: Slot, calls: AgentCalls, timeout_s: float) -> ChangeAgents:
        settings, kafka = self.settings, self._kafka
        copies = identity.shards * (1 + len(self.change_agents))
        shards, agents = counted(identity.shards, "shard"), counted(len(self.change_agents), "agent")
        what = f"a worker, which may have {shards} and {agents} of each,"
        require_descriptors(WORKER_DESCRIPTORS + copies * SHARD_DESCRIPTORS, what)
        cluster = kafka.cluster()
        try:
            table = identity_of_copy(cluster, settings, identity, timeout_s)
            configs = {
                agent.name: ChangeConfig(
                    journal=settings.journal,
                    table_identity=table,
                    memory_identity=make_memory(cluster, settings, agent.name, identity.shards, timeout_s),
                    request_timeout_s=timeout_s,
                    delete_retention_ms=settings.delete_retention_ms,
                    min_compaction_lag_ms=settings.min_compaction_lag_ms,
                    held_bytes_max=settings.limits.held_bytes_max,
                )
                for agent in self.change_agents
            }
        finally:
            cluster.close()

        def store(agent: Agent, shard: int) -> LocalStore:
            return open_copy(slot.path / "agents" / agent.name / f"shard-{shard}", files_max=SHARD_FILES)

        def session(agent: Agent, shard: int, store: LocalStore) -> ChangeSession:
            config = configs[agent.name]
            return ChangeSession(agent, shard, config, kafka, store, calls, clock=time.monotonic, wall_ms=wall_ms)

        return ChangeAgents(self.change_agents, store, session, fenced_pause_s=settings.session_timeout_ms / 1000)

    def _close(self) -> None:
        """Close all parts. An agent that does not return keeps its copy open, so the slot of the copies stays held
        until the process ends."""
        if self._served is not None:
            self._served.abandon()
        done = self._shell is None or not self._shell.left
        if self._changes is not None:
            done = self._changes.close() and done
        if self.view is not None:
            self.view.close()
        if self._slot is not None and done:
            self._slot.release()
            self._slot = None

    # ---- the methods of `Watched` -----------------------------------------------------------------------------------

    def shard_states(self) -> Mapping[int, str]:
        return {} if self._shell is None else self._shell.states

    def stopped_shards(self) -> Mapping[int, str]:
        return {} if self._shell is None else self._shell.stopped

    def waiting_shards(self) -> Mapping[int, str]:
        return {} if self._shell is None else self._shell.waiting

    def standby_ended(self) -> Mapping[int, str]:
        return {} if self._shell is None else self._shell.standby_ended

    def standstill(self) -> str:
        if not self._has_worker:
            return ""
        if self._shell is None:
            return "the worker is not started"
        still_s = time.monotonic() - self._shell.turned_at
        is_still = bool(self._shell.states) and still_s > STANDSTILL_S
        return f"the worker has done nothing for {still_s:.0f} s" if is_still else ""

    def agent_troubles(self) -> list[tuple[str, int, str]]:
        runs = [] if self._changes is None else self._changes.runs()
        found = [(agent, shard, why) for agent, shard, _, why in runs if why]
        found += [] if self._calls is None else self._calls.late()
        if self._operations is not None:
            mine = self.shard_states()
            errors = list(self._operations.errors.items())
            found += [(agent, shard, why) for (agent, shard), why in errors if shard in mine]
        return found

    def faust_troubles(self) -> Mapping[str, str]:
        return self.of_faust()

    def tellings(self) -> Mapping[str, int]:
        operations = {} if self._operations is None else dict(self._operations.told)
        return operations if self._changes is None else operations | self._changes.told()

    def routes(self) -> Mapping[int, RoutesReport]:
        return {} if self._shell is None else self._shell.routes()

    def sources(self) -> SourcesReport | None:
        return self._reports.sources()

    def nodes(self) -> Sequence[NodeStatus]:
        return self._reports.nodes()

    def awaited_node(self) -> str:
        return self._reports.awaited_node()


class AgentShell(WorkerShell):
    """The worker's shell, together with the change agents of the same shards."""

    def __init__(self, worker: Worker, changes: ChangeAgents | None) -> None:
        self._worker = worker
        self._changes = changes
        self.states: Mapping[int, str] = {}
        """What the worker of each shard did at the last tick, by shard; `stopped`, `waiting` and `standby_ended` are of
        that tick too."""
        self.stopped: Mapping[int, str] = {}
        self.waiting: Mapping[int, str] = {}
        self.standby_ended: Mapping[int, str] = {}
        self.turned_at = time.monotonic()
        """When the last tick ended."""
        self.left: Collection[int] = ()
        """Shards that were held up when the worker stopped."""

    def assigned(self, shards: Collection[int]) -> Mapping[int, int]:
        offsets = self._worker.assigned(shards)
        if self._changes is not None:
            self._changes.serve(shards)
        self._look()
        return offsets

    def revoked(self, shards: Collection[int]) -> None:
        """Let agents go on until the rebalance says whose the shards are. A new owner fences their sessions."""
        self._worker.revoked(shards)

    def frames(self, shard: int, records: Sequence[Record]) -> None:
        self._worker.frames(shard, records)

    def unreadable(self, shard: int, error: CorruptionError) -> None:
        self._worker.unreadable(shard, error)

    def tick(self) -> float:
        wanted_s = self._worker.tick()
        self._look()
        return wanted_s

    def _look(self) -> None:
        self.states = {shard: state.value for shard, state in self._worker.states().items()}
        self.stopped = {shard: str(error) for shard, error in self._worker.stopped().items()}
        self.waiting = self._worker.waiting()
        self.standby_ended = self._worker.standby_ended()
        self.turned_at = time.monotonic()

    def seeks(self) -> Mapping[int, int]:
        return self._worker.seeks()

    def routes(self) -> Mapping[int, RoutesReport]:
        return self._worker.routes()

    def applied(self) -> Mapping[int, int]:
        return self._worker.applied()

    def stop(self) -> None:
        if self._changes is not None:
            self._changes.serve(())
        self._worker.stop()
        self.left = sorted(self._worker.states())
        if self.left:
            log.warning("shards %s are left while agents are told of them", self.left)

    def abandon(self) -> None:
        self._worker.abandon()
