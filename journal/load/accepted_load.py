"""A load that also fills the acceptance of appends: the live ids and the locks of transactions in doubt, in one
scan."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from journal.append.acceptance import Acceptance
from journal.append.operations import Append
from journal.disk.ports import LocalStore
from journal.fold.rows import Base
from journal.limits import Limits
from journal.load.loading import LoadCounts, LoadedPart, LoadedUpdate, Loader, load, prepared_transactions
from journal.v1.journal_pb2 import Mark, Operation
from journal.wire.ids import shard_of
from journal.words import counted

log = logging.getLogger(__name__)

_CHUNK = 4096


def load_stored(
    store: LocalStore, marks: Mapping[int, Mark], loader: Loader, limits: Limits, told: Callable[[int, int], None]
) -> tuple[Acceptance, LoadCounts]:
    """Call `load_with_acceptance` with a snapshot of a store that stands at `marks`."""
    snapshot = store.snapshot()
    try:
        return load_with_acceptance(snapshot, marks, loader, limits, told)
    finally:
        snapshot.close()


def load_with_acceptance(
    base: Base, marks: Mapping[int, Mark], loader: Loader, limits: Limits, told: Callable[[int, int], None]
) -> tuple[Acceptance, LoadCounts]:
    """Tell `loader` the state of `base`, which stands at `marks` (one for each shard). Returns the acceptance, which
    knows the live ids and locks, and the numbers that were told.

    `told(done, total)` is called now and then with numbers of records.
    """
    acceptance = Acceptance(len(marks), limits)
    tee = _Tee(loader, acceptance, sum(mark.records for mark in marks.values()), told)
    counts = load(base, marks, tee)
    tee.flush()
    for tx, _, operations, parts in prepared_transactions(base):
        accept_prepared(acceptance, len(marks), tx, operations, parts)
    return acceptance, counts


def accept_prepared(
    acceptance: Acceptance, shards: int, tx: int, operations: Iterable[Operation], parts: Sequence[LoadedPart]
) -> None:
    """Take the locks of a transaction in doubt again. `acceptance` must know all records already."""
    if len(parts) < parts[0].prepared_in:
        log.warning(
            "transaction %d was prepared in %s and is left in shard %s, as something was skipped: settle it as "
            "its coordinator decided",
            tx,
            counted(parts[0].prepared_in, "shard"),
            ", ".join(str(part.shard) for part in parts),
        )
    appends = [
        Append(shard_of(op.id, shards), op.type, op.id, op.kind, op.data, op.replaceable, op.subject, tx)
        for op in operations
    ]
    acceptance.transactions.load_prepared(tx, appends, {part.shard: part.covers for part in parts})


class _Tee:
    """A loader that passes all calls on to another one, and collects the ids of live records for the acceptance, in
    chunks."""

    def __init__(self, loader: Loader, acceptance: Acceptance, total: int, told: Callable[[int, int], None]) -> None:
        self.begin = loader.begin
        self.prepared = loader.prepared
        self.complete = loader.complete
        self._tell = loader.record
        self._acceptance = acceptance
        self._told = told
        self._ids: list[int] = []
        self._done = 0
        self._total = total

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        self._tell(record_id, kind, data, updates, position)
        self._ids.append(record_id)
        if len(self._ids) == _CHUNK:
            self.flush()

    def flush(self) -> None:
        self._acceptance.load_records(self._ids)
        self._done += len(self._ids)
        self._ids.clear()
        self._told(self._done, self._total)
