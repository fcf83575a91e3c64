"""The memory of an `on_change` agent, in Kafka: its position in the table and its state, for each shard.

    <journal>.agent.<name>      compacted, one partition a shard
        'p'                     the position: offset of the table behind a mark; the mark's name, time and leader
                            epoch; and which table that is
        's' key                 a row of the agent's own state

The memory is written in the transactions that hold the agent's outputs, so that the next session of the shard continues
exactly there. If the topic is deleted, the agent begins anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from journal.config import Settings
from journal.errors import RowError, TopicError
from journal.kafka.ports import Cluster, Kafka, LogRecord, Sent
from journal.process.clocks import Clock
from journal.table.age import NO_EPOCH, CopyPlace
from journal.topics.marks import records_between
from journal.topics.names import memory_topic, table_topic
from journal.topics.required_topics import topic_configs

_POSITION_KEY = b"p"
_STATE_TAG = b"s"


@dataclass(frozen=True, slots=True)
class AgentPosition:
    """The place up to which an agent was told a table partition."""

    place: CopyPlace
    table: str
    """The identity of the table, in hex, which differs for another cluster, topic or journal."""
    mark: int
    """The name of the last mark that the agent was told, which the next mark must give as its predecessor; 0 if there
    is none."""


def position_record(topic: str, shard: int, position: AgentPosition) -> Sent:
    place = position.place
    value = {
        "offset": place.position,
        "table": position.table,
        "stood_ms": place.stood_ms,
        "leader_epoch": place.leader_epoch,
        "mark": position.mark,
    }
    return Sent(topic, shard, _POSITION_KEY, json.dumps(value).encode())


def state_records(topic: str, shard: int, written: Mapping[bytes, bytes | None]) -> list[Sent]:
    return [Sent(topic, shard, _STATE_TAG + key, value) for key, value in written.items()]


@dataclass(slots=True)
class Remembered:
    """What one partition of a memory topic holds from an offset on."""

    end: int
    """The offset at which the partition ended; everything before it was read."""
    position: AgentPosition | None
    state: dict[bytes, bytes | None]
    """Values by key; None for a deleted value."""


def read_memory(kafka: Kafka, topic: str, shard: int, since: int, *, clock: Clock, timeout_s: float) -> Remembered:
    """Read an agent's committed memory from the offset `since` on; -1 means all of it.

    Raises RowError for bytes that are no memory, DeadlineError.
    """
    reader = kafka.reader(topic)
    found = Remembered(0, None, {})
    try:
        start, found.end = reader.start_and_end(shard, timeout_s)
        records = records_between(
            reader, shard, max(start, since), found.end, clock=clock, stall_s=timeout_s, name=f"{topic}[{shard}]"
        )
        for record in records:
            _take(topic, record, found)
    finally:
        reader.close()
    return found


def _take(topic: str, record: LogRecord, found: Remembered) -> None:
    key = record.key or b""
    if key[:1] == _STATE_TAG:
        found.state[key[1:]] = record.value
        return
    try:
        if key != _POSITION_KEY:
            raise ValueError(f"key {key!r}")
        value = json.loads(record.value or b"")
        place = CopyPlace(int(value["offset"]), int(value["stood_ms"]), int(value.get("leader_epoch", NO_EPOCH)))
        found.position = AgentPosition(place, str(value["table"]), int(value.get("mark", 0)))
    except (ValueError, KeyError, TypeError) as error:
        reason = f"this is no agent's memory: {error}"
        raise RowError(reason, topic=topic, partition=record.partition, offset=record.offset) from error


def make_memory(cluster: Cluster, settings: Settings, agent: str, shards: int, timeout_s: float) -> str:
    """Make an agent's memory topic if it does not exist; returns its topic id. Raises TopicError for a topic that
    cannot serve as memory."""
    topic = memory_topic(settings.journal, agent)
    config = topic_configs(settings)[table_topic(settings.journal)]
    cluster.create(topic, shards, settings.replication, config, timeout_s)
    state = cluster.describe([topic], timeout_s)[topic]
    if state.partitions != shards or state.config.get("cleanup.policy") != "compact":
        raise TopicError(
            f"topic {topic} has {state.partitions} partitions and cleanup.policy={state.config.get('cleanup.policy')}; "
            f"agent {agent} needs {shards}, compact: delete the topic (the agent then begins anew), or rename the agent"
        )
    return state.topic_id
