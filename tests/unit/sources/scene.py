"""The sources' loop on a real store and journal, between topics and a cluster that are lists and dicts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any, cast

from journal.append.completion import Completion
from journal.append.operations import NewRecords, PlainOperation
from journal.config import Settings
from journal.errors import (
    FatalProducerError,
    JournalError,
    KafkaRefusedError,
    KafkaUnavailableError,
    NotTakenInError,
    TopicError,
)
from journal.kafka.ports import Cluster, Consumed, Position, Sent, TopicState
from journal.limits import Limits
from journal.local.journal import LocalJournal
from journal.routing.config import RoutingConfig
from journal.routing.source_record import SourceRecord
from journal.sources.batch import Converter
from journal.sources.beginnings import Begun
from journal.sources.consumer import SourceConsumer
from journal.sources.filters import Filters
from journal.sources.letters import LetterTopics
from journal.sources.loop import LoopConfig, SourcesLoop
from journal.sources.requests import Waiting
from journal.sources.service import sources_of
from journal.sources.status import SourcesStatus, SourceStatus
from journal.sources.stops import Stops
from journal.store.model import Message, QueueConfig
from tests.support.children.store import start

GROUP = "group"
DEADLINE_S = 20.0
LARGE = 1_048_588
"""Kafka's own max.message.bytes."""

Partition = tuple[str, int]


@dataclass
class SourceTopic:
    """A topic of one replica; `hidden` is how far its end lies behind its last record, as markers do."""

    partitions: list[list[SourceRecord]]
    config: dict[str, str]
    topic_id: str
    may_write: bool = True
    replication: int = 1
    hidden: int = 0

    def end(self, partition: int) -> int:
        return len(self.partitions[partition]) + self.hidden


@dataclass
class SourcesBroker:
    """Topics, and what one transaction after the other has committed."""

    topics: dict[str, SourceTopic] = field(default_factory=dict)
    committed: dict[Partition, int] = field(default_factory=dict)
    committed_ids: dict[Partition, str] = field(default_factory=dict)
    """The ids of topics that were committed with offsets."""
    commits: list[dict[Partition, int]] = field(default_factory=list)
    letters: list[Sent] = field(default_factory=list)
    refuses: Callable[[Mapping[Partition, int], Sequence[Sent]], str] = lambda offsets, beside: ""
    """The topic for which Kafka refuses a record of a transaction; another text: it refuses without saying which."""
    closed: set[str] = field(default_factory=set)
    """Topics whose settings nobody may see."""
    gone: set[str] = field(default_factory=set)
    """Topics that a consumer finds gone."""
    denied: set[str] = field(default_factory=set)
    """Topics that are listed, and not there for whoever asks for their ids: brokers disagree."""
    mute: Iterator[bool] = field(default_factory=lambda: repeat(False))
    """Whether no broker tells topics' ids, each time they are asked for."""
    silent: set[Partition] = field(default_factory=set)
    """Partitions of which a consumer gets nothing."""
    assigned: int = 0
    """How often partitions were assigned to a consumer."""
    listed: int = 0
    """How often topics were listed: at a beginning, and now and then."""

    def topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> SourceTopic:
        filled = {"max.message.bytes": str(LARGE), "min.insync.replicas": "1", **(config or {})}
        made = SourceTopic([[] for _ in range(partitions)], filled, f"{name}-{len(self.topics)}")
        self.topics[name] = made
        return made

    def produce(
        self,
        topic: str,
        *values: bytes,
        partition: int = 0,
        key: bytes | None = b"k",
        timestamp: int = 1_700_000_000_000,
        headers: Sequence[tuple[str, bytes]] | None = (),
    ) -> None:
        log = self.topics[topic].partitions[partition]
        for value in values:
            log.append(SourceRecord(topic, partition, len(log), timestamp, key, value, headers))

    def check(self, consumed: Consumed, beside: Sequence[Sent]) -> None:
        """Raises what a writer's transaction meets."""
        if refused := self.refuses(consumed.offsets, beside):
            raise FatalProducerError("refused", refused_topic=refused if refused in self.topics else "")

    def commit(self, consumed: Consumed, beside: Sequence[Sent]) -> None:
        self.committed |= consumed.offsets
        for partition in consumed.offsets:
            self.committed_ids[partition] = consumed.topic_ids.get(partition, "")
        self.commits.append(dict(consumed.offsets))
        self.letters += beside


class _Journal(LocalJournal):
    """A journal that takes in, and commits offsets and letters to a broker of its own before."""

    broker: SourcesBroker

    def take_in(
        self, operations: Sequence[PlainOperation | NewRecords], consumed: Consumed, beside: Sequence[Sent] = ()
    ) -> Completion:
        try:
            self.broker.check(consumed, beside)
        except FatalProducerError as met:
            completion, told = Completion(), NotTakenInError("refused")
            told.__cause__ = met
            threading.Timer(0.01, completion.resolve, [told]).start()
            return completion
        completion = self.require_core().take_in(operations, consumed, beside)
        completion.add_callback(lambda error: None if error is not None else self.broker.commit(consumed, beside))
        return completion


class _SceneConsumer:
    """`SourceConsumer` over a broker."""

    def __init__(self, broker: SourcesBroker) -> None:
        self._broker = broker
        self._positions: dict[Partition, int] = {}

    def topics(self, timeout_s: float) -> dict[str, int]:
        self._broker.listed += 1
        return {name: len(topic.partitions) for name, topic in self._broker.topics.items()}

    def earliest(self, partition: Partition, timeout_s: float) -> int:
        return 0

    def latest(self, partition: Partition, timeout_s: float) -> int:
        return self._broker.topics[partition[0]].end(partition[1])

    def assign(self, positions: Mapping[Partition, int]) -> None:
        self._positions = dict(positions)
        self._broker.assigned += 1

    def poll(self, timeout_s: float, records_max: int) -> list[SourceRecord]:
        found: list[SourceRecord] = []
        for (topic, number), position in self._positions.items():
            if (topic, number) in self._broker.silent or topic not in self._broker.topics:
                continue
            found += self._broker.topics[topic].partitions[number][position : position + records_max - len(found)]
        for record in found:
            self._positions[record.topic, record.partition] = record.offset + 1
        if not found:
            time.sleep(min(timeout_s, 0.005))
        return found

    def reached(self, partition: Partition) -> int:
        topic, number = partition
        log, position = self._broker.topics[topic], self._positions[partition]
        at_end = position == len(log.partitions[number]) and partition not in self._broker.silent
        return log.end(number) if at_end else position

    def stopped(self) -> dict[Partition, JournalError]:
        return {
            part: TopicError(f"topic {part[0]} is gone") for part in self._positions if part[0] in self._broker.gone
        }

    def lag(self, positions: Mapping[Partition, int]) -> dict[Partition, int]:
        there = {part: position for part, position in positions.items() if part[0] in self._broker.topics}
        return {part: self.latest(part, 0) - position for part, position in there.items()}

    def close(self) -> None: ...


class BrokerCluster:
    """`Cluster` over a broker."""

    def __init__(self, broker: SourcesBroker) -> None:
        self._broker = broker

    def stable_offsets(self, group: str, partitions: Collection[Partition], timeout_s: float) -> dict[Partition, int]:
        return dict(self._broker.committed)

    def stable_positions(
        self, group: str, partitions: Collection[Partition], timeout_s: float
    ) -> dict[Partition, Position]:
        ids = self._broker.committed_ids
        return {part: Position(offset, ids.get(part, "")) for part, offset in self._broker.committed.items()}

    def describe(self, topics: Iterable[str], timeout_s: float) -> dict[str, TopicState]:
        there, topics = self._broker.topics, list(topics)
        if hidden := self._broker.closed.intersection(topics):
            raise KafkaRefusedError(f"settings of {hidden}")
        return {
            name: TopicState(
                there[name].topic_id,
                len(there[name].partitions),
                there[name].replication,
                dict(there[name].config),
                there[name].may_write,
            )
            for name in topics
            if name in there
        }

    def topic_ids(self, topics: Iterable[str], timeout_s: float) -> dict[str, str]:
        if next(self._broker.mute):
            raise KafkaUnavailableError("no broker")
        there = self._broker.topics
        return {name: there[name].topic_id for name in topics if name in there and name not in self._broker.denied}

    def close(self) -> None: ...


class KeptBeginnings:
    """`beginnings.Rows`."""

    def __init__(self) -> None:
        self.rows: dict[str, Begun | None] = {}

    def read(self) -> Mapping[str, Begun | None]:
        return dict(self.rows)

    def write(self, changed: Mapping[str, Begun | None]) -> None:
        for name, ids in changed.items():
            if ids is None:
                del self.rows[name]
            else:
                self.rows[name] = ids


class SourcesScene:
    """A store on it, and the sources' loop in a thread."""

    def __init__(self, directory: Path, *, limits: Limits | None = None) -> None:
        self.broker = SourcesBroker()
        self.limits = limits or Limits()
        self.journal = _Journal(directory, shards=2, limits=self.limits)
        self.journal.broker = self.broker
        self.journal.start()
        self.store = start(self.journal)
        self.now_ms = 1_700_000_000_000.0
        self.agreed_ms: Callable[[], float] | None = None
        """The time that clocks have agreed on; None: that of `now_ms`."""
        self.stops = Stops()
        self.beginnings = KeptBeginnings()
        self.status = SourcesStatus({})
        self.ended: BaseException | None = None

    def close(self) -> None:
        self.store.close()
        self.journal.close()

    def declare(self, *queues: QueueConfig) -> None:
        for queue in queues:
            if queue.address not in {entry.name for entry in self.store.addresses()}:
                self.store.create_address(queue.address)
            self.store.create_queue(queue)
        self.store.flush().wait(DEADLINE_S)

    def send(self, address: str, body: bytes, **headers: str) -> int:
        """A message of now."""
        pending = self.store.send(Message(address, body, dict(headers), timestamp=int(self.now_ms)), [address])
        pending.wait(DEADLINE_S)
        return pending.id

    @contextmanager
    def taking(
        self,
        *sources: dict[str, Any],
        batch_records: int = 100,
        list_every_s: float = 0.05,
        commit_again_s: float = 1000.0,
        **routing: Any,
    ) -> Iterator[None]:
        """The loop of one activation."""
        config = RoutingConfig.model_validate({"sources": list(sources), **routing})
        settings = Settings(journal="j", routing=config, limits=self.limits)
        waiting, letters, filters = (
            Waiting(self.store, config.sources, lambda: self.now_ms, self.agreed_ms or (lambda: self.now_ms)),
            LetterTopics(settings),
            Filters(self.store),
        )
        sources = sources_of(settings, waiting.address, letters.bytes_max)
        self.stops = Stops()
        names = {source.name: SourceStatus(source.name) for source in config.sources}
        self.status = SourcesStatus(names, lambda: self.now_ms)
        loop = SourcesLoop(
            LoopConfig(GROUP, DEADLINE_S, list_every_s, batch_records, commit_again_s),
            config,
            sources,
            self.store,
            Converter(
                sources,
                config,
                self.store,
                filters,
                waiting,
                letters,
                self.limits,
                batch_bytes=4_000_000,
                request_s=DEADLINE_S,
            ),
            filters.takes,
            lambda: cast(SourceConsumer, _SceneConsumer(self.broker)),
            lambda: cast(Cluster, BrokerCluster(self.broker)),
            self.status,
            self.stops,
            self.beginnings,
        )
        thread = threading.Thread(target=self._run, args=(loop,))
        thread.start()
        try:
            yield
        finally:
            loop.stop()
            thread.join(DEADLINE_S)
        if self.ended is not None:
            raise self.ended

    def _run(self, loop: SourcesLoop) -> None:
        try:
            loop.run()
        except BaseException as error:  # noqa: BLE001  # the test raises it
            self.ended = error

    # ---- what became of it -----------------------------------------------------------------------------------------

    def wait_until(self, what: Callable[[], object]) -> None:
        until = time.monotonic() + DEADLINE_S
        while not what():
            if self.ended is not None:
                raise self.ended
            assert time.monotonic() < until, (self.status.as_json(), self.broker.committed)
            time.sleep(0.002)

    def wait_committed(self, topic: str, offset: int, partition: int = 0) -> None:
        self.wait_until(lambda: self.broker.committed.get((topic, partition), 0) >= offset)

    def wait_stopped(self, source: str) -> str:
        """Wait until a source is stopped; why."""
        self.wait_until(lambda: self.source(source)["error"])
        return str(self.source(source)["error"])

    def look_again(self) -> None:
        """Wait until all has been done that is done now and then."""
        before = self.broker.listed
        self.wait_until(lambda: self.broker.listed >= before + 3)

    def source(self, name: str) -> dict[str, Any]:
        return next(each for each in self.status.as_json()["sources"] if each["source"] == name)

    def bodies(self, queue: str) -> list[bytes]:
        return [self.store.message(info.message).body for info in self.store.browse(queue)]

    def reasons(self) -> list[bytes | None]:
        """The reasons that the dead letters give, in order."""
        return [dict(letter.headers)["kafka-journal.error.reason"] for letter in self.broker.letters]
