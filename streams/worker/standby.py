"""Warm copies of the shards that a worker does not own, so that it can continue at once when it gets such a shard. (The
copy of a standby node is `journal.activate.copy`, and `journal.activate.warm_state` tells its loader what changes.)

Each copy is the store that the shard's worker will use. A replica in a thread of its own keeps it at the table's end,
with a consumer of its own, which counts if P is large. When the shard is assigned, the open store is passed to its
worker.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from time import monotonic

from journal.disk.ports import LocalStore
from journal.errors import CorruptionError, CountError, LocalDamageError, LocalStorageError, OperatingError
from journal.process.waits import LongWait
from journal.table.replica import Replica
from journal.words import shortened

log = logging.getLogger(__name__)

_POLL_S = 0.1
"""How long one poll waits for rows. A shard that is assigned may wait that long for its copy. The poll that ends the
building of a copy also counts its rows, which takes about 1.5 µs for each record."""
_RETRY_S = 1.0
COUNT_AGAIN_S = 600.0
"""How long a copy whose numbers of rows were wrong twice waits before it reads the whole table once more. Somebody may
have mended the table meanwhile."""


class StandbyCopies:
    """The standby copies of a worker. The worker's thread uses it; copies of several shards may be taken at the same
    time."""

    def __init__(
        self,
        stores: Callable[[int], LocalStore],
        replica: Callable[[int, LocalStore], Replica],
        open_timeout_s: float,
        *,
        count_again_s: float = COUNT_AGAIN_S,
    ) -> None:
        """`stores` opens a shard's local store, `replica` makes a replica that follows the shard into it."""
        self._stores = stores
        self._replica = replica
        self._open_timeout_s = open_timeout_s
        self._count_again_s = count_again_s
        self._copies: dict[int, _Copy] = {}

    def follow(self, shards: Collection[int]) -> None:
        """Follow these shards too. A shard whose store cannot be opened is left out until the next call."""
        for shard in sorted(set(shards) - set(self._copies)):
            try:
                store = self._stores(shard)
            except LocalStorageError as error:
                log.warning("shard %d: no standby copy: %s", shard, error)
                continue
            log.info("shard %d: following, as a standby", shard)
            self._copies[shard] = _Copy(shard, store, self._replica, self._open_timeout_s, self._count_again_s)

    def ended(self) -> dict[int, str]:
        """The shards whose copies do not follow now, and the reasons. Any thread may call this."""
        return {shard: copy.ended_by for shard, copy in list(self._copies.items()) if copy.ended_by}

    def take(self, shard: int) -> LocalStore | None:
        """Stop following a shard; returns its store, which stays open."""
        copy = self._copies.pop(shard, None)
        return None if copy is None else copy.end()

    def close(self) -> None:
        copies, self._copies = self._copies, {}
        for copy in copies.values():
            copy.stop.set()
        for copy in copies.values():
            copy.end().close()


class _Copy:
    """The thread that keeps one shard's copy."""

    def __init__(
        self,
        shard: int,
        store: LocalStore,
        replica: Callable[[int, LocalStore], Replica],
        open_timeout_s: float,
        count_again_s: float,
    ) -> None:
        self.stop = threading.Event()
        self.ended_by = ""
        """The error that ended the thread, or for which it waits; empty if there is none."""
        self._shard = shard
        self._store = store
        self._make = replica
        self._open_timeout_s = open_timeout_s
        self._count_again_s = count_again_s
        self._damaged = False
        self._miscounted = False
        """Whether the copy's numbers of rows were wrong when it was last built."""
        self._thread = threading.Thread(target=self._run, name=f"worker-standby-{shard}", daemon=True)
        self._thread.start()

    def end(self) -> LocalStore:
        self.stop.set()
        wait = LongWait(monotonic)
        while self._thread.is_alive():
            self._thread.join(max(0.0, wait.left_s))
            wait.look(f"the standby copy of shard {self._shard}", "it counts its rows, 1.5 µs for each record")
        return self._store

    def _run(self) -> None:
        replica = self._make(self._shard, self._store)
        try:
            while not self.stop.is_set():
                try:
                    self._follow(replica)
                except CountError as error:
                    self._build_anew(error)
        except CorruptionError as error:
            self.ended_by = str(error)
            log.error("shard %d: the standby copy follows no more: %s", self._shard, error)
        except Exception as error:
            self.ended_by = shortened(repr(error))
            log.exception("shard %d: the standby copy follows no more", self._shard)
        finally:
            replica.close()

    def _follow(self, replica: Replica) -> None:
        try:
            if self._damaged:
                self._store.clear()
                self._damaged = False
            replica.open(self._open_timeout_s)
            while not self.stop.is_set():
                replica.poll(_POLL_S)
                if self._miscounted and replica.readable:
                    log.info("shard %d: the standby copy has the numbers of rows that the table says", self._shard)
                    self._miscounted, self.ended_by = False, ""
        except LocalDamageError as error:
            log.warning("shard %d: the standby copy is damaged, and built anew: %s", self._shard, error)
            self._damaged = True
        except OperatingError as error:
            log.warning("shard %d: the standby copy cannot follow: %s", self._shard, error)
            self.stop.wait(_RETRY_S)

    def _build_anew(self, error: CountError) -> None:
        """Build the copy once more. If its numbers are wrong again, the table is at fault: wait, it may be mended."""
        self._damaged = True
        if self._miscounted:
            self.ended_by = str(error)
            log.error("shard %d: the standby copy waits %g s: %s", self._shard, self._count_again_s, error)
            self.stop.wait(self._count_again_s)
            return
        self._miscounted = True
        log.warning("shard %d: the standby copy is built anew: %s", self._shard, error)
