"""`InDoubtWatch`: while a node is active, it applies the setting `on_in_doubt` and the time-outs of branches now and
then.

    watch = InDoubtWatch(resource, policy)                     # when the node is active
    watch.start()
    ...
    watch.stop()                                               # before the store is closed

It settles in a thread of its own, because it waits until each outcome is durable. After the end of its activation it
can do nothing more, because that activation's store and journal refuse its calls.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

from journal.errors import JournalError, OperatingError
from journal.process.clocks import AGREEMENT_MS, AgreedTime, monotonic_ms, wall_ms
from journal.process.commands import command
from journal.words import counted_are
from journal.xa.policy import InDoubtPolicy, OnInDoubt
from journal.xa.ports import ClockMs
from journal.xa.resource import XaResource

log = logging.getLogger(__name__)

LOOK_EVERY_MAX_S = 60.0
"""The longest time between two looks. There are ten looks in the time of a policy's age, if that is shorter."""

LOOK_EVERY_MIN_S = 0.1

EXPIRE_EVERY_S = 1.0
"""Time between two looks for branches that have timed out. An abandoned branch may keep its locks that much longer."""


class InDoubtWatch:
    """The watch of one activation. `start` and `stop` do not wait for anything."""

    def __init__(
        self,
        resource: XaResource,
        policy: InDoubtPolicy,
        *,
        clock_ms: ClockMs = wall_ms,
        elapsed_ms: ClockMs = monotonic_ms,
    ) -> None:
        """The clocks are the resource's. An age counts only after the two clocks have agreed for the policy's age, or
        for a minute, because a settlement cannot be undone when a wrong clock is corrected."""
        self._resource = resource
        self._policy = policy
        self._agreed = AgreedTime(clock_ms, elapsed_ms, min(AGREEMENT_MS, policy.age_ms))
        self._every_s = LOOK_EVERY_MAX_S
        if policy.action is not OnInDoubt.KEEP:
            self._every_s = max(LOOK_EVERY_MIN_S, min(LOOK_EVERY_MAX_S, policy.age_ms / 10_000))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kafka-journal-in-doubt", daemon=True)

    def start(self) -> None:
        """Log how many transactions are in doubt, which ones, and what the policy does with them; then watch them."""
        count = len(self._resource.in_doubt()) + len(self._resource.unnamed)
        if count:
            said = counted_are(count, "transaction")
            log.warning("%s in doubt (%s); %s", said, command("tx list"), self._what_becomes_of_them())
            self._resource.warn()
        self._thread.start()

    def stop(self) -> None:
        """Settle no more after the transaction that is being settled now."""
        self._stop.set()

    def join(self, timeout_s: float) -> bool:
        """Wait until the thread has ended; returns whether it has."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _what_becomes_of_them(self) -> str:
        action = self._policy.action.value
        if self._policy.action is OnInDoubt.KEEP:
            return f"on_in_doubt is {action}: they wait for their coordinator, or for tx commit and tx rollback"
        return f"on_in_doubt is {action}, after {self._policy.age_ms / 1000:g} s"

    def _run(self) -> None:
        settle_at = -math.inf
        try:
            while not self._stop.is_set():
                self._agreed()
                self._try(self._resource.expire)
                if time.monotonic() >= settle_at:
                    self._try(self._settle)
                    settle_at = time.monotonic() + self._every_s
                self._stop.wait(min(self._every_s, EXPIRE_EVERY_S))
        except JournalError as error:
            if not self._stop.is_set():
                log.warning("nothing in doubt is settled or timed out any more in this activation: %s", error)

    def _settle(self) -> None:
        """Settle transactions by the policy, and finish rollbacks by hand that were decided but not made."""
        self._resource.finish()
        self._policy.apply(self._resource, self._agreed())

    def _try(self, act: Callable[[], object]) -> None:
        """Make a call, and leave it for a later look if the journal cannot do it now."""
        try:
            act()
        except OperatingError as error:
            log.info("what is in doubt or has timed out waits: %s", error)
