"""What appends need of whoever writes groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from journal.append.acceptance import Acceptance
from journal.append.group import FrameNumbers, Group
from journal.process.clocks import Moment


class GroupWriter(Protocol):
    """What appends need of an activation's writer."""

    claim: Claim
    numbers: FrameNumbers
    committed_at: Moment
    """When the last successful commit began."""

    @property
    def recoveries(self) -> Recoveries:
        """What it had to do over so far."""

    def write(self, group: Group, joining: Joining) -> None:
        """Commit a group, and one that joins it; tell their completions. Raises after telling them."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Activated:
    """What an activation gives: all that appending needs."""

    writer: GroupWriter
    acceptance: Acceptance
    issued: int


class Claim(NamedTuple):
    """One activation: its epoch, its node, and a nonce that no other activation has."""

    epoch: int
    node: str
    nonce: bytes


class Recoveries(NamedTuple):
    """What an activation had to do over, since it began."""

    times: int = 0
    """How often check, init, check followed a commit."""
    checks: int = 0
    """How often the epoch counter was read."""
    inits: int = 0
    """How many producers were initialised; all but the newest are lost."""


class Joining(Protocol):
    """Gives the next group that has gathered, if it may join a transaction."""

    def __call__(self, operations: int, size: int, *, complete: bool) -> Group | None:
        """With the `operations` of the transaction, and of no more than `size` bytes. With `complete` only one into
        which nothing more goes."""


def nothing_joins(operations: int, size: int, *, complete: bool) -> Group | None:
    """For a group that is written alone."""
    return None
