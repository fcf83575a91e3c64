"""Those who only look: read-only loads, a listener to what happened, and copies of tables and disks for the checker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from random import Random

from journal.errors import CorruptionError, FrameError, OperatingError
from journal.fold.engine import Fold
from journal.topics.names import table_topic, wal_topic
from journal.v1.journal_pb2 import Mark
from journal.verify.differences import Differences
from journal.verify.state import fingerprint, shard_of
from journal.verify.table_state import TableState
from journal.verify.wal_fold import Happening
from journal.wire.frames import decode_frame
from journal.wire.keys import mark_key
from loaders.snapshot import read_snapshot
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.faults import Faults
from tests.simulation.history import CapturedLoad, CopySeen, History, SnapshotLoad
from tests.simulation.node_copy import make_replica
from tests.simulation.partition import COMMITTED
from tests.simulation.recording import RecordingBroker
from tests.simulation.scheduler import Process
from tests.simulation.setting import JOURNAL, LIMITS, REQUEST_S, UUID, Setting, settings_of

_SNAPSHOT_S = 6.0


class SnapshotReader:
    """A process that makes one read-only load and ends."""

    def __init__(self, setting: Setting, history: History, disk: Disk, *, now: bool) -> None:
        self.process = Process("reader")
        self.disk = disk
        self._setting = setting
        self._history = history
        self._now = now
        setting.scheduler.spawn(self.process, self._main)

    def _main(self) -> None:
        setting = self._setting
        kafka = setting.kafka("reader")
        load = CapturedLoad(setting.shards, setting.scheduler.switch)
        before = committed_group(setting, self._history)
        try:
            store = SimulatedStore(self.disk, setting.broker.faults, "reader")
            replica = make_replica(setting, kafka, store, "reader", counts_rows=True)
            replica.open(REQUEST_S)
            state = read_snapshot(
                kafka,
                settings_of(setting.shards),
                setting.identity,
                replica,
                store,
                now=self._now,
                timeout_s=_SNAPSHOT_S,
                clock=setting.scheduler.now,
            )
            state.tell(load)
        except OperatingError:
            return
        except CorruptionError as error:
            is_garbage = isinstance(error, FrameError) and (error.partition, error.offset) in self._history.garbage
            if not is_garbage and not self._history.takes(error, setting.scheduler.now()):
                raise
            return
        self._history.snapshots.append(SnapshotLoad(load, state.group, self._now, before))


def committed_group(setting: Setting, history: History) -> int:
    """The newest group of which every frame is visible to committed readers now: of the shard that lags most."""
    groups = []
    for shard in range(setting.shards):
        log = setting.broker.topics[wal_topic(JOURNAL)].logs[shard]
        newest = 0
        for entry in reversed(log.entries):
            is_frame = entry.state == COMMITTED and (shard, entry.offset) not in history.garbage
            if is_frame and entry.offset < log.last_stable:
                newest = decode_frame(entry.value, UUID, shard, setting.shards).group
                break
        groups.append(newest)
    return max(groups)


class Listener:
    """Folds one shard's committed WAL as a routing worker will, and keeps all that it is told happened."""

    def __init__(self, shard: int, shards: int, chance: Random) -> None:
        self.happened: list[Happening] = []
        self._shard = shard
        self._shards = shards
        self._chance = chance
        self._disk = Disk()
        self._store = SimulatedStore(self._disk, Faults(), "listener")

    def listen(self, records: Iterable[tuple[int, int, bytes | None]]) -> None:
        """Take the shard's records (offset, timestamp, value), with checkpoints at chance's places."""
        fold = Fold(
            Mark(shard=self._shard, offset=-1),
            self._store,
            updates_row_bytes_max=LIMITS.updates_row_bytes_max,
            tell=True,
        )
        for offset, timestamp, value in records:
            fold.apply(offset, timestamp, decode_frame(value, UUID, self._shard, self._shards))
            if fold.at_group_boundary and self._chance.random() < 0.3:
                self._checkpoint(fold)
        self._checkpoint(fold)

    def _checkpoint(self, fold: Fold) -> None:
        for op, offset, index, ordinal in fold.happened():
            printed = fingerprint(op.data)
            place = offset, index, ordinal
            self.happened.append(Happening(op.type, op.id, op.kind, printed, op.replaceable, op.subject, place))
        self._store.write(fold.changes(), {})
        fold.checkpointed()


# ---- copies ------------------------------------------------------------------------------------------------------


def observe_tables(broker: RecordingBroker, history: History) -> None:
    """What a fresh committed reader of each table partition would hold now. After a loss, a reader has to notice."""
    if history.has_lost_rows:
        return
    for shard, log in enumerate(broker.topics[table_topic(JOURNAL)].logs):
        rows: list[tuple[bytes, bytes | None]] = []
        whole = 0
        key = mark_key(shard)
        _check_checkpoints(broker, history, shard)
        for entry in log.entries:
            if entry.offset >= log.last_stable:
                break
            if entry.state == COMMITTED:
                assert entry.key is not None
                rows.append((entry.key, entry.value))
                if entry.key == key:
                    whole = len(rows)
                    history.marks.add((shard, Mark.FromString(entry.value or b"").offset))
        if whole != len(rows):
            history.violate(f"exactly once: table partition {shard} ends with {len(rows) - whole} rows without a mark")
        _observe(history, "the table", shard, rows)


def _check_checkpoints(broker: RecordingBroker, history: History, shard: int) -> None:
    """Every transaction of a worker's ends with its mark, where the cleaner has not been yet."""
    topic = table_topic(JOURNAL)
    log = broker.topics[topic].logs[shard]
    cleaned = history.cleaned.get(shard, 0)
    key = mark_key(shard)
    before: tuple[tuple[int, int], bytes | None] | None = None
    for entry in log.entries:
        if entry.state != COMMITTED or entry.offset < cleaned:
            continue
        number = broker.transactions[topic, shard, entry.offset]
        if before is not None and before[0] != number and before[1] != key:
            history.violate(f"atomic: shard {shard}: a checkpoint before offset {entry.offset} has no mark")
        before = number, entry.key


def observe_disk(history: History, where: str, disk: Disk, shards: Iterable[int]) -> None:
    """What a local copy holds, if it is one that its owner would read. After a loss, what is loaded of it counts."""
    if history.has_lost_rows:
        return
    if disk.named.get(b"building") != b"\x00":
        return
    rows: dict[int, list[tuple[bytes, bytes | None]]] = defaultdict(list)
    for key, value in sorted(disk.rows.items()):
        rows[_shard_of_row(key, history.shards)].append((key, value))
    for shard in shards:
        _observe(history, where, shard, rows[shard])


def observe_behind_cleaner(history: History, where: str, disk: Disk, shard: int) -> None:
    """What a local copy is that has still to pass what the cleaner has been over: no other place is as easy to miss."""
    if int.from_bytes(disk.named[b"position/%d" % shard], "big") < history.cleaned.get(shard, 0):
        observe_disk(history, where, disk, [shard])


def _observe(history: History, where: str, shard: int, rows: list[tuple[bytes, bytes | None]]) -> None:
    differences = Differences(shard)
    table = TableState(shard, history.shards, differences)
    for key, value in rows:
        table.take(key, value)
    state = table.finish()
    for line in differences.lines():
        history.violate(f"exactly once: {where}: {line}")
    skipped = {offset for of, offset in history.garbage if of == shard and offset <= state.mark.offset}
    if table.skipped.keys() != skipped:
        history.violate(f"repaired: {where}: rows of skipped offsets {sorted(table.skipped)}, not {sorted(skipped)}")
    history.copies.append(CopySeen(where, shard, state.mark.offset, state))


def _shard_of_row(key: bytes, shards: int) -> int:
    if key[:1] == b"r":
        return shard_of(int.from_bytes(key[1:9], "big"), shards)
    return int.from_bytes(key[9:11] if key[:1] in (b"t", b"x") else key[1:3], "big")
