"""Names of a journal's topics, groups and transactional ids."""

from __future__ import annotations


def wal_topic(journal: str) -> str:
    return f"{journal}.wal"


def table_topic(journal: str) -> str:
    return f"{journal}.table"


def control_topic(journal: str) -> str:
    return f"{journal}.control"


def memory_topic(journal: str, agent: str) -> str:
    """What an `on_change` agent remembers, and where it stands in the table."""
    return f"{journal}.agent.{agent}"


class OwnTopics:
    """The journal's topics, agents' memories and what Faust keeps of tables: nobody else's to write, and no route's
    target or source."""

    __slots__ = ("_beginnings", "_names")

    def __init__(self, journal: str) -> None:
        self._names = frozenset((wal_topic(journal), table_topic(journal), control_topic(journal)))
        self._beginnings = (memory_topic(journal, ""), f"{worker_group(journal)}-")

    def __contains__(self, topic: object) -> bool:
        return topic in self._names or (isinstance(topic, str) and topic.startswith(self._beginnings))


def writer_id(journal: str) -> str:
    """Transactional id of the active node: the only writer of the WAL."""
    return f"kafka-journal.{journal}.writer"


def worker_id(journal: str, shard: int) -> str:
    """Transactional id of a shard's worker: the only writer of its table partition."""
    return f"kafka-journal.{journal}.worker.{shard}"


def worker_group(journal: str) -> str:
    """Consumer group of the workers; also the Faust app's id."""
    return f"kafka-journal.{journal}.worker"


def sources_group(journal: str) -> str:
    """Group of the offsets that the active node has consumed sources up to. It has no members: nobody joins it."""
    return f"kafka-journal.{journal}.sources"


def node_group(journal: str) -> str:
    """Consumer group of the nodes: whoever holds the control partition in it is to see that a node is active."""
    return f"kafka-journal.{journal}.node"
