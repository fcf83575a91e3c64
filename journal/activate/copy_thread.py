"""Follower: the thread that keeps an open copy of the tables up to date while no activation uses it.

On a standby it also keeps the state warm (`Following`), and knows whether the node could take over. An error costs only
time: the follower reads again from the place where the copy stands. It builds the copy anew if that is damaged or
deleted, or if the table was deleted and created again. It compares copy and table now and then, and at once after its
process was stopped for a while.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from journal.activate.warm_state import Following
from journal.errors import CorruptionError, LocalDamageError, OperatingError, TopicError
from journal.process.clocks import LONG_AGO, Moment
from journal.table.open_copy import Condition, LocalTables
from journal.v1.journal_pb2 import Mark
from journal.words import counted, counted_are

log = logging.getLogger(__name__)

STANDBY_POLL_S = 0.01
"""How long a poll of a standby waits. It is short, because an activation waits for the follower's last poll."""
ACTIVE_POLL_S = 0.5
_LOOK_EVERY_S = 1.0
_LOOK_S = 1.0
_COMPARE_EVERY_S = 5.0
"""How often the copy is compared with the table. The copy must also be compared after the process stood still for as
long, because the table may have been deleted and created again meanwhile."""
_AGAIN_S = 0.5
_LATER_S = 5.0
_LATER_MAX_S = 300.0
"""The first and the longest pause before a loader that raised, or a table with bad rows, is tried again. A try may scan
the whole copy, so the pause doubles each time until there is a state."""


class Watch(Protocol):
    """The listener of an active journal's copy. The follower's thread calls it."""

    def seen(self, marks: Mapping[int, Mark]) -> None:
        """Called now and then with the marks that the copy stands at."""

    def failed(self, error: Exception) -> None:
        """Called with an error that is none of the journal's own."""


@dataclass(frozen=True, slots=True)
class Fitness:
    """Whether a take-over with a copy would be warm. For a plain loader it says whether the copy is ready to be
    loaded."""

    fit: bool
    why_not: str
    lag_offsets: int
    """How many offsets of the table the copy lacked at the last look."""
    lag_ms: int
    """How long ago the copy had all rows of the table."""
    built: bool = False
    """Whether the copy can be read. An activation waits at its gate until then."""


class Follower:
    """The thread. It owns `tables` from `start` until `stop` has returned.

    Its many attributes carry results from one turn to the next: the last error, and the times and results of the last
    looks.
    """

    def __init__(
        self,
        tables: LocalTables,
        following: Following | None = None,
        watch: Watch | None = None,
        *,
        fit_lag_ms: int,
        later_s: float = _LATER_S,
    ) -> None:
        """A standby gives `following`, an active journal `watch`. `later_s` is the first pause before a table with bad
        rows is tried again."""
        self._tables = tables
        self._following = following
        self._watch = watch
        self._poll_s = STANDBY_POLL_S if following is not None else ACTIVE_POLL_S
        self._fit_lag_ms = fit_lag_ms
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kafka-journal-replica", daemon=True)
        self._met: Exception | None = None
        self._met_at: dict[int, Mark] | None = None
        self._again_at = 0.0
        self._first_later_s = self._later_s = later_s
        self._ends: dict[int, int] = {}
        self._looked_at = 0.0
        self._known = False
        """Whether Kafka answered the last look."""
        self._turned_at = self._asked_at = LONG_AGO
        """When the last turn began, and when the copy was last compared with the table."""
        self._whole_at = time.monotonic()
        self._found = Fitness(False, "the copy is not followed yet", 0, 0)
        self._found_at = self._whole_at

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for what the thread is doing: a request to Kafka, or a scan of the copy, which `Following.end`
        cuts short."""
        self._stop.set()
        self._thread.join()

    @property
    def fitness(self) -> Fitness:
        """The result of the last look. If the follower has made none for long (it waits for a loader or a disk, for
        example), it counts as that far behind. Any thread may ask."""
        found, age_ms = self._found, int((time.monotonic() - self._found_at) * 1000)
        if not found.fit or age_ms <= self._fit_lag_ms:
            return found
        return replace(found, fit=False, why_not=f"the copy has not been followed for {age_ms} ms", lag_ms=age_ms)

    @property
    def was_away(self) -> bool:
        """Whether the stopped follower had made no turn for a while, because the process or the machine was
        suspended."""
        return self._turned_at.age_s >= _COMPARE_EVERY_S

    # ---- its thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._turn()
            except (OperatingError, CorruptionError) as error:
                # only the first error is logged as one, because a full disk, for example, fails every turn
                level = logging.ERROR if self._met is None else logging.DEBUG
                log.log(level, "the local copy cannot follow: %s", error)
                self._meet(error, _AGAIN_S if isinstance(error, OperatingError) else self._later())
            except Exception as error:
                log.exception("the local copy cannot follow")
                if self._watch is not None:
                    self._watch.failed(error)
                self._meet(error, self._later())

    def _later(self) -> float:
        """The pause before the next attempt, twice the last one."""
        pause_s = self._later_s
        self._later_s = min(2 * pause_s, _LATER_MAX_S)
        log.info("the local copy is tried again in %g s", pause_s)
        return pause_s

    def _meet(self, error: Exception, pause_s: float) -> None:
        self._met = error
        self._tables.suspect(error)
        built = self._found.built and self._tables.condition is not Condition.DAMAGED
        self._found = replace(self._found, fit=False, why_not=str(error), built=built)
        self._stop.wait(pause_s)

    def _turn(self) -> None:
        tables = self._tables
        self._turned_at = Moment.now()
        if tables.compared_at.age_s >= _COMPARE_EVERY_S and self._asked_at.age_s >= _COMPARE_EVERY_S:
            self._compare()
        tables.look()
        if tables.condition is not Condition.SOUND:
            tables.mend()
            self._met_at = tables.replica.marks()
        replica = tables.replica
        replica.poll(self._poll_s)
        if self._met is not None and replica.marks() != self._met_at:
            log.warning("the local copy follows again")
            self._met = None
        if self._watch is not None:
            self._watch.seen(replica.marks())
        if self._following is not None:
            # the call comes before a scan of the copy, which may take long, because an activation may wait for the scan
            if replica.readable != self._found.built:
                self._found = replace(self._found, built=replica.readable)
            self._keep_warm(self._following)
            self._look()
        if replica.readable and (self._following is None or self._following.warm):
            self._later_s = self._first_later_s

    def _compare(self) -> None:
        self._asked_at = Moment.now()
        try:
            self._tables.compare(_LOOK_S)
        except TopicError:
            raise
        except OperatingError as error:
            log.debug("whether the table is the same is not known: %s", error)

    def _keep_warm(self, following: Following) -> None:
        if following.failure is None:
            following.warm_up(self._tables.replica)
            if following.failure is not None:
                self._again_at = time.monotonic() + self._later()
        elif isinstance(following.failure, LocalDamageError):
            failure = following.failure
            following.restart()
            raise failure
        elif time.monotonic() >= self._again_at:
            following.restart()

    # ---- fitness ---------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Ask now and then where the table ends. Once the copy has read up to that end, it had all rows at the time of
        the question."""
        replica, now = self._tables.replica, time.monotonic()
        if now - self._looked_at >= _LOOK_EVERY_S:
            self._looked_at = now
            try:
                self._ends, self._known = replica.ends(_LOOK_S), True
            except OperatingError as error:
                log.debug("where the table ends is not known: %s", error)
                self._known = False
        behind = replica.behind(self._ends)
        lag_ms = 0
        if replica.readable and self._known and not behind:
            self._whole_at = self._looked_at
        else:
            lag_ms = int((now - self._whole_at) * 1000)
        why_not = self._why_not(behind, lag_ms)
        self._found_at = time.monotonic()
        self._found = Fitness(not why_not, why_not, behind, lag_ms, replica.readable)

    def _why_not(self, behind: int, lag_ms: int) -> str:
        following = self._following
        if not self._tables.replica.readable:
            return f"the copy is being built: {counted_are(behind, 'offset')} left"
        if following is not None and following.failure is not None:
            return f"the state could not be followed: {following.failure}"
        if following is not None and following.follows and not following.warm:
            return "the state is not loaded yet"
        if lag_ms > self._fit_lag_ms:
            return f"the copy is {counted(behind, 'offset')} and {lag_ms} ms behind"
        return ""
