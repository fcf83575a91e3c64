"""What Kafka does to a journal in a seed, at its worst: leaders come and go, acknowledged tails are lost, batches are
damaged, coordinators move.

Most of it is Kafka's everyday life, and nothing may come of it. The loss of an acknowledged tail breaks a condition:
the journal need not go on then, but a typed error must say so, and nothing may be made of what is left.
"""

from __future__ import annotations

from collections.abc import Callable

from journal.topics.control_keys import EPOCH_KEY
from journal.topics.names import control_topic, table_topic, wal_topic
from journal.v1.journal_pb2 import Mark
from journal.wire.keys import mark_key
from tests.simulation.broker import Partition
from tests.simulation.cast import NODES, WORKERS, Cast
from tests.simulation.chaos import Forced, Stall
from tests.simulation.faults import Fault
from tests.simulation.node_process import NodeProcess
from tests.simulation.partition import COMMITTED, PartitionLog
from tests.simulation.requests import BACKOFF_S
from tests.simulation.setting import JOURNAL

Event = Callable[[], None]

EVERYDAY = (
    "new_leaders",
    "deposed_leader",
    "stale_claim",
    "stale_recovery",
    "damaged_batch",
    "coordinator_moves",
    "forgotten_ids",
    "trim",
    "slow_brokers",
    "clocks_are_set",
    "active_stands_still",
    "active_stands_still",
    "stalling_disk",
    "no_descriptors",
)
LOSSES = ("lost_control", "lost_table", "lost_wal")
"""Names of the events that there are in seeds."""

CONTROL: Partition = (control_topic(JOURNAL), 0)

STALLED_S = 4.0
"""So long after all answers came at once again an active node has committed something."""

TRIM_S = 30.0
"""So long after a trim has begun somebody may find nothing where it left off."""

SKIPS = b"skip/"
"""The keys of requests to skip records begin with this."""

ASKED_AGAIN_S = 5.0
"""An operator whose request to skip records was lost asks again after this long."""

DAMAGE_S = 10.0
"""So long after another leader has what is damaged somebody may still be held up by it."""


class Hardships:
    """Events of one seed; each returns at once or lets some time pass."""

    def __init__(self, cast: Cast) -> None:
        self._cast = cast
        self._broker = cast.broker
        self._chance = cast.chance
        self._history = cast.history
        self._scheduler = cast.scheduler
        self._chaos = cast.chaos

    def by_chance(self) -> list[Event]:
        """Some of each kind for a seed's plan; losses in few, as they end it."""
        chance = self._chance
        everyday: list[Event] = [getattr(self, kind) for kind in EVERYDAY]
        losses: list[Event] = [getattr(self, kind) for kind in LOSSES]
        events = chance.sample(everyday, chance.randrange(min(4, len(everyday) + 1)))
        if losses and chance.random() < 0.2:
            events.append(chance.choice(losses))
        return events

    # ---- leaders -----------------------------------------------------------------------------------------------

    def _partitions(self) -> list[Partition]:
        shards = range(self._cast.setting.shards)
        return [CONTROL, *((topic(JOURNAL), shard) for topic in (wal_topic, table_topic) for shard in shards)]

    def _log(self, partition: Partition) -> PartitionLog:
        topic, number = partition
        return self._broker.topics[topic].logs[number]

    def new_leaders(self) -> None:
        """A broker is restarted: some partitions have another leader, and everybody knows."""
        for partition in self._partitions():
            if self._chance.random() < 0.5:
                self._log(partition).lead()

    def deposed_leader(self) -> None:
        """Another leader goes on, and some processes still ask the old one. Often the active node is one of those, and
        another node takes over meanwhile.

        Who only reads writes nothing that could prove what it was told: read-only loads are told the truth here."""
        partition = self._chance.choice([CONTROL, *self._partitions()])
        seconds = self._chance.choice((0.3, 1.0, 3.0, 6.0))
        names = [name for name in (*NODES, *WORKERS) if self._chance.random() < 0.4]
        writes = self._chance.random() < 0.5
        active = self._cast.active()
        if active is not None and self._chance.random() < 0.7:
            name = active.process.name
            self._broker.depose(*partition, {*names, name}, seconds, writes=writes)
            fault = self._chance.choice((Fault.NONE, Fault.LOSE_RESPONSE, Fault.LOSE_REQUEST))
            stall = Stall(1, self._chance.choice((0.1, 0.3, 1.0)), self._cast.successor_of(name))
            self._chaos.force(name, Forced("end_transaction", 1, fault, stall))
        else:
            self._broker.depose(*partition, names, seconds, writes=writes)
        self._history.excuse(self._scheduler.now() + seconds + DAMAGE_S)

    def stale_claim(self) -> None:
        """Who takes over reads a shard's end from a leader that was deposed, which lacks what the active node writes
        meanwhile."""
        name, seconds = self._cast.free_name(), self._chance.choice((0.5, 1.0, 2.0))
        topic = self._chance.choice((wal_topic, wal_topic, table_topic))
        shard = self._chance.randrange(self._cast.setting.shards)
        self._broker.depose(topic(JOURNAL), shard, [name], seconds, writes=False)
        self._history.excuse(self._scheduler.now() + seconds + DAMAGE_S)
        self._cast.pass_time(self._chance.choice((0.02, 0.1, 0.3)))
        self._cast.start_node(name)

    def stale_recovery(self) -> None:
        """Who does not know what became of a transaction looks for it at leaders that were deposed before it was sent;
        or a shard moves to a worker that is told of an older table."""
        seconds = self._chance.choice((0.5, 1.5, 3.0))
        self._history.excuse(self._scheduler.now() + seconds + DAMAGE_S)
        active, shards = self._cast.active(), range(self._cast.setting.shards)
        if active is None or self._chance.random() < 0.4:
            for shard in shards:
                self._broker.depose(table_topic(JOURNAL), shard, WORKERS, seconds, writes=False)
            self._cast.pass_time(self._chance.choice((0.1, 0.4)))
            self._history.moves += self._cast.group.deal()
            return
        name = active.process.name

        def depose() -> None:
            for shard in shards:
                self._broker.depose(wal_topic(JOURNAL), shard, [name], seconds, writes=False)

        lost = self._chance.choice((Fault.LOSE_RESPONSE, Fault.LOSE_RESPONSE, Fault.LOSE_REQUEST))
        self._chaos.force(name, Forced("produce", 1, Fault.NONE, meanwhile=depose), Forced("end_transaction", 1, lost))

    # ---- fetches -----------------------------------------------------------------------------------------------

    def damaged_batch(self) -> None:
        """What somebody reads next is damaged on the leader's disk, until another one leads. Often that is where the
        active node has just written a group and does not know what became of it."""
        active = self._cast.active()
        if active is None or self._chance.random() < 0.1:
            partition, count = self._chance.choice(self._partitions()), self._chance.randrange(1, 12)
            self._damage(partition, count, self._chance.choice((0.2, 1.0, 4.0)))
            return
        seconds = self._chance.choice((0.5, 2.5, 4.0))

        def damage() -> None:
            for shard in range(self._cast.setting.shards):
                self._damage((wal_topic(JOURNAL), shard), 1, seconds)

        stall = Stall(1, 0.0, damage)
        self._chaos.force(active.process.name, Forced("end_transaction", 1, Fault.LOSE_RESPONSE, stall))

    def _damage(self, partition: Partition, count: int, seconds: float) -> None:
        log = self._log(partition)
        log.damaged |= {entry.offset for entry in log.entries[-count:]}
        self._history.excuse(self._scheduler.now() + seconds + DAMAGE_S)
        self._scheduler.call_at(self._scheduler.now() + seconds, log.lead)

    # ---- the coordinator ---------------------------------------------------------------------------------------

    def coordinator_moves(self) -> None:
        """Another broker coordinates after a while, in which nobody does."""
        seconds = self._chance.choice((0.05, 0.3, 0.9, 2.0, 3.0))
        self._while_ending(lambda: self._broker.move_coordinator(seconds))

    def forgotten_ids(self) -> None:
        """Transactional ids expire that nobody has used for long."""
        self._while_ending(self._broker.forget_ids)

    def _while_ending(self, then: Callable[[], None]) -> None:
        """At once, or while somebody ends a transaction: then it is decided, or its library asks a second time."""
        names = [member.process.name for member in self._cast.group.alive()]
        active = self._cast.active()
        names += [active.process.name] * 2 if active is not None else []
        if not names or self._chance.random() < 0.2:
            then()
            return
        fault = self._chance.choice((Fault.NONE, Fault.RETRIED, Fault.RETRIED))
        soon = self._chance.choice((0.0, 0.0005, BACKOFF_S / 2))

        def meanwhile() -> None:
            if soon:
                self._scheduler.call_at(self._scheduler.now() + soon, then)
            else:
                then()

        self._chaos.force(self._chance.choice(names), Forced("end_transaction", 1, fault, meanwhile=meanwhile))

    # ---- clocks ------------------------------------------------------------------------------------------------

    def clocks_are_set(self) -> None:
        """Some machines get the time, right or wrong, while they run."""
        for machine in (*NODES, *WORKERS):
            if self._chance.random() < 0.5:
                self._cast.clocks.set(machine)

    def active_stands_still(self) -> None:
        """The active node stands still, perhaps until another one is active, and only one of its clocks tells how long:
        the machine was suspended, or its wall clock was set back meanwhile."""
        active = self._cast.active()
        if active is None or active.process.frozen:
            return
        name, seconds = active.process.name, self._chance.choice((0.5, 3.0, 4.0, 6.0))
        if self._chance.random() < 0.5:
            self._cast.clocks.suspend(name, seconds)
        else:
            self._cast.clocks.set_back(name, seconds)
        self._scheduler.freeze(active.process, seconds)
        if self._chance.random() < 0.9:
            self._cast.start_node(self._cast.free_name())

    # ---- disks ------------------------------------------------------------------------------------------------

    def stalling_disk(self) -> None:
        """A machine's disk takes seconds for what it is asked next. An active node goes on committing meanwhile: its
        copy costs it nothing."""
        active, seconds = self._cast.active(), self._chance.choice((0.5, 2.0, 5.0, 5.0))
        machine = active.process.name if active is not None and self._chance.random() < 0.7 else self._machine()
        for disk in self._cast.disks_of(machine):
            disk.stalls_until = self._scheduler.now() + seconds
        if active is None or machine != active.process.name or active.process.frozen:
            return
        chaos_was, self._chaos.on = self._chaos.on, False
        self._cast.pass_time(seconds)
        self._chaos.on = chaos_was
        self._require_current(active, seconds)

    def _require_current(self, active: NodeProcess, seconds: float) -> None:
        """A node stays current that was active for so long while nobody took over and Kafka answered at once."""
        core, history = active.core, self._history
        if not active.active or core is None or history.losses or history.is_slow:
            return
        if seconds > STALLED_S and not core.current:
            history.violate(f"alive: {active.process.name} stops committing while its disk stalls")

    def no_descriptors(self) -> None:
        """A machine has no descriptors left for a while, and processes on it start again meanwhile."""
        machine = self._machine()
        for disk in self._cast.disks_of(machine):
            disk.no_descriptors_until = self._scheduler.now() + self._chance.choice((0.1, 1.0, 3.0))

    def _machine(self) -> str:
        return self._chance.choice((*NODES, *WORKERS, *WORKERS))

    # ---- what takes long ---------------------------------------------------------------------------------------

    def slow_brokers(self) -> None:
        """From now on records take their time by their bytes; callers have small ones in such a seed.

        What has gathered for a checkpoint may be too much for a request, time and again. The rows of one group always
        fit, because a worker cannot make its checkpoint smaller than that."""
        self._broker.bytes_per_s = self._chance.choice((3_300.0, 3_600.0))
        for member in self._cast.group.alive():
            self._scheduler.freeze(member.process, self._chance.choice((0.3, 2.0, 4.0)))

    # ---- trims -------------------------------------------------------------------------------------------------

    def trim(self) -> None:
        """An operator deletes what the tables do not need any more. Whoever was stopped before may come back to where
        nothing is."""
        self._cast.start_trim()
        self._history.excuse(self._scheduler.now() + TRIM_S)

    # ---- losses ------------------------------------------------------------------------------------------------

    def _lose(self, partition: Partition, end: int) -> None:
        lost = self._log(partition).lose(end)
        if lost:
            self._history.lose(partition[0], f"{self._scheduler.now():.3f}: {lost} offsets of {partition} are gone")

    def lost_control(self) -> None:
        """The epoch counter goes back by an activation or more. Often nobody has applied yet what was written last.

        Requests to skip records may go with it: `status` shows their shard stopped, and its operator asks again."""
        epochs = [e.offset for e in self._log(CONTROL).entries if e.key == EPOCH_KEY and e.state == COMMITTED]
        before = self._cast.active()
        if self._chance.random() < 0.5:
            for member in self._cast.group.alive():
                self._scheduler.freeze(member.process, self._chance.choice((0.5, 2.0)))
            self._cast.pass_time(0.2)
        end = epochs[-min(len(epochs), self._chance.choice((1, 1, 2, 3)))]
        gone = [(e.key, e.value) for e in self._log(CONTROL).entries if e.offset >= end and e.state == COMMITTED]
        skips = [(key, value) for key, value in gone if key is not None and key.startswith(SKIPS)]
        self._lose(CONTROL, end)

        def ask_again() -> None:
            self._broker.write(*CONTROL, skips)

        self._scheduler.call_at(self._scheduler.now() + ASKED_AGAIN_S, ask_again)
        if before is not None and self._chance.random() < 0.7:
            self._scheduler.kill(before.process)
        self._cast.start_node(self._cast.free_name())

    def lost_table(self) -> None:
        """Some checkpoints of a shard are gone. What the cleaner took away for tombstones of the first one stays away.

        Nodes that do not run have copies of what is not there, and may come back when the table has grown past them."""
        active = self._cast.active()
        for node in self._cast.nodes:
            if node is not active and self._chance.random() < 0.7:
                self._scheduler.kill(node.process)
        shard = self._chance.randrange(self._cast.setting.shards)
        topic, key = table_topic(JOURNAL), mark_key(shard)
        log = self._log((topic, shard))
        marks = [e.offset for e in log.entries if e.key == key and e.state == COMMITTED]
        if marks:
            first = marks[-min(len(marks), self._chance.choice((1, 1, 2, 5)))]
            if self._chance.random() < 0.5:
                self._broker.compact(topic, shard, first)
            self._lose((topic, shard), first)

    def lost_wal(self) -> None:
        """Frames of a shard are gone, among them some that its table has."""
        shard = self._chance.randrange(self._cast.setting.shards)
        table, key = self._log((table_topic(JOURNAL), shard)), mark_key(shard)
        marks = (
            Mark.FromString(e.value or b"") for e in reversed(table.entries) if e.key == key and e.state == COMMITTED
        )
        applied = next((mark.offset for mark in marks), -1)
        if applied > 0:
            self._lose((wal_topic(JOURNAL), shard), applied - self._chance.choice((0, 0, 3, 10)))
        if self._chance.random() < 0.7:
            self._cast.start_node(self._cast.free_name())
