"""Recognises topics by their ids: a topic that is deleted and created again has another id.

An id is never used again. So if two looks show the same id, all records read between them are of that topic; a batch is
taken in only after the second look. Each committed offset is stored with the id of its topic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from journal.errors import InvalidOperationError
from journal.kafka.ports import Cluster, Position
from journal.sources.positions import Partition


class TopicIds:
    """The ids of topics at the last look. The sources' thread uses it."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def look(self, cluster: Cluster, topics: Collection[str], timeout_s: float) -> tuple[set[str], set[str]]:
        """Look at topics; returns those with another id than at the last look, and those that are missing. Raises
        OperatingError."""
        ids = cluster.topic_ids(topics, timeout_s) if topics else {}
        anew = {topic for topic, topic_id in ids.items() if self._ids.get(topic, topic_id) != topic_id}
        self._ids |= ids
        return anew, set(topics) - ids.keys()

    def of(self, partitions: Iterable[Partition]) -> dict[Partition, str]:
        """The topic ids of partitions."""
        return {(topic, number): self._ids[topic] for topic, number in partitions if topic in self._ids}

    def id_of(self, topic: str) -> str:
        """The id of a topic; empty if the topic did not exist."""
        return self._ids.get(topic, "")

    def outlived(self, positions: Mapping[Partition, Position]) -> dict[Partition, Position]:
        """The committed positions that belong to deleted topics, in partitions of new topics with the same names."""
        return outlived(positions, self._ids)


def outlived(positions: Mapping[Partition, Position], ids: Mapping[str, str]) -> dict[Partition, Position]:
    """The positions that belong to other topics than those which now have their names. A position without an id counts
    as one of the present topic, because another tool has set it."""
    return {
        (topic, number): position
        for (topic, number), position in positions.items()
        if position.topic_id and ids.get(topic, position.topic_id) != position.topic_id
    }


def made_anew(topics: Iterable[str], group: str) -> str:
    """The reason for which a source of such topics is stopped."""
    return (
        f"topic {', '.join(sorted(topics))} was deleted and made anew, and where it was consumed up to says nothing of "
        "the new one, of which nothing was taken. Delete the offsets of that topic from the group "
        f"{group} to begin anew, and have the source go on"
    )


def require_none_outlived(
    positions: Mapping[Partition, Position], ids: Mapping[str, str], *, group: str, bootstrap_servers: str
) -> None:
    """Raises InvalidOperationError while there are committed positions of a topic that was deleted and created
    again."""
    old = outlived(positions, ids)
    if not old:
        return
    stand = ", ".join(f"{topic}[{number}]@{position.offset}" for (topic, number), position in sorted(old.items()))
    topics = " ".join(f"--topic {topic}" for topic in sorted({topic for topic, _ in old}))
    raise InvalidOperationError(
        f"positions of a topic that was deleted stand ({stand}), and another one has its name now, of which nothing "
        f"was taken. To begin with that one: kafka-consumer-groups --bootstrap-server {bootstrap_servers} "
        f"--delete-offsets --group {group} {topics}"
    )
