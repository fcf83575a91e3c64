"""The writer of a journal in a local RocksDB. It folds each group into rows at once, and writes them as one batch.

The batch, synced to disk, is the group's commit: all of its operations in all shards and the marks that cover them, or
nothing. There is no WAL. A shard's frames are numbered and have offsets as if there were one, so that positions, marks
and epochs mean what they mean in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from journal.append.group import FrameNumbers, FrameOrigin, Group
from journal.append.writing import Claim, Joining, Recoveries, nothing_joins
from journal.disk.rocks import RocksStore
from journal.errors import JournalError, LocalStorageError, OutcomeUnknownError
from journal.fold.engine import Fold
from journal.limits import Limits
from journal.process.clocks import Moment
from journal.v1.journal_pb2 import MARKER, Identity, Mark
from journal.wire.frames import decode_frame
from journal.wire.keys import mark_key


def marks_of(store: RocksStore, shards: int) -> dict[int, Mark]:
    """The mark of every shard; a shard without one gets the mark before the first frame."""
    rows = {shard: store.get(mark_key(shard)) for shard in range(shards)}
    return {shard: Mark.FromString(row) if row else Mark(shard=shard, offset=-1) for shard, row in rows.items()}


class LocalWriter:
    """The store's only writer, in an epoch of its own. One thread uses it; any thread may call `applied`."""

    def __init__(
        self,
        store: RocksStore,
        identity: Identity,
        claim: Claim,
        limits: Limits,
        *,
        wall_ms: Callable[[], float],
    ) -> None:
        """Begin the claim's epoch with a marker in every shard. Raises OutcomeUnknownError if that may have failed."""
        marks = marks_of(store, identity.shards)
        row_bytes_max = limits.updates_row_bytes_max
        self.claim = claim
        self.recoveries = Recoveries()
        self.numbers = FrameNumbers(
            tuple(mark.number for mark in marks.values()), max(mark.group for mark in marks.values())
        )
        self.committed_at = Moment.now()
        """The moment at which the last successful commit began."""
        self._store = store
        self._identity = identity
        self._wall_ms = wall_ms
        self._origin = FrameOrigin(identity.journal, claim.epoch, claim.node)
        self._folds = [Fold(mark, store, updates_row_bytes_max=row_bytes_max) for mark in marks.values()]
        self._applied = [mark.offset for mark in marks.values()]
        markers = Group(identity.shards, limits.frame_bytes_max)
        for shard in range(identity.shards):
            markers.put(shard, MARKER, 0, 0, claim.nonce)
        self.write(markers)

    def write(self, group: Group, joining: Joining = nothing_joins) -> None:
        """Commit a group and resolve its completion. If the completion gets an error, this method raises it, too.

        `joining` is not used: each group is a batch of its own in RocksDB.
        """
        began = Moment.now()
        numbers = group.seal(self._origin, self.numbers)
        try:
            offsets = self._fold(group)
            touched = [self._folds[shard] for shard in offsets]
            changes = [fold.changes() for fold in touched]
        except Exception as error:
            # rocksdict raises a bare exception when a row cannot be read, and then nothing was written. The completion
            # gets its error first, so that nobody waits for it for ever. Then the error is raised, so that the journal
            # steps down.
            failed = LocalStorageError(f"a group could not be folded: {error}")
            group.completion.resolve(error if isinstance(error, JournalError) else failed)
            raise
        try:
            self._store.write(chain.from_iterable(changes), {}, synced=True)
        except Exception as error:
            # After any of these errors the group may be in RocksDB's log, and only the next open shows whether it is.
            unknown = OutcomeUnknownError(f"a group may not be on disk: {error}")
            group.completion.resolve(unknown)
            raise unknown from error
        for fold in touched:
            fold.checkpointed()
        for shard, (_, last) in offsets.items():
            self._applied[shard] = last
        group.completion.offsets = offsets
        self.numbers = numbers
        self.committed_at = began
        group.completion.resolve()

    def applied(self, shard: int) -> int:
        """The offset of the last frame in the store, -1 before the first."""
        return self._applied[shard]

    def close(self) -> None:
        """Does nothing: the store belongs to the journal."""

    def _fold(self, group: Group) -> dict[int, tuple[int, int]]:
        """Apply a sealed group's frames; returns the first and last offset that they take in each shard."""
        uuid, shards, timestamp = self._identity.journal, self._identity.shards, int(self._wall_ms())
        offsets: dict[int, tuple[int, int]] = {}
        for record in group.records(""):
            shard = record.partition
            fold = self._folds[shard]
            offset = fold.mark.offset + 1
            fold.apply(offset, timestamp, decode_frame(record.value, uuid, shard, shards))
            first, _ = offsets.get(shard, (offset, offset))
            offsets[shard] = first, offset
        return offsets
