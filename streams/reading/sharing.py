"""How the members of the workers' group share the shards: equally many each, and as few moved as that allows.

A pure rule (`share_out`), and around it what aiokafka's group leader asks: each member tells with its join which shards
it has had. (aiokafka's own sticky assignor keeps that in the class, so for all workers of a process together.) Nothing
depends on what members tell: of two that say they have had a shard, one comes from a pause or was cut off.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from aiokafka.coordinator.protocol import (  # type: ignore[import-untyped]
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

_VERSION = 0
_NUMBER = struct.Struct(">i")


def share_out(shards: Collection[int], had: Mapping[str, Collection[int]]) -> dict[str, list[int]]:
    """The shards of each member of `had`, which says what each has had.

    Where that decides nothing the members' order does: workers that all start anew under their old names get what they
    got then, and have local copies of it.
    """
    least, more = divmod(len(shards), len(had))
    left = set(shards)
    kept: dict[str, list[int]] = {}
    for member in sorted(had):
        kept[member] = sorted(left & set(had[member]))
        left -= set(kept[member])
    by_most = sorted(kept, key=lambda member: (-len(kept[member]), member))
    room = {member: least + (place < more) for place, member in enumerate(by_most)}
    for member, numbers in kept.items():
        left.update(numbers[room[member] :])
        del numbers[room[member] :]
    free = iter(sorted(left))
    while left:
        for member in sorted(kept):
            if len(kept[member]) < room[member]:
                number = next(free)
                kept[member].append(number)
                left.discard(number)
    return {member: sorted(numbers) for member, numbers in kept.items()}


class ShardAssignor:
    """What an aiokafka consumer of the WAL is given to divide its partitions. One for each consumer."""

    name = "kafka-journal-shards"

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._had: list[int] = []

    def metadata(self, topics: Iterable[str]) -> Any:
        """What this member tells the group as it joins: the shards that it has had."""
        had = b"".join(map(_NUMBER.pack, self._had))
        return ConsumerProtocolMemberMetadata(_VERSION, list(topics), had)

    def assign(self, cluster: Any, members: Mapping[str, Any]) -> dict[str, Any]:
        """Asked of the group's leader: an assignment for each member, from the cluster's metadata and theirs."""
        shards = cluster.partitions_for_topic(self._topic) or ()
        had = {member: _numbers(metadata.user_data) for member, metadata in members.items()}
        return {
            member: ConsumerProtocolMemberAssignment(_VERSION, [(self._topic, numbers)], b"")
            for member, numbers in share_out(shards, had).items()
        }

    def on_assignment(self, assignment: Any) -> None:
        """Note the shards that this member was given."""
        self._had = [place.partition for place in assignment.partitions()]


def _numbers(told: bytes | None) -> list[int]:
    """The shards that a member says it has had; none if its message cannot be read."""
    if not told or len(told) % _NUMBER.size:
        return []
    return [number for (number,) in _NUMBER.iter_unpack(told)]
