"""A node that decides by itself: `NodeLife` with its duty and its outlook, over a simulated copy and group.

It follows the tables, watches the others' reports and the WAL, takes over when nobody is active, hands over when it is
asked to, and is a standby again when it was fenced.
"""

from __future__ import annotations

from typing import cast

from google.protobuf.message import Message

from journal.errors import CorruptionError, OperatingError
from journal.journal import BlockingJournal
from journal.kafka.membership import Membership
from journal.kafka.ports import Sent
from journal.process.progress import Progress
from journal.topics.control_reading import read_control
from journal.topics.names import control_topic, node_group
from journal.v1.journal_pb2 import NodeStatus
from loaders.node.asked_handover import AskedHandOver
from loaders.node.hooks import RoleHooks
from loaders.node.life import NodeLife
from loaders.node.liveness import Members
from loaders.node.standing import ActiveNode, NodeOwner, NodeStanding
from loaders.node.surroundings import Surroundings
from tests.simulation.history import CapturedLoad
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.node_copy import NodeCopy
from tests.simulation.node_journal import NodeJournal
from tests.simulation.node_process import NodeProcess
from tests.simulation.nodes_group import NodesGroup, SimulatedMembership
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.setting import JOURNAL, REQUEST_S, UUID, OnCritical, node_settings

_ROLL_EVERY_S = 1.0
_RETRY_S = 0.5
_TURN_S = 0.2


class SimulatedRoll:
    """`loaders.node.members.Roll`, with a task of its process."""

    def __init__(self, kafka: SimulatedKafka, scheduler: Scheduler, process: Process) -> None:
        self.members: Members = None
        self._cluster = kafka.cluster()
        self._scheduler = scheduler
        self._seen: set[str] = set()
        self._closed = False
        scheduler.spawn(process, self._run)

    def has_left(self, name: str) -> bool:
        return self.members is not None and name in self._seen and name not in self.members

    def call(self, timeout_s: float) -> None:
        try:
            self.members = {member.client_id for member in self._cluster.group_members(node_group(JOURNAL), timeout_s)}
        except OperatingError:
            self.members = None
        self._seen.update(self.members or ())

    def close(self) -> None:
        self._closed = True

    def _run(self) -> None:
        while not self._closed:
            self.call(REQUEST_S)
            self._scheduler.wait(_ROLL_EVERY_S, lambda: self._closed)


class SimulatedReporter:
    """`loaders.node.reporting.Reporter`, with a task of its process."""

    def __init__(self, kafka: SimulatedKafka, scheduler: Scheduler, process: Process) -> None:
        self._producer = kafka.plain_producer()
        self._scheduler = scheduler
        self._pending: dict[bytes, Sent] = {}
        self._closing = self._ended = False
        scheduler.spawn(process, self._run)

    def post(self, key: bytes, row: Message | None) -> None:
        if isinstance(row, NodeStatus):
            row.host, row.pid = "", 0  # those of the simulation's own process
        value = None if row is None else row.SerializeToString()
        self._pending.pop(key, None)
        self._pending[key] = Sent(control_topic(JOURNAL), 0, key, value)

    def close(self, timeout_s: float) -> None:
        self._closing = True
        self._scheduler.wait(timeout_s, lambda: self._ended)

    def _run(self) -> None:
        failing = False
        while not self._closing or (self._pending and not failing):
            if not self._pending:
                self._scheduler.wait(_ROLL_EVERY_S, lambda: bool(self._pending) or self._closing)
                continue
            sent = list(self._pending.values())
            self._pending.clear()
            try:
                self._producer.send(sent, REQUEST_S)
                failing = False
            except OperatingError:
                failing = True
                for row in sent:
                    self._pending.setdefault(row.key or b"", row)
                self._scheduler.pause(_RETRY_S)
        self._ended = True


class Standby(NodeProcess):
    """One start of such a node."""

    preferred = False
    _life: NodeLife | None = None

    @property
    def is_on_its_way(self) -> bool:
        return True

    def close(self) -> None:
        self.stop.set()
        if self._life is not None:
            self._life.end_activation()

    def main(self) -> None:
        setting = self.setting
        kafka, settings = setting.kafka(self.name), node_settings(setting.shards, self.name, self.preferred)
        clock, wall_ms = setting.clocks.elapsed(self.name), setting.wall_ms(self.name)
        try:
            copy = self.open_copy()
            rows = read_control(kafka, JOURNAL, clock, REQUEST_S)
        except (OperatingError, CorruptionError) as error:
            self.require_outside(error)
            return
        standing = NodeStanding(settings, clock_ms=wall_ms)
        surroundings = Surroundings(
            kafka,
            SimulatedRoll(kafka, self.scheduler, self.process),
            SimulatedReporter(kafka, self.scheduler, self.process),
            self._join,
            lambda on_critical, progress: self._journal(copy, on_critical, progress),
            clock,
            wall_ms,
            self.scheduler.pause,
            _TURN_S,
        )
        life = self._life = NodeLife(
            settings,
            surroundings,
            copy,  # type: ignore[arg-type]  # what of `TableCopy` a node's life needs
            rows,
            standing,
            RoleHooks(settings),
            self._owner(),
            AskedHandOver(clock),
            stop=self.stop,
        )
        standing.identify(UUID, life.fitness)
        self.scheduler.spawn(self.process, copy.run)
        life.run()
        if not self.stop.is_set():
            self.history.violate(f"alive: {self.name} ends by itself: {standing.status().reason}")

    def _join(self) -> Membership:
        group = self.setting.broker.groups[node_group(JOURNAL)]
        assert isinstance(group, NodesGroup)
        return cast(Membership, SimulatedMembership(group, self.process))

    def _journal(self, copy: NodeCopy, on_critical: OnCritical, progress: Progress) -> BlockingJournal:
        return cast(BlockingJournal, NodeJournal(self, copy, on_critical, progress))

    def _owner(self) -> NodeOwner:
        def on_active(active: ActiveNode) -> None:
            self.history.own_decisions += 1
            cast(NodeJournal, active.journal).serve()

        def nothing(*_: object) -> None: ...

        return NodeOwner(lambda: CapturedLoad(self.setting.shards, nothing), on_active, nothing, nothing, nothing)
