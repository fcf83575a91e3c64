"""A node's local copy in a simulation: what `TableCopy` and its follower are, driven by tasks of the node's process."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from journal.activate.copy_thread import Fitness
from journal.activate.warm_state import Following
from journal.append.writing import Claim
from journal.errors import CorruptionError, JournalError, LocalDamageError, LocalStorageError, OperatingError
from journal.kafka.ports import Kafka
from journal.load.loading import Loader
from journal.table.replica import Replica, copy_identity
from journal.topics.names import table_topic
from journal.v1.journal_pb2 import Identity
from journal.wal.fencing import Standing, standing_of
from tests.simulation.disk import SimulatedStore
from tests.simulation.setting import JOURNAL, LIMITS, REQUEST_S, RETENTION_S, UUID, Setting

_STANDBY_POLL_S = 0.2
_ACTIVE_POLL_S = 0.5
_LOOK_S = 1.0
_FIT_LAG_S = 1.0


def identity_of_copy(setting: Setting, kafka: Kafka) -> bytes:
    """What a process asks the cluster before it opens its copy."""
    cluster = kafka.cluster()
    topic_id = cluster.describe([table_topic(JOURNAL)], REQUEST_S)[table_topic(JOURNAL)].topic_id
    return copy_identity(cluster.cluster_id(REQUEST_S), topic_id, setting.shards, UUID)


def make_replica(
    setting: Setting, kafka: Kafka, store: SimulatedStore, machine: str, *, counts_rows: bool = False
) -> Replica:
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
        counts_rows=counts_rows,
    )


class NodeCopy:
    """One process' copy. Whoever calls `turn`, or has it lent, uses store and replica alone."""

    def __init__(
        self,
        setting: Setting,
        store: SimulatedStore,
        machine: str,
        loader: Callable[[], Loader],
        judge: Callable[[Exception], None],
        chance: Random,
    ) -> None:
        """`judge` is told of every error that is met. Raises what opening the copy raises."""
        self.store = store
        self.replica = make_replica(setting, setting.kafka(machine), store, machine)
        self.replica.open(REQUEST_S)
        self.following = Following(store, LIMITS, loader)
        self.replica.listen(self.following)
        self.lent = False
        self._setting = setting
        self._scheduler = setting.scheduler
        self._judge = judge
        self._chance = chance
        self._met: JournalError | None = None
        self._turning = False
        self._ended = False
        self._watch: tuple[Claim, Callable[[int], None]] | None = None
        self._ends: dict[int, int] = {}
        self._looked_at = self._whole_at = self._scheduler.now()

    # ---- followed ----------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Take in what has come, keep the state warm. Raises what that meets."""
        self._mend()
        self.replica.poll(_STANDBY_POLL_S)
        self.following.warm_up(self.replica)
        failure = self.following.failure
        if failure is not None:
            self.following.restart()
            self._judge(failure)
            if isinstance(failure, LocalStorageError):
                raise failure

    def run(self) -> None:
        """A task's: follow the table until `end_following`, for whoever has the copy."""
        while not self._ended:
            if self.lent and self._watch is None:
                self._scheduler.wait(_ACTIVE_POLL_S, lambda: not self.lent or self._watch is not None or self._ended)
                continue
            self._turning = True
            try:
                if self.lent:
                    self._watch_marks()
                else:
                    self.turn()
                    self._look()
            except (OperatingError, CorruptionError) as error:
                self.suspect(error)
            finally:
                self._turning = False

    def _watch_marks(self) -> None:
        """For an active journal: it is told of the mark of a newer activation."""
        assert self._watch is not None
        claim, tell = self._watch
        self._mend()
        self.replica.poll(_ACTIVE_POLL_S)
        newer = [mark.epoch for mark in self.replica.marks().values() if standing_of(claim, mark) is Standing.NEWER]
        if newer:
            tell(max(newer))

    def suspect(self, error: JournalError) -> None:
        """Note what its user met: it is mended before it is used again."""
        if isinstance(error, CorruptionError):
            self._judge(error)
        self._met = error

    def _mend(self) -> None:
        """The copy is mended as `LocalTables` does it. Errors of the mending are raised."""
        if self._met is None:
            return
        self._scheduler.pause(self._chance.choice((0.05, 0.5)))
        if isinstance(self._met, LocalDamageError):
            self.store.clear()
        self.replica.open(REQUEST_S)
        self._met = None

    def end_following(self) -> None:
        self._ended = True
        self.following.end()

    def close(self) -> None:
        self._ended = True

    # ---- lent to a journal -------------------------------------------------------------------------------------

    def lend(self) -> None:
        """Raises what mending it meets."""
        self.lent = True
        while self._turning:
            self._scheduler.wait(REQUEST_S, lambda: not self._turning)
        try:
            self._mend()
        except BaseException:
            self.lent = False
            raise

    def keep_lent(self, claim: Claim, tell_newer: Callable[[int], None]) -> None:
        """After an activation."""
        self.replica.listen(None)
        self.following.restart()
        self._watch = claim, tell_newer

    def give_back(self, error: JournalError | None = None) -> None:
        """The journal is closed, or its activation ended in `error`."""
        self._watch = None
        while self._turning:
            self._scheduler.wait(REQUEST_S, lambda: not self._turning)
        if error is not None:
            self.suspect(error)
        if self.following.finished:
            self.following.restart()
        self.replica.listen(self.following)
        self.lent = False

    # ---- how fit it is -----------------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity:
        return self._setting.identity

    def follow(self, loader: Callable[[], Loader]) -> None:
        """Following needs no call here: this copy is followed from its making on."""

    def fitness(self) -> Fitness:
        behind = self.replica.behind(self._ends)
        lag_s = self._scheduler.now() - self._whole_at
        why_not = ""
        if self.lent:
            why_not = "a journal uses the copy"
        elif not self.following.warm:
            why_not = "the state is not loaded yet"
        elif self._met is not None or lag_s > _LOOK_S + _FIT_LAG_S:
            why_not = "the copy is behind"
        return Fitness(not why_not, why_not, behind, int(lag_s * 1000), self.replica.readable and not self.lent)

    def _look(self) -> None:
        now = self._scheduler.now()
        if now - self._looked_at < _LOOK_S:
            return
        self._looked_at = now
        self._ends = self.replica.ends(REQUEST_S)
        if self.replica.readable and not self.replica.behind(self._ends):
            self._whole_at = now
