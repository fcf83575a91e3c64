"""Mutations of what proves a decision: where it was written, what follows what, how old something is."""

from __future__ import annotations

from typing import Any

import journal.activate.claiming
from journal.activate.claiming import Claiming
from journal.errors import AbortableProducerError
from journal.fold.engine import Fold
from journal.process.clocks import Moment
from journal.table.age import TableAge
from journal.wal.reading import require_nothing_between
from journal.wal.writer import Writer
from streams.worker.shard_table import ShardTable
from tests.simulation.mutations import Patch, mutation
from tests.simulation.mutations_tables import UNCOUNTED


def _anything(*_: object) -> None:
    """Proves nothing."""


# ---- leaders that were deposed -------------------------------------------------------------------------------------


@mutation
def claim_is_not_proven() -> list[Patch]:
    """A claim follows the frames that a leader showed, wherever its markers then lie."""
    return [(journal.activate.claiming, "require_nothing_between", _anything)]


@mutation
def read_back_is_not_proven() -> list[Patch]:
    """A group that a leader does not show is sent again, wherever it then lies."""
    return [(Writer, "_require_in_place", _anything)]


@mutation
def table_is_not_proven() -> list[Patch]:
    """A worker goes on from the table that a leader showed, wherever its next checkpoint then lies."""
    return [(ShardTable, "require_next", _anything)]


# ---- ends that are lost --------------------------------------------------------------------------------------------


def _unchained() -> Patch:
    """A worker applies a frame whatever number it says that the one before it had: else it stops, and says so."""
    apply = Fold.apply

    def applying(self: Any, offset: int, timestamp: int, frame: Any) -> bool:
        if offset > self.mark.offset and frame.epoch >= self.mark.epoch:
            self.mark.number = frame.previous
        return apply(self, offset, timestamp, frame)

    return (Fold, "apply", applying)


@mutation
def claim_follows_a_wal_that_lost_its_end() -> list[Patch]:
    """A claim follows the last frame of a shard, whatever tables and counter say that there was, and so do workers."""

    def whole(self: Any, found: Any, places: Any) -> None:
        for shard, (place, tail) in enumerate(zip(places, found.tails, strict=True)):
            require_nothing_between(self._config.journal, {shard: tail.end}, [(shard, place)])

    return [(Claiming, "_require_whole", whole), _unchained()]


@mutation
def acknowledged_end_may_be_gone() -> list[Patch]:
    """A node writes on before where it was told that its last frames are, and workers apply that."""

    def in_place(self: Any, shards: Any, offsets: Any) -> None:
        if self._read_to:
            require_nothing_between(self._config.journal, self._read_to, zip(shards, offsets, strict=True))
            self._read_to.clear()

    return [(Writer, "_require_in_place", in_place), _unchained()]


# ---- transactions that are refused ---------------------------------------------------------------------------------


def _refused(judge: Any) -> list[Patch]:
    """A writer that asks `judge` alone what becomes of a group whose transaction was refused."""
    recover = Writer._recover

    def recovering(self: Any, transaction: Any, met: Any) -> None:
        if isinstance(met, AbortableProducerError):
            judge(met)
        else:
            recover(self, transaction, met)

    return [(Writer, "_recover", recovering)]


@mutation
def a_refused_group_is_there() -> list[Patch]:
    """A group whose transaction was refused is called done."""
    return _refused(_anything)


# ---- clocks --------------------------------------------------------------------------------------------------------


@mutation
def wall_is_the_time() -> list[Patch]:
    """An age is what the clock of the wall says, also where that was set back."""
    return [(Moment, "age_at", lambda self, now: now.wall_s - self.wall_s)]


@mutation
def age_is_by_the_own_clock() -> list[Patch]:
    """How old a copy is, is asked of the clock of its machine, and nobody counts what it has."""
    lacking = (TableAge, "may_lack_tombstones", lambda self, stood_ms: self._wall_ms() - stood_ms > self._retention_ms)
    return [lacking, UNCOUNTED]
