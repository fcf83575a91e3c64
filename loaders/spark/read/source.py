"""Where a journal is, and which journal it is: its control rows, read with the journal's own Kafka clients."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from journal.errors import ConfigError, NoJournalError, TopicError
from journal.kafka.clients import KafkaClients
from journal.process.commands import command
from journal.topics.control_reading import read_control
from journal.topics.names import control_topic, table_topic, wal_topic
from journal.v1.journal_pb2 import Archive, Trim

if TYPE_CHECKING:
    from journal.config import Settings

EARLIEST = -2
"""A value in place of an offset: the start of the partition."""


@dataclass(frozen=True)
class JournalSource:
    """Where a journal is. `properties` are librdkafka's."""

    bootstrap_servers: str
    journal: str
    """The journal's full name: it begins with `topic_prefix`, if there is one."""
    properties: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 20.0
    """How long Kafka may take to answer one question, or to send something of what is read."""

    @classmethod
    def from_settings(cls, settings: Settings) -> JournalSource:
        return cls(settings.bootstrap_servers, settings.journal, settings.client_properties)

    def kafka(self) -> KafkaClients:
        """The journal's own Kafka clients. Raises ConfigError for a property that the journal sets itself."""
        return KafkaClients(self.bootstrap_servers, self.properties, unavailable_after_s=self.timeout_s)

    def reader_options(self) -> dict[str, str]:
        """The options with which the data source `kafka_journal` reaches the journal."""
        properties = {f"kafka.{key}": value for key, value in self.properties.items()}
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "journal": self.journal,
            "timeout_s": str(self.timeout_s),
            **properties,
        }

    @property
    def wal(self) -> str:
        return wal_topic(self.journal)

    @property
    def table(self) -> str:
        return table_topic(self.journal)

    @property
    def control(self) -> str:
        return control_topic(self.journal)

    def not_initialised(self) -> NoJournalError:
        """The error for a journal without one of its topics."""
        return NoJournalError(
            f"journal {self.journal} is not initialised: run `{command('init', journal=self.journal)}`"
        )


@dataclass(frozen=True)
class JournalIdentity:
    """Identity of the journal that frames belong to, from its control row."""

    uuid: bytes
    shards: int


def require_all_shards(
    journal: JournalIdentity, offsets: Mapping[int, int] | None, shards: Collection[int] | None = None
) -> None:
    """Raises ConfigError for offsets that leave a shard out, or name one that the journal does not have or that is not
    among the `shards` to read."""
    wanted = set(range(journal.shards) if shards is None else shards)
    if offsets is not None and offsets.keys() != wanted:
        named = ", ".join(map(str, sorted(offsets))) or "no shard"
        raise ConfigError(f"offsets are of all {journal.shards} shards (0 to {journal.shards - 1}), not of {named}")


class Control(NamedTuple):
    """The control rows that readers need."""

    identity: JournalIdentity
    begun: bool
    """The journal was activated at least once."""
    archives: dict[int, Archive]
    """The archive's mark of each shard that has one in this journal."""
    trims: dict[int, Trim]
    """The newest trim of each shard of this journal that was trimmed."""
    skip_requests: frozenset[tuple[int, int]]
    """The WAL records (shard, offset) that operators asked to have skipped. The table says whether a worker skipped
    them."""


def control(source: JournalSource) -> Control:
    """The control rows, read at once. Raises NoJournalError for a journal that `init` has not made, TopicError for one
    that is being destroyed, and RowError for rows that cannot be read."""
    try:
        rows = read_control(source.kafka(), source.journal, time.monotonic, source.timeout_s)
    except TopicError as error:
        raise source.not_initialised() from error
    found = rows.require_identity(source.journal)
    return Control(
        JournalIdentity(found.journal, found.shards),
        rows.epoch.epoch > 0,
        {shard: mark for shard, mark in rows.archives.items() if mark.journal == found.journal},
        {shard: trim for shard, trim in rows.trims.items() if trim.journal == found.journal},
        frozenset(place for place, skip in rows.skips.items() if skip.journal == found.journal),
    )


def identity(source: JournalSource) -> JournalIdentity:
    """The journal's identity. Raises the errors of `control`."""
    return control(source).identity


def identity_and_begun(source: JournalSource) -> tuple[JournalIdentity, bool]:
    """The journal's identity, and whether it was ever activated: every shard of its WAL has a marker then."""
    return control(source)[:2]
