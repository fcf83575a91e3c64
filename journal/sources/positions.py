"""Decides at which offset a node continues to read each partition of its sources. Pure.

If the journal's consumer group has committed an offset for a partition, the node continues there. Otherwise it begins
where the `start` of the partition's source says. It commits this offset before it reads the first record, so that the
offset stays the same if another node consumes next.

A partition that appears after its source has begun is read from its first record even with `start = latest`, because
all its records came after the source's start. A source has begun if it has a committed offset in any of its partitions,
or if it has a control row that does not name the partition's topic.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from journal.routing.config import RoutingConfig
from journal.routing.parts import EARLIEST, LATEST, SourceConfig
from journal.routing.record_in import dead_letter_topic_of, has_dead_letters

Partition = tuple[str, int]


@dataclass(slots=True)
class Positions:
    """The partitions to consume, and the sources that cannot be consumed, each with the reason."""

    known: dict[Partition, int] = field(default_factory=dict)
    """The offset at which each partition continues."""
    beginning: dict[Partition, str] = field(default_factory=dict)
    """Where to begin, for each partition without an offset: the `start` of its source."""
    stopped: dict[str, str] = field(default_factory=dict)
    """The reason for each source that cannot be consumed, by the source's name."""


def positions_of(
    routing: RoutingConfig,
    topics: Mapping[str, int],
    sources: Mapping[str, SourceConfig],
    committed: Mapping[Partition, int],
    stopped: Collection[str],
    *,
    group: str,
    unfit: Mapping[str, str],
    begun: Collection[str],
    later: Collection[str] = (),
    anew: Collection[Partition] = (),
) -> Positions:
    """The partitions to consume, and where each continues.

    `topics` has the number of partitions of every existing topic, `sources` the source of each topic to consume, and
    `committed` the offsets of the consumer group `group`. Sources in `stopped` are not consumed. `unfit` has
    dead-letter topics that take no records, and why. Sources in `begun` were consumed before, perhaps without any
    partition; topics in `later` came after their source had begun; partitions in `anew` begin as their source's `start`
    says, whatever else holds.
    """
    found = Positions()
    for source in routing.sources:
        if source.name not in stopped and (
            fault := _fault_of(routing, source, topics, committed, group=group, unfit=unfit)
        ):
            found.stopped[source.name] = fault
    already = {*begun, *(sources[topic].name for topic, _ in committed if topic in sources)}
    for topic, source in sources.items():
        if source.name in found.stopped or source.name in stopped:
            continue
        for partition in [(topic, number) for number in range(topics[topic])]:
            if partition in committed:
                found.known[partition] = committed[partition]
            else:
                came_later = source.start == LATEST and partition not in anew
                came_later = came_later and (source.name in already or topic in later)
                found.beginning[partition] = EARLIEST if came_later else source.start
    return found


def _fault_of(
    routing: RoutingConfig,
    source: SourceConfig,
    topics: Mapping[str, int],
    committed: Mapping[Partition, int],
    *,
    group: str,
    unfit: Mapping[str, str],
) -> str:
    for topic in source.topics:
        if topic not in topics:
            return f"topic {topic} is not there, or nobody may see it: create it, allow it, or take it out"
    for topic, number in committed:
        first = next((each for each in routing.sources if each.takes(topic)), None)
        if first is source and number >= topics.get(topic, 0):
            return (
                f"{topic}[{number}] is gone, of which records were consumed: if that is meant, delete the offsets of "
                f"that topic from the group {group}"
            )
    return unfit.get(dead_letter_topic_of(routing, source), "") if has_dead_letters(source) else ""
