"""The memory of an `on_change` agent, in Kafka: by shard, its position in the table and its state.

    <journal>.agent.<name>      compacted, one partition a shard
        'p'                     the position: offset of the table behind a mark; the mark's name, time and leader
                            epoch; and which table that is
        's' key                 a row of the agent's own state

Written in the transactions that hold what the agent gives, so that whoever has the shard next goes on exactly there.
Deleting the topic makes the agent begin anew.
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
    """Where an agent stands in a table partition."""

    place: CopyPlace
    table: str
    """The identity of the table, in hex: it differs for another cluster, topic or journal."""
    mark: int
    """The name by which the next mark refers to the one that the agent was told up to; 0: there is none."""


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
    """What one partition of a memory topic holds from some offset on."""

    end: int
    """The offset at which the partition ended: everything before was read."""
    position: AgentPosition | None
    state: dict[bytes, bytes | None]
    """Values by key; None for a deleted one."""


def read_memory(kafka: Kafka, topic: str, shard: int, since: int, *, clock: Clock, timeout_s: float) -> Remembered:
    """Read what was committed to an agent's memory at or behind the offset `since`; -1: all of it.

    Raises RowError for what is no memory, DeadlineError.
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
    """An agent's memory topic, made if it is not there; its topic id. Raises TopicError for one that cannot serve."""
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
