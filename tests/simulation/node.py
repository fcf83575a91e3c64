"""A node as a simulated process: what `JournalRuntime` does with threads, with greenlets, and a caller beside it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from journal.activation import Activation, ActivationReport
from journal.completion import Completion
from journal.core import Core
from journal.errors import (
    CorruptionError,
    FencedError,
    JournalError,
    LocalDamageError,
    LocalStorageError,
    OperatingError,
    OutcomeUnknownError,
    TopicError,
)
from journal.fencing import Claim
from journal.following import Following
from journal.kafka.control import table_topic
from journal.kafka.ports import Kafka
from journal.replica import Replica, copy_identity
from journal.state import JournalState
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.history import CapturedLoad, History, Tenure
from tests.simulation.reference import Call
from tests.simulation.scheduler import Process
from tests.simulation.setting import FENCE_CHECK_S, GATE_S, JOURNAL, LIMITS, REQUEST_S, RETENTION_S, UUID, Setting
from tests.simulation.taking_in import Taking
from tests.simulation.workload import Workload

_TRIES = 4
_IDLE_S = 0.5
"""How often a caller that has nothing to append looks whether its node is still the active one."""


def identity_of_copy(setting: Setting, kafka: Kafka) -> bytes:
    """What a process asks the cluster before it opens its copy."""
    cluster = kafka.cluster()
    topic_id = cluster.describe([table_topic(JOURNAL)], REQUEST_S)[table_topic(JOURNAL)].topic_id
    return copy_identity(cluster.cluster_id(REQUEST_S), topic_id, setting.shards, UUID)


def make_replica(setting: Setting, kafka: Kafka, store: SimulatedStore, machine: str) -> Replica:
    """A replica of all shards, not yet opened."""
    return Replica(
        kafka,
        table_topic(JOURNAL),
        range(setting.shards),
        store,
        identity_of_copy(setting, kafka),
        clock=setting.clocks.elapsed(machine),
        wall_ms=setting.wall_ms(machine),
        delete_retention_ms=int(RETENTION_S * 1000),
        min_compaction_lag_ms=int(setting.compaction_lag_s * 1000),
        held_bytes_max=LIMITS.held_bytes_max,
    )


class Node:
    """One start of a node, from opening its copy to its end."""

    def __init__(
        self,
        setting: Setting,
        history: History,
        name: str,
        disk: Disk,
        chance: Random,
        *,
        next_number: Callable[[], int],
        takes_in: bool = False,
    ) -> None:
        self.process = Process(name)
        self.disk = disk
        self.core: Core | None = None
        self.tenure: Tenure | None = None
        self.busy = True
        """Whether its caller goes on calling."""
        self.at_load: Callable[[], None] | None = None
        """Called when a load is about to be complete."""
        self._setting = setting
        self._scheduler = setting.scheduler
        self._history = history
        self._name = name
        self._chance = chance
        self._next_number = next_number
        self._takes_in = takes_in
        self._work = False
        self._closing = False
        setting.scheduler.spawn(self.process, self._main)

    @property
    def active(self) -> bool:
        return self.process.alive and self.core is not None and self.core.state is JournalState.ACTIVE

    def close(self) -> None:
        """Ask it to write what it has accepted, and end."""
        self._closing = self._work = True

    def add(self, record_id: int, data: bytes) -> Completion:
        """A call from outside, besides those of its caller."""
        assert self.core is not None
        assert self.tenure is not None
        completion = self.core.add(record_id, 1, data)
        self.tenure.accepted(Call("add", record_id, 1, data), completion)
        self._work = True
        return completion

    # ---- its threads -----------------------------------------------------------------------------------------

    def _main(self) -> None:
        setting = self._setting
        kafka = setting.kafka(self._name)
        core = Core(setting.shards, setting.limits, setting.timing(self._name))
        try:
            store = SimulatedStore(self.disk, setting.broker.faults, self._name)
            replica = make_replica(setting, kafka, store, self._name)
            replica.open(REQUEST_S)
        except (OperatingError, CorruptionError) as error:
            self._require_outside(error)
            return
        core.become(JournalState.STARTED)
        self.core = core
        following = Following(store, LIMITS, lambda: CapturedLoad(setting.shards, self._take_time))
        replica.listen(following)
        if not self._stand_by(replica, store, following) or not self._activate(core, replica, store, following):
            return
        replica.listen(None)
        self._scheduler.spawn(self.process, lambda: self._follow(core, replica, store))
        self._scheduler.spawn(self.process, lambda: self._call(core))
        if self._takes_in:
            self._scheduler.spawn(self.process, lambda: self._take_in(core))
        self._write(core)
        core.end_close()
        if self.tenure is not None:
            self.tenure.ended = True

    def _stand_by(self, replica: Replica, store: SimulatedStore, following: Following) -> bool:
        """Some nodes follow for a while before they activate; False if that comes to an end."""
        if self._chance.random() < 0.5:
            return True
        until = self._scheduler.now() + self._chance.choice((0.05, 0.3, 1.0))
        while self._scheduler.now() < until:
            try:
                replica.poll(0.05)
                following.warm_up(replica)
                if isinstance(following.failure, LocalStorageError):
                    failure = following.failure
                    following.restart()
                    raise failure
            except (OperatingError, CorruptionError) as error:
                self._require_outside(error)
                if not self._open_again(replica, store, error):
                    return False
        return not self._closing

    def _activate(self, core: Core, replica: Replica, store: SimulatedStore, following: Following) -> bool:
        for _ in range(_TRIES):
            core.become(JournalState.LOADING)
            activation = self._activation(replica, store)
            try:
                activated = activation.run(following)
            except FencedError as error:
                core.step_down(error)
                return False
            except (OperatingError, OutcomeUnknownError, CorruptionError) as error:
                self._require_outside(error)
                core.become(JournalState.STARTED)
                if self._closing or not self._open_again(replica, store, error):
                    return False
                if following.finished:
                    following.restart()
                continue
            finally:
                tenure = self._note_load(following, replica, activation.report)
            core.activate(activated)
            self._told_active(tenure)
            return True
        return False

    def _require_outside(self, error: Exception) -> None:
        """Raises what is more than a failed attempt: also a typed error of which the simulated world knows no cause."""
        if isinstance(error, OperatingError | OutcomeUnknownError):
            return
        if not isinstance(error, CorruptionError) or not self._history.takes(error, self._scheduler.now()):
            raise error

    def _take_time(self) -> None:
        self._scheduler.switch()
        if self.at_load is not None:
            at_load, self.at_load = self.at_load, None
            at_load()
        elif self._chance.random() < 0.15 and self.busy:
            self._scheduler.pause(self._chance.choice((0.1, 0.5, 3.0)))

    def _open_again(self, replica: Replica, store: SimulatedStore, met: JournalError) -> bool:
        """As `LocalTables` mends a copy whose user met an error."""
        self._scheduler.pause(self._chance.choice((0.05, 0.5)))
        try:
            if isinstance(met, LocalDamageError):
                store.clear()
            replica.open(REQUEST_S)
        except (OperatingError, CorruptionError) as error:
            self._require_outside(error)
            return False
        return True

    def _activation(self, replica: Replica, store: SimulatedStore) -> Activation:
        setting, kafka = self._setting, self._setting.kafka(self._name)
        self._history.activations += 1

        def require_same_table() -> None:
            if identity_of_copy(setting, kafka) != replica.identity:
                raise TopicError("the table was made anew")

        return Activation(
            kafka,
            setting.writer_config,
            LIMITS,
            lambda epoch: Claim(epoch, self._name, self._next_number().to_bytes(16, "big")),
            replica,
            store,
            setting.timing(self._name),
            require_same_table=require_same_table,
            gate_s=GATE_S,
            wall_ms=setting.wall_ms(self._name),
            progress=lambda step, done, total: None,
        )

    def _note_load(self, following: Following, replica: Replica, report: ActivationReport) -> Tenure | None:
        """A load counts from the moment it is complete, whatever becomes of READY."""
        if following.failure is not None:
            self._require_outside(following.failure)
        load = following.loader
        if not isinstance(load, CapturedLoad) or load.counts is None:
            return None
        load.marks = replica.marks()
        self._history.warm_loads += report.warm
        tenure = Tenure(report.epoch, self._name, load)
        self._history.tenures.append(tenure)
        return tenure

    def _told_active(self, tenure: Tenure | None) -> None:
        assert tenure is not None
        now = self._scheduler.now()
        newest = self._history.newest_active()
        if newest is not None and newest.epoch > tenure.epoch and (newest.active_at or now) < now - FENCE_CHECK_S:
            self._history.violate(
                f"superseded: epoch {tenure.epoch} becomes active {now - (newest.active_at or now):.1f} s after "
                f"epoch {newest.epoch} did"
            )
        tenure.active_at = now
        self.tenure = tenure

    def _write(self, core: Core) -> None:
        while True:
            self._scheduler.wait(FENCE_CHECK_S / 4, lambda: self._work)
            self._work = False
            if self._closing:
                core.begin_close()
            if not core.step(0.0):
                self._closing = True
                return

    def _follow(self, core: Core, replica: Replica, store: SimulatedStore) -> None:
        """As `JournalRuntime` follows, and steps down for a newer epoch."""
        tenure = self.tenure
        assert tenure is not None
        while not self._closing:
            try:
                replica.poll(0.5)
            except (OperatingError, CorruptionError) as error:
                self._require_outside(error)
                if not self._open_again(replica, store, error):
                    return
            newer = max(mark.epoch for mark in replica.marks().values())
            if newer > tenure.epoch:
                core.step_down(FencedError(f"the tables are at epoch {newer}", epoch=newer))
                return

    def _call(self, core: Core) -> None:
        tenure, scheduler, chance = self.tenure, self._scheduler, self._chance
        assert tenure is not None
        workload = Workload(core, tenure, self._history, chance, self._next_number)
        while not self._closing and core.state is JournalState.ACTIVE:
            if not self.busy:
                scheduler.wait(_IDLE_S, lambda: self.busy)
                continue
            self._check_current(core, tenure)
            room = workload.burst()
            self._work = True
            if room is not None:
                scheduler.wait(5.0, lambda room=room: room.done)  # type: ignore[misc]
            scheduler.pause(chance.choice((0.001, 0.004, 0.02, 0.05)))

    def _take_in(self, core: Core) -> None:
        assert self.tenure is not None
        taking = Taking(
            core,
            self.tenure,
            self._setting.kafka(self._name),
            self._scheduler,
            self._chance,
            next_number=self._next_number,
            woken=self._wake,
        )
        taking.run(lambda: self.busy and not self._closing)

    def _wake(self) -> None:
        self._work = True

    def _check_current(self, core: Core, tenure: Tenure) -> None:
        """A node that still hands out must not be one whose successor has long been active."""
        newest = self._history.newest_active()
        if newest is None or newest.epoch <= tenure.epoch or newest.active_at is None or not core.current:
            return
        since = self._scheduler.now() - newest.active_at
        if since > FENCE_CHECK_S:
            self._history.violate(
                f"fenced: epoch {tenure.epoch} hands out, {since:.1f} s after epoch {newest.epoch} became active"
            )
