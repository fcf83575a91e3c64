"""A journal's life in one process: it connects, activates, writes and follows in threads of its own, and closes.

`Core` decides what may be appended, and `Activation` and `Writer` what is written. This module runs them.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from journal.activate.activation import Activation, ActivationReport
from journal.activate.copy import TableCopy
from journal.activate.gate import AtGate, wait_on
from journal.activate.gate_wait import GateWait
from journal.activate.lookup import Lookup
from journal.activate.released import say_left
from journal.activate.warm_state import Following
from journal.append.callbacks import require_no_callback
from journal.append.core import Core
from journal.append.state import JournalState, refusal
from journal.append.writing import Activated, Claim
from journal.errors import ClosedError, FencedError, JournalError, StateError
from journal.kafka.clients import kafka_of
from journal.kafka.ports import Kafka
from journal.load.loading import Loader, NullLoader
from journal.process.background import in_thread
from journal.process.clocks import Timing, wall_ms
from journal.process.commands import command
from journal.process.progress import Progress, no_progress
from journal.settings import JournalSettings
from journal.table.open_copy import LocalTables
from journal.table.opening import open_replica
from journal.topics.control_rows import ControlRows
from journal.topics.made_and_checked import open_journal
from journal.topics.names import worker_group
from journal.v1.journal_pb2 import Identity, Mark
from journal.wal.config import WriterConfig
from journal.wal.fencing import Standing, standing_of
from journal.words import called, counted_are

__all__ = ["JournalRuntime", "kafka_of", "no_progress", "open_replica", "wall_ms"]

log = logging.getLogger(__name__)

_STEP_S = 1.0


class JournalRuntime:
    """The common part of `Journal` and `BlockingJournal`. Calls of its lifecycle block.

    It has more than a dozen attributes because it holds all parts of a journal in one process: settings and listeners,
    the copy, the core, two threads, and the results of the activation.
    """

    def __init__(
        self,
        settings: JournalSettings,
        *,
        on_critical: Callable[[JournalError], None] | None = None,
        copy: TableCopy | None = None,
        copy_name: str = "node",
        progress: Progress = no_progress,
        at_gate: AtGate = wait_on,
        room_wait_s: float = 0.0,
    ) -> None:
        """`on_critical` is called once when the journal is fenced or fails, from a thread of the journal's that `close`
        waits for.

        `copy` is an open copy of the tables that outlives this journal. Without one the journal opens its own copy with
        the name `copy_name`; processes on one machine need different names. `at_gate` is told of the shards that an
        activation waits for, in its thread, and may end it with an error. `room_wait_s` is how long an append blocks
        when the queue is full.
        """
        self._settings = settings
        self._on_critical = on_critical
        self._progress = progress
        self._at_gate = at_gate
        self._room_wait_s = room_wait_s
        self._kafka: Kafka = kafka_of(settings) if copy is None else copy.kafka
        self._timing = Timing(
            time.monotonic,
            time.sleep,
            settings.request_timeout_ms / 1000,
            settings.recovery_timeout_ms / 1000,
            settings.fence_check_ms / 1000,
        )
        self._core: Core | None = None
        self._identity: Identity | None = None
        self._owns_copy = copy is None
        self._copy = TableCopy(settings, copy_name=copy_name, kafka=self._kafka) if copy is None else copy
        self._has_copy = False
        """Whether the copy is lent to this journal."""
        self._lookup: Lookup | None = None
        self._writer_thread: threading.Thread | None = None
        self._activating = threading.Lock()
        """Held by `start`, by an activation, and by `close`: its holder owns the copy."""
        self._activating_in: threading.Thread | None = None
        self._closing = threading.Event()
        self._closed = False
        self.loader: Loader | None = None
        """The loader that the activation filled."""
        self.report: ActivationReport | None = None
        self._claim: Claim | None = None
        """The claim of the activation."""

    # ---- lifecycle -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> JournalState:
        if self._core is None:
            return JournalState.CLOSED if self._closed else JournalState.CREATED
        return self._core.state

    @property
    def current(self) -> bool:
        """Whether this node may deliver messages: it is active, and a successful commit within `fence_check_ms` has
        proven it."""
        return self._core is not None and self._core.current

    def start(self) -> ControlRows:
        """Connect, and check the journal's topics. Raises TopicError, KafkaUnavailableError, LocalStorageError.

        With an open copy whose topics were checked not long ago it asks Kafka nothing, and returns the rows that were
        read when the copy was opened. An activation reads them again, and notices a journal that was made anew.
        """
        if self._core is not None:
            raise self._refusal()
        with self._activating:
            if self._core is not None or self._closed:
                raise self._refusal()
            return self._start()

    def _start(self) -> ControlRows:
        if self._owns_copy:
            rows = self._copy.open()
        elif self._copy.topics_checked:
            rows = self._copy.rows
        else:
            timeout_s = self._settings.request_timeout_ms / 1000
            rows = open_journal(self._kafka, self._settings, clock=time.monotonic, timeout_s=timeout_s)
        identity = self._identity = rows.require_identity(self._settings.journal)
        self._lookup = Lookup(self._kafka, self._settings.journal, identity, self._copy, self._timing.clock)
        core = Core(
            identity.shards, self._settings.limits, self._timing, self._on_critical, room_wait_s=self._room_wait_s
        )
        core.become(JournalState.STARTED)
        self._core = core
        return rows

    def run_activation(self, loader: Loader | None = None) -> ActivationReport:
        """Become the active node. Raises FencedError, GateTimeoutError, or what a loader raises.

        `loader` is told the state. Without one, the loader that follows the copy is used, which lacks only the newest
        changes. After a GateTimeoutError or the loader's error it may be called again.
        """
        core, identity = self._core, self._identity
        if core is None or identity is None:
            raise self._refusal(": start it first")
        if not self._activating.acquire(blocking=False):
            raise self._refusal(", and being activated")
        try:
            self._activating_in = threading.current_thread()
            self._require_open("the journal was closed")
            return self._run_activation(core, identity, loader)
        finally:
            self._activating_in = None
            self._activating.release()

    def _run_activation(self, core: Core, identity: Identity, loader: Loader | None) -> ActivationReport:
        core.become(JournalState.LOADING)
        try:
            activated, report = self._activate_with(identity, loader)
        except BaseException as error:
            if isinstance(error, FencedError):
                core.step_down(error)
            else:
                core.become(JournalState.STARTED)
            raise
        self.report, self._claim = report, activated.writer.claim
        core.activate(activated)
        self._writer_thread = threading.Thread(target=self._write, name="kafka-journal-writer", daemon=True)
        self._writer_thread.start()
        self._copy.keep_lent(self)
        if report.in_doubt:
            count = counted_are(len(report.in_doubt), "transaction")
            log.warning("%s in doubt: %s", count, command("tx list", journal=self._settings.journal))
        return report

    def _activate_with(self, identity: Identity, loader: Loader | None) -> tuple[Activated, ActivationReport]:
        tables, following = self._copy.lend()
        self._has_copy = True
        activation = self._activation(identity, tables)
        try:
            if tables.identity != identity:
                raise StateError(f"{called(self._settings.journal)} was made anew: close this one, and start another")
            state = loader or following or NullLoader()
            activated = activation.run(state)
        except BaseException as error:
            self._give_back(error)
            epoch = activation.report.epoch
            if epoch and not isinstance(error, FencedError):
                # the next node need not wait until the silence of this one is noticed, because this one writes nothing
                # more
                say_left(self._kafka, self._settings, identity, epoch, to="")
            raise
        self.loader = state.loader if isinstance(state, Following) else state
        return activated, activation.report

    def _give_back(self, error: BaseException | None = None) -> None:
        if self._has_copy:
            self._has_copy = False
            self._copy.give_back(error)

    def _activation(self, identity: Identity, tables: LocalTables) -> Activation:
        settings = self._settings
        return Activation(
            self._kafka,
            WriterConfig(
                settings.journal,
                identity.journal,
                identity.shards,
                settings.commit_pause_ms / 1000,
                settings.commit_pause_max_ms / 1000,
                settings.group_join_ms / 1000,
                settings.limits.queue_bytes_max,
            ),
            settings.limits,
            lambda epoch: Claim(epoch, settings.node, os.urandom(16)),
            tables.replica,
            tables.store,
            self._timing,
            require_same_table=tables.require_same,
            gate_s=settings.gate_timeout_ms / 1000,
            wall_ms=wall_ms,
            progress=self._progress,
            beside=in_thread,
            require_open=self._require_open,
            at_gate=self._said_at_gate(),
        )

    def _said_at_gate(self) -> AtGate:
        """The caller's `at_gate`, behind one that says a long wait."""
        wait = GateWait(self._settings.journal, self._workers, clock=self._timing.clock, beside=in_thread)

        def at_gate(waiting: Mapping[int, Mark]) -> None:
            wait(waiting)
            self._at_gate(waiting)

        return at_gate

    def _workers(self) -> Sequence[str]:
        """The names of the workers that run."""
        with closing(self._kafka.cluster()) as cluster:
            members = cluster.group_members(worker_group(self._settings.journal), self._timing.request_s)
        return [member.client_id for member in members]

    def _require_open(self, reason: str = "the journal was closed while it was being activated") -> None:
        if self._closing.is_set():
            raise ClosedError(reason)

    def _write(self) -> None:
        core = self.require_core()
        try:
            while core.step(_STEP_S):
                pass
        except Exception as error:
            log.exception("the writer failed")
            core.step_down(JournalError(f"the writer failed: {error!r}"))

    def seen(self, marks: Mapping[int, Mark]) -> None:
        """Step down when the local copy shows another activation with the same or a newer epoch. (`Watch` has this
        call.)"""
        claim = self._claim
        newer = [mark.epoch for mark in marks.values() if claim and standing_of(claim, mark) is Standing.NEWER]
        if newer:
            epoch = max(newer)
            what = f"the tables are at epoch {epoch} of another activation"
            self.require_core().step_down(FencedError(what, epoch=epoch))

    def failed(self, error: Exception) -> None:
        """Step down when the follower meets an error of no known kind. (`Watch` has this call.)"""
        self.require_core().step_down(JournalError(f"the local copy failed: {error!r}"))

    def end_activation(self) -> None:
        """Make an activation that is under way end with ClosedError, as `close` does, without waiting for its end. No
        other activation begins. The journal must still be closed."""
        self._closing.set()

    def close(self, *, to: str = "") -> None:
        """Write what was accepted, write a control row that this node left, and release everything. Waits for a `start`
        that is under way.

        `to` is the standby that shall become active: the row names it, and it activates at once. An activation that is
        under way ends first, with ClosedError, when its current request is answered or the loader returns. Raises
        StateError if the activation itself calls this, in a callback.
        """
        require_no_callback("close the journal")
        self._closing.set()
        if self._activating_in is threading.current_thread():
            raise StateError(
                "an activation cannot close its own journal: raise an error to end it, then close the journal"
            )
        with self._activating:
            self._close(to)

    def _close(self, to: str) -> None:
        core, identity, was_closed, self._closed = self._core, self._identity, self._closed, True
        if core is not None and identity is not None and not was_closed:
            core.begin_close()
            if self._writer_thread is not None:
                self._writer_thread.join()
            if self.report is not None and core.state is JournalState.ACTIVE:
                say_left(self._kafka, self._settings, identity, self.report.epoch, to)
            core.end_close()
            if self._lookup is not None:
                self._lookup.close()
            self._give_back()
        if self._owns_copy:
            self._copy.close()

    def require_core(self) -> Core:
        """The core that appends go to. Raises StateError before `start`."""
        if self._core is None:
            raise self._refusal()
        return self._core

    def require_lookup(self) -> Lookup:
        """The reader of single records. Raises StateError before `start`."""
        if self._lookup is None:
            raise self._refusal()
        return self._lookup

    def _refusal(self, mend: str = "") -> StateError:
        return refusal(self.state, mend, closed=self._closing.is_set())

    @property
    def shards(self) -> int:
        """P, the number of shards."""
        if self._identity is None:
            raise self._refusal()
        return self._identity.shards
