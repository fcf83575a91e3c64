"""The processes of one seed and their machines: who runs, who is started again, what is left when one is gone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from random import Random
from typing import TypeVar

from journal.topics.names import node_group
from tests.simulation.chaos import Chaos
from tests.simulation.clocks import WRONG_BY_S, Clocks
from tests.simulation.disk import Disk
from tests.simulation.history import History, Over, Violation
from tests.simulation.node import Node
from tests.simulation.node_process import NodeProcess
from tests.simulation.nodes_group import NodesGroup
from tests.simulation.observers import SnapshotReader, observe_behind_cleaner, observe_disk
from tests.simulation.recording import RecordingBroker
from tests.simulation.scheduler import Scheduler
from tests.simulation.setting import JOURNAL, Setting
from tests.simulation.standby import Standby
from tests.simulation.taking_in import takes_in
from tests.simulation.trim import Trim
from tests.simulation.worker_process import Disks, WorkerGroup, WorkerProcess

NODES = ("node-a", "node-b", "node-c")
WORKERS = ("worker-a", "worker-b")

LIVELY = 0.25
"""In how many seeds nodes decide by themselves who is active."""

AnyNode = TypeVar("AnyNode", bound=NodeProcess)

_LOOK_S = 0.4
_LOOKS = 200


class Cast:
    """Three machines for nodes, two for workers, and those who read only."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.scheduler = Scheduler(self.chance, switch_chance=self.chance.choice((0.1, 0.4, 0.8)))
        self.chaos = Chaos(self.chance)
        self.broker = RecordingBroker(self.scheduler, self.chaos)
        self.clocks = Clocks(self.scheduler, Random(f"clocks, seed {seed}"), WRONG_BY_S)
        self.setting = Setting.by_chance(self.broker, self.scheduler, self.chance, self.clocks)
        self.history = History(self.setting.shards)
        self.scheduler.freeze_for = self.chaos.freeze_for
        self.nodes: list[NodeProcess] = []
        self.standbys = self._standbys_by_chance(Random(f"nodes, seed {seed}"))
        """Names of the nodes that decide by themselves, and whether each is preferred."""
        self.broker.groups[node_group(JOURNAL)] = NodesGroup(self.scheduler)
        self.readers: list[SnapshotReader] = []
        self.trims: list[Trim] = []
        self.group = WorkerGroup(self.setting.shards, self.chance, self._start_worker)
        self._numbers = count(1)
        self._takes_in = takes_in(Random(-seed - 1))
        self._node_disks = {name: Disk() for name in NODES}
        self._worker_disks: dict[str, Disks] = {name: {} for name in WORKERS}
        self._reader_disk = Disk()

    # ---- starts ------------------------------------------------------------------------------------------------

    @staticmethod
    def _standbys_by_chance(chance: Random) -> dict[str, bool]:
        if chance.random() >= LIVELY:
            return {}
        preferred = chance.choice((*NODES, ""))
        return {name: name == preferred for name in chance.sample(NODES, chance.choice((2, 2, 3)))}

    def start_node(self, name: str) -> Node:
        """One that takes over at once."""
        return self._start_node(Node, name)

    def start_standby(self, name: str) -> Standby:
        """One that decides by itself."""
        standby = self._start_node(Standby, name)
        standby.preferred = self.standbys.get(name, False)
        return standby

    def _start_node(self, kind: type[AnyNode], name: str) -> AnyNode:
        self.clocks.wake(name)
        disk = self._node_disks[name]
        disk.on_position = partial(observe_behind_cleaner, self.history, name, disk)
        node = kind(
            self.setting,
            self.history,
            name,
            disk,
            self.chance,
            next_number=lambda: next(self._numbers),
            takes_in=self._takes_in,
        )

        def ended() -> None:
            disk.crash(self.chance)
            observe_disk(self.history, name, disk, range(self.setting.shards))

        node.process.on_end = ended
        self.nodes.append(node)
        return node

    def _start_worker(self, name: str) -> WorkerProcess:
        worker = WorkerProcess(self.setting, self.history, name, self._worker_disks[name])

        def ended() -> None:
            for shard, disk in worker.disks.items():
                disk.crash(self.chance)
                observe_disk(self.history, name, disk, [shard])

        worker.process.on_end = ended
        return worker

    def start_workers(self) -> None:
        for name in WORKERS:
            self.group.restart(name)
        self.group.deal()

    def start_reader(self, *, now: bool, again: bool = False) -> None:
        """A read-only load, `again` with the copy that the last such one left, if no process has it open."""
        disk = Disk()
        disk.on_position = partial(observe_behind_cleaner, self.history, "reader", disk)
        if again and not any(reader.process.alive for reader in self.readers):
            disk = self._reader_disk
        self._reader_disk = disk
        self.readers.append(SnapshotReader(self.setting, self.history, disk, now=now))

    def start_trim(self) -> None:
        self.trims.append(Trim(self.setting, self.history))

    def start_nodes(self) -> None:
        """Those that there are at the beginning."""
        for name in self.standbys:
            self.start_standby(name)
        if not self.standbys:
            self.start_node(self.chance.choice(NODES))

    # ---- who is there ------------------------------------------------------------------------------------------

    def active(self) -> NodeProcess | None:
        """The node that was the last to become active, and still thinks that it is."""
        active = [node for node in self.nodes if node.active]
        return active[-1] if active else None

    def free_name(self) -> str:
        """A node that is not running; if all are, one that is killed for it."""
        self.nodes = [node for node in self.nodes if node.process.alive]
        running = {node.process.name for node in self.nodes}
        free = [name for name in NODES if name not in running]
        if free:
            return self.chance.choice(free)
        victim = self.nodes[0]
        self.scheduler.kill(victim.process)
        return victim.process.name

    def successor_of(self, victim: str) -> Callable[[], None]:
        """What starts another node to take over from `victim`."""
        successor = self.chance.choice([name for name in NODES if name != victim])

        def take_over() -> None:
            if all(node.process.name != successor or not node.process.alive for node in self.nodes):
                self.history.zombies += 1
                self.start_node(successor)

        return take_over

    def disks_of(self, machine: str) -> list[Disk]:
        """All that it has."""
        if machine in self._node_disks:
            return [self._node_disks[machine]]
        return list(self._worker_disks[machine].values())

    # ---- time --------------------------------------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        self.scheduler.run(seconds, lambda: False)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Let everybody run until it holds; dead workers and lost nodes are started again meanwhile. Raises Over."""
        for _ in range(_LOOKS):
            if self.scheduler.run(_LOOK_S, condition):
                return
            if self.scheduler.failures or self.history.is_over:
                raise Over
            self.keep_alive()
        if self.history.noticed:
            raise Over
        operations, seconds = self.history.operations, self.scheduler.now()
        raise Violation(f"alive: {operations} operations, and then nothing until {seconds:.0f}")

    def keep_alive(self) -> None:
        dead = [name for name, member in self.group.members.items() if not member.process.alive]
        for name in dead:
            self.group.restart(name)
        if dead:
            self.group.deal()
        self.nodes = [node for node in self.nodes if node.process.alive]
        running = {node.process.name for node in self.nodes}
        for name in self.standbys:
            if name not in running:
                self.start_standby(name)
        if not any(node.active or node.is_on_its_way for node in self.nodes):
            self.start_node(self.free_name())

    def kill_all(self) -> None:
        for process in [
            *(node.process for node in self.nodes),
            *(member.process for member in self.group.members.values()),
            *(reader.process for reader in self.readers),
            *(trim.process for trim in self.trims),
        ]:
            self.scheduler.kill(process)
