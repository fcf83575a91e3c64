"""The topics of a journal, with every setting that they need and the reason for it.

`init` makes the topics of this list, every start checks them, and `init --dry-run` prints them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from journal.settings import JournalSettings
from journal.topics.names import control_topic, table_topic, wal_topic

CONTROL_SEGMENT_MS = 10 * 60 * 1000
CONTROL_SEGMENT_BYTES_MIN = 4 * 1024 * 1024


class Bound(Enum):
    """How a topic's value must compare with the value that the journal asks for."""

    EXACTLY = "exactly"
    AT_LEAST = "at least"
    AT_MOST = "at most"


class RequiredSetting(NamedTuple):
    """A setting of a topic that the journal relies on."""

    value: str
    """The value that `init` makes the topic with."""
    why: str
    bound: Bound = Bound.EXACTLY
    source: str = ""
    """Our own setting that the value comes from, where there is one."""

    def is_met_by(self, value: str) -> bool:
        """Whether a topic's value is at least as safe, or as small, as the required one."""
        if self.bound is Bound.EXACTLY:
            return value == self.value
        if not value.isdigit():
            return False
        least = self.bound is Bound.AT_LEAST
        return int(value) >= int(self.value) if least else int(value) <= int(self.value)


class RequiredTopic(NamedTuple):
    """A topic as the journal needs it."""

    name: str
    partitions: int
    replication: int
    settings: Mapping[str, RequiredSetting]

    @property
    def config(self) -> dict[str, str]:
        """The settings that `init` makes the topic with."""
        return {key: setting.value for key, setting in self.settings.items()}


def required_topics(settings: JournalSettings, shards: int) -> list[RequiredTopic]:
    """The topics of a journal with this number of shards: WAL, table and control topic."""
    name, replication = settings.journal, settings.replication
    compacted = _safe(settings) | _compacted(settings)
    return [
        RequiredTopic(wal_topic(name), shards, replication, _safe(settings) | _wal(settings)),
        RequiredTopic(table_topic(name), shards, replication, compacted),
        RequiredTopic(control_topic(name), 1, replication, compacted | _control(settings)),
    ]


def topic_configs(settings: JournalSettings) -> dict[str, dict[str, str]]:
    """The settings that `init` makes each topic with."""
    return {topic.name: topic.config for topic in required_topics(settings, settings.shards)}


def _safe(settings: JournalSettings) -> dict[str, RequiredSetting]:
    return {
        "min.insync.replicas": RequiredSetting(
            str(settings.min_insync_replicas),
            "what was acknowledged is on so many brokers",
            Bound.AT_LEAST,
            "min_insync",
        ),
        "unclean.leader.election.enable": RequiredSetting(
            "false", "a broker that lacks what was acknowledged must not become leader"
        ),
        "message.timestamp.type": RequiredSetting(
            "LogAppendTime", "ages count by the clocks of brokers, whatever the clock of a node says"
        ),
    }


def _wal(settings: JournalSettings) -> dict[str, RequiredSetting]:
    deleted = "only `trim` deletes from the WAL"
    return {
        "cleanup.policy": RequiredSetting("delete", "frames have no keys, so nothing of the WAL may be compacted"),
        "retention.ms": RequiredSetting("-1", deleted),
        "retention.bytes": RequiredSetting("-1", deleted),
        "max.message.bytes": RequiredSetting(
            str(settings.limits.message_bytes_max),
            "the largest frame fits; a larger record of somebody else would fit no row of skipped records",
            source="limits.frame_bytes_max",
        ),
    }


def _compacted(settings: JournalSettings) -> dict[str, RequiredSetting]:
    return {
        "cleanup.policy": RequiredSetting("compact", "the newest row of each key stays, however old it is"),
        "max.message.bytes": RequiredSetting(
            str(settings.limits.row_message_bytes_max),
            "the largest row fits",
            Bound.AT_LEAST,
            "limits.frame_bytes_max",
        ),
        "delete.retention.ms": RequiredSetting(
            str(settings.delete_retention_ms),
            "a local copy that was away for less sees every deletion",
            Bound.AT_LEAST,
            "delete_retention_ms",
        ),
        "min.compaction.lag.ms": RequiredSetting(
            str(settings.min_compaction_lag_ms),
            "rows stay as they are for as long as a copy takes to be built",
            Bound.AT_LEAST,
            "min_compaction_lag_ms",
        ),
    }


def _control(settings: JournalSettings) -> dict[str, RequiredSetting]:
    why = "every activation reads this topic whole, and Kafka compacts no segment that is still written"
    size = max(CONTROL_SEGMENT_BYTES_MIN, 2 * settings.limits.row_message_bytes_max)
    return {
        "segment.ms": RequiredSetting(str(CONTROL_SEGMENT_MS), why, Bound.AT_MOST),
        "segment.bytes": RequiredSetting(str(size), why, Bound.AT_MOST),
    }
