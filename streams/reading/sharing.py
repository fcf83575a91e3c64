"""How the members of the workers' group share the shards: in equal numbers, and with as few moves as possible.

`share_out` is a pure rule; the assignor around it connects it to aiokafka. Each member that joins says which shards it
had before. (aiokafka's own sticky assignor keeps this in the class, and so mixes all workers of one process.)
Correctness does not depend on these claims: if two members say that they had the same shard, one of them has missed a
rebalance.
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
    """The shards for each member of `had`, which has the shards that each member had before.

    If that leaves a choice, the order of the members' names decides. So workers that are all restarted under their old
    names get the same shards, of which they have local copies.
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
    """The assignor that an aiokafka consumer of the WAL uses to divide the partitions. Each consumer has its own."""

    name = "kafka-journal-shards"

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._had: list[int] = []

    def metadata(self, topics: Iterable[str]) -> Any:
        """What this member tells the group when it joins: the shards that it had before."""
        had = b"".join(map(_NUMBER.pack, self._had))
        return ConsumerProtocolMemberMetadata(_VERSION, list(topics), had)

    def assign(self, cluster: Any, members: Mapping[str, Any]) -> dict[str, Any]:
        """Called on the group's leader: the assignment of each member, from the cluster's metadata and the members'
        claims."""
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
    """The shards that a member says it had; none if its message cannot be read."""
    if not told or len(told) % _NUMBER.size:
        return []
    return [number for (number,) in _NUMBER.iter_unpack(told)]
