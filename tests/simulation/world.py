"""One seed: a journal's life by chance. Nodes take over from each other, workers come, go and share shards, tables are
compacted, machines stay away for long, and requests meet faults; then the world heals, and everything must be right.

The plan is a shuffled list of events, with operations between them; chance also decides the turns (scheduler) and the
faults (chaos), all from one seed.
"""

from __future__ import annotations

from collections.abc import Callable

from journal.topics.names import table_topic, wal_topic
from journal.v1.journal_pb2 import Mark
from journal.wire.keys import mark_key
from tests.simulation.cast import NODES, WORKERS, Cast
from tests.simulation.checker import Checker
from tests.simulation.events import Events
from tests.simulation.history import Over, Violation
from tests.simulation.node_process import NodeProcess
from tests.simulation.observers import observe_tables
from tests.simulation.partition import COMMITTED, PartitionLog
from tests.simulation.setting import JOURNAL, TRANSACTION_TIMEOUT_S

OPERATIONS_MIN = 200
OPERATIONS_BETWEEN = 3
HEAL_S = 60.0
SLOW_HEAL_S = 300.0
NOTICED_S = 8.0
"""A loss was noticed by somebody: for so long nobody else may take what is left for what was."""


class World:
    """The life of one seed."""

    def __init__(self, seed: int) -> None:
        self._cast = Cast(seed)
        self.scheduler = self._cast.scheduler
        self.chaos = self._cast.chaos
        self.broker = self._cast.broker
        self.history = self._cast.history
        self._not_applied_at: tuple[int, ...] = ()
        """The versions of WAL and table at which not everything was applied."""
        self.cut_short = False
        """Whether a noticed loss ended the life before its plan."""

    def run(self) -> list[str]:
        """The whole life; what does not hold of it."""
        try:
            self._live()
            self._heal()
        except Over:
            self.cut_short = True
            self._cast.pass_time(NOTICED_S)
            self._end_all()
        except Violation as violation:
            self.history.violate(str(violation))
        finally:
            self._cast.kill_all()
        for name, error in self.scheduler.failures:
            self.history.violate(f"{type(error).__name__} in {name}: {error}")
        return Checker(self.broker, self.history, self._cast.chance).check()

    def _live(self) -> None:
        """The plan, with operations before each of its events."""
        history = self.history
        events = Events(self._cast)
        self._cast.start_workers()
        self._cast.start_nodes()
        plan = events.plan()
        for place, event in enumerate(plan, 1):
            goal = max(OPERATIONS_MIN * place // len(plan), history.operations + OPERATIONS_BETWEEN)
            self._cast.wait_for(lambda goal=goal: history.operations >= goal)  # type: ignore[misc]
            history.log.append(f"{self.scheduler.now():.3f} {event.__name__}")
            event()

    # ---- the end -----------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        """No more faults: one worker and one node must get everything right, and soon."""
        cast, chance = self._cast, self._cast.chance
        self.chaos.on = False
        for node in cast.nodes:
            self.scheduler.kill(node.process)
        for member in cast.group.alive():
            member.wanted = None
        if chance.random() < 0.5:
            cast.pass_time(0.2)
        self._end_all()
        cast.group.members.clear()
        worker = chance.choice(WORKERS)
        cast.group.restart(worker)
        cast.group.deal()
        self.scheduler.kill(self._activate().process)
        last = self._activate()
        last.close()
        self._require(
            lambda: not last.process.alive and self._is_applied(),
            "a lone worker does not apply everything after the world has healed",
        )
        seen = len(self.history.snapshots)
        cast.start_reader(now=True)
        cast.group.members[worker].wanted = None
        self._require(
            lambda: len(self.history.snapshots) > seen and not cast.group.alive(),
            "a read-only load, or the last worker, does not end after the world has healed",
        )
        observe_tables(self.broker, self.history)

    def _end_all(self) -> None:
        """Nobody is there any more, and what they left open is settled."""
        self.chaos.on = False
        self._cast.kill_all()
        self._cast.pass_time(TRANSACTION_TIMEOUT_S + 5.0)

    def _activate(self) -> NodeProcess:
        """A lone node, started again whenever it ends: its gate waits less long than a worker may take to catch up."""
        cast = self._cast
        name = cast.chance.choice(NODES)
        start = cast.start_standby if name in cast.standbys else cast.start_node
        node: NodeProcess = start(name)

        def is_active() -> bool:
            nonlocal node
            if not node.process.alive:
                node = start(name)
            return node.active

        limit_s = SLOW_HEAL_S if self.history.is_slow else HEAL_S
        self._require(is_active, "a lone node does not become active after the world has healed", limit_s)
        cast.pass_time(0.05)
        return node

    def _require(self, condition: Callable[[], bool], otherwise: str, limit_s: float = HEAL_S) -> None:
        """Raises Over where a loss was noticed instead."""
        history = self.history
        is_so = self.scheduler.run(limit_s, lambda: condition() or history.is_over)
        if history.is_over or self.scheduler.failures or (history.noticed and not is_so):
            raise Over
        if not is_so:
            raise Violation(f"alive: {otherwise}")

    def _is_applied(self) -> bool:
        """Whether every shard's mark stands at the WAL's last frame. The scheduler asks at each turn."""
        topics = self.broker.topics
        versions = topics[table_topic(JOURNAL)].version.number, topics[wal_topic(JOURNAL)].version.number
        if versions == self._not_applied_at:
            return False
        self._not_applied_at = versions
        tables = self.broker.topics[table_topic(JOURNAL)].logs
        for shard, wal in enumerate(self.broker.topics[wal_topic(JOURNAL)].logs):
            if _newest_mark(tables[shard], shard) < _last_committed(wal):
                return False
        self._not_applied_at = ()
        return True


def _last_committed(log: PartitionLog) -> int:
    return next((entry.offset for entry in reversed(log.entries) if entry.state == COMMITTED), -1)


def _newest_mark(log: PartitionLog, shard: int) -> int:
    key = mark_key(shard)
    for entry in reversed(log.entries):
        if entry.state == COMMITTED and entry.key == key:
            return Mark.FromString(entry.value or b"").offset
    return -1
