"""What one Kafka transaction of the writer holds: sealed groups, and what each group's completion is told once its fate
is known. `writer` sends and commits it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import NamedTuple

from journal.append.group import FrameNumbers, FrameOrigin, Group
from journal.errors import JournalError
from journal.kafka.ports import Consumed, Sent


class FramePlace(NamedTuple):
    """Where a frame of a group is, or was to be: its shard and its number there."""

    shard: int
    number: int


class SealedGroup(NamedTuple):
    """A group whose frames are numbered, its WAL records, and the place of each."""

    group: Group
    records: list[Sent]
    places: list[FramePlace]


class WalTransaction:
    """Groups that one Kafka transaction writes, or several in turn where one is too large. A group leaves it once its
    fate is known."""

    def __init__(self, origin: FrameOrigin, topic: str, last: FrameNumbers) -> None:
        """`last` holds the numbers of the frames that this transaction's frames follow."""
        self.parts: list[SealedGroup] = []
        self.operations = 0
        self.bytes = 0
        self.numbers = last
        self._origin = origin
        self._topic = topic

    @property
    def consumed(self) -> Consumed | None:
        """Offsets of consumed records that are committed in this transaction. It then has only one group."""
        return self.parts[0].group.consumed

    @property
    def beside(self) -> Sequence[Sent]:
        """Records for other topics, which are sent after the group's own records."""
        return self.parts[0].group.beside

    @property
    def places(self) -> list[FramePlace]:
        return [place for part in self.parts for place in part.places]

    def add(self, group: Group) -> list[Sent]:
        """Seal a group behind the groups that are here already; returns its records."""
        self.numbers = group.seal(self._origin, self.numbers)
        part = SealedGroup(group, group.records(self._topic), [FramePlace(*place) for place in group.places()])
        self.parts.append(part)
        self.operations += group.operations
        self.bytes += group.bytes
        return part.records

    def delivered(self, offsets: Sequence[int]) -> None:
        """Note in each group at which offsets its frames were written."""
        remaining = iter(offsets)
        for group, _, places in self.parts:
            found: dict[int, tuple[int, int]] = {}
            for (shard, _), offset in zip(places, remaining, strict=False):
                found[shard] = (found.get(shard, (offset, offset))[0], offset)
            group.completion.offsets = found

    def first(self, bytes_max: int) -> list[SealedGroup]:
        """The first groups whose sizes together are at most `bytes_max`, but at least one."""
        ends = accumulate(part.group.bytes for part in self.parts)
        return self.parts[: max(1, sum(end <= bytes_max for end in ends))]

    def are_there(self, there: Collection[FramePlace]) -> None:
        """Tell the completions of the groups whose frames are all in the WAL that they are done; these groups leave the
        transaction.

        They are told in order: if one shard cannot be read, no group is told before the groups in front of it.
        """
        while self.parts and all(place in there for place in self.parts[0].places):
            self.parts.pop(0).group.completion.resolve()

    def resolve(self, error: JournalError | None = None) -> None:
        """Tell the groups that were not told yet their fate."""
        for group, *_ in self.parts:
            group.completion.resolve(error)


def without(parts: Sequence[SealedGroup], there: Collection[FramePlace]) -> tuple[list[FramePlace], list[Sent]]:
    """Places and records of these groups, except those whose place is in `there`."""
    missing = [each for part in parts for each in zip(part.places, part.records, strict=True) if each[0] not in there]
    return [place for place, _ in missing], [record for _, record in missing]
