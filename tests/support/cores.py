"""Active cores whose writer commits at once: appends alone, without Kafka and without threads."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from journal.append.acceptance import Acceptance
from journal.append.core import Core
from journal.append.group import FrameNumbers, Group
from journal.append.state import JournalState
from journal.append.writing import Activated, Claim, Joining
from journal.limits import Limits
from journal.process.clocks import Moment, Timing

SHARDS = 2


class Committing:
    """A writer that commits a group at a time, and keeps it."""

    def __init__(self, shards: int = SHARDS) -> None:
        self.claim = Claim(3, "node", b"nonce")
        self.numbers = FrameNumbers((0,) * shards, 0)
        self.committed_at = Moment(0.0, 0.0)
        self.written: list[Group] = []

    def write(self, group: Group, joining: Joining) -> None:
        self.written.append(group)
        group.completion.resolve()

    def close(self) -> None: ...


def quick_timing() -> Timing:
    """A millisecond passes with each look at the clock."""
    clock = itertools.count()
    return Timing(lambda: next(clock) * 0.001, lambda seconds: None, 1.0, 1.0, 1000.0, wall_s=lambda: 0.0)


def active_core(
    writer: Committing,
    limits: Limits | None = None,
    live: Sequence[int] = (),
    *,
    timing: Timing | None = None,
    shards: int = SHARDS,
    acceptance: Acceptance | None = None,
) -> Core:
    """In epoch 3, with the records `live`, or with an `acceptance` that is loaded."""
    limits = limits or Limits()
    if acceptance is None:
        acceptance = Acceptance(shards, limits)
        acceptance.load_records(live)
    core = Core(shards, limits, timing or quick_timing())
    core.become(JournalState.STARTED)
    core.become(JournalState.LOADING)
    core.activate(Activated(writer, acceptance, 100))
    return core
