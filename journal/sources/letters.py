"""The dead-letter topics of sources: whether each exists, and how large a letter it takes.

A dead letter is in the same transaction as the messages of its batch, so a refused letter makes the whole batch fail.
This module therefore checks each letter before it is sent.
"""

from __future__ import annotations

from typing import NamedTuple

from journal.config import Settings
from journal.errors import KafkaRefusedError
from journal.kafka.ports import Cluster, Sent, TopicState
from journal.routing.dead_letters import record_bytes
from journal.routing.outcomes import OutgoingRecord
from journal.routing.partitions import partition_of
from journal.routing.record_in import dead_letter_topic_of, has_dead_letters
from journal.sources.stops import RecordPlace
from journal.topics.foreign import fault_of_topic, hidden_topic


class Letter(NamedTuple):
    """A dead letter of a batch, and the record or request that it replaces."""

    source: str
    topic: str
    what: str
    """The place of the record, or the request, as a text for people."""
    place: RecordPlace | None
    """The place of the record; None if the letter is about a request."""


class LetterTopics:
    """The dead-letter topics of a journal's sources. Used by the sources' thread."""

    def __init__(self, settings: Settings) -> None:
        routing = settings.routing
        self._settings = settings
        self._wanted = {dead_letter_topic_of(routing, each) for each in routing.sources if has_dead_letters(each)}
        self._states: dict[str, TopicState] = {}
        self.bytes_max: dict[str, int] = {}
        """The largest letter by topic that the topic and the journal's writer take. Other parts hold this dictionary,
        so it is changed in place."""
        self.faults: dict[str, str] = {}
        """The reason by topic, for each topic to which nothing can be sent."""
        self.refused: dict[RecordPlace, str] = {}
        """The reason by record, for each record with a dead letter that Kafka has refused. Its source must stop
        there."""

    def look(self, cluster: Cluster, timeout_s: float) -> set[str]:
        """Ask the cluster for the topics; returns those that have changed. Raises OperatingError."""
        changed = set()
        for topic in sorted(self._wanted):
            state, fault = self._described(cluster, topic, timeout_s)
            before = self._states.get(topic), self.faults.get(topic, "")
            if state is not None:
                self._states[topic] = state
                limit = int(state.config["max.message.bytes"])
                self.bytes_max[topic] = min(limit, self._settings.limits.row_message_bytes_max)
            self.faults.pop(topic, None)
            if fault:
                self.faults[topic] = fault
            if before != (state, fault):
                changed.add(topic)
        if changed:
            self.refused.clear()
        return changed

    def sent(self, letter: OutgoingRecord) -> Sent:
        """The letter as a record to produce, for a topic without a fault."""
        place = partition_of(letter, self._states[letter.topic].partitions)
        return Sent(letter.topic, place, letter.key, letter.value, letter.headers)

    def fault_of(self, letter: OutgoingRecord, size: int) -> str:
        """The reason for which a letter of this size cannot be sent; empty if it can."""
        topic = letter.topic
        if fault := self.faults.get(topic):
            return fault
        if size > self.bytes_max[topic]:
            return f"its dead letter takes {size} bytes at least, and dead-letter topic {topic} {self.bytes_max[topic]}"
        if letter.key is None and "compact" in self._states[topic].config.get("cleanup.policy", ""):
            return f"dead-letter topic {topic} is compacted, and the dead letter has no key"
        return ""

    def _described(self, cluster: Cluster, topic: str, timeout_s: float) -> tuple[TopicState | None, str]:
        """A topic's description, and its fault if it has one. Topics are asked for one by one, because Kafka refuses a
        whole request if one of its topics may not be seen."""
        try:
            state = cluster.describe([topic], timeout_s).get(topic)
        except KafkaRefusedError as error:
            hidden = hidden_topic(self._settings, topic, error)
            return None, f"dead-letter topic {topic} cannot be looked at: {hidden}"
        return state, fault_of_topic(self._settings, topic, state, "dead-letter topic")


def letter_bytes(letter: OutgoingRecord) -> int:
    """Bytes of a letter that count against its topic's limit."""
    return record_bytes(letter.key, letter.value, letter.headers)
