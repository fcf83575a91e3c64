"""The topics that each source has begun to consume, by topic id: control rows of the journal.

Kafka deletes a topic's committed offsets with the topic. So Kafka itself cannot tell whether a topic without offsets is
new to its source, or was deleted and created again after the source had begun. These rows tell it. They also show that
an unchanged topic had offsets that Kafka has forgotten since. A row is written after the first offsets of its topics
are committed. If the node crashes between the two, the topic has offsets, and the next activation writes the row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple, Protocol

from journal.kafka.ports import Kafka
from journal.process.commands import command
from journal.routing.parts import SourceConfig
from journal.sources.positions import Partition
from journal.topics.control_keys import control_row, source_key
from journal.topics.control_reading import read_control
from journal.v1.journal_pb2 import SourceTopics


class BegunTopic(NamedTuple):
    """A topic that a source has begun."""

    id: str
    partitions: int = 0
    """The number of partitions that have had an offset; 0 if the row does not have it."""


Begun = Mapping[str, BegunTopic]
"""Topics of one source by name."""


class BeginningRows(Protocol):
    """The place where the rows are kept: the control partition, or a test's memory."""

    def read(self) -> Mapping[str, Begun | None]:
        """The rows by source; None for a row that cannot be read. Raises OperatingError."""

    def write(self, changed: Mapping[str, Begun | None]) -> None:
        """Write rows by source; None deletes the row of a source that no longer exists. Raises OperatingError."""


class ControlBeginnings:
    """`BeginningRows` in the control partition."""

    def __init__(self, kafka: Kafka, journal: str, timeout_s: float) -> None:
        self._kafka = kafka
        self._journal = journal
        self._timeout_s = timeout_s

    def read(self) -> Mapping[str, Begun | None]:
        rows = read_control(self._kafka, self._journal, time.monotonic, self._timeout_s)
        return {name: None if row is None else _begun_of(row) for name, row in rows.source_topics.items()}

    def write(self, changed: Mapping[str, Begun | None]) -> None:
        sent = [
            control_row(
                self._journal,
                source_key(name),
                None if begun is None else _row_of(name, begun),
            )
            for name, begun in changed.items()
        ]
        with closing(self._kafka.plain_producer()) as producer:
            producer.send(sent, self._timeout_s)


class Beginnings:
    """The rows as this activation knows them. Only the active node writes them, so they stay valid. The sources' thread
    uses it."""

    def __init__(self, rows: BeginningRows) -> None:
        self._rows = rows
        self._known: dict[str, Begun | None] | None = None
        self._lost: dict[str, list[Partition]] = {}
        self._anew: set[Partition] = set()

    def unreadable(self, sources: Iterable[str]) -> set[str]:
        """Those of these sources whose rows cannot be read."""
        known = self._read()
        return {name for name in sources if name in known and known[name] is None}

    def lost(
        self, sources: Mapping[str, SourceConfig], ids: Callable[[str], str], committed: Collection[Partition]
    ) -> dict[str, list[Partition]]:
        """The partitions by source whose committed offset is lost, although the source has begun the topic and the
        topic is the same. `sources` are by topic; `ids` gives the id of a topic."""
        known, lost = self._read(), dict[str, list[Partition]]()
        for topic, source in sources.items():
            begun = (known.get(source.name) or {}).get(topic)
            if begun is None or begun.id != ids(topic):
                continue
            count = begun.partitions or int(not any(there == topic for there, _ in committed))
            gone = [(topic, number) for number in range(count) if (topic, number) not in committed]
            lost.setdefault(source.name, []).extend(part for part in gone if part not in self._anew)
        self._lost = {name: partitions for name, partitions in lost.items() if partitions}
        return self._lost

    @property
    def anew(self) -> Collection[Partition]:
        """Partitions whose committed offset is lost, and that begin again where their source's `start` says."""
        return self._anew

    def forget(self, source: str) -> None:
        """Forget what a source has lost, because an operator resumes it: partitions without their offset begin again,
        and `note` replaces a row that cannot be read."""
        self._anew.update(self._lost.pop(source, ()))
        known = self._read()
        if source in known and known[source] is None:
            del known[source]

    def later(self, topics: Iterable[tuple[SourceConfig, str, str]]) -> set[str]:
        """Those of `topics` (source, topic, id) that were created after their source had begun: a topic was deleted and
        created again, or a pattern finds a new one. A topic that a source names for the first time may be older."""
        known = self._read()
        return {
            topic
            for source, topic, topic_id in topics
            if (begun := known.get(source.name)) is not None
            and (begun[topic].id != topic_id if topic in begun else topic not in source.topics)
        }

    def note(self, begun: Mapping[str, Begun], sources: Collection[str]) -> None:
        """All topics that each source consumes, once offsets of them are committed; `sources` are all."""
        known = self._read()
        changed: dict[str, Begun | None] = {name: None for name in known if name not in sources}
        changed |= {name: topics for name, topics in begun.items() if known.get(name) != topics}
        if changed:
            self._rows.write(changed)
            self._known = {name: topics for name, topics in (known | changed).items() if name in sources}
        self._anew = {part for part in self._anew if not any(part[0] in topics for topics in begun.values())}

    def _read(self) -> dict[str, Begun | None]:
        if self._known is None:
            self._known = dict(self._rows.read())
        return self._known


def _begun_of(row: SourceTopics) -> Begun:
    return {topic: BegunTopic(topic_id, row.partitions.get(topic, 0)) for topic, topic_id in row.ids.items()}


def _row_of(source: str, begun: Begun) -> SourceTopics:
    return SourceTopics(
        source=source,
        ids={topic: each.id for topic, each in begun.items()},
        partitions={topic: each.partitions for topic, each in begun.items()},
    )


def offsets_lost(source: SourceConfig, partitions: Sequence[Partition], group: str) -> str:
    """Why a source is stopped whose offsets Kafka has forgotten."""
    lost = ", ".join(f"{topic}[{number}]" for topic, number in partitions)
    return (
        f"{lost} had a committed offset in the group {group}, and has none any more: Kafka forgets it after "
        "offsets.retention.minutes without an active node, or somebody has deleted it. Set it again "
        "(`kafka-consumer-groups --reset-offsets`), if you know where the source was; then, or to have it begin there "
        f"as its start ({source.start}) says: `{command('routes resume-source', source.name)}`"
    )


def row_unreadable(source: str) -> str:
    """The reason for which a source with an unreadable row is stopped."""
    return (
        "the control row that says which topics it has begun cannot be read. "
        f"`{command('routes resume-source', source)}` has it go on, and its row written anew: a topic "
        "without offsets begins as the source's `start` says"
    )
