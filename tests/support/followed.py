"""A table topic on a simulated cluster, written by a real fold, and a copy of it that is followed with a loader."""

from __future__ import annotations

from collections.abc import Callable

from journal.activate.warm_state import Following
from journal.append.acceptance import Acceptance
from journal.disk.ports import LocalStore
from journal.errors import CallerError
from journal.fold.engine import Fold
from journal.limits import Limits
from journal.load.accepted_load import load_stored
from journal.load.loading import Loader
from journal.table.replica import Replica
from journal.v1.journal_pb2 import Mark
from tests.simulation.broker import SimulatedBroker
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline
from tests.support.build import JOURNAL, START_MS, BuiltFrame, DictBase
from tests.support.children.loaders import KeptState
from tests.support.fold import take_entry
from tests.support.golden import WalEntry

COMPACTION_LAG_S = 2.0
RETENTION_S = 60.0
SOON_S = 1.0
LIMITS = Limits()

_TOPIC = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(int(COMPACTION_LAG_S * 1000)),
    "delete.retention.ms": str(int(RETENTION_S * 1000)),
}


class FollowedTable:
    """`store` is the copy's; `make_loader` makes the loaders that it is followed with."""

    def __init__(
        self,
        store: LocalStore,
        make_loader: Callable[[], Loader] = KeptState,
        *,
        shards: int = 1,
        updates_row_bytes_max: int = 4096,
        records_per_poll: int = 1000,
        held_bytes_max: int = LIMITS.held_bytes_max,
    ) -> None:
        self.timeline = Timeline()
        self.broker = SimulatedBroker(self.timeline)
        self.broker.create_topic("table", shards, 1, _TOPIC)
        self.store = store
        self.shards = shards
        self.following = Following(store, LIMITS, make_loader)
        self._records_per_poll = records_per_poll
        self._held_bytes_max = held_bytes_max
        self._bases = [DictBase() for _ in range(shards)]
        self.folds = [
            Fold(Mark(shard=shard, offset=-1), base, updates_row_bytes_max=updates_row_bytes_max)
            for shard, base in enumerate(self._bases)
        ]
        self.replica = self._opened()

    def _opened(self) -> Replica:
        replica = Replica(
            SimulatedKafka(self.broker, records_per_poll=self._records_per_poll),
            "table",
            range(self.shards),
            self.store,
            b"identity",
            clock=self.timeline.now,
            wall_ms=lambda: self.timeline.now() * 1000,
            delete_retention_ms=int(RETENTION_S * 1000),
            min_compaction_lag_ms=int(COMPACTION_LAG_S * 1000),
            held_bytes_max=self._held_bytes_max,
        )
        replica.listen(self.following)
        replica.open(SOON_S)
        return replica

    # ---- the worker ------------------------------------------------------------------------------------------

    def apply(self, offset: int, frame: BuiltFrame, shard: int = 0) -> None:
        self.folds[shard].apply(offset, START_MS + offset, frame)

    def take(self, entry: WalEntry, shard: int = 0) -> None:
        take_entry(self.folds[shard], entry, JOURNAL, shard, self.shards)

    def checkpoint(self, shard: int = 0) -> None:
        """What the frames since the last one changed goes to the table topic."""
        fold = self.folds[shard]
        changes = fold.changes()
        self.broker.write("table", shard, changes)
        self._bases[shard].write(changes)
        fold.checkpointed()

    def pass_time(self, seconds: float, *, compact: bool = False) -> None:
        self.timeline.wait(seconds, lambda: False)
        if compact:
            for shard in range(self.shards):
                self.broker.compact("table", shard)

    # ---- the standby -----------------------------------------------------------------------------------------

    def poll(self) -> None:
        """A follower's turn."""
        self.replica.poll(0.0)
        self.following.warm_up(self.replica)

    def follow(self) -> None:
        """Follow to the topic's end."""
        self.read_to_the_end()
        self.following.warm_up(self.replica)

    def read_to_the_end(self) -> None:
        while not self.replica.readable or self.replica.behind(self.replica.ends(SOON_S)):
            self.replica.poll(0.0)

    def finish(self) -> Acceptance:
        acceptance, counts = self.following.finish(self.replica.marks(), _nothing)
        loader = self.following.loader
        assert isinstance(loader, KeptState)
        assert loader.counts == counts
        return acceptance

    def loaded(self) -> tuple[KeptState, Acceptance]:
        """The same state, as a cold activation loads it."""
        state = KeptState()
        acceptance, _ = load_stored(self.store, self.replica.marks(), state, LIMITS, _nothing)
        return state, acceptance

    def check_warm(self) -> None:
        """While it is warm, every record is as in the copy."""
        self.following.keep_up()
        if self.following.warm:
            warm = self.following.loader
            assert isinstance(warm, KeptState)
            assert warm.records == self.loaded()[0].records

    def check(self) -> None:
        """Finish what is warm, and compare with a cold load."""
        assert self.following.is_at(self.replica.marks())
        acceptance = self.finish()
        warm = self.following.loader
        cold, accepted = self.loaded()
        assert isinstance(warm, KeptState)
        assert (warm.records, warm.in_doubt, warm.counts) == (cold.records, cold.in_doubt, cold.counts)
        assert (acceptance.live, acceptance.transactions.prepared()) == (
            accepted.live,
            accepted.transactions.prepared(),
        )
        assert tried(acceptance, cold) == tried(accepted, cold)


def tried(acceptance: Acceptance, state: KeptState) -> list[object]:
    """What acceptance says to one operation after the other; both what exists and what is locked shows."""
    answers: list[object] = []
    for record_id in (*state.records, *range(1, 6)):
        answers.append(record_id in acceptance)
        for attempt in (
            lambda id=record_id: acceptance.update(id, 1, 0),
            lambda id=record_id: acceptance.update(id, 2, 1),
            lambda id=record_id: acceptance.delete(id),
            lambda id=record_id: acceptance.add(id),
        ):
            answers.append(_answer(attempt))
    answers += [acceptance.transactions.commit(tx) for tx in acceptance.transactions.prepared()]
    return [*answers, *(record_id in acceptance for record_id in range(1, 6))]


def _answer(attempt: Callable[[], None]) -> object:
    try:
        return attempt()
    except CallerError as error:
        return type(error)


def _nothing(done: int, total: int) -> None: ...
