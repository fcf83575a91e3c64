"""What may happen in a seed between operations, and the plan: a few of each kind, shuffled."""

from __future__ import annotations

from journal.topics.control_keys import HAND_OVER_KEY, control_row, skip_key
from journal.topics.names import control_topic, table_topic, wal_topic
from journal.v1.journal_pb2 import Frame, HandOver, SkipRequest
from journal.wire.frames import FORMAT, MAGIC
from tests.simulation.broker import Answer
from tests.simulation.cast import NODES, Cast
from tests.simulation.chaos import Forced, Stall
from tests.simulation.faults import Fault
from tests.simulation.hardships import Event, Hardships
from tests.simulation.node_process import NodeProcess
from tests.simulation.observers import observe_tables
from tests.simulation.setting import JOURNAL, REQUEST_S, RETENTION_S, TRANSACTION_TIMEOUT_S, UUID

_GARBAGE = (b"", b"no frame at all", Frame(magic=MAGIC, format=FORMAT, journal=bytes(16), number=1).SerializeToString())
"""Nothing, a stranger's, and a frame of another journal."""


class Events:
    """Events of one seed; each returns at once or lets some time pass."""

    def __init__(self, cast: Cast) -> None:
        self._cast = cast
        self._chance = cast.chance
        self._scheduler = cast.scheduler
        self._history = cast.history
        self._chaos = cast.chaos
        self._hardships = Hardships(cast)

    def plan(self) -> list[Event]:
        """At least 3 activations, 2 shard moves, 1 compaction and 1 zombie."""
        chance = self._chance
        events: list[Event] = [self.take_over, self.take_over, self.zombie]
        events += [self.move, self.move, self.compact, self.look]
        events += chance.sample(
            [
                self.take_over,
                self.crash_node,
                self.crash_worker,
                self.compact,
                self.away_for_long,
                self.foreign_transaction,
                self.look,
                self.zombie,
                self.pause_worker,
                self.close_node,
                self.garbage,
            ],
            chance.randrange(2, 6),
        )
        events += chance.sample(
            [
                self.stalled_activation,
                self.stalled_load,
                self.stalled_ready,
                self.stalled_recovery,
                self.late_commit,
                self.repeated_commits,
                self.outage,
            ],
            chance.randrange(1, 4),
        )
        if self._cast.standbys:
            events += chance.sample([self.hand_over, self.silent_node, self.crash_node, self.close_node], 2)
        events += self._hardships.by_chance()
        self._history.is_slow = self._hardships.slow_brokers in events
        if chance.random() < 0.2:
            events += [self.garbage, self.garbage]
        if chance.random() < 0.1:
            events.append(self.recreate_table)
        chance.shuffle(events)
        return events

    # ---- nodes -------------------------------------------------------------------------------------------------

    def _active(self) -> NodeProcess:
        self._cast.wait_for(lambda: self._cast.active() is not None)
        node = self._cast.active()
        assert node is not None
        return node

    def take_over(self) -> None:
        """Another node activates; the one before is dead, frozen, or does not know yet."""
        before = self._cast.active()
        name = self._cast.free_name()
        if before is not None and before.process.alive:
            fate = self._chance.choice(("dead", "frozen", "unaware", "unaware"))
            if fate == "dead":
                self._scheduler.kill(before.process)
            else:
                self._history.zombies += 1
                if fate == "frozen":
                    self._scheduler.freeze(before.process, self._chance.choice((0.3, 1.0, 3.0)))
        self._cast.start_node(name)

    def zombie(self) -> None:
        """The active node stops in the middle of whatever it does, and goes on at some step of its successor's."""
        before = self._active()
        self._history.zombies += 1
        self._scheduler.freeze(before.process, self._chance.choice((0.02, 0.05, 0.1, 0.3, 2.0)))
        self._cast.start_node(self._cast.free_name())

    def crash_node(self) -> None:
        self._scheduler.kill(self._active().process)

    def close_node(self) -> None:
        self._active().close()

    def hand_over(self) -> None:
        """An operator asks the active node to hand over, to one that he names or to any."""
        broker, to = self._cast.broker, self._chance.choice(("", *NODES))
        epoch = max((tenure.epoch for tenure in self._history.tenures), default=1)
        row = control_row(JOURNAL, HAND_OVER_KEY, HandOver(journal=UUID, epoch=epoch, to=to))
        broker.write(row.topic, row.partition, [(row.key, row.value)])

    def silent_node(self) -> None:
        """The active node stops for so long that a standby finds it silent, and goes on beside it."""
        self._history.zombies += 1
        self._scheduler.freeze(self._active().process, self._chance.choice((3.2, 3.5, 4.0, 6.0)))

    # ---- a successor at every step -----------------------------------------------------------------------------

    def _stall(self, victim: str, steps: int) -> Stall:
        """`victim` freezes, and at that moment another node begins to take over."""
        return Stall(steps, self._chance.choice((0.1, 0.3, 1.0, 2.5, 4.0)), self._cast.successor_of(victim))

    def stalled_activation(self) -> None:
        name = self._cast.free_name()
        self._chaos.stall(name, self._stall(name, self._chance.randrange(1, 80)))
        self._cast.start_node(name)

    def stalled_load(self) -> None:
        name = self._cast.free_name()
        seconds = self._chance.choice((0.3, 2.5, 4.0))
        take_over = self._cast.successor_of(name)

        def at_load() -> None:
            take_over()
            self._scheduler.pause(seconds)

        self._cast.start_node(name).at_load = at_load

    def stalled_ready(self) -> None:
        """At READY, of which the answer may be lost besides."""
        name = self._cast.free_name()
        fault = self._chance.choice((Fault.NONE, Fault.LOSE_RESPONSE, Fault.LOSE_REQUEST))
        stall = self._stall(name, 1) if fault is Fault.NONE or self._chance.random() < 0.5 else None
        self._chaos.force(name, Forced("end_transaction", 2, fault, stall))
        self._cast.start_node(name)

    def stalled_recovery(self) -> None:
        """A zombie in the middle of its own recovery: check, init, check, read back, resend."""
        name = self._active().process.name
        fault = self._chance.choice((Fault.LOSE_REQUEST, Fault.LOSE_RESPONSE, Fault.LATE))
        stall = self._stall(name, self._chance.randrange(1, 50))
        self._chaos.force(name, Forced("end_transaction", 1, fault, stall))

    def late_commit(self) -> None:
        """An EndTxn arrives in the middle of the recovery from its time-out."""
        late_s = REQUEST_S + self._chance.random() * 0.5
        stall = Stall(self._chance.randrange(1, 20), self._chance.choice((0.1, 0.5)), _nothing)
        self._chaos.force(self._active().process.name, Forced("end_transaction", 1, Fault.LATE, stall, late_s))

    def repeated_commits(self) -> None:
        """The library repeats an EndTxn of the node, and one of every worker: the copies arrive soon after.

        Then the process stops for a moment in the middle of a transaction, so that they may arrive there.
        """
        for process in [self._active().process, *(member.process for member in self._cast.group.alive())]:
            late_s = self._chance.choice((0.05, 0.3, 0.5)) * self._chance.random()
            repeated = Forced("end_transaction", 1, Fault.REPEATED, None, late_s)
            half_way = Forced("produce", self._chance.randrange(1, 4), Fault.NONE, Stall(1, 0.3, _nothing))
            self._chaos.force(process.name, repeated, half_way)

    def outage(self) -> None:
        """The active node is cut off from Kafka at the end of a transaction, perhaps for longer than it recovers."""
        fault = self._chance.choice((Fault.LOSE_REQUEST, Fault.LOSE_RESPONSE))
        cut_off = self._chance.randrange(1, 14)
        self._chaos.force(self._active().process.name, Forced("end_transaction", 1, fault, None, None, cut_off))

    def foreign_transaction(self) -> None:
        """Somebody else opens a transaction in the control partition or in a shard of the WAL, and goes away. Then
        another node takes over, or the active one has to look whether its last group is there."""
        broker = self._cast.broker
        instance = broker.init_producer("foreign")
        if isinstance(instance, Answer):
            return
        wal = wal_topic(JOURNAL), self._chance.randrange(self._cast.setting.shards)
        partition = self._chance.choice([(control_topic(JOURNAL), 0), wal])
        timeout_s = TRANSACTION_TIMEOUT_S * self._chance.choice((0.1, 1))
        broker.add_partitions("foreign", instance, [partition], timeout_s)
        broker.produce("foreign", instance, *partition, [(b"foreign", b"row")])
        active = self._cast.active()
        if self._chance.random() < 0.5:
            self.take_over()
        elif active is not None:
            lost = self._chance.choice((Fault.LOSE_RESPONSE, Fault.LOSE_REQUEST))
            self._chaos.force(active.process.name, Forced("end_transaction", 1, lost))

    # ---- workers -----------------------------------------------------------------------------------------------

    def move(self) -> None:
        """Some shards get another owner."""
        group = self._cast.group
        self._cast.wait_for(lambda: len(group.alive()) == len(group.members))
        moved = 0
        while not moved and len(group.alive()) > 1:
            moved = group.deal()
        self._history.moves += moved

    def crash_worker(self) -> None:
        alive = self._cast.group.alive()
        if alive:
            self._scheduler.kill(self._chance.choice(alive).process)
            if self._chance.random() < 0.5:
                self._cast.group.deal()

    def pause_worker(self) -> None:
        """A worker stops, its shards move, and it goes on as if they were its own."""
        alive = self._cast.group.alive()
        if len(alive) > 1:
            victim = self._chance.choice(alive)
            self._scheduler.freeze(victim.process, self._chance.choice((0.1, 0.5, 2.0)))
            others = [member.process.name for member in alive if member is not victim]
            self._history.moves += self._cast.group.deal(others)

    def garbage(self) -> None:
        """A foreign client writes to a shard of the WAL; sooner or later an operator has its records skipped."""
        broker, history, shard = self._cast.broker, self._history, self._chance.randrange(self._cast.setting.shards)
        records = [(None, self._chance.choice(_GARBAGE)) for _ in range(self._chance.randrange(1, 7))]
        offsets = broker.write(wal_topic(JOURNAL), shard, records)
        assert not isinstance(offsets, Answer)
        history.garbage |= {(shard, offset) for offset in offsets}
        self._cast.pass_time(self._chance.choice((0.0, 0.05, 0.5, 2.0)))
        for offset in offsets:
            request = SkipRequest(journal=UUID, shard=shard, offset=offset, operator="operator")
            row = control_row(JOURNAL, skip_key(shard, offset), request)
            broker.write(row.topic, row.partition, [(row.key, row.value)])

    # ---- tables ------------------------------------------------------------------------------------------------

    def compact(self) -> None:
        """A run of the cleaner, up to some place in each partition."""
        broker, history = self._cast.broker, self._history
        history.compactions += 1
        observe_tables(broker, history)
        for shard, log in enumerate(broker.topics[table_topic(JOURNAL)].logs):
            below = log.last_stable if self._chance.random() < 0.5 else self._chance.randrange(log.end + 1)
            broker.compact(table_topic(JOURNAL), shard, below)
            history.cleaned[shard] = max(below, history.cleaned.get(shard, 0))
        broker.compact(control_topic(JOURNAL), 0)
        observe_tables(broker, history)

    def away_for_long(self) -> None:
        """A worker leaves, and no node starts, for longer than tombstones are kept: then old copies come back."""
        cast = self._cast
        cast.pass_time(0.2)
        alive = cast.group.alive()
        if len(alive) > 1:
            victim = self._chance.choice(alive)
            victim.wanted = None
            cast.group.deal([member.process.name for member in alive if member is not victim])
        enough = self._history.operations + 20
        cast.wait_for(lambda: self._history.operations >= enough)
        self.compact()
        for node in cast.nodes:
            node.busy = False
        cast.pass_time(cast.setting.compaction_lag_s + 0.5)
        self.compact()
        cast.pass_time(RETENTION_S * 1.1)
        self.compact()
        for node in cast.nodes:
            node.busy = True

    def recreate_table(self) -> None:
        """The table topic is deleted and made again: the WAL has everything, unless it was trimmed or has lost some of
        it, which only the table could tell. All processes are down meanwhile."""
        if self._history.trims or self._history.losses:
            return
        self._cast.kill_all()
        self._cast.broker.delete_topic(table_topic(JOURNAL))
        self._cast.setting.create_table()
        self._cast.keep_alive()

    def look(self) -> None:
        """Read-only loads, and a look at the tables."""
        observe_tables(self._cast.broker, self._history)
        self._cast.start_reader(now=self._chance.random() < 0.5, again=self._chance.random() < 0.5)
        if self._chance.random() < 0.2:
            self._cast.start_reader(now=True)


def _nothing() -> None: ...


assert len(NODES) > 2, "a zombie, its successor, and one that was away"
