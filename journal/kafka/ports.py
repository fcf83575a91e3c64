"""The protocols of Kafka clients that the journal is written against.

`journal.kafka.clients` implements them with confluent-kafka; the simulation implements them with faults. Every call
that waits takes a limit in seconds and raises DeadlineError (KafkaUnavailableError if no broker answers) past it. No
call retries by itself beyond what its docstring says, and none resets an offset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

LOOK_MS = 1
"""Milliseconds that a broker waits for records before it answers a fetch of a reader that is used once. A seek takes
that long, and so does reading a log that ends with a transaction's marker."""
READ_MS = 10
"""Milliseconds that a broker waits for records before it answers a fetch of a reader that seeks now and then."""
FOLLOW_MS = 500
"""Milliseconds that a broker waits for records before it answers a fetch of a reader that follows a log from its end.
New records are answered at once, and an idle reader asks seldom."""


def nothing() -> None:
    """Do nothing. This is the default for an optional callback."""


class LogRecord(NamedTuple):
    """A record as a consumer sees it. `timestamp` is ms since 1970; `leader_epoch` is the epoch of the leader that
    wrote it, None where it is not known."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    leader_epoch: int | None = None


class RecordRun(Protocol):
    """Records of one partition in offset order, at least one, as columns. A caller with very many records would spend
    most of its time on making an object for each."""

    partition: int
    offsets: Sequence[int]

    def keys(self) -> list[bytes | None]: ...

    def values(self) -> list[bytes | None]: ...

    def records(self, first: int = 0, end: int | None = None) -> list[LogRecord]:
        """The records, or those from place `first` to before `end`, as objects."""


class Sent(NamedTuple):
    """A record to be produced."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class Consumed(NamedTuple):
    """The offsets that a transaction consumes: a consumer group, and for each (topic, partition) the offset of the next
    record to read.

    The group has no members: partitions are assigned by the caller, and the producer does the fencing.
    """

    group: str
    offsets: Mapping[tuple[str, int], int]
    topic_ids: Mapping[tuple[str, int], str] = {}
    """The id of the topic that each partition was read from. It is committed with the offset, because another topic may
    get the same name."""


class Position(NamedTuple):
    """The offset up to which a group has consumed a partition, and the id of the topic that it belongs to. The id is
    empty if another tool has committed the offset, because only our tools write it."""

    offset: int
    topic_id: str


class TransactionalProducer(Protocol):
    """One instance of a transactional id, used by one thread."""

    def connect(self, topics: Sequence[str], timeout_s: float) -> bool:
        """Connect, and learn which brokers lead these topics; returns whether a broker answered in time. It initialises
        nothing, and may be called again to keep the connection."""

    def init(self, timeout_s: float) -> None:
        """Initialise the transactional id. This fences every older instance and settles the transaction that it left
        open."""

    def send(self, records: Iterable[Sent], timeout_s: float) -> list[int]:
        """Begin a transaction, produce `records` in it, and return their offsets once all have delivery reports. An
        offset is -1 where the broker does not tell it: the record had arrived with an earlier request, whose answer was
        lost.

        There must be at least one record. Records are taken one by one, and each is on its way before the next is asked
        for. Raises a ProducerError: a record that is not delivered is fatal to the instance.
        """

    def send_rows(
        self,
        topic: str,
        partition: int,
        rows: Sequence[tuple[bytes, bytes | None]],
        timeout_s: float,
        *,
        beside: Iterable[Sent] = (),
        meanwhile: Callable[[], object] = nothing,
    ) -> int:
        """Begin a transaction and produce many rows (key and value) in it, to one partition; returns the offset of the
        last row. That row is written behind all others, also behind those in `beside`.

        `beside` are records for other partitions. They are taken one by one while the rows are on their way; records
        for the same partition keep their order. Then `meanwhile` is called once, before the wait for delivery; if
        `meanwhile` raises an error, the instance must be thrown away. Only the last row has a delivery report: if
        another row is not delivered, `commit_transaction` fails.
        """

    def send_offsets(self, consumed: Consumed, timeout_s: float) -> bool:
        """Commit a group's offsets with the transaction that `send` has begun. After any error the instance must be
        thrown away.

        Returns False in the same case as `commit_transaction`: the request may have been repeated, and a copy that
        arrives during the next transaction would set the offsets back.
        """

    def commit_transaction(self, timeout_s: float) -> bool:
        """Commit the transaction. After any error its outcome is unknown. No error is retriable: a repetition would be
        a second EndTxn.

        Returns False if the transaction is committed, but took so long, or met such a transport error, that the request
        may have been repeated and a copy of it may still arrive. Then check, init and check before the next send.
        """

    def abort_transaction(self, timeout_s: float) -> None:
        """Abort the transaction. It may be called after `send`, and not after a commit."""

    def close(self) -> None:
        """Throw the instance away, without waiting for anything."""


class PlainProducer(Protocol):
    """Acknowledged writes outside of transactions (acks=all, idempotent)."""

    def connect(self, topics: Sequence[str], timeout_s: float) -> bool:
        """Connect, as `TransactionalProducer.connect` does."""

    def send(self, records: Sequence[Sent], timeout_s: float) -> list[int]:
        """Produce records, wait for every delivery report, and return the offsets. After an error, some may have been
        written."""

    def close(self) -> None: ...


class Reader(Protocol):
    """A consumer of assigned partitions of one topic. It is never in a group and never resets an offset."""

    def seek(self, positions: Mapping[int, int], leader_epochs: Mapping[int, int] | None = None) -> None:
        """Read these partitions, and no others, from these offsets on. `leader_epochs` are the epochs of the records
        before them, where they are known; the brokers are asked whether these records still exist."""

    def poll(self, timeout_s: float) -> list[LogRecord]:
        """Records that have arrived, each partition's in offset order. The list is empty if the time passes, or if a
        position only moved over markers and aborted records.

        Raises GapError if a position is outside the log, or if the record before it no longer exists.
        """

    def poll_runs(self, timeout_s: float) -> list[RecordRun]:
        """Records that have arrived, as runs; a partition may have several."""

    def position(self, partition: int) -> int:
        """The next offset to read, behind transaction markers and aborted records that were passed over."""

    def start_and_end(self, partition: int, timeout_s: float) -> tuple[int, int]:
        """The log's first offset, and its end for this reader: the last stable offset if it reads committed records
        only, else the high watermark."""

    def bounds(self, partitions: Sequence[int], timeout_s: float) -> dict[int, tuple[int, int]]:
        """`start_and_end` of many partitions with one request; each pair is of a moment after the call began."""

    def ends(self, partitions: Sequence[int], timeout_s: float) -> dict[int, int]:
        """The ends of many partitions, in half the time that `bounds` takes."""

    def close(self) -> None: ...


class TopicState(NamedTuple):
    """A topic as the cluster describes it."""

    topic_id: str
    partitions: int
    replication: int
    config: Mapping[str, str]
    may_write: bool = True
    """Whether this client may write, as far as the cluster says. A transaction would find out too late to name the
    topic."""


class GroupMember(NamedTuple):
    """A live member of a consumer group."""

    member_id: str
    client_id: str
    host: str
    partitions: Sequence[tuple[str, int]]


class Cluster(Protocol):
    """Administration of topics, brokers and consumer groups."""

    def cluster_id(self, timeout_s: float) -> str: ...

    def describe(self, topics: Iterable[str], timeout_s: float) -> dict[str, TopicState]:
        """The states of those of `topics` that exist."""

    def topic_ids(self, topics: Iterable[str], timeout_s: float) -> dict[str, str]:
        """The ids of those of `topics` that exist and that this client may see. It needs the permission Describe
        only."""

    def create(
        self, topic: str, partitions: int, replication: int, config: Mapping[str, str], timeout_s: float
    ) -> None:
        """Create a topic and wait until its partitions have leaders. A topic that exists is left as it is."""

    def delete_topic(self, topic: str, timeout_s: float) -> None:
        """Delete a topic for good, and wait until it is gone. One that does not exist is no error."""

    def topics(self, timeout_s: float) -> set[str]:
        """The names of all topics that this client may see."""

    def groups(self, timeout_s: float) -> set[str]:
        """The names of all consumer groups that this client may see."""

    def delete_group(self, group: str, timeout_s: float) -> None:
        """Delete a consumer group without members, with its offsets. One that does not exist is no error."""

    def broker_config(self, name: str, timeout_s: float) -> dict[int, str | None]:
        """The value of a broker setting on each live broker; None for a broker that does not know the setting (an older
        one)."""

    def group_members(self, group: str, timeout_s: float) -> list[GroupMember]:
        """Live members of a consumer group; none if the group does not exist."""

    def group_offsets(self, group: str, topic: str, timeout_s: float) -> dict[int, int]:
        """Committed offsets of a group by partition of `topic`; partitions without a committed offset are left out."""

    def stable_offsets(
        self, group: str, partitions: Collection[tuple[str, int]], timeout_s: float
    ) -> dict[tuple[str, int], int]:
        """Committed offsets of a group by (topic, partition): those of `partitions`, and all others that it has. It
        waits until no transaction with any of these is open, and raises DeadlineError while one is."""

    def stable_positions(
        self, group: str, partitions: Collection[tuple[str, int]], timeout_s: float
    ) -> dict[tuple[str, int], Position]:
        """`stable_offsets`, with the ids of the topics."""

    def delete_records(self, topic: str, offsets: Mapping[int, int], timeout_s: float) -> None:
        """Delete each partition's records below its offset, for good: the log then starts there."""

    def close(self) -> None: ...


class Kafka(Protocol):
    """A factory of the Kafka clients of one process."""

    def transactional_producer(self, transactional_id: str) -> TransactionalProducer: ...

    def plain_producer(self) -> PlainProducer: ...

    def reader(self, topic: str, *, committed: bool = True, wait_ms: int = READ_MS) -> Reader:
        """A reader of committed records only, for which a log ends at the last stable offset. With `committed` false it
        sees all records, up to the high watermark. `wait_ms` is LOOK_MS, READ_MS or FOLLOW_MS."""

    def cluster(self) -> Cluster: ...
