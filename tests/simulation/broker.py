"""A simulated cluster: topics, the transaction coordinator, consumer groups. Requests in, answers out; no clients.

The coordinator does what Kafka's does for a client without KIP-890's half (librdkafka 2.16), as seen on Kafka 4:

- InitProducerId bumps the epoch at once, which fences older instances, aborts what was open, and is answered when the
  markers are written.
- EndTxn is answered when the decision is logged; markers follow partition by partition, and until the last one the same
  id cannot begin again. The epoch stays as it is, so a late copy of an EndTxn ends whatever transaction is then open.
- An EndTxn(commit) of a transaction that was already committed is answered with success: a repetition.
- A transaction open longer than its time-out is aborted with a bumped epoch, which to its producer is being fenced.
- A Produce is refused when the partition has seen a newer epoch; the first of a transaction also unless the coordinator
  has the partition in that producer's open transaction (3.6's verification).
- An id that was not used for long is forgotten, and one whose epochs are used up gets another producer id: whoever
  still has the old one is told that it is nobody's.
- While the coordinator moves it answers nobody; the new one writes again the markers of what was not over.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import NamedTuple

from journal.kafka.ports import GroupMember
from tests.simulation.faults import Faults
from tests.simulation.partition import DeposedLog, PartitionLog, Version
from tests.simulation.timeline import Timeline

Partition = tuple[str, int]

OFFSETS: Partition = ("__consumer_offsets", 0)
"""Where committed offsets are kept. There is one partition for all groups, made when the first offset comes."""


class Answer(Enum):
    """How the broker answers what it does not simply do."""

    FENCED = auto()
    CONCURRENT = auto()
    INVALID_STATE = auto()
    UNKNOWN_PRODUCER = auto()
    OUT_OF_SEQUENCE = auto()
    NO_COORDINATOR = auto()
    UNKNOWN_TOPIC = auto()
    INVALID_RECORD = auto()
    TOO_LARGE = auto()


class State(Enum):
    EMPTY = auto()
    ONGOING = auto()
    PREPARE_COMMIT = auto()
    PREPARE_ABORT = auto()
    COMPLETE_COMMIT = auto()
    COMPLETE_ABORT = auto()


@dataclass(slots=True)
class Transactional:
    """The coordinator's entry for one transactional id."""

    producer: int
    epoch: int = 0
    state: State = State.EMPTY
    partitions: list[Partition] = field(default_factory=list)
    unmarked: set[Partition] = field(default_factory=set)
    """Those that have no marker yet of what was decided."""
    number: int = 0
    """Counts the transactions, so that a time-out knows its own."""


class Instance(NamedTuple):
    """What an init gives: a producer id, and the epoch of this instance of it."""

    producer: int
    epoch: int


class Deposition(NamedTuple):
    """A leader of a partition that was deposed, and who still asks it until when."""

    log: DeposedLog
    nodes: frozenset[str]
    until: float
    writes: bool
    """Whether their producers ask it too; each client finds out by itself that another one leads."""


@dataclass(slots=True)
class Topic:
    topic_id: str
    config: dict[str, str]
    replication: int
    logs: list[PartitionLog]
    version: Version


class SimulatedBroker:
    """The cluster. Deterministic: all chance comes from `faults`, all time from `timeline`."""

    def __init__(self, timeline: Timeline, faults: Faults | None = None, cluster_id: str = "simulated") -> None:
        self.timeline = timeline
        self.faults = faults or Faults()
        self.cluster_id = cluster_id
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, Iterable[GroupMember]] = {}
        self.group_offsets: dict[str, dict[Partition, int]] = {}
        self.broker_config: dict[int, dict[str, str]] = {1: {"transaction.partition.verification.enable": "true"}}
        self.ahead_s = 0.0
        """How far its clock is ahead of that of the machines."""
        self.bytes_per_s = float("inf")
        """How fast records are taken; a quota, or slow disks."""
        self.producer_epochs = 32_767
        """How many epochs a producer id has."""
        self._ids: dict[str, Transactional] = {}
        self._deposed: dict[Partition, Deposition] = {}
        self._coordinated_from = 0.0
        self._offsets_sent: dict[int, dict[str, dict[Partition, int]]] = {}
        """By producer and group, those of its open transaction."""
        self._numbers = itertools.count(1)

    # ---- topics ----------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> None:
        """An existing one is left as it is. A deleted and re-created one has another id and empty logs."""
        if name not in self.topics:
            version = Version()
            logs = [PartitionLog(version) for _ in range(partitions)]
            self.topics[name] = Topic(f"topic-{next(self._numbers)}", dict(config), replication, logs, version)

    def delete_topic(self, name: str) -> None:
        del self.topics[name]
        self._deposed = {place: deposed for place, deposed in self._deposed.items() if place[0] != name}

    def log(self, topic: str, partition: int) -> PartitionLog | None:
        known = self.topics.get(topic)
        return known.logs[partition] if known is not None and partition < len(known.logs) else None

    # ---- leaders ---------------------------------------------------------------------------------------------

    def seen_log(self, node: str, topic: str, partition: int) -> PartitionLog | None:
        """What a node is told that asks for a partition."""
        if self._deposed:
            deposed = self._deposed.get((topic, partition))
            if deposed is not None and self._asks_deposed(node, deposed):
                return deposed.log
        known = self.topics.get(topic)
        return known.logs[partition] if known is not None and partition < len(known.logs) else None

    def seen_logs(self, node: str, topic: str) -> Sequence[PartitionLog]:
        """The same of all partitions of a topic that there is."""
        logs = self.topics[topic].logs
        if not self._deposed:
            return logs
        return [self.seen_log(node, topic, partition) or log for partition, log in enumerate(logs)]

    def is_led(self, node: str, topic: str, partition: int) -> bool:
        """Whether what a node writes to a partition reaches a leader that can commit it."""
        deposed = self._deposed.get((topic, partition))
        return deposed is None or not deposed.writes or not self._asks_deposed(node, deposed)

    def _asks_deposed(self, node: str, deposed: Deposition) -> bool:
        return node in deposed.nodes and self.timeline.now() < deposed.until

    def depose(self, topic: str, partition: int, nodes: Iterable[str], seconds: float, *, writes: bool = True) -> None:
        """Another leader goes on; these nodes ask the old one, which answers, for so long: those that write too, or
        only those that read."""
        log = self.topics[topic].logs[partition]
        until = self.timeline.now() + seconds
        self._deposed[topic, partition] = Deposition(DeposedLog(log), frozenset(nodes), until, writes)
        log.lead()
        self.timeline.call_at(until, log.note_change)

    def compact(self, topic: str, partition: int, below: int | None = None) -> None:
        """One run of the cleaner over a partition, by the topic's own settings."""
        known = self.topics[topic]
        lag_s = int(known.config.get("min.compaction.lag.ms", "0")) / 1000
        retention_s = int(known.config.get("delete.retention.ms", "86400000")) / 1000
        known.logs[partition].compact(self.now_s(), lag_s, retention_s, below)

    # ---- writing ---------------------------------------------------------------------------------------------

    def write(
        self, topic: str, partition: int, records: Sequence[tuple[bytes | None, bytes | None]]
    ) -> list[int] | Answer:
        """A Produce request outside of transactions."""
        log = self.log(topic, partition)
        refused = self._refusal(log, topic, records)
        if log is None or refused is not None:
            return refused or Answer.UNKNOWN_TOPIC
        now = self._timestamp()
        return [log.append(now, key, value) for key, value in records]

    def produce(
        self,
        transactional_id: str,
        instance: Instance,
        topic: str,
        partition: int,
        records: Sequence[tuple[bytes | None, bytes | None]],
        sequence: int = 0,
    ) -> list[int] | Answer:
        """A Produce request inside a transaction. `sequence` counts what this instance has sent to the partition."""
        producer, epoch = instance
        log = self.log(topic, partition)
        refused = self._refusal(log, topic, records)
        if log is None or refused is not None:
            return refused or Answer.UNKNOWN_TOPIC
        if epoch < log.epochs.get(producer, 0):
            return Answer.FENCED
        if not log.has_open(producer):
            # The first of a transaction here: the partition's leader asks the coordinator.
            unverified = self._unverified(transactional_id, instance, (topic, partition))
            if unverified is not None:
                return unverified
        if not log.follows(producer, epoch, sequence):
            return Answer.OUT_OF_SEQUENCE
        log.epochs[producer] = epoch
        now = self._timestamp()
        offsets = [log.append(now, key, value, producer) for key, value in records]
        log.sent(producer, epoch, sequence + len(records))
        return offsets

    def _unverified(self, transactional_id: str, instance: Instance, partition: Partition) -> Answer | None:
        """What the coordinator has against a partition's being in the open transaction of an instance."""
        entry = self._ids.get(transactional_id)
        if entry is None or entry.producer != instance.producer:
            return Answer.UNKNOWN_PRODUCER
        if instance.epoch < entry.epoch:
            return Answer.FENCED
        if entry.state is not State.ONGOING or partition not in entry.partitions:
            return Answer.INVALID_STATE
        return None

    def commit_offsets(
        self, transactional_id: str, instance: Instance, group: str, offsets: Mapping[Partition, int]
    ) -> Answer | None:
        """TxnOffsetCommit. As a Produce to the partition of the offsets, with what it means kept until the marker."""
        producer, epoch = instance
        log = self.topics[OFFSETS[0]].logs[OFFSETS[1]]
        if epoch < log.epochs.get(producer, 0):
            return Answer.FENCED
        if producer not in self._offsets_sent:
            unverified = self._unverified(transactional_id, instance, OFFSETS)
            if unverified is not None:
                return unverified
        log.epochs[producer] = epoch
        self._offsets_sent.setdefault(producer, {}).setdefault(group, {}).update(offsets)
        return None

    def is_unstable(self, group: str) -> bool:
        """Whether a transaction with offsets of a group is open."""
        return any(group in groups for groups in self._offsets_sent.values())

    def _settle_offsets(self, producer: int, *, commit: bool) -> None:
        for group, offsets in self._offsets_sent.pop(producer, {}).items():
            if commit:
                self.group_offsets.setdefault(group, {}).update(offsets)

    # ---- the transaction coordinator -------------------------------------------------------------------------

    def init_producer(self, transactional_id: str) -> Instance | Answer:
        """InitProducerId of a new instance. CONCURRENT until what was open is settled; asked again, it goes on."""
        if not self._is_coordinated:
            return Answer.NO_COORDINATOR
        entry = self._ids.get(transactional_id)
        if entry is None:
            entry = self._ids[transactional_id] = Transactional(next(self._numbers))
        if entry.state is State.ONGOING:
            entry.epoch += 1
            self._decide(entry, commit=False)
        if entry.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT):
            return Answer.CONCURRENT
        entry.epoch += 1
        if entry.epoch >= self.producer_epochs:
            entry = self._ids[transactional_id] = Transactional(next(self._numbers))
        entry.state = State.EMPTY
        return Instance(entry.producer, entry.epoch)

    def _entry(self, transactional_id: str, instance: Instance) -> Transactional | Answer:
        """The coordinator's entry, if that instance is its newest."""
        if not self._is_coordinated:
            return Answer.NO_COORDINATOR
        entry = self._ids.get(transactional_id)
        if entry is None or entry.producer != instance.producer:
            return Answer.UNKNOWN_PRODUCER
        return entry if instance.epoch == entry.epoch else Answer.FENCED

    def add_partitions(
        self, transactional_id: str, instance: Instance, partitions: Sequence[Partition], timeout_s: float
    ) -> Answer | None:
        """AddPartitionsToTxn: begins the transaction at the coordinator."""
        entry = self._entry(transactional_id, instance)
        if isinstance(entry, Answer):
            return entry
        if entry.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT):
            return Answer.CONCURRENT
        if any(self.log(*partition) is None for partition in partitions):
            return Answer.UNKNOWN_TOPIC
        if entry.state is not State.ONGOING:
            entry.state, entry.partitions = State.ONGOING, []
            entry.number += 1
            self.timeline.call_at(self.timeline.now() + timeout_s, self._expiry(entry, entry.number))
        entry.partitions.extend(p for p in partitions if p not in entry.partitions)
        return None

    def end_transaction(self, transactional_id: str, instance: Instance, *, commit: bool) -> Answer | None:
        """EndTxn."""
        entry = self._entry(transactional_id, instance)
        if isinstance(entry, Answer):
            return entry
        if entry.state is State.ONGOING:
            self._decide(entry, commit=commit)
            return None
        if entry.state is (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT):
            return Answer.CONCURRENT
        if entry.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT):
            return None
        return Answer.INVALID_STATE

    @property
    def _is_coordinated(self) -> bool:
        return self.timeline.now() >= self._coordinated_from

    def move_coordinator(self, seconds: float) -> None:
        """Nobody coordinates for so long; then another broker does, which writes again the markers of what was decided
        and is not known to be over."""
        self._coordinated_from = self.timeline.now() + seconds
        for entry in self._ids.values():
            if entry.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT):
                again = partial(self._mark, entry, entry.number)
                for partition in entry.partitions:
                    self.timeline.call_at(self._coordinated_from, partial(again, partition))

    def forget_ids(self) -> None:
        """Those that have no transaction open have not been used for long, and expire."""
        over = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
        self._ids = {name: entry for name, entry in self._ids.items() if entry.state not in over}

    def _expiry(self, entry: Transactional, number: int) -> Callable[[], None]:
        def expire() -> None:
            if entry.number == number and entry.state is State.ONGOING:
                entry.epoch += 1
                self._decide(entry, commit=False)

        return expire

    def _decide(self, entry: Transactional, *, commit: bool) -> None:
        """Logs the decision; from here on nothing changes it. The markers follow, each at its own time."""
        entry.state = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
        entry.unmarked = set(entry.partitions)
        for partition in entry.partitions:
            delay = self.faults.marker_after_s(*partition)
            if delay > 0:
                marking = partial(self._mark, entry, entry.number, partition)
                self.timeline.call_at(self.timeline.now() + delay, marking)
            else:
                self._mark(entry, entry.number, partition)

    def _mark(self, entry: Transactional, number: int, partition: Partition) -> None:
        """Writes a decided transaction's marker to one of its partitions, perhaps again."""
        if entry.number != number or entry.state not in (State.PREPARE_COMMIT, State.PREPARE_ABORT):
            return
        commit = entry.state is State.PREPARE_COMMIT
        log = self.log(*partition)
        if log is not None:
            log.mark(self._timestamp(), entry.producer, entry.epoch, commit=commit)
        if partition == OFFSETS:
            self._settle_offsets(entry.producer, commit=commit)
        entry.unmarked.discard(partition)
        if not entry.unmarked:
            entry.state = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT

    def _refusal(
        self, log: PartitionLog | None, topic: str, records: Sequence[tuple[bytes | None, bytes | None]]
    ) -> Answer | None:
        if log is None:
            return Answer.UNKNOWN_TOPIC
        config = self.topics[topic].config
        if "compact" in config.get("cleanup.policy", "") and any(key is None for key, _ in records):
            return Answer.INVALID_RECORD
        bytes_max = int(config.get("max.message.bytes", "0"))
        if bytes_max and any(len(key or b"") + len(value or b"") > bytes_max for key, value in records):
            return Answer.TOO_LARGE
        return None

    def now_s(self) -> float:
        """By the brokers' clock."""
        return self.timeline.now() + self.ahead_s

    def _timestamp(self) -> int:
        return int(self.now_s() * 1000)
