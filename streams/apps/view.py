"""GlobalView: read access of a service to the whole journal's tables: queues, messages, transactions, records.

The view is a read-only copy that follows the table topic in a thread of its own. For each shard it shows the state of
the newest mark that it has read; marks of different shards are of different moments. The thread that follows answers
all questions, between two checkpoints.
"""

from __future__ import annotations

import logging
import os
import queue
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from journal.activate.copy import FIT_LAG_MS
from journal.activate.copy_thread import Fitness, Follower
from journal.activate.warm_state import Following
from journal.config import Settings
from journal.disk.slots import Slot
from journal.errors import DeadlineError, StateError
from journal.kafka.clients import kafka_of
from journal.kafka.ports import Kafka
from journal.load.loading import FollowingLoader
from journal.process.clocks import wall_ms
from journal.store.model import QueueConfig, ReferenceInfo
from journal.store.queues.entry import MessageEntry, QueueEntry
from journal.store.queues.loaded import LoadedStore
from journal.store.queues.state import QueueState
from journal.table.open_copy import LocalTables
from journal.v1.journal_pb2 import Mark, Transaction
from streams.agents.changes import LiveRecord, all_records, record_in

log = logging.getLogger(__name__)

T = TypeVar("T")

ANSWER_S = 10.0
"""How long a question may take. A question that comes while the copy is built, or while Kafka does not answer, fails
after this time."""

MESSAGES_MAX = 1000
"""The most messages of a queue in one answer."""


class StateLoader(FollowingLoader, Protocol):
    """A loader whose state can be read while it is kept warm; `loaders.queues.QueueLoader` is one."""

    @property
    def loaded(self) -> LoadedStore: ...


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue in the tables. Messages that transactions in doubt add are not counted; messages that they acknowledge
    still are."""

    id: int
    config: QueueConfig
    ready: int
    scheduled: int
    held: int
    bytes: int
    oldest_ms: int
    """When the oldest message of the highest priority was sent, in ms since 1970; 0 if no message is ready."""


@dataclass(frozen=True, slots=True)
class MessageView:
    """A message in a queue, and the queue's reference to it."""

    reference: ReferenceInfo
    entry: MessageEntry


@dataclass(frozen=True, slots=True)
class TransactionView:
    """A prepared transaction. While it is being prepared or settled, some of its shards may not show it yet, or not any
    more."""

    tx: int
    data: bytes
    """The data with which it was prepared, usually an xid."""
    shards: int
    shards_seen: int
    operations: int
    """The number of its operations in the shards that show it."""


class GlobalView:
    """A copy of the whole journal's tables for questions. Thread-safe.

    with GlobalView(settings, QueueLoader, directory) as view:
        view.wait(60)
        print(view.queues())
    """

    def __init__(
        self,
        settings: Settings,
        loader: Callable[[], StateLoader],
        directory: str | os.PathLike[str] | None = None,
        *,
        kafka: Kafka | None = None,
        fit_lag_ms: int = FIT_LAG_MS,
    ) -> None:
        """`loader` makes the object that holds the queues: `loaders.queues.QueueLoader`, with the bounds on memory that
        it takes.

        The copy is kept in `directory`; processes on one machine need different directories.
        """
        self._settings = settings
        self._loader = loader
        self._directory = Path(directory) if directory else settings.journal_directory / "view"
        self._kafka = kafka or kafka_of(settings)
        self._fit_lag_ms = fit_lag_ms
        self._questions: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._tables: LocalTables | None = None
        self._following: Following | None = None
        self._follower: Follower | None = None
        self._marks: dict[int, Mark] = {}
        self._sorted: QueueState | None = None

    # ---- life ------------------------------------------------------------------------------------------------------

    def start(self, place: str | os.PathLike[str] | Slot | None = None) -> None:
        """Begin to follow. `place` is a directory for the copy, or a slot that is held already; without it, the
        directory given to the constructor.

        Raises TopicError, KafkaUnavailableError, and LocalStorageError if another process has the directory.
        """
        if self._tables is not None:
            raise StateError("the view was started before")
        at = place if isinstance(place, Slot) else Path(place or self._directory)
        tables = self._tables = LocalTables(self._kafka, self._settings, at)
        self._following = Following(tables.store, self._settings.limits, self._loader)
        tables.listen(self._following)
        self._follower = Follower(tables, self._following, self, fit_lag_ms=self._fit_lag_ms)
        self._follower.start()

    def close(self) -> None:
        if self._follower is not None:
            self._follower.stop()
            self._follower = None
        if self._tables is not None:
            self._tables.close()
            self._tables = None

    def __enter__(self) -> GlobalView:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self, timeout_s: float) -> None:
        """Wait until the view has read all rows that were in the table at the call. Raises DeadlineError."""
        until = time.monotonic() + timeout_s
        while not (fitness := self.fitness()).fit:
            if time.monotonic() > until:
                raise DeadlineError(f"the view is not ready after {timeout_s:g} s: {fitness.why_not}")
            time.sleep(0.02)

    def fitness(self) -> Fitness:
        """Whether the view follows the tables, and how far it is behind. It never waits."""
        follower = self._follower
        return Fitness(False, "the view is not started", 0, 0) if follower is None else follower.fitness

    def marks(self) -> Mapping[int, Mark]:
        """The marks at which the view stood after its last step. It never waits."""
        return self._marks

    # ---- the follower's thread -------------------------------------------------------------------------------------

    def seen(self, marks: Mapping[int, Mark]) -> None:
        """Bring the state to these marks, at which the copy stands, and answer questions. The follower calls this
        between two polls."""
        self._marks = dict(marks)
        if self._following is not None and not self._following.warm:
            self._sorted = None  # otherwise the old state would stay in memory beside the new one
        while True:
            try:
                question = self._questions.get_nowait()
            except queue.Empty:
                return
            question()

    def failed(self, error: Exception) -> None:
        """Do nothing, because the follower has logged the error and goes on."""

    def _ask(self, answer: Callable[[QueueState, LocalTables], T]) -> T:
        """Ask the view's thread to answer. Raises DeadlineError if the answer does not come in time, and any error of
        `answer`."""
        asked: Future[T] = Future()

        def question() -> None:
            if not asked.set_running_or_notify_cancel():
                return
            try:
                asked.set_result(answer(*self._current()))
            except Exception as error:  # noqa: BLE001  # whoever asked is told, and the follower goes on
                asked.set_exception(error)

        if self._follower is None:
            raise StateError("the view is not started")
        self._questions.put(question)
        try:
            return asked.result(ANSWER_S)
        except TimeoutError:
            asked.cancel()
            raise DeadlineError(f"the view does not answer: {self.fitness().why_not or 'it is busy'}") from None

    def _current(self) -> tuple[QueueState, LocalTables]:
        tables, following = self._tables, self._following
        if tables is None or following is None:
            raise StateError("the view is not started")
        following.warm_up(tables.replica)
        loader: Any = following.loader
        if not following.warm or loader is None:
            raise DeadlineError(f"the view is not ready: {self.fitness().why_not or 'its copy is being built'}")
        state: QueueState = loader.loaded.state
        if state is not self._sorted:
            state.sort_lines()
            self._sorted = state
        return state, tables

    # ---- questions -------------------------------------------------------------------------------------------------

    def queues(self) -> list[QueueView]:
        """All queues, by name."""
        return self._ask(lambda state, _: sorted(map(_queue_view, state.queues()), key=lambda found: found.config.name))

    def queue(self, name: str) -> QueueView:
        """One queue. Raises QueueMissingError."""
        return self._ask(lambda state, _: _queue_view(state.queue(name)))

    def messages(self, name: str, limit: int = 100) -> list[MessageView]:
        """A queue's first messages in order of delivery, at most `MESSAGES_MAX`. Raises QueueMissingError."""
        return self._ask(lambda state, _: list(_messages(state, name, min(limit, MESSAGES_MAX))))

    def transactions(self) -> list[TransactionView]:
        """Prepared transactions, by id."""
        return self._ask(lambda _, tables: _transactions(tables))

    def record(self, record_id: int) -> LiveRecord | None:
        """A record with its updates; None if there is none."""
        return self._ask(lambda _, tables: record_in(tables.store, record_id))

    def records(self) -> Iterator[LiveRecord]:
        """All records at one moment, in the order of their ids. The view stands still until the last one has been
        taken."""
        snapshot = self._ask(lambda _, tables: tables.store.snapshot())
        try:
            yield from all_records(snapshot)
        finally:
            snapshot.close()

    def age_s(self, timestamp_ms: int) -> float:
        """Seconds since a time; 0 if there is no time."""
        return max(0.0, (wall_ms() - timestamp_ms) / 1000) if timestamp_ms else 0.0


def _queue_view(entry: QueueEntry) -> QueueView:
    return QueueView(entry.record_id, entry.config, entry.ready, entry.scheduled, entry.held, entry.bytes, entry.oldest)


def _messages(state: QueueState, name: str, limit: int) -> Iterator[MessageView]:
    references = state.browse(state.queue(name).record_id)
    found = [reference for reference, _ in zip(references, range(limit), strict=False)]
    return (MessageView(reference, state.message(reference.message)) for reference in found)


def _transactions(tables: LocalTables) -> list[TransactionView]:
    """Prepared transactions from their headers alone. Shards stand at different groups, so some parts may be
    missing."""
    parts: dict[int, list[Transaction]] = {}
    for _, value in tables.store.scan(b"t"):
        part = Transaction.FromString(value)
        if part.prepared:
            parts.setdefault(part.tx, []).append(part)
    return [
        TransactionView(
            tx,
            b"".join(part.data for part in found),
            found[0].shards,
            len(found),
            sum(part.staged for part in found),
        )
        for tx, found in sorted(parts.items())
    ]
