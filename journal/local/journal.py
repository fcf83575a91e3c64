"""`LocalJournal`: a journal that is kept in a local RocksDB instead of Kafka, for tests and for a single machine.

    with LocalJournal(directory) as journal:
        journal.activate(loader)
        journal.add(journal.new_id(), kind=45, data=b"...").wait()

Appends, completions, epochs, transactions and loads are those of `Journal`. A completion is done when its group is
synced to this machine's disk. One process at a time has the directory. If the disk is lost, the journal is lost.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from journal.activate.activation import ActivationReport
from journal.append.appends import Appends
from journal.append.callbacks import require_no_callback
from journal.append.completion import Completion
from journal.append.core import Core
from journal.append.operations import AnyOperation
from journal.append.state import JournalState, refusal
from journal.append.writing import Activated, Claim
from journal.disk.rocks import RocksStore
from journal.errors import (
    ClosedError,
    ConfigError,
    CorruptionError,
    CountError,
    JournalError,
    LocalStorageError,
    StateError,
)
from journal.kafka.ports import Consumed, Sent
from journal.limits import NODE_BYTES_MAX, VIRTUAL_SHARDS, Limits
from journal.load.accepted_load import load_with_acceptance
from journal.load.loading import Loader, NullLoader
from journal.local.lookup import LocalLookup
from journal.local.writer import LocalWriter, marks_of
from journal.process.clocks import Timing, wall_ms
from journal.process.progress import Progress, no_progress
from journal.v1.journal_pb2 import Identity
from journal.wire.frames import FORMAT, MAGIC
from journal.words import counted_are

log = logging.getLogger(__name__)

SHARDS_DEFAULT = 8
ROOM_TIMEOUT_MS_DEFAULT = 30_000

_IDENTITY = b"local-journal"
_STEP_S = 1.0
_REQUEST_S = 15.0


def _sync_entries(made: Sequence[Path]) -> None:
    """Syncs the parents of directories that were just made, so that a power cut does not lose them."""
    try:
        for path in made:
            descriptor = os.open(path.parent, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
    except OSError as error:
        raise LocalStorageError(f"cannot sync the directory of {made[0]}: {error}") from error


class LocalJournal(Appends):
    """A journal in a directory. Its lifecycle methods block; completions can be waited for, awaited, or called back. It
    has many attributes, because it keeps its arguments until `start` and `activate` use them, and then the parts that
    these two create."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        shards: int | None = None,
        limits: Limits | None = None,
        node: str = "local",
        room_timeout_ms: int = ROOM_TIMEOUT_MS_DEFAULT,
        on_critical: Callable[[JournalError], None] | None = None,
        progress: Progress = no_progress,
    ) -> None:
        """`shards` is fixed when the directory is first used; the default is 8.

        An append that finds the queue full waits `room_timeout_ms` before it raises FullError. Callers that must not
        block, as in an event loop, set 0. `on_critical` is called once if the disk fails, from the journal's thread.
        """
        if shards is not None and not 1 <= shards <= VIRTUAL_SHARDS:
            raise ConfigError(f"shards: {shards} is not in 1 to {VIRTUAL_SHARDS}")
        if not node or len(node.encode()) > NODE_BYTES_MAX:
            raise ConfigError(f"node: must be 1 to {NODE_BYTES_MAX} bytes")
        self._directory = Path(directory)
        self._shards_wanted = shards
        self._limits = limits or Limits()
        self._node = node
        self._room_wait_s = room_timeout_ms / 1000
        self._on_critical = on_critical
        self._progress = progress
        # No other process can write, so no heartbeat has to prove that none does.
        self._timing = Timing(time.monotonic, time.sleep, _REQUEST_S, _REQUEST_S, math.inf)
        self._store: RocksStore | None = None
        self._identity: Identity | None = None
        self._core: Core | None = None
        self._lookup: LocalLookup | None = None
        self._thread: threading.Thread | None = None
        self._activating = threading.Lock()
        """Held by an activation and by `close`. Its holder owns the store."""
        self._activating_in: threading.Thread | None = None
        self._closing = False
        self._closed = False
        self.report: ActivationReport | None = None

    # ---- lifecycle -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> JournalState:
        if self._core is None:
            return JournalState.CLOSED if self._closed else JournalState.CREATED
        return self._core.state

    @property
    def current(self) -> bool:
        """Whether loaded state may be handed out: the journal is active, and no other process can be."""
        return self._core is not None and self._core.current

    @property
    def shards(self) -> int:
        """P, the number of shards."""
        if self._identity is None:
            raise self._refusal()
        return self._identity.shards

    def start(self) -> None:
        """Open the directory, or make it. Raises LocalStorageError if another process has it, and ConfigError for other
        shards."""
        if self._core is not None or self._closed:
            raise self._refusal()
        absent = [path for path in (self._directory, *self._directory.parents) if not path.exists()]
        store = RocksStore(self._directory)
        try:
            _sync_entries(absent)
            self._identity = self._identity_in(store)
        except BaseException:
            store.close()
            raise
        self._store = store
        self._core = Core(
            self._identity.shards, self._limits, self._timing, self._on_critical, room_wait_s=self._room_wait_s
        )
        self._core.become(JournalState.STARTED)

    def _identity_in(self, store: RocksStore) -> Identity:
        """The identity that the directory holds; a new directory gets one now."""
        row = store.named(_IDENTITY)
        if row is None:
            if next(iter(store.scan(b"")), None) is not None:
                raise ConfigError(f"{self._directory} holds rows of something else than a local journal")
            made = Identity(
                magic=MAGIC,
                format=FORMAT,
                journal=uuid.uuid4().bytes,
                name="local",
                shards=self._shards_wanted or SHARDS_DEFAULT,
                created=int(wall_ms()),
            )
            store.write((), {_IDENTITY: made.SerializeToString()}, synced=True)
            return made
        identity = Identity.FromString(row)
        if identity.magic != MAGIC or identity.format != FORMAT:
            raise CorruptionError(f"{self._directory} is of format {identity.format}, this release reads {FORMAT}")
        if self._shards_wanted not in (None, identity.shards):
            raise ConfigError(f"{self._directory} was made with {identity.shards} shards, not {self._shards_wanted}")
        return identity

    def activate(self, loader: Loader | None = None) -> ActivationReport:
        """Begin the next epoch, and tell the state to `loader`. Raises OutcomeUnknownError if the disk fails, or the
        error of `loader`; then it may be called again."""
        core, store, identity = self._core, self._store, self._identity
        if core is None or store is None or identity is None:
            raise self._refusal(": start it first")
        if not self._activating.acquire(blocking=False):
            raise self._refusal(", and being activated")
        try:
            self._activating_in = threading.current_thread()
            if self._closing:
                raise self._refusal()
            return self._activate(core, store, identity, loader)
        finally:
            self._activating_in = None
            self._activating.release()

    def _activate(self, core: Core, store: RocksStore, identity: Identity, loader: Loader | None) -> ActivationReport:
        core.become(JournalState.LOADING)
        try:
            writer, activated, report = self._activated(store, identity, loader or NullLoader())
        except BaseException:
            core.become(JournalState.STARTED)
            raise
        self._lookup = LocalLookup(store, writer)
        self.report = report
        core.activate(activated)
        self._thread = threading.Thread(target=self._write, args=(core,), name="local-journal-writer", daemon=True)
        self._thread.start()
        if report.in_doubt:
            log.warning("%s in doubt", counted_are(len(report.in_doubt), "transaction"))
        return report

    def _activated(
        self, store: RocksStore, identity: Identity, loader: Loader
    ) -> tuple[LocalWriter, Activated, ActivationReport]:
        """Begin an epoch and load. The marker is written first, so that the staged operations that it drops are not
        loaded."""
        clock = self._timing.clock
        began = clock()
        store.named(_IDENTITY)  # this call opens the store again if it has failed
        epoch = max(mark.epoch for mark in marks_of(store, identity.shards).values()) + 1
        claim = Claim(epoch, self._node, os.urandom(16))
        writer = LocalWriter(store, identity, claim, self._limits, wall_ms=wall_ms)
        claimed = clock()
        marks = marks_of(store, identity.shards)
        snapshot = store.snapshot()
        try:
            acceptance, counts = load_with_acceptance(
                snapshot, marks, loader, self._limits, lambda done, total: self._show("load", done, total)
            )
        except CountError as error:
            raise CountError(
                f"{error}: {self._directory} is damaged, and there is no other copy: restore it from a backup"
            ) from error
        finally:
            snapshot.close()
        report = ActivationReport(
            epoch,
            claim_s=claimed - began,
            load_s=clock() - claimed,
            counts=counts,
            in_doubt=acceptance.transactions.prepared(),
        )
        issued = max(mark.issued for mark in marks.values())
        return writer, Activated(writer, acceptance, issued), report

    def _show(self, step: str, done: int, total: int) -> None:
        if self._closing:
            raise ClosedError("the journal was closed while it was being activated")
        self._progress(step, done, total)

    def _write(self, core: Core) -> None:
        try:
            while core.step(_STEP_S):
                pass
        except Exception as error:
            log.exception("the writer of %s failed", self._directory)
            core.step_down(LocalStorageError(f"the writer of {self._directory} failed: {error!r}"))

    def take_in(
        self, operations: Sequence[AnyOperation], consumed: Consumed, beside: Sequence[Sent] = ()
    ) -> Completion:
        """Refuse to commit offsets: a local directory cannot commit offsets of Kafka with its records. Raises
        StateError."""
        raise StateError("a journal in a local directory takes in no records of Kafka")

    def close(self) -> None:
        """Write the accepted appends, and release the directory.

        An activation that is under way ends first, with ClosedError: at its next chunk of records, or when the loader
        returns. Raises StateError if that activation itself calls this, in a callback.
        """
        require_no_callback("close the journal")
        self._closing = True
        if self._activating_in is threading.current_thread():
            raise StateError(
                "an activation cannot close its own journal: raise an error to end it, then close the journal"
            )
        with self._activating:
            core, was_closed, self._closed = self._core, self._closed, True
            if core is not None and not was_closed:
                self._close(core)

    def _close(self, core: Core) -> None:
        core.begin_close()
        if self._thread is not None:
            self._thread.join()
        core.end_close()
        if self._lookup is not None:
            self._lookup.close()
        if self._store is not None:
            self._store.close()

    def require_core(self) -> Core:
        if self._core is None:
            raise self._refusal()
        return self._core

    def require_lookup(self) -> LocalLookup:
        if self._lookup is None:
            raise self._refusal(": activate it first")
        return self._lookup

    def _refusal(self, mend: str = "") -> StateError:
        return refusal(self.state, mend, closed=self._closing)

    def __enter__(self) -> LocalJournal:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
