"""The topics that each source has begun, by their ids: control rows of the journal.

Kafka deletes a topic's offsets with it. So nothing of Kafka's says that a topic without offsets came into being after
its source had begun, as one does that was deleted and made anew; these rows do. A row is written once where its topics
begin is committed: after a crash in between the topic has its offsets, and the row is written then.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from typing import Protocol

from journal.kafka.ports import Kafka
from journal.routing.parts import SourceConfig
from journal.topics.control_keys import control_row, source_key
from journal.topics.control_reading import read_control
from journal.v1.journal_pb2 import SourceTopics

Ids = Mapping[str, str]
"""Topic ids by topic name."""


class BeginningRows(Protocol):
    """Where the rows are kept: the control partition, or a test."""

    def read(self) -> Mapping[str, Ids | None]:
        """The rows by source; None: its row cannot be read. Raises OperatingError."""

    def write(self, changed: Mapping[str, Ids | None]) -> None:
        """Write rows by source; None deletes the row of a source that is gone. Raises OperatingError."""


class ControlBeginnings:
    """`BeginningRows` in the control partition."""

    def __init__(self, kafka: Kafka, journal: str, timeout_s: float) -> None:
        self._kafka = kafka
        self._journal = journal
        self._timeout_s = timeout_s

    def read(self) -> Mapping[str, Ids | None]:
        rows = read_control(self._kafka, self._journal, time.monotonic, self._timeout_s)
        return {name: None if row is None else dict(row.ids) for name, row in rows.source_topics.items()}

    def write(self, changed: Mapping[str, Ids | None]) -> None:
        sent = [
            control_row(
                self._journal,
                source_key(name),
                None if ids is None else SourceTopics(source=name, ids=ids),
            )
            for name, ids in changed.items()
        ]
        with closing(self._kafka.plain_producer()) as producer:
            producer.send(sent, self._timeout_s)


class Beginnings:
    """The rows as this activation knows them: only the active node writes them. Used by the sources' thread."""

    def __init__(self, rows: BeginningRows) -> None:
        self._rows = rows
        self._known: dict[str, Ids | None] | None = None

    def unreadable(self, sources: Iterable[str]) -> set[str]:
        """The sources among these whose rows cannot be read."""
        known = self._read()
        return {name for name in sources if name in known and known[name] is None}

    def forget(self, source: str) -> None:
        """A source goes on without its row if that cannot be read: `note` writes it anew."""
        known = self._read()
        if source in known and known[source] is None:
            del known[source]

    def later(self, topics: Iterable[tuple[SourceConfig, str, str]]) -> set[str]:
        """Those of `topics` (source, topic, id) that came into being after their source had begun: they were exchanged,
        or a pattern finds them. A topic that a source names for the first time may have been there before."""
        known = self._read()
        return {
            topic
            for source, topic, topic_id in topics
            if (ids := known.get(source.name)) is not None
            and (ids[topic] != topic_id if topic in ids else topic not in source.topics)
        }

    def note(self, begun: Mapping[str, Ids], sources: Collection[str]) -> None:
        """The ids of all topics that each source consumes, once offsets of them are committed; `sources` are all."""
        known = self._read()
        changed: dict[str, Ids | None] = {name: None for name in known if name not in sources}
        changed |= {name: ids for name, ids in begun.items() if known.get(name) != ids}
        if changed:
            self._rows.write(changed)
            self._known = {name: ids for name, ids in (known | changed).items() if name in sources}

    def _read(self) -> dict[str, Ids | None]:
        if self._known is None:
            self._known = dict(self._rows.read())
        return self._known


def row_unreadable(source: str) -> str:
    """Why a source is stopped whose row cannot be read."""
    return (
        "the control row that says which topics it has begun cannot be read. `kafka-journal routes resume-source "
        f"{source}` has it go on, and its row written anew: a topic without offsets begins as the source's `start` says"
    )
