"""The topics that are consumed, told from others of their names by their ids, which a deletion ends."""

from __future__ import annotations

from collections.abc import Mapping

from journal.kafka.ports import Cluster
from journal.routing.config import SourceConfig


class TopicIds:
    """As first seen. Used by the ingress' thread."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def anew(self, cluster: Cluster, consumed: Mapping[str, SourceConfig], timeout_s: float) -> dict[str, str]:
        """Sources of topics that are not those of before under their names, and what to say of it; each is told once.

        Raises OperatingError.
        """
        ids = cluster.topic_ids(consumed, timeout_s) if consumed else {}
        found = {
            consumed[topic].name: f"topic {topic} was deleted and made anew, and where it was consumed up to says "
            "nothing of the new one. Delete the offsets of that topic from the journal's ingress group to begin anew, "
            "and have the source go on"
            for topic, topic_id in ids.items()
            if self._ids.get(topic, topic_id) != topic_id
        }
        self._ids |= ids
        return found
