"""A journal's life in one process: connect, activate, write and follow in threads of its own, close.

`Core` decides what may be appended, `Activation` and `Writer` what is written; this runs them.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

from journal.activation import Activation, ActivationReport, Progress
from journal.config import Settings
from journal.core import Core
from journal.errors import (
    CorruptionError,
    FencedError,
    JournalError,
    OperatingError,
    StateError,
)
from journal.fencing import Claim, Timing
from journal.kafka.clients import KafkaClients
from journal.kafka.control import RELEASED_KEY, ControlRows, control_row, table_topic
from journal.kafka.ports import Kafka
from journal.kafka.topics import open_journal
from journal.loading import Loader, NullLoader
from journal.local.rocks import RocksStore
from journal.lookup import Lookup
from journal.replica import Replica, copy_identity
from journal.state import JournalState
from journal.v1.journal_pb2 import Identity, Mark, Released
from journal.writer import WriterConfig

log = logging.getLogger(__name__)

_STEP_S = 1.0
_FOLLOW_S = 0.5


def wall_ms() -> float:
    """Milliseconds since 1970."""
    return time.time() * 1000


def no_progress(step: str, done: int, total: int) -> None:
    """Shows nothing."""


def kafka_of(settings: Settings) -> KafkaClients:
    """The Kafka clients of a process."""
    return KafkaClients(
        settings.bootstrap_servers,
        settings.client_properties,
        limits=settings.limits,
        transaction_timeout_ms=settings.transaction_timeout_ms,
    )


def open_replica(kafka: Kafka, settings: Settings, identity: Identity, store: RocksStore) -> Replica:
    """A replica of all shards in `store`, seeking to where the copy stands."""
    timeout_s = settings.request_timeout_ms / 1000
    cluster = kafka.cluster()
    topic = table_topic(settings.journal)
    topic_id = cluster.describe([topic], timeout_s)[topic].topic_id
    replica = Replica(
        kafka,
        topic,
        range(identity.shards),
        store,
        copy_identity(cluster.cluster_id(timeout_s), topic_id, identity.shards, identity.journal),
        clock=time.monotonic,
        wall_ms=wall_ms,
        delete_retention_ms=settings.delete_retention_ms,
        min_compaction_lag_ms=settings.min_compaction_lag_ms,
        held_bytes_max=settings.limits.held_bytes_max,
    )
    replica.open(timeout_s)
    return replica


class JournalRuntime:
    """What `Journal` and `BlockingJournal` have in common. Calls of its lifecycle block."""

    def __init__(
        self,
        settings: Settings,
        *,
        on_critical: Callable[[JournalError], None] | None = None,
        copy_name: str = "node",
        progress: Progress = no_progress,
        room_wait_s: float = 0.0,
    ) -> None:
        """`on_critical` is called once when the journal is fenced or fails, from a thread of the journal's.

        `copy_name` names this process' local copy of the tables; processes on one machine need different ones.
        `room_wait_s` is how long an append blocks when the queue is full.
        """
        self._settings = settings
        self._on_critical = on_critical
        self._copy_name = copy_name
        self._progress = progress
        self._room_wait_s = room_wait_s
        self._kafka = kafka_of(settings)
        self._timing = Timing(
            time.monotonic,
            time.sleep,
            settings.request_timeout_ms / 1000,
            settings.recovery_timeout_ms / 1000,
            settings.fence_check_ms / 1000,
        )
        self._core: Core | None = None
        self._identity: Identity | None = None
        self._store: RocksStore | None = None
        self._replica: Replica | None = None
        self._lookup: Lookup | None = None
        self._threads: list[threading.Thread] = []
        self._stop = threading.Event()
        self._closed = False
        self._activating = False
        self.report: ActivationReport | None = None

    # ---- lifecycle -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> JournalState:
        if self._core is None:
            return JournalState.CLOSED if self._closed else JournalState.CREATED
        return self._core.state

    @property
    def current(self) -> bool:
        """Whether this node may hand out what it holds: it is active, and knew so recently (`fence_check_ms`)."""
        return self._core is not None and self._core.current

    def start(self) -> ControlRows:
        """Connect, and check the journal's topics. Raises TopicError, KafkaUnavailableError, LocalStorageError."""
        if self._core is not None or self._closed:
            raise StateError(f"the journal is {self.state.value}")
        timeout_s = self._settings.request_timeout_ms / 1000
        rows = open_journal(self._kafka, self._settings, clock=time.monotonic, timeout_s=timeout_s)
        identity = rows.require_identity(self._settings.journal)
        directory = self._settings.directory / self._settings.journal / self._copy_name
        self._store = RocksStore(directory)
        self._replica = open_replica(self._kafka, self._settings, identity, self._store)
        self._identity = identity
        self._lookup = Lookup(
            self._kafka, self._settings.journal, identity, self._store, self._replica, self._timing.clock
        )
        self._core = Core(
            identity.shards, self._settings.limits, self._timing, self._on_critical, room_wait_s=self._room_wait_s
        )
        self._core.become(JournalState.STARTED)
        return rows

    def run_activation(self, loader: Loader | None = None) -> ActivationReport:
        """Become the active node; `loader` is told the state. Raises FencedError, GateTimeoutError, or what it raises.

        After a GateTimeoutError or the loader's error it may be called again.
        """
        core, identity, replica, store = self._core, self._identity, self._replica, self._store
        if core is None or identity is None or replica is None or store is None:
            raise StateError(f"the journal is {self.state.value}: start it first")
        core.become(JournalState.LOADING)
        settings = self._settings
        activation = Activation(
            self._kafka,
            WriterConfig(
                settings.journal,
                identity.journal,
                identity.shards,
                settings.commit_pause_ms / 1000,
                settings.group_join_ms / 1000,
            ),
            settings.limits,
            lambda epoch: Claim(epoch, settings.node, os.urandom(16)),
            replica,
            store,
            self._timing,
            gate_s=settings.gate_timeout_ms / 1000,
            wall_ms=wall_ms,
            progress=self._progress,
        )
        try:
            if self._activating:
                # rows that an earlier attempt had read when it met an error are in no copy
                replica.open(self._timing.request_s)
            self._activating = True
            activated = activation.run(loader or NullLoader())
        except FencedError as error:
            core.step_down(error)
            raise
        except BaseException:
            core.become(JournalState.STARTED)
            raise
        self.report = activated.report
        core.activate(activated)
        self._run("kafka-journal-writer", self._write)
        self._run("kafka-journal-replica", lambda: self._follow(replica, activated.report.epoch))
        if activated.report.in_doubt:
            log.warning("%d transactions are in doubt: kafka-journal tx list", len(activated.report.in_doubt))
        return activated.report

    def _run(self, name: str, target: Callable[[], None]) -> None:
        core = self.require_core()

        def to_its_end() -> None:
            try:
                target()
            except Exception as error:
                log.exception("%s failed", name)
                core.step_down(JournalError(f"{name} failed: {error!r}"))

        thread = threading.Thread(target=to_its_end, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _write(self) -> None:
        core = self.require_core()
        while core.step(_STEP_S):
            pass

    def _follow(self, replica: Replica, epoch: int) -> None:
        """Keep the local copy up to date, and step down when it shows a newer epoch."""
        core = self.require_core()
        lost: dict[int, Mark] | None = None
        while not self._stop.is_set():
            try:
                replica.poll(_FOLLOW_S)
                marks = replica.marks()
                if lost not in (None, marks):
                    log.warning("the local copy follows again")
                    lost = None
                newer = max(mark.epoch for mark in marks.values())
                if newer > epoch:
                    core.step_down(FencedError(f"the tables are at epoch {newer}", epoch=newer))
                    return
                continue
            except OperatingError as error:
                # once: a disk that is full stays so for a while
                log.log(logging.ERROR if lost is None else logging.DEBUG, "the local copy cannot follow: %s", error)
            except CorruptionError as error:
                log.error("the local copy follows no more: %s", error)
                return
            if not self._reopen(replica):
                return
            lost = replica.marks()

    def _reopen(self, replica: Replica) -> bool:
        """Read again from where the copy stands, once that is possible; False when the journal closes before."""
        while not self._stop.wait(_FOLLOW_S):
            try:
                replica.open(self._timing.request_s)
                return True
            except OperatingError as error:
                log.debug("the local copy cannot follow yet: %s", error)
            except CorruptionError as error:
                log.error("the local copy follows no more: %s", error)
                return False
        return False

    def close(self) -> None:
        """Write what was accepted, say in the control rows that this node left, and let everything go."""
        core = self._core
        if core is None or self._closed:
            self._closed = True
            return
        self._closed = True
        was_active = core.state is JournalState.ACTIVE
        core.begin_close()
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if was_active and core.state is JournalState.ACTIVE:
            self._release()
        core.end_close()
        if self._lookup is not None:
            self._lookup.close()
        if self._replica is not None:
            self._replica.close()
        if self._store is not None:
            self._store.close()

    def _release(self) -> None:
        """Best effort: a journal that was not released is only found dead later."""
        identity, report = self._identity, self.report
        if identity is None or report is None:
            return
        row = Released(journal=identity.journal, epoch=report.epoch, node=self._settings.node, timestamp=int(wall_ms()))
        producer = self._kafka.plain_producer()
        try:
            producer.send([control_row(self._settings.journal, RELEASED_KEY, row)], 5.0)
        except JournalError as error:
            log.warning("could not say that this node left: %s", error)
        finally:
            producer.close()

    def require_core(self) -> Core:
        """What appends go to. Raises StateError before `start`."""
        if self._core is None:
            raise StateError(f"the journal is {self.state.value}")
        return self._core

    def require_lookup(self) -> Lookup:
        """What reads records back. Raises StateError before `start`."""
        if self._lookup is None:
            raise StateError(f"the journal is {self.state.value}")
        return self._lookup

    @property
    def shards(self) -> int:
        """P, the number of shards."""
        if self._identity is None:
            raise StateError(f"the journal is {self.state.value}")
        return self._identity.shards
