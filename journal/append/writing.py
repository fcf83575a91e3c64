"""The interface of a writer, and the result of an activation, as appends need them. The writer is
`journal.wal.writer`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from journal.append.acceptance import Acceptance
from journal.append.group import FrameNumbers, Group
from journal.process.clocks import Moment


class GroupWriter(Protocol):
    """The writer of one activation, with the methods that appends call."""

    claim: Claim
    numbers: FrameNumbers
    committed_at: Moment
    """When the last successful commit began."""

    @property
    def recoveries(self) -> Recoveries:
        """The numbers of the writer's recoveries so far."""

    def write(self, group: Group, joining: Joining) -> None:
        """Commit a group, and the groups that join its transaction, and tell their completions. An error is told to the
        completions before it is raised."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Activated:
    """All results of an activation that appends need."""

    writer: GroupWriter
    acceptance: Acceptance
    issued: int


class Claim(NamedTuple):
    """One activation: its epoch, its node, and a nonce that no other activation has."""

    epoch: int
    node: str
    nonce: bytes


class Recoveries(NamedTuple):
    """Numbers of recoveries since an activation began."""

    times: int = 0
    """How many times check, init, check followed a commit."""
    checks: int = 0
    """How many times the epoch counter was read."""
    inits: int = 0
    """How many producers were initialised. Only the newest is still in use."""


class Joining(Protocol):
    """A callable that gives the next group that has gathered, if it may join a transaction."""

    def __call__(self, operations: int, size: int, *, complete: bool) -> Group | None:
        """The next group, or None if there is none that may join. The transaction has `operations` already, and room
        for `size` bytes. With `complete` only a group that takes no more appends is given."""


def nothing_joins(operations: int, size: int, *, complete: bool) -> Group | None:
    """The `Joining` of a group that is written alone."""
    return None
