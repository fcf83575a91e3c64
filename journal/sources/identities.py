"""The topics that are consumed, known by their ids: a topic that is deleted and made anew has another id.

An id never comes back. So what is read between two looks that show the same id is that topic's, and a batch is taken in
only behind the second look. Where a partition was consumed up to is committed with the id of its topic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from journal.errors import InvalidOperationError
from journal.kafka.ports import Cluster, Position
from journal.sources.positions import Partition


class TopicIds:
    """The ids of topics when they were last looked at. Used by the sources' thread."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def look(self, cluster: Cluster, topics: Collection[str], timeout_s: float) -> tuple[set[str], set[str]]:
        """Look at topics: those with other ids than at the last look, and those that are missing. Raises
        OperatingError."""
        ids = cluster.topic_ids(topics, timeout_s) if topics else {}
        anew = {topic for topic, topic_id in ids.items() if self._ids.get(topic, topic_id) != topic_id}
        self._ids |= ids
        return anew, set(topics) - ids.keys()

    def of(self, partitions: Iterable[Partition]) -> dict[Partition, str]:
        """The ids of partitions' topics."""
        return {(topic, number): self._ids[topic] for topic, number in partitions if topic in self._ids}

    def id_of(self, topic: str) -> str:
        """The id of a topic; empty: it was not there."""
        return self._ids.get(topic, "")

    def outlived(self, positions: Mapping[Partition, Position]) -> dict[Partition, Position]:
        """The positions that belong to deleted topics, whose names others have now."""
        return outlived(positions, self._ids)


def outlived(positions: Mapping[Partition, Position], ids: Mapping[str, str]) -> dict[Partition, Position]:
    """The positions that are of other topics than those that have their names and these ids. One without an id is of
    the topic that there is: somebody has set it."""
    return {
        (topic, number): position
        for (topic, number), position in positions.items()
        if position.topic_id and ids.get(topic, position.topic_id) != position.topic_id
    }


def made_anew(topics: Iterable[str], group: str) -> str:
    """Why a source of such topics is stopped."""
    return (
        f"topic {', '.join(sorted(topics))} was deleted and made anew, and where it was consumed up to says nothing of "
        "the new one, of which nothing was taken. Delete the offsets of that topic from the group "
        f"{group} to begin anew, and have the source go on"
    )


def require_none_outlived(
    positions: Mapping[Partition, Position], ids: Mapping[str, str], *, group: str, bootstrap_servers: str
) -> None:
    """Raises InvalidOperationError while positions of a topic stand that was deleted and made anew."""
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
