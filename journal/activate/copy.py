"""TableCopy: a process' local copy of the tables. On a standby, `copy_thread` keeps it at the tables' end, and
`warm_state` tells the node's loader what changes.

It outlives the journals that use it: a node has one copy for its life, and a new `Journal` for each activation, so that
nobody can append through the journal of an earlier epoch. Exactly one thread owns replica and store at any time: the
follower's, or that of an activation, for which the follower is stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from rocksdict import DbClosedError

from journal.activate.copy_thread import Fitness, Follower, Watch
from journal.activate.readiness import Readiness
from journal.activate.warm_state import Following
from journal.disk.slots import Slot
from journal.errors import LocalDamageError, LocalStorageError, StateError
from journal.kafka.clients import kafka_of
from journal.kafka.ports import Kafka
from journal.load.loading import Loader
from journal.settings import JournalSettings
from journal.table.open_copy import LocalTables
from journal.topics.control_rows import ControlRows
from journal.v1.journal_pb2 import Identity, Mark

FIT_LAG_MS = 10_000
"""How far behind a copy may be and still count as fit. An activation takes about as long to catch up."""


class TableCopy:
    """The copy in `<directory>/<journal>/<copy_name>`. Thread-safe: its attributes change together, under one lock.

    copy = TableCopy(settings)
    copy.open()
    copy.follow(MyLoader)                       # standby: warm from now on
    with BlockingJournal(settings, copy=copy) as journal:
        journal.activate()                      # with the state that was followed: journal.loader has it
        ...
    ...                                         # standby again, with a new loader
    copy.close()
    """

    def __init__(
        self,
        settings: JournalSettings,
        *,
        copy_name: str = "node",
        slot: Slot | None = None,
        kafka: Kafka | None = None,
        fit_lag_ms: int = FIT_LAG_MS,
    ) -> None:
        """`copy_name` names this process' copy; processes on one machine need different names. A caller that holds a
        directory already gives its `slot` instead, and releases that when the copy is closed.

        A copy that is behind by more than `fit_lag_ms` is not fit.
        """
        self._settings = settings
        self._place = slot or settings.journal_directory / copy_name
        self._kafka = kafka or kafka_of(settings)
        self._fit_lag_ms = fit_lag_ms
        self._lock = threading.Lock()
        self._readiness = Readiness(self._kafka, settings, lambda: self.identity)
        self._tables: LocalTables | None = None
        self._following: Following | None = None
        self._follower: Follower | None = None
        self._lent = False
        self._ending = False
        self._closed = False

    # ---- its owner's -----------------------------------------------------------------------------------------------

    def open(self) -> ControlRows:
        """Connect, check the journal's topics, and open the directory; one that is damaged is built anew.

        Raises TopicError, KafkaUnavailableError, and LocalStorageError if another process has the directory.
        """
        with self._lock:
            if self._tables is not None or self._closed:
                raise StateError("the local copy was opened before")
            self._tables = LocalTables(self._kafka, self._settings, self._place)
            self._readiness.note_check()
            return self._tables.rows

    @property
    def identity(self) -> Identity:
        """The identity of the journal that this copy belongs to. Raises StateError while the copy is not open."""
        return self._require_tables().identity

    @property
    def rows(self) -> ControlRows:
        """The control rows that were read when the copy was opened. Raises StateError while the copy is not open."""
        return self._require_tables().rows

    @property
    def topics_checked(self) -> bool:
        """Whether the last check of the journal's topics was a short time ago and found no fault."""
        return self._readiness.checked

    @property
    def kafka(self) -> Kafka:
        """The Kafka of journals that use the copy. It gives connected clients while the copy is followed."""
        return self._readiness.clients

    def follow(self, loader_factory: Callable[[], Loader]) -> None:
        """Follow the tables in a thread from now on, with a loader kept warm whenever no journal uses the copy.

        A plain loader, without `changed` and `deleted`, is not kept warm: an activation fills it in one scan.
        """
        with self._lock:
            tables = self._require_tables()
            if self._lent or self._following is not None:
                raise StateError("the local copy is followed, or used by a journal")
            self._following = Following(tables.store, self._settings.limits, loader_factory)
            self._stand_by(tables)
            self._readiness.start()

    def end_following(self) -> None:
        """Note that the copy is about to be closed: no state is kept warm any more, and a scan under way ends soon. It
        takes no lock, because `lend` may hold the lock while it waits for such a scan."""
        self._ending = True
        following = self._following
        if following is not None:
            following.end()

    def fitness(self) -> Fitness:
        """Whether a take-over would be warm now, as far as the follower knows. It never waits."""
        follower = self._follower
        if self._lent:
            return Fitness(False, "a journal uses the copy", 0, 0)
        return Fitness(False, "the copy is not followed", 0, 0) if follower is None else follower.fitness

    def close(self) -> None:
        """Stop following and release the directory. The caller must close journals that use the copy first."""
        self.end_following()
        self._readiness.close()
        with self._lock:
            self._stop_follower()
            if self._tables is not None and not self._closed:
                self._tables.close()
            self._closed = True

    # ---- single rows -----------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        """A row, or None if the copy does not have it (yet). Raises LocalStorageError while the copy is closed or
        reopened, and for a damaged copy, which is then built anew."""
        tables = self._tables
        if tables is None:
            raise LocalStorageError("the local copy is not open")
        try:
            return tables.store.get(key)
        except DbClosedError as error:
            raise LocalStorageError("the local copy is closed") from error
        except LocalDamageError as error:
            tables.suspect(error)
            raise

    def mark(self, shard: int) -> Mark:
        """The mark that a shard stands at: an empty one (offset -1) before the first. Raises StateError."""
        if self._tables is None:
            raise StateError("the local copy is not open")
        return self._tables.mark(shard)

    # ---- a journal's -----------------------------------------------------------------------------------------------

    def lend(self) -> tuple[LocalTables, Following | None]:
        """Give the copy to an activation: the caller's thread owns it from now on. Waits for the follower's last poll,
        or for the end of its scan for a new loader.

        Raises StateError while another journal has the copy. Raises OperatingError if the last comparison of copy and
        table is too old and Kafka does not answer a new one, and what reopening the copy after an error raises.
        """
        with self._lock:
            tables = self._require_tables()
            if self._lent:
                raise StateError("another journal uses the local copy: close that one first")
            follower = self._stop_follower()
            try:
                if (follower is not None and follower.was_away) or tables.is_compared_long_ago:
                    tables.compare(self._settings.request_timeout_ms / 1000)
                tables.mend()
            except BaseException:
                self._stand_by(tables)
                raise
            self._lent = True
            return tables, self._following

    def keep_lent(self, watch: Watch) -> None:
        """Have a thread follow the tables again after an activation; it calls `watch`. The state belongs to the journal
        that has the copy."""
        with self._lock:
            tables = self._require_tables()
            tables.listen(None)
            if self._following is not None:
                self._following.restart()
            self._start(Follower(tables, watch=watch, fit_lag_ms=self._fit_lag_ms))

    def give_back(self, error: BaseException | None = None) -> None:
        """Take the copy back and follow it as before `lend`. The journal was closed, or its activation ended in
        `error`."""
        with self._lock:
            if not self._lent:
                return
            self._lent = False
            self._stop_follower()
            if self._tables is None or self._closed:
                return
            if error is not None:
                self._tables.suspect(error)
            if self._following is not None and self._following.finished:
                self._following.restart()
            self._stand_by(self._tables)

    # ---- inside, with the lock -------------------------------------------------------------------------------------

    def _stand_by(self, tables: LocalTables) -> None:
        if self._following is not None and not self._ending:
            tables.listen(self._following)
            self._start(Follower(tables, self._following, fit_lag_ms=self._fit_lag_ms))

    def _start(self, follower: Follower) -> None:
        self._follower = follower
        follower.start()

    def _stop_follower(self) -> Follower | None:
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.stop()
        return follower

    def _require_tables(self) -> LocalTables:
        if self._tables is None or self._closed:
            raise StateError("the local copy is not open")
        return self._tables
