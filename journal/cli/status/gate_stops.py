"""While a command waits for its gate, this finds out why the gate does not open: which shards are stopped at a record
that no worker can apply.

A shard whose mark stands still is looked at in a thread of its own, so that the gate opens no later because of it. Only
a record that every worker refuses, at every try, ends the wait, as nothing but `repair skip` changes that. A worker
that starts, moves or is away leaves no such record; a damaged batch may be readable from another replica; and while
brokers do not answer, nothing is known. All these are waited for until the gate's time-out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from functools import partial

from journal.cli.status.shard_stops import lines_of_stops
from journal.errors import CorruptionError, GateTimeoutError, OperatingError
from journal.process.background import InBackground
from journal.process.clocks import Clock
from journal.upkeep.stops import Stop
from journal.v1.journal_pb2 import Mark
from journal.words import first_few

STILL_S = 3.0
"""How long a mark must stand still before its shard is looked at. The time doubles with each look, because most such
shards are only late, and every look reads from Kafka."""

Look = Callable[[Collection[int]], Mapping[int, Stop]]
"""Returns which of these shards are stopped now, and where. Raises OperatingError, CorruptionError."""


class GateStops:
    """An `AtGate` for one activation."""

    def __init__(self, journal: str, look: Look, *, clock: Clock, beside: InBackground) -> None:
        self._journal = journal
        self._look = look
        self._clock = clock
        self._beside = beside
        self._standing: dict[int, tuple[int, float]] = {}
        """For each shard: the offset of its mark, and since when the mark stands there."""
        self._pause_s = STILL_S
        self._look_at = 0.0
        self._looking: Future[Mapping[int, Stop]] | None = None
        self.told = False
        """Whether this has ended the gate, with an error that names the records at which shards are stopped."""

    def __call__(self, waiting: Mapping[int, Mark]) -> None:
        """Raises GateTimeoutError once one of the shards that the gate waits for is stopped until an operator acts."""
        now = self._clock()
        standing = {shard: (mark.offset, now) for shard, mark in waiting.items()}
        for shard, (offset, _) in standing.items():
            before = self._standing.get(shard)
            if before is not None and before[0] == offset:
                standing[shard] = before
        self._standing = standing
        if self._looking is not None:
            if self._looking.done():
                self._judge(self._looking.result(), waiting)
                self._looking = None
            return
        still = [shard for shard, (_, since) in standing.items() if now - since >= STILL_S]
        if still and now >= self._look_at:
            self._look_at = now + self._pause_s
            self._pause_s *= 2
            self._looking = self._beside(partial(self._looked, still))

    def _looked(self, shards: Collection[int]) -> Mapping[int, Stop]:
        try:
            return self._look(shards)
        except (OperatingError, CorruptionError):
            return {}  # nothing is known now; if the gate times out, its error says what is missing

    def _judge(self, stops: Mapping[int, Stop], waiting: Mapping[int, Mark]) -> None:
        """Judge the results of the looks. A shard may have passed the gate meanwhile."""
        lasting = {shard: stop for shard, stop in stops.items() if shard in waiting and stop.record is not None}
        if not lasting:
            return
        self.told = True
        names = first_few(sorted(lasting))
        reason = f"shards that the activation waits for are stopped until they are repaired: {names}"
        raise GateTimeoutError("\n".join([reason, *lines_of_stops(self._journal, lasting)]))
