"""Simulated readers and administration."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby

from journal.errors import (
    ClosedError,
    CorruptionError,
    DeadlineError,
    GapError,
    KafkaRefusedError,
    KafkaUnavailableError,
    TopicError,
)
from journal.kafka.ports import GroupMember, LogRecord, Position, RecordRun, TopicState
from tests.simulation.broker import SimulatedBroker
from tests.simulation.partition import PartitionLog, Version
from tests.simulation.requests import Requests


class SimulatedRun:
    """`ports.RecordRun`."""

    def __init__(self, partition: int, records: list[LogRecord]) -> None:
        self.partition = partition
        self.offsets: Sequence[int] = [record.offset for record in records]
        self._records = records

    def keys(self) -> list[bytes | None]:
        return [record.key for record in self._records]

    def values(self) -> list[bytes | None]:
        return [record.value for record in self._records]

    def records(self, first: int = 0, end: int | None = None) -> list[LogRecord]:
        return self._records[first:end]


class SimulatedReader:
    """`ports.Reader`. A poll gives records or moves the position behind what it does not give, never both."""

    def __init__(self, requests: Requests, topic: str, *, committed: bool, records_per_poll: int) -> None:
        self._requests: Requests | None = requests
        self._topic = topic
        self._committed = committed
        self._records_per_poll = records_per_poll
        self._positions: dict[int, int] = {}
        self._leader_epochs: dict[int, int] = {}
        """The leader epoch of what was read last before each position, where that is known."""
        self._seen = -1
        """The number of the topic's version at which there was nothing: until there is another, no need to look."""
        self._seen_of: Version | None = None

    def seek(self, positions: Mapping[int, int], leader_epochs: Mapping[int, int] | None = None) -> None:
        self._open()
        self._positions = dict(positions)
        self._leader_epochs = dict(leader_epochs or {})
        self._seen = -1

    def poll(self, timeout_s: float) -> list[LogRecord]:
        requests = self._open()
        try:
            requests.ask("poll", timeout_s)
        except KafkaUnavailableError:
            return []
        records: list[LogRecord] = []
        requests.broker.timeline.wait(timeout_s, partial(self._fetch, records))
        return records

    def poll_runs(self, timeout_s: float) -> list[RecordRun]:
        by_partition = groupby(self.poll(timeout_s), key=lambda record: record.partition)
        return [SimulatedRun(partition, list(records)) for partition, records in by_partition]

    def position(self, partition: int) -> int:
        return self._positions[partition]

    def positions(self) -> dict[int, int]:
        return dict(self._positions)

    def start_and_end(self, partition: int, timeout_s: float) -> tuple[int, int]:
        self._open().ask("start_and_end", timeout_s)
        return self._bounds_of(partition)

    def _bounds_of(self, partition: int) -> tuple[int, int]:
        log = self._log(partition)
        if log is None:
            raise TopicError(f"{self._topic}[{partition}] is not there")
        return log.start, log.last_stable if self._committed else log.end

    def bounds(self, partitions: Sequence[int], timeout_s: float) -> dict[int, tuple[int, int]]:
        self._open().ask("start_and_end", timeout_s)
        return {partition: self._bounds_of(partition) for partition in partitions}

    def ends(self, partitions: Sequence[int], timeout_s: float) -> dict[int, int]:
        return {partition: end for partition, (_, end) in self.bounds(partitions, timeout_s).items()}

    def close(self) -> None:
        self._requests = None

    def _fetch(self, records: list[LogRecord]) -> bool:
        """Says whether a position has moved. Hot path: whoever waits asks again at each turn."""
        requests = self._requests
        if requests is None:
            raise ClosedError("this reader is closed")
        broker, node = requests.broker, requests.node
        topic = broker.topics.get(self._topic)
        if topic is None:
            return False
        version, seen = topic.version, self._seen if topic.version is self._seen_of else -1
        if version.number == seen:
            return False
        count, moved, epochs, committed = self._records_per_poll, False, self._leader_epochs, self._committed
        logs = broker.seen_logs(node, self._topic)
        for partition, position in self._positions.items():
            log = logs[partition] if partition < len(logs) else None
            if log is None or log.changed_at <= seen:
                continue
            epoch = epochs.get(partition, 0)
            if epoch > log.leader_epoch:
                continue  # this leader is told that it was deposed
            if epoch != log.leader_epoch or not log.start <= position <= log.end:
                outside = self._outside(log, partition, position)
                if outside:
                    if records:
                        break
                    raise GapError(outside, topic=self._topic, partition=partition, offset=position)
            end = log.readable_to(position, committed=committed)
            if end == position and position in log.damaged:
                if records:
                    break
                what = "the record batch here is damaged on the broker that was asked"
                raise CorruptionError(what, topic=self._topic, partition=partition, offset=position)
            if end <= position:
                continue
            found = log.fetch(partition, position, count - len(records), committed=committed)
            if found:
                records += found
                self._positions[partition] = found[-1].offset + 1
            else:
                self._positions[partition], moved = end, True
            epochs[partition] = log.leader_epoch
            if len(records) == count:
                break
        if not moved and not records:
            self._seen, self._seen_of = version.number, version
            return False
        self._seen = -1
        return True

    def _outside(self, log: PartitionLog, partition: int, position: int) -> str:
        """Why nothing can be read on from a position, if nothing can."""
        epoch = self._leader_epochs.get(partition, log.leader_epoch)
        if epoch < log.leader_epoch and log.end_of_epoch(epoch) < position:
            return f"the log was truncated to {log.end_of_epoch(epoch)}"
        if not log.start <= position <= log.end:
            return f"this offset is outside the log, which has {log.start} to {log.end}"
        return ""

    def _log(self, partition: int) -> PartitionLog | None:
        requests = self._open()
        return requests.broker.seen_log(requests.node, self._topic, partition)

    def _open(self) -> Requests:
        if self._requests is None:
            raise ClosedError("this reader is closed")
        return self._requests


class SimulatedCluster:
    """`ports.Cluster`."""

    def __init__(self, requests: Requests) -> None:
        self._requests: Requests | None = requests

    def cluster_id(self, timeout_s: float) -> str:
        return self._asked(timeout_s).cluster_id

    def describe(self, topics: Iterable[str], timeout_s: float) -> dict[str, TopicState]:
        known = self._asked(timeout_s).topics
        return {
            name: TopicState(known[name].topic_id, len(known[name].logs), known[name].replication, known[name].config)
            for name in topics
            if name in known
        }

    def topic_ids(self, topics: Iterable[str], timeout_s: float) -> dict[str, str]:
        return {name: state.topic_id for name, state in self.describe(topics, timeout_s).items()}

    def create(
        self, topic: str, partitions: int, replication: int, config: Mapping[str, str], timeout_s: float
    ) -> None:
        broker = self._asked(timeout_s)
        if replication > len(broker.broker_config):
            raise KafkaRefusedError(f"create topic {topic}: replication {replication}: too few brokers")
        broker.create_topic(topic, partitions, replication, config)

    def topics(self, timeout_s: float) -> set[str]:
        return set(self._asked(timeout_s).topics)

    def groups(self, timeout_s: float) -> set[str]:
        broker = self._asked(timeout_s)
        return {*broker.groups, *broker.group_offsets}

    def delete_topic(self, topic: str, timeout_s: float) -> None:
        broker = self._asked(timeout_s)
        if topic in broker.topics:
            broker.delete_topic(topic)

    def delete_group(self, group: str, timeout_s: float) -> None:
        broker = self._asked(timeout_s)
        if broker.groups.pop(group, ()):
            raise KafkaRefusedError(f"delete group {group}: it has members")
        broker.group_offsets.pop(group, None)

    def broker_config(self, name: str, timeout_s: float) -> dict[int, str | None]:
        return {broker: config.get(name) for broker, config in self._asked(timeout_s).broker_config.items()}

    def group_members(self, group: str, timeout_s: float) -> list[GroupMember]:
        return list(self._asked(timeout_s).groups.get(group, ()))

    def group_offsets(self, group: str, topic: str, timeout_s: float) -> dict[int, int]:
        offsets = self._asked(timeout_s).group_offsets.get(group, {})
        return {partition: offset for (name, partition), offset in offsets.items() if name == topic}

    def stable_positions(
        self, group: str, partitions: Collection[tuple[str, int]], timeout_s: float
    ) -> dict[tuple[str, int], Position]:
        found = self.stable_offsets(group, partitions, timeout_s)
        return {partition: Position(offset, "") for partition, offset in found.items()}

    def stable_offsets(
        self, group: str, partitions: Collection[tuple[str, int]], timeout_s: float
    ) -> dict[tuple[str, int], int]:
        broker = self._asked(timeout_s)
        if not broker.timeline.wait(timeout_s, lambda: not broker.is_unstable(group)):
            raise DeadlineError(f"offsets of group {group}: a transaction with some is still open")
        return dict(broker.group_offsets.get(group, {}))

    def delete_records(self, topic: str, offsets: Mapping[int, int], timeout_s: float) -> None:
        node = self._open().node
        broker = self._asked(timeout_s)
        for partition, offset in offsets.items():
            log = broker.log(topic, partition)
            if not broker.is_led(node, topic, partition):
                raise KafkaUnavailableError(f"delete records of {topic}[{partition}]: its leader was deposed")
            if log is None or offset > log.end:
                raise KafkaRefusedError(f"delete records of {topic}[{partition}]: there is no offset {offset}")
            log.trim(offset)

    def close(self) -> None:
        self._requests = None

    def _asked(self, timeout_s: float) -> SimulatedBroker:
        requests = self._open()
        requests.ask("admin", timeout_s)
        return requests.broker

    def _open(self) -> Requests:
        if self._requests is None:
            raise ClosedError("this cluster client is closed")
        return self._requests
