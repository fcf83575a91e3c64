"""Following tells the loader of a standby node what changes in its copy, so that an activation need not load it.

A `Replica` tells it the rows of every checkpoint that it wrote. Once the copy can be read, a new loader is told all of
it, and from then on only what changed. `finish` adds the transactions in doubt. Its time depends on their number and on
the changes since the last `keep_up`; it scans no records.

It has no thread: the owner of the replica and its store calls it between two polls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from journal.append.acceptance import Acceptance
from journal.disk.ports import LocalStore
from journal.errors import CountError, RowError
from journal.fold.rows import Change
from journal.limits import Limits
from journal.load.accepted_load import accept_prepared, load_stored
from journal.load.live_records import LiveRecords
from journal.load.loading import (
    FollowingLoader,
    LoadCounts,
    LoadedUpdate,
    Loader,
    load_records,
    one_record,
    prepared_transactions,
)
from journal.table.replica import Replica
from journal.v1.journal_pb2 import Mark
from journal.wire.keys import RECORD_KEY_BYTES, RECORD_TAG, record_id_of, record_key, updates_key
from journal.wire.rows import updates_in

log = logging.getLogger(__name__)

CHUNK = 4096
"""The number of records after which a scan checks whether its state is still wanted."""
_RECORD_TAG_BYTE = RECORD_TAG[0]

_Rows = dict[bytes, bytes | None]


class _EndedError(Exception):
    """Ends a scan whose state nobody needs any more. It never leaves this file."""


class Following:
    """The warm state of a copy: a `CopyListener`. The replica's owner uses it.

    It becomes cold, and stays so, when a loader raises or rows do not fit together; `failure` says why. A plain loader,
    which cannot be kept warm, is filled by `finish` alone.
    """

    def __init__(self, store: LocalStore, limits: Limits, loader_factory: Callable[[], Loader]) -> None:
        self._store = store
        self._limits = limits
        self._loader_factory = loader_factory
        self._live: LiveRecords | None = None
        """The live records of the warm state; None while it is cold."""
        self._changes: list[Change] = []
        self.loader: Loader | None = None
        """The loader that is kept warm, or that `finish` filled."""
        self.failure: Exception | None = None
        self.finished = False
        """Whether `finish` was called. A `restart` is needed before another state is followed."""
        self._ended = False

    def end(self) -> None:
        """Stop keeping a state warm. A scan that is under way ends at its next chunk. Any thread may call this."""
        self._ended = True

    def restart(self) -> None:
        """Begin again with a new loader, which has been told nothing."""
        self._live = self.loader = self.failure = None
        self._changes.clear()
        self.finished = False

    @property
    def warm(self) -> bool:
        """Whether the loader has the state of the copy, less what `keep_up` has not told it yet."""
        return self._live is not None

    @property
    def follows(self) -> bool:
        """Whether the loader can be kept warm. True as long as no loader exists."""
        return self.loader is None or isinstance(self.loader, FollowingLoader)

    # ---- what the replica tells ------------------------------------------------------------------------------------

    def checkpointed(self, changes: Sequence[Change]) -> None:
        if self._live is not None:
            self._changes += changes

    def lost(self) -> None:
        if self._live is not None:
            self._live = self.loader = None
            self._changes.clear()

    # ---- keeping warm ----------------------------------------------------------------------------------------------

    def warm_up(self, replica: Replica) -> None:
        """Bring the loader up to the place where the copy stands. If there is no state yet, a new loader is filled by
        one scan."""
        if self._live is not None:
            self.keep_up()
        elif replica.readable and self.failure is None and self.follows and not self._ended:
            self._guarded(lambda: self._begin(replica))

    def keep_up(self) -> None:
        """Bring a warm loader up to the place where the copy stands."""
        if self._changes:
            self._guarded(self._tell_changes)

    def _guarded(self, step: Callable[[], None]) -> None:
        """Take a step, and become cold if it raises. The loader is its owner's code, and must not stop the thread that
        follows the copy."""
        try:
            step()
        except _EndedError:
            self.loader = None
        except Exception as error:
            log.exception("the state is followed no more; an activation will load it anew")
            self.lost()
            self.loader = None
            self.failure = error

    def _begin(self, replica: Replica) -> None:
        loader = self.loader = self._loader_factory()
        if isinstance(loader, FollowingLoader):
            live, marks = LiveRecords(), replica.marks()
            collecting = _Collecting(loader, live, self._require_wanted)
            loader.begin(marks)
            live.counts = load_records(self._store, collecting)
            collecting.flush()
            with replica.counting():
                live.counts.require(self._store, marks)
            self._live = live

    def _require_wanted(self) -> None:
        if self._ended:
            raise _EndedError

    def _tell_changes(self) -> None:
        """Tell the loader the changes of the checkpoints since the last call, once for each record."""
        live, loader = self._live, self.loader
        if live is None or not isinstance(loader, FollowingLoader):
            return
        by_record: dict[int, _Rows] = {}
        for key, value in self._changes:
            if key[0] == _RECORD_TAG_BYTE:
                by_record.setdefault(record_id_of(key), {})[key] = value
        self._changes.clear()
        for record_id, rows in by_record.items():
            record = self._whole(record_id, rows)
            if record is None:
                live.drop(record_id)
                loader.deleted(record_id)
            else:
                live.put(record_id, len(record[3]))
                loader.changed(*record)

    def _whole(
        self, record_id: int, rows: _Rows
    ) -> tuple[int, int, bytes, Sequence[LoadedUpdate], tuple[int, int, int]] | None:
        """The present state of a record, or None if it was deleted. `rows` are the newest rows written for the record.

        The engine writes a record's own row only when it adds the record, and the rows of its updates after that. So if
        the record's own row is among `rows`, they are all rows of the record.
        """
        key = record_key(record_id)
        if key in rows:
            row = rows.pop(key)
            return None if row is None else one_record(row, _there(rows))
        row = self._store.get(key)
        if row is None:
            raise RowError(f"the table has updates of record {record_id}, and not the record itself")
        head = rows.get(updates_key(record_id))
        if head is None or _has_spilled(head):
            return one_record(row, [row for row in self._store.scan(key) if len(row[0]) > RECORD_KEY_BYTES])
        return one_record(row, _there(rows))

    # ---- activation ------------------------------------------------------------------------------------------------

    def is_at(self, marks: Mapping[int, Mark]) -> bool:
        """Tell the loader the changes that it lacks; returns whether it then has the state of `marks`, at which the
        copy stands."""
        self.keep_up()
        if self._live is None:
            return False
        try:
            self._live.counts.require(self._store, marks)
        except CountError as error:
            log.error("the state that follows the table differs from the marks, and is loaded anew: %s", error)
            self.lost()
        return self._live is not None

    def finish(self, marks: Mapping[int, Mark], told: Callable[[int, int], None]) -> tuple[Acceptance, LoadCounts]:
        """Complete `loader` with the state of `marks`, at which the copy stands. If the loader has another state, all
        is loaded.

        Raises whatever the loader raises, RowError, CountError, LocalStorageError.
        """
        warm = self.is_at(marks)
        self.finished = True
        live, loader = self._live, self.loader
        if not warm or live is None or loader is None:
            loader = self.loader = loader or self._loader_factory()
            return load_stored(self._store, marks, loader, self._limits, told)
        self._live = None
        records, updates = len(live.ids), sum(live.counts.updates)
        acceptance = Acceptance(len(marks), self._limits, live.ids)
        prepared = operations = 0
        for tx, data, staged, parts in prepared_transactions(self._store):
            loader.prepared(tx, data, staged)
            accept_prepared(acceptance, len(marks), tx, staged, parts)
            prepared += 1
            operations += len(staged)
        counts = LoadCounts(records, updates, prepared, operations)
        loader.complete(counts)
        told(records, records)
        return acceptance, counts


class _Collecting:
    """A loader that passes records on to another one, and also collects the ids of live records."""

    def __init__(self, loader: Loader, live: LiveRecords, require_wanted: Callable[[], None]) -> None:
        self.begin = loader.begin
        self.prepared = loader.prepared
        self.complete = loader.complete
        self._tell = loader.record
        self._live = live
        self._require_wanted = require_wanted
        self._ids: list[int] = []

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        self._tell(record_id, kind, data, updates, position)
        self._ids.append(record_id)
        if updates:
            self._live.load_updates(record_id, len(updates))
        if len(self._ids) == CHUNK:
            self.flush()
            self._require_wanted()

    def flush(self) -> None:
        self._live.load(self._ids)
        self._ids.clear()


def _there(rows: _Rows) -> Iterable[tuple[bytes, bytes]]:
    return [(key, value) for key, value in rows.items() if value is not None]


def _has_spilled(head: bytes) -> bool:
    return updates_in(head)[1]
