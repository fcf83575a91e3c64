"""Mutations of engine, worker, local copies and read-only loads."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import journal.table.replica
import loaders.snapshot
import tests.simulation.node_copy
from journal.activate.warm_state import Following
from journal.errors import FrameError
from journal.fold.engine import Fold
from journal.fold.staged import PartTable
from journal.fold.updates import Head, UpdateTable
from journal.load.counts import Counts
from journal.table.age import TableAge, note_checkpoint
from journal.table.replica import CopyState, Replica
from journal.topics.names import wal_topic
from journal.v1.journal_pb2 import ADD, DELETE
from journal.wire.keys import RECORD_KEY_BYTES
from streams.worker.shard import ShardWorker
from streams.worker.shard_checkpoint import CheckpointSender, Committed
from streams.worker.shard_frames import ShardFrames
from streams.worker.shard_table import ShardTable
from tests.simulation.mutations import Patch, mutation
from tests.simulation.readers import SimulatedReader

# ---- the engine --------------------------------------------------------------------------------------------------


@mutation
def mark_first() -> list[Patch]:
    """A checkpoint's mark is its first row."""
    changes = Fold.changes
    return [(Fold, "changes", lambda self: [(rows := changes(self))[-1], *rows[:-1]])]


@mutation
def updates_row_stays() -> list[Patch]:
    """A delete leaves the record's updates row."""

    def tombstone(self: Any, *which: Any) -> int:
        updates = original(self, *which)
        self._tombstones = {key for key in self._tombstones if len(key) != RECORD_KEY_BYTES + 1}
        return updates

    original = UpdateTable.tombstone
    return [(UpdateTable, "tombstone", tombstone)]


@mutation
def spilled_rows_stay() -> list[Patch]:
    """A delete leaves the record's spilled updates."""

    def tombstone(self: Any, *which: Any) -> int:
        updates = original(self, *which)
        self._tombstones = {key for key in self._tombstones if len(key) <= RECORD_KEY_BYTES + 1}
        return updates

    original = UpdateTable.tombstone
    return [(UpdateTable, "tombstone", tombstone)]


@mutation
def staged_rows_stay() -> list[Patch]:
    """A settled transaction leaves its staged operations."""
    forget = PartTable.forget

    def forgetting(self: Any, part: Any) -> None:
        forget(self, part)
        self._tombstones = {key for key in self._tombstones if not key.startswith(b"x")}

    return [(PartTable, "forget", forgetting)]


@mutation
def replaceable_updates_pile_up() -> list[Patch]:
    """A replaceable update does not replace the one before."""
    return [(Head, "remove", lambda self, kind, subject: None)]


@mutation
def leftovers_survive_the_marker() -> list[Patch]:
    """A new epoch keeps the staged operations of transactions that were never prepared."""
    return [(PartTable, "drop_unprepared", lambda self: 0)]


@mutation
def marker_drops_the_prepared() -> list[Patch]:
    """A new epoch drops prepared transactions too."""

    def drop(self: Any) -> int:
        parts = list(self._parts.values())
        for part in parts:
            self.forget(part)
        return sum(part.header.staged for part in parts)

    return [(PartTable, "drop_unprepared", drop)]


@mutation
def cancelled_before_it_is_told() -> list[Patch]:
    """A record that was added and deleted within one checkpoint is not told to have happened."""
    happened = Fold.happened

    def telling(self: Any) -> Any:
        told = happened(self)
        added = {one[0].id for one in told if one[0].type == ADD}
        gone = added & {one[0].id for one in told if one[0].type == DELETE}
        return [one for one in told if one[0].id not in gone]

    return [(Fold, "happened", telling)]


@mutation
def skip_is_not_kept() -> list[Patch]:
    """A record that an operator has skipped leaves no row."""
    skip = Fold.skip

    def skipping(self: Any, *record: Any) -> bool:
        skipped = skip(self, *record)
        self._skipped.clear()
        return skipped

    return [(Fold, "skip", skipping)]


@mutation
def no_frame_is_passed_over() -> list[Patch]:
    """A record that is no frame does not stop its shard."""
    apply = ShardFrames._apply

    def applying(self: Any, fold: Any, *record: Any) -> None:
        with suppress(FrameError):
            apply(self, fold, *record)

    return [(ShardFrames, "_apply", applying)]


@mutation
def checkpoint_within_a_group() -> list[Patch]:
    """A checkpoint may fall between two frames of a group."""
    return [(Fold, "at_group_boundary", property(lambda self: True))]


# ---- the worker --------------------------------------------------------------------------------------------------


@mutation
def table_is_read_before_init() -> list[Patch]:
    """A worker reads the table before its init has fenced the shard's owner, wherever its next checkpoint lies."""
    recover, read = ShardWorker.recover, ShardTable.read

    def recovering(self: Any) -> int:
        mark = read(self._table)
        self._table.read = lambda: mark
        try:
            return recover(self)
        finally:
            del self._table.read

    return [(ShardWorker, "recover", recovering), (ShardTable, "require_next", lambda self, first, last: None)]


@mutation
def worker_goes_on_at_the_end() -> list[Patch]:
    """A recovered worker reads the WAL from its end, not from behind the mark."""
    recover = ShardWorker.recover

    def recovering(self: Any) -> int:
        recover(self)
        reader = self._table._kafka.reader(wal_topic(self._config.journal))
        return int(reader.start_and_end(self.shard, self._config.request_timeout_s)[1])

    return [(ShardWorker, "recover", recovering)]


@mutation
def kept_shard_is_fenced_and_not_read() -> list[Patch]:
    """A shard that comes back to its worker fences whoever had it meanwhile, and goes on from what it remembers."""
    next_offset = vars(ShardWorker)["next_offset"].fget

    def fencing(self: Any) -> int | None:
        offset: int | None = next_offset(self)
        if offset is not None:
            self._sender.close()
            self._sender.open()
        return offset

    return [(ShardWorker, "next_offset", property(fencing))]


@mutation
def kept_shard_goes_on_at_the_end() -> list[Patch]:
    """A shard that comes back to its worker is read from the WAL's end, not from behind what was applied."""
    next_offset = vars(ShardWorker)["next_offset"].fget

    def at_end(self: Any) -> int | None:
        reader = self._table._kafka.reader(wal_topic(self._config.journal))
        end = int(reader.start_and_end(self.shard, self._config.request_timeout_s)[1])
        return None if next_offset(self) is None else end

    return [(ShardWorker, "next_offset", property(at_end))]


@mutation
def repeated_checkpoint_is_trusted() -> list[Patch]:
    """After a checkpoint whose commit may have been sent twice the same producer goes on."""
    send = CheckpointSender.send

    def trusting(self: Any, *given: Any, **how: Any) -> Committed:
        return send(self, *given, **how)._replace(is_clean=True)

    return [(CheckpointSender, "send", trusting)]


@mutation
def copy_is_written_before_the_commit() -> list[Patch]:
    """A worker writes its local copy while its rows are on their way, whatever becomes of them; nobody counts."""
    send = CheckpointSender.send

    def writing(self: Any, fold: Any, facts: Any, changes: Any, meanwhile: Any, **how: Any) -> Committed:
        self._store.write(changes, {})
        return send(self, fold, facts, changes, meanwhile, **how)

    return [(CheckpointSender, "send", writing), UNCOUNTED]


# ---- local copies --------------------------------------------------------------------------------------------------


@mutation
def stale_copy_is_kept() -> list[Patch]:
    """A copy is used again however long it was away, and nobody counts what it has."""
    return [
        (TableAge, "may_lack_tombstones", lambda self, stood_ms: False),
        (TableAge, "is_too_long_since", lambda self, then: False),
        UNCOUNTED,
    ]


def _believing() -> list[Patch]:
    """A copy takes a mark whatever it says that the one before it was, and does not look for its own."""

    def taking(self: Any, record: Any, direct: Any) -> None:
        copy = self._shards[record.partition]
        if record.offset < copy.place.position:
            copy.proved = True
        else:
            take(self, record, direct)

    take, seek = Replica._take, SimulatedReader.seek
    return [
        (Replica, "_take", taking),
        (Replica, "_require_chained", lambda self, copy, mark, record, direct: None),
        (SimulatedReader, "seek", lambda self, positions, leader_epochs=None: seek(self, positions)),
    ]


UNCOUNTED: Patch = (Counts, "require", lambda self, base, marks: None)


@mutation
def nobody_counts() -> list[Patch]:
    """A copy is not counted, and what a load has told neither."""
    return [UNCOUNTED]


@mutation
def any_mark_follows() -> list[Patch]:
    """A copy goes on in a table that has lost its tail, and grew again beyond where it stands."""
    return [*_believing(), UNCOUNTED]


@mutation
def copy_of_another_topic_is_kept() -> list[Patch]:
    """A copy is used again although its topic was deleted and made anew, and nothing else tells that either."""

    def identity(cluster_id: str, topic_id: str, partitions: int, uuid: bytes) -> bytes:
        return f"{cluster_id}/{partitions}/{uuid.hex()}".encode()

    copied = [(module, "copy_identity", identity) for module in (journal.table.replica, tests.simulation.node_copy)]
    return [*copied, *_believing(), UNCOUNTED]


@mutation
def rows_are_written_before_their_mark() -> list[Patch]:
    """A readable copy writes rows as they come, and not with their mark."""
    take = Replica._take

    def taking(self: Any, record: Any, direct: Any) -> None:
        take(self, record, direct)
        held = self._shards[record.partition].held
        if held:
            self._store.write(held, {})

    return [(Replica, "_take", taking)]


@mutation
def position_is_written_before_its_rows() -> list[Patch]:
    """A copy writes its position first, and its rows in a second batch; nothing else tells that they are missing."""
    write = Replica._write_held

    def writing(self: Any, shard: int, copy: Any, place: Any) -> None:
        self._store.write((), note_checkpoint(shard, *place))
        write(self, shard, copy, place)

    return [(Replica, "_write_held", writing), *_believing(), UNCOUNTED]


@mutation
def building_copy_is_readable_at_once() -> list[Patch]:
    """A new copy is readable from the first mark that it meets."""
    opening = Replica.open

    def opened(self: Any, timeout_s: float) -> None:
        opening(self, timeout_s)
        for copy in self._shards.values():
            if copy.state is CopyState.BUILDING:
                copy.end = 0

    return [(Replica, "open", opened)]


@mutation
def marks_of_a_compacted_log_are_states() -> list[Patch]:
    """A readable copy that was away takes every mark for a state, also where the log has been compacted."""
    return [
        (Replica, "_take_old", lambda self, copy, record, direct: None),
        (Replica, "_require_chained", lambda self, copy, mark, record, direct: None),
    ]


@mutation
def copy_does_not_say_that_it_builds_again() -> list[Patch]:
    """A readable copy that was away writes rows direct without a note that it is no state meanwhile."""
    build_on = Replica._build_on

    def building(self: Any, copy: Any, shard: int, direct: Any) -> None:
        store, self._store = self._store, Unwritten()
        try:
            build_on(self, copy, shard, direct)
        finally:
            self._store = store

    class Unwritten:
        def write(self, rows: Any, named: Any) -> None: ...

    return [(Replica, "_build_on", building)]


@mutation
def end_is_captured_once() -> list[Patch]:
    """A copy that was built for longer than the compaction lag is readable at the end that it began with, uncounted."""
    return [(TableAge, "is_long_since", lambda self, captured: False), UNCOUNTED]


@mutation
def position_is_there_before_its_rows() -> list[Patch]:
    """A shard of a copy becomes readable, and its rows are made durable only when all shards are."""
    note_ends = Replica._note_ends

    def noting(self: Any, *where: Any) -> None:
        store, self._store = self._store, Lazy(self._store)
        try:
            note_ends(self, *where)
        finally:
            self._store = store

    class Lazy:
        def __init__(self, store: Any) -> None:
            self._store = store
            self.scan, self.named = store.scan, store.named

        def flush(self) -> None: ...

        def write(self, rows: Any, named: Any) -> None:
            self._store.write(rows, named)

    return [(Replica, "_note_ends", noting)]


# ---- read-only loads -----------------------------------------------------------------------------------------------


@mutation
def read_only_load_is_not_cut_at_a_group() -> list[Patch]:
    """A read-only load folds every shard to its own end."""
    fold = loaders.snapshot._fold_to

    def folding(wal: Any, into: Any, name: str, group: int, *more: Any) -> int:
        return fold(wal, into, name, 2**62, *more)

    return [(loaders.snapshot, "_fold_to", folding)]


# ---- the followed state ------------------------------------------------------------------------------------------


@mutation
def rebuilt_copy_stays_warm() -> list[Patch]:
    """A standby keeps its state although the copy was built anew, or may not be what was written to it, uncounted."""
    return [(Replica, "_lose", lambda self: None), UNCOUNTED]


@mutation
def followed_updates_are_missed() -> list[Patch]:
    """A standby is told of records that come and go, and not of their updates."""
    checkpointed = Following.checkpointed

    def told(self: Any, changes: Any) -> None:
        checkpointed(self, [change for change in changes if len(change[0]) <= RECORD_KEY_BYTES])

    return [(Following, "checkpointed", told)]
