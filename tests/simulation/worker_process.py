"""A worker as a simulated process: the shell, driven as the Faust glue drives it, and the group that deals out shards.

As in Kafka's protocol, a worker hears of a rebalance when it next looks, so for a while two may hold one shard.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from random import Random

from journal.errors import CorruptionError, FrameError, OperatingError
from journal.kafka.ports import LogRecord
from journal.topics.names import wal_topic
from streams.reading.records import Record
from streams.worker.shard_standing import UNREADABLE_RETRY_S
from streams.worker.worker import Worker
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.history import History
from tests.simulation.node_copy import identity_of_copy
from tests.simulation.observers import observe_behind_cleaner
from tests.simulation.readers import SimulatedReader
from tests.simulation.scheduler import Process
from tests.simulation.setting import FENCED_PAUSE_S, JOURNAL, Setting

Disks = dict[int, Disk]
"""A worker machine's local copies by shard."""

_FETCH_S = 0.1
STOPPED_S = 2 * UNREADABLE_RETRY_S
"""So long after what stopped a shard was mended it goes on."""


class WorkerProcess:
    """One start of a worker."""

    def __init__(
        self,
        setting: Setting,
        history: History,
        name: str,
        disks: Disks,
    ) -> None:
        self.process = Process(name)
        self.disks = disks
        self.wanted: frozenset[int] | None = frozenset()
        """The shards that the group gives it; None asks it to stop."""
        self.caught_up: dict[int, int] = {}
        """Per shard the next WAL offset after the committed mark."""
        self.stopped: dict[int, Exception] = {}
        self._setting = setting
        self._history = history
        self._name = name
        self._given: frozenset[int] = frozenset()
        self._positions: dict[int, int] = {}
        self._stops: dict[int, Exception] = {}
        """By shard, what it was last seen stopped by."""
        setting.scheduler.spawn(self.process, self._main)

    def _store(self, shard: int) -> SimulatedStore:
        disk = self.disks.setdefault(shard, Disk())
        disk.on_position = partial(observe_behind_cleaner, self._history, self._name, disk)
        return SimulatedStore(disk, self._setting.broker.faults, self._name, self._setting.scheduler)

    def _main(self) -> None:
        """The first error of the shell ends the worker."""
        setting = self._setting
        kafka = setting.kafka(self._name)
        try:
            worker = Worker(
                setting.shard_config(identity_of_copy(setting, kafka)),
                kafka,
                self._store,
                clock=setting.clocks.elapsed(self._name),
                wall_ms=setting.wall_ms(self._name),
                fenced_pause_s=FENCED_PAUSE_S,
            )
            self._read(worker)
        except OperatingError:
            return
        except CorruptionError as error:
            if not self._history.takes(error, setting.scheduler.now()):
                raise

    def _read(self, worker: Worker) -> None:
        """The feed: rebalances, ticks and batches, in one thread."""
        scheduler = self._setting.scheduler
        reader = self._setting.kafka(self._name).reader(wal_topic(JOURNAL))
        tick_at = scheduler.now()
        while True:
            if self.wanted != self._given:
                if self._rebalanced(worker):
                    return
                reader.seek(self._positions)
            if scheduler.now() >= tick_at:
                tick_at = scheduler.now() + worker.tick()
                seeks = worker.seeks()
                if seeks:
                    self._positions |= seeks
                    reader.seek(self._positions)
                self._look(worker)
            left_s = max(0.0, tick_at - scheduler.now())
            if not self._positions:
                scheduler.wait(min(left_s, _FETCH_S), lambda: self.wanted != self._given)
                continue
            batches: dict[int, list[Record]] = {}
            for record in self._poll(worker, reader, min(left_s, _FETCH_S)):
                batches.setdefault(record.partition, []).append((record.offset, record.timestamp, record.value or b""))
            self._positions = reader.positions()
            for shard, records in batches.items():
                worker.frames(shard, records)
                tick_at = scheduler.now()

    def _poll(self, worker: Worker, reader: SimulatedReader, timeout_s: float) -> list[LogRecord]:
        """What has arrived. A shard that cannot be read on is read no more until the worker says from where."""
        try:
            return reader.poll(timeout_s)
        except CorruptionError as error:
            worker.unreadable(error.partition, error)
            del self._positions[error.partition]
            reader.seek(self._positions)
            return []

    def _rebalanced(self, worker: Worker) -> bool:
        """Give everything back, take what is wanted now; True after a clean stop."""
        if self.wanted is not None and self._given:
            worker.revoked(self._given)
            self._setting.scheduler.pause(self._setting.rejoin_s)
        wanted = self.wanted
        if wanted is None:
            worker.stop()
            self._look(worker)
            return True
        self._given = wanted
        self._positions = dict(worker.assigned(wanted))
        return False

    def _look(self, worker: Worker) -> None:
        self.caught_up = dict(worker.applied())
        self.stopped, now = worker.stopped(), self._setting.scheduler.now()
        for shard, error in self.stopped.items():
            if isinstance(error, FrameError) and (shard, error.offset) in self._history.garbage:
                continue
            known = self._stops.get(shard) is error
            self._stops[shard] = error
            if known and not self._history.losses and now > self._history.excused_until + STOPPED_S:
                self._history.violate(f"alive: {self._name} has shard {shard} stopped since long: {error}")
            if known or (isinstance(error, CorruptionError) and self._history.takes(error, now)):
                continue
            self._history.violate(f"exactly once: {self._name} stopped shard {shard}: {error}")


class WorkerGroup:
    """Who serves which shard. A dead member's shards move at the next `deal`."""

    def __init__(self, shards: int, chance: Random, start: Callable[[str], WorkerProcess]) -> None:
        self.members: dict[str, WorkerProcess] = {}
        self._shards = shards
        self._chance = chance
        self._start = start

    def alive(self) -> list[WorkerProcess]:
        return [member for member in self.members.values() if member.process.alive]

    def restart(self, name: str) -> None:
        """A (new) start of a worker; it gets shards at the next `deal`."""
        self.members[name] = self._start(name)

    def deal(self, names: Collection[str] | None = None) -> int:
        """Give every shard to one of the live members, by chance; how many shards changed hands."""
        members = [member for member in self.alive() if names is None or member.process.name in names]
        if not members:
            return 0
        before = {shard: member for member in self.alive() for shard in member.wanted or ()}
        parts: dict[str, set[int]] = {member.process.name: set() for member in self.alive()}
        moved = 0
        for shard in range(self._shards):
            owner = self._chance.choice(members)
            parts[owner.process.name].add(shard)
            moved += before.get(shard) is not owner
        for member in self.alive():
            member.wanted = frozenset(parts[member.process.name])
        return moved
