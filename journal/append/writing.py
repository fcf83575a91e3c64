"""What appends need of the writer of their groups, and what an activation gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from journal.append.acceptance import Acceptance
from journal.append.group import FrameNumbers, Group
from journal.process.clocks import Moment


class GroupWriter(Protocol):
    """The writer of one activation, as appends see it."""

    claim: Claim
    numbers: FrameNumbers
    committed_at: Moment
    """When the last successful commit began."""

    @property
    def recoveries(self) -> Recoveries:
        """What the writer had to do over so far."""

    def write(self, group: Group, joining: Joining) -> None:
        """Commit a group, and those that join it, and tell their completions. What it raises, they were told before."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Activated:
    """All that appends need of an activation."""

    writer: GroupWriter
    acceptance: Acceptance
    issued: int


class Claim(NamedTuple):
    """One activation: its epoch, its node, and a nonce that no other activation has."""

    epoch: int
    node: str
    nonce: bytes


class Recoveries(NamedTuple):
    """What an activation had to do over since it began."""

    times: int = 0
    """How often check, init, check followed a commit."""
    checks: int = 0
    """How often the epoch counter was read."""
    inits: int = 0
    """How many producers were initialised; all but the newest are lost."""


class Joining(Protocol):
    """A callable that gives the next group that has gathered, if it may join a transaction."""

    def __call__(self, operations: int, size: int, *, complete: bool) -> Group | None:
        """The next group, or None. The transaction has `operations` already, and takes at most `size` bytes more. With
        `complete` only a group into which nothing more goes is given."""


def nothing_joins(operations: int, size: int, *, complete: bool) -> Group | None:
    """The `Joining` of a group that is written alone."""
    return None
