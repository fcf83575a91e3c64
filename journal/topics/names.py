"""Names of a journal's topics, groups and transactional ids. Each is made of the journal's full name, which is
`topic_prefix` and the name that the user gave."""

from __future__ import annotations

import re


def wal_topic(journal: str) -> str:
    return f"{journal}.wal"


def table_topic(journal: str) -> str:
    return f"{journal}.table"


def control_topic(journal: str) -> str:
    return f"{journal}.control"


def memory_topic(journal: str, agent: str) -> str:
    """The topic with the memory of an `on_change` agent: its state, and its position in the table."""
    return f"{journal}.agent.{agent}"


class OwnTopics:
    """The journal's topics, the memories of agents and the topics of Faust's tables. No route or source may use
    them."""

    __slots__ = ("_beginnings", "_names")

    def __init__(self, journal: str) -> None:
        self._names = frozenset((wal_topic(journal), table_topic(journal), control_topic(journal)))
        self._beginnings = (memory_topic(journal, ""), f"{worker_group(journal)}-")

    def __contains__(self, topic: object) -> bool:
        return topic in self._names or (isinstance(topic, str) and topic.startswith(self._beginnings))


def client_name(journal: str, what: str) -> str:
    """The name of a consumer group or a transactional id of the journal. A prefix of the journal's name (which itself
    has neither dots nor underscores) comes first here too, so that one access rule by prefix allows all names."""
    name = re.split("[._]", journal)[-1]
    return f"{journal.removesuffix(name)}kafka-journal.{name}.{what}"


def writer_id(journal: str) -> str:
    """The transactional id of the active node, which is the only writer of the WAL."""
    return client_name(journal, "writer")


def worker_id(journal: str, shard: int) -> str:
    """The transactional id of a shard's worker, which is the only writer of the shard's table partition."""
    return client_name(journal, f"worker.{shard}")


def agent_id(journal: str, agent: str, shard: int) -> str:
    """The transactional id of an agent's shard. The session that initialised it last is the only one that may send."""
    return client_name(journal, f"agent.{agent}.{shard}")


def replay_id(journal: str, route: str, digest: str) -> str:
    """The name that all runs of a replay share, for their transactional id and for the group that holds their offsets.
    `digest` is that of the range."""
    return client_name(journal, f"replay.{route}.{digest}")


def app_id(journal: str, name: str) -> str:
    """Id of a Faust app that follows the journal, and the consumer group of its own agents."""
    return client_name(journal, name)


def worker_group(journal: str) -> str:
    """The consumer group of the workers, which is also the id of their Faust app."""
    return client_name(journal, "worker")


def sources_group(journal: str) -> str:
    """The group that keeps the offsets up to which the active node has consumed its sources. It has no members."""
    return client_name(journal, "sources")


def node_group(journal: str) -> str:
    """The consumer group of the nodes. The member that holds the control partition must see that a node is active."""
    return client_name(journal, "node")
