"""LocalTables, an open copy of a journal's tables: its directory, the store in it, and the replica that follows the
topic.

The copy can always be built again from the topic. So the copy is built anew if its directory cannot be opened or read
(after a power cut, say), or if the topics were deleted and created again.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from enum import Enum
from pathlib import Path

from journal.disk.rocks import open_copy
from journal.disk.slots import Slot, hold
from journal.errors import LocalDamageError, LocalStorageError, TopicError
from journal.kafka.ports import Kafka
from journal.process.clocks import Moment
from journal.settings import JournalSettings
from journal.table.opening import identity_of_copy, open_replica
from journal.table.replica import CopyListener, Replica
from journal.topics.control_rows import ControlRows
from journal.topics.made_and_checked import open_journal
from journal.v1.journal_pb2 import Identity, Mark

log = logging.getLogger(__name__)

_COMPARED_COUNTS_S = 30.0


class Condition(Enum):
    """What has to be done before a copy can follow the table again."""

    SOUND = "sound"
    STALE = "stale"  # rows that were read may be missing in the copy: read them again from the place where it stands
    DAMAGED = "damaged"  # the files of the copy cannot be read: build it anew


class LocalTables:
    """An open copy of a journal's tables. One thread at a time uses it; only `mark`, `suspect` and reads of the store
    may be called by others."""

    def __init__(self, kafka: Kafka, settings: JournalSettings, place: Path | Slot) -> None:
        """`place` is the copy's directory, which this object locks until it is closed, or a slot that the caller has
        locked.

        Raises TopicError, KafkaUnavailableError, and LocalStorageError if another process has the directory.
        """
        self._kafka = kafka
        self._settings = settings
        self._timeout_s = settings.request_timeout_ms / 1000
        self._listener: CopyListener | None = None
        self.condition = Condition.SOUND
        self.compared_at = Moment.now()
        """When the table was last compared with the topic that this copy was made from."""
        self.rows = self._open_journal()
        with ExitStack() as undoing:
            if isinstance(place, Slot):
                self._slot = place
            else:
                self._slot = _held(place)
                undoing.callback(self._slot.release)
            self._cluster = kafka.cluster()
            undoing.callback(self._cluster.close)
            self.store = open_copy(self._slot.path)
            undoing.callback(self.store.close)
            self.replica = self._opened_replica()
            self._closing = undoing.pop_all()

    def _open_journal(self) -> ControlRows:
        return open_journal(self._kafka, self._settings, clock=time.monotonic, timeout_s=self._timeout_s)

    def _opened_replica(self) -> Replica:
        try:
            return open_replica(self._kafka, self._settings, self.identity, self.store)
        except LocalDamageError as error:
            log.warning("the local copy is damaged, and built anew: %s", error)
            self.store.clear()
            return open_replica(self._kafka, self._settings, self.identity, self.store)

    @property
    def identity(self) -> Identity:
        """The identity of the journal that this copy belongs to."""
        return self.rows.require_identity(self._settings.journal)

    def listen(self, listener: CopyListener | None) -> None:
        """Tell `listener` of each change of the copy from now on, also after the replica was replaced."""
        self._listener = listener
        self.replica.listen(listener)

    def mark(self, shard: int) -> Mark:
        """The mark at which the copy of a shard stands."""
        return self.replica.mark(shard)

    def suspect(self, error: BaseException) -> None:
        """Called with an error that a user of the copy met. Before the copy is used again, `mend` repairs what the
        error means for it."""
        if isinstance(error, LocalDamageError):
            if self.condition is not Condition.DAMAGED:
                log.warning("the local copy is damaged, and built anew: %s", error)
            self.condition = Condition.DAMAGED
        elif self.condition is Condition.SOUND:
            self.condition = Condition.STALE

    @property
    def is_compared_long_ago(self) -> bool:
        """Whether the table must be compared again before the copy is used for an activation."""
        return self.compared_at.age_s >= _COMPARED_COUNTS_S

    def look(self) -> None:
        """Check whether the directory still exists. If it does not, the next `mend` makes it anew."""
        if self.condition is not Condition.DAMAGED and self._slot.is_lost:
            self.suspect(LocalDamageError(f"somebody has deleted {self._slot.path} or its lock"))

    def compare(self, timeout_s: float) -> None:
        """Ask the brokers whether the table topic is still the one from which this copy was made. If somebody has
        deleted it and created it again, the next `mend` builds the copy anew.

        Reading alone does not show this, because the new topic may have the offset at which the copy stands, too.
        Raises OperatingError if the brokers do not answer.
        """
        if not self._is_same(timeout_s):
            self.suspect(TopicError(f"the table of {self._settings.journal} was made anew"))

    def require_same(self) -> None:
        """Raises TopicError if the table is not the topic that this copy was made from, and OperatingError if the
        brokers do not answer. Another thread may call it while the owner's thread waits for the result."""
        if not self._is_same(self._timeout_s):
            raise TopicError(
                f"the table of {self._settings.journal} was made anew behind the local copy, which is built anew now: "
                "activate again"
            )

    def _is_same(self, timeout_s: float) -> bool:
        now = Moment.now()
        identity = identity_of_copy(self._cluster, self._settings, self.identity, timeout_s)
        self.compared_at = now
        return identity == self.replica.identity

    def mend(self) -> None:
        """Repair the copy so that it can follow the table again. Raises what opening it raises, and LocalStorageError
        if its directory was deleted and another process has taken the new one."""
        if self.condition is Condition.SOUND:
            return
        if self.condition is Condition.DAMAGED:
            self._slot.renew()
            self.store.clear()
        try:
            self._reopen()
        except LocalDamageError as error:
            self.suspect(error)
            raise
        self.condition = Condition.SOUND

    def _reopen(self) -> None:
        if self._is_same(self._timeout_s):
            self.replica.open(self._timeout_s)
            return
        log.warning("the topics of %s were made anew, and so is the local copy", self._settings.journal)
        self.rows = self._open_journal()
        if self._listener is not None:
            self._listener.lost()
        replica = self._opened_replica()
        self.replica.close()
        self.replica = replica
        replica.listen(self._listener)

    def close(self) -> None:
        self.replica.close()
        self._closing.close()


def _held(directory: Path) -> Slot:
    slot = hold(directory)
    if slot is None:
        raise LocalStorageError(
            f"another process has {directory}: end it first. Another copy_name would give this one a copy of its own, "
            "and activating here would fence the other one"
        )
    return slot
