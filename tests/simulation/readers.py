"""Simulated readers and administration."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby

from journal.errors import ClosedError, DeadlineError, GapError, KafkaRefusedError, KafkaUnavailableError, TopicError
from journal.kafka.ports import GroupMember, LogRecord, RecordRun, TopicState
from tests.simulation.broker import SimulatedBroker
from tests.simulation.partition import PartitionLog
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
        self._seen = -1
        """Changes with whatever could give records: until it does, there is no need to look for some again."""

    def seek(self, positions: Mapping[int, int]) -> None:
        self._open()
        self._positions = dict(positions)
        self._seen = -1

    def poll(self, timeout_s: float) -> list[LogRecord]:
        requests = self._open()
        try:
            requests.ask("poll", timeout_s)
        except KafkaUnavailableError:
            return []
        records: list[LogRecord] = []
        requests.broker.timeline.wait(timeout_s, lambda: self._fetch(records))
        return records

    def poll_runs(self, timeout_s: float) -> list[RecordRun]:
        by_partition = groupby(self.poll(timeout_s), key=lambda record: record.partition)
        return [SimulatedRun(partition, list(records)) for partition, records in by_partition]

    def position(self, partition: int) -> int:
        return self._positions[partition]

    def start_and_end(self, partition: int, timeout_s: float) -> tuple[int, int]:
        self._open().ask("start_and_end", timeout_s)
        log = self._log(partition)
        if log is None:
            raise TopicError(f"{self._topic}[{partition}] is not there")
        return log.start, log.last_stable if self._committed else log.end

    def bounds(self, partitions: Sequence[int], timeout_s: float) -> dict[int, tuple[int, int]]:
        return {partition: self.start_and_end(partition, timeout_s) for partition in partitions}

    def ends(self, partitions: Sequence[int], timeout_s: float) -> dict[int, int]:
        return {partition: self.start_and_end(partition, timeout_s)[1] for partition in partitions}

    def close(self) -> None:
        self._requests = None

    def _fetch(self, records: list[LogRecord]) -> bool:
        """Says whether a position has moved."""
        seen = self._stamp()
        if seen == self._seen:
            return False
        count, moved = self._records_per_poll, False
        for partition, position in self._positions.items():
            log = self._log(partition)
            if log is None:
                continue
            if not log.start <= position <= log.end:
                if records:
                    break
                raise GapError(
                    f"this offset is outside the log, which has {log.start} to {log.end}",
                    topic=self._topic,
                    partition=partition,
                    offset=position,
                )
            found = log.fetch(partition, position, count - len(records), committed=self._committed)
            if found:
                records += found
                self._positions[partition] = found[-1].offset + 1
            elif len(records) < count:
                end = log.last_stable if self._committed else log.end
                if end > position:
                    self._positions[partition], moved = end, True
        if not moved and not records:
            self._seen = seen
            return False
        self._seen = -1
        return True

    def _stamp(self) -> int:
        """Every record and every marker moves a log's end; trimming moves its start."""
        topic = self._open().broker.topics.get(self._topic)
        if topic is None:
            return -1
        stamp = 0
        for partition in self._positions:
            log = topic.logs[partition]
            stamp += log.start + log.end
        return stamp

    def _log(self, partition: int) -> PartitionLog | None:
        return self._open().broker.log(self._topic, partition)

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

    def broker_config(self, name: str, timeout_s: float) -> dict[int, str | None]:
        return {broker: config.get(name) for broker, config in self._asked(timeout_s).broker_config.items()}

    def group_members(self, group: str, timeout_s: float) -> list[GroupMember]:
        return list(self._asked(timeout_s).groups.get(group, ()))

    def group_offsets(self, group: str, topic: str, timeout_s: float) -> dict[int, int]:
        offsets = self._asked(timeout_s).group_offsets.get(group, {})
        return {partition: offset for (name, partition), offset in offsets.items() if name == topic}

    def stable_offsets(
        self, group: str, partitions: Collection[tuple[str, int]], timeout_s: float
    ) -> dict[tuple[str, int], int]:
        broker = self._asked(timeout_s)
        if not broker.timeline.wait(timeout_s, lambda: not broker.is_unstable(group)):
            raise DeadlineError(f"offsets of group {group}: a transaction with some is still open")
        return dict(broker.group_offsets.get(group, {}))

    def delete_records(self, topic: str, offsets: Mapping[int, int], timeout_s: float) -> None:
        broker = self._asked(timeout_s)
        for partition, offset in offsets.items():
            log = broker.log(topic, partition)
            if log is None or offset > log.end:
                raise KafkaRefusedError(f"delete records of {topic}[{partition}]: there is no offset {offset}")
            log.trim(offset)

    def close(self) -> None:
        self._requests = None

    def _asked(self, timeout_s: float) -> SimulatedBroker:
        if self._requests is None:
            raise ClosedError("this cluster client is closed")
        self._requests.ask("admin", timeout_s)
        return self._requests.broker
