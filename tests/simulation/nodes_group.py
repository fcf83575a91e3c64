"""The nodes' consumer group as its coordinator has it: members are there as long as they are heard, and the first one
holds the duty. What a member believes of itself is `SimulatedMembership`."""

from __future__ import annotations

from collections.abc import Iterator

from journal.kafka.ports import GroupMember
from tests.simulation.scheduler import Process, Scheduler

SESSION_S = 2.0
_JOIN_S = 0.1


class SimulatedMembership:
    """`journal.kafka.membership.Membership`: one whose session ran out joins again by itself."""

    def __init__(self, group: NodesGroup, process: Process) -> None:
        self.process = process
        self._group = group
        self._now = group.scheduler.now
        self._joins_at = self._now() + _JOIN_S
        self._joined = self._left = False

    @property
    def granted(self) -> bool:
        return self._is_member() and self._group.members()[0] is self

    @property
    def lapsed(self) -> bool:
        return self._joined and not self._is_member()

    @property
    def problem(self) -> str:
        return ""

    @property
    def ended(self) -> bool:
        return self._left

    def leave(self, timeout_s: float = 0.0) -> None:
        self._left = True
        self._group.remove(self)

    def heard_at(self) -> float:
        """When its process was last seen to run."""
        return self._now() if self.process.alive and not self.process.frozen else self.process.stopped_at

    def _is_member(self) -> bool:
        if self in self._group.members():
            return True
        if self._joined:
            self._joined, self._joins_at = False, self._now() + _JOIN_S
            return False
        if not self._left and self._now() >= self._joins_at:
            self._group.add(self)
            self._joined = True
        return self._joined


class NodesGroup:
    """One group. What asks for its members sees those whose sessions have not ended."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._members: list[SimulatedMembership] = []

    def members(self) -> list[SimulatedMembership]:
        now = self.scheduler.now()
        self._members = [member for member in self._members if member.heard_at() + SESSION_S > now]
        return self._members

    def add(self, member: SimulatedMembership) -> None:
        self._members.append(member)

    def remove(self, member: SimulatedMembership) -> None:
        self._members = [other for other in self._members if other is not member]

    def __iter__(self) -> Iterator[GroupMember]:
        for member in self.members():
            name = member.process.name
            yield GroupMember(f"{name}-1", name, "host", ())
