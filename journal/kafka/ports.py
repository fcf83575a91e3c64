"""What the journal asks of Kafka, as protocols: the shells are written against these.

`journal.kafka.clients` implements them with confluent-kafka; the simulation implements them with faults. Every call
that waits takes a limit in seconds and raises DeadlineError (KafkaUnavailableError if no broker answers) past it. No
call retries by itself beyond what its docstring says, and none resets an offset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

LOOK_MS = 1
"""How long an idle fetch waits at the broker, for a reader that is used once and at once: a seek waits for it, and so
does the end of a log that ends with a transaction's marker."""
READ_MS = 10
"""For one that seeks now and then."""
FOLLOW_MS = 500
"""For one that follows a log from its end on: what comes is answered at once, and an idle one asks seldom."""


def nothing() -> None:
    """For who has nothing to do meanwhile."""


class LogRecord(NamedTuple):
    """A record as a consumer sees it. `timestamp` is ms since 1970; `leader_epoch` is the leader's that wrote it, None
    where that is not known."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    leader_epoch: int | None = None


class RecordRun(Protocol):
    """Records of one partition in offset order, at least one: as columns, for whoever takes so many that an object for
    each is what it would spend its time with."""

    partition: int
    offsets: Sequence[int]

    def keys(self) -> list[bytes | None]: ...

    def values(self) -> list[bytes | None]: ...

    def records(self, first: int = 0, end: int | None = None) -> list[LogRecord]:
        """The same, or those from place `first` to before `end`, as records."""


class Sent(NamedTuple):
    """A record to be produced."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class Consumed(NamedTuple):
    """What a transaction consumes: a group, and for each (topic, partition) the offset of the next record to be read.

    The group has no members: whoever consumes has its partitions by assignment, and fencing is the producer's.
    """

    group: str
    offsets: Mapping[tuple[str, int], int]
    topic_ids: Mapping[tuple[str, int], str] = {}
    """The id of the topic that each was read from, which is kept with the offset: another topic may get its name."""


class Position(NamedTuple):
    """Where a group has consumed a partition up to, and the id of the topic that it is a position of; empty: whoever
    committed it did not say, as no tool but ours does."""

    offset: int
    topic_id: str


class TransactionalProducer(Protocol):
    """One instance of a transactional id. Used by one thread."""

    def connect(self, topics: Sequence[str], timeout_s: float) -> bool:
        """Be connected, and know who leads these topics; whether a broker said so in time. Initialises nothing, and may
        be called again to keep the connection."""

    def init(self, timeout_s: float) -> None:
        """Initialise the transactional id: fences every older instance, and settles what it left open."""

    def send(self, records: Iterable[Sent], timeout_s: float) -> list[int]:
        """Begin a transaction and produce `records` in it; returns their offsets once all have delivery reports
        (-1 where the broker does not say: it had the record already, from a request whose answer was lost).

        At least one record. They are taken one by one, and each is on its way before the next is asked for. Raises a
        ProducerError: a record that is not delivered is fatal to the instance.
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
        """`send` for many rows (key and value) to one partition, the last one behind all others: its offset.

        `beside` are records for other partitions, taken one by one while the rows are on their way; each partition's
        keep their order. `meanwhile` is called then, once, before all of that is waited for; what it raises is raised,
        and the instance to be thrown away. None but the last row has a report of its own: one that is not delivered
        makes `commit_transaction` fail.
        """

    def send_offsets(self, consumed: Consumed, timeout_s: float) -> bool:
        """Commit a group's offsets with the transaction that `send` has begun. After any error the instance is not to
        be trusted with another one: throw it away.

        False as `commit_transaction` has it: a copy that arrives during the next transaction would set offsets back.
        """

    def commit_transaction(self, timeout_s: float) -> bool:
        """Commit it. After any error the outcome is unknown (retriable ones are not raised: a repetition would be a
        second EndTxn).

        False says that it is committed, but took so long, or met a transport error, that the request may have been
        repeated and a copy of it may still arrive: check, init, check before the next send.
        """

    def abort_transaction(self, timeout_s: float) -> None:
        """Abort it. Only when `send` has been called and no commit was."""

    def close(self) -> None:
        """Throw the instance away, without waiting for anything."""


class PlainProducer(Protocol):
    """Acknowledged writes outside of transactions (acks=all, idempotent)."""

    def connect(self, topics: Sequence[str], timeout_s: float) -> bool:
        """As `TransactionalProducer.connect`."""

    def send(self, records: Sequence[Sent], timeout_s: float) -> list[int]:
        """Produce and wait for every delivery report; returns offsets. An error means some may be written."""

    def close(self) -> None: ...


class Reader(Protocol):
    """A consumer of assigned partitions of one topic; never in a group, never resets an offset."""

    def seek(self, positions: Mapping[int, int], leader_epochs: Mapping[int, int] | None = None) -> None:
        """Read these partitions, and no others, from these offsets on. `leader_epochs` are those of the records before
        them, where they are known: the brokers are asked whether these records are still there."""

    def poll(self, timeout_s: float) -> list[LogRecord]:
        """What has arrived, each partition's in offset order; none if the time passes, or a position moved over markers
        and aborted records alone.

        Raises GapError if a position is outside the log, or what was read before it is not there any more.
        """

    def poll_runs(self, timeout_s: float) -> list[RecordRun]:
        """`poll`, with what has arrived as runs; a partition may have several."""

    def position(self, partition: int) -> int:
        """The next offset to be read: beyond transaction markers and aborted records that were passed over."""

    def start_and_end(self, partition: int, timeout_s: float) -> tuple[int, int]:
        """The log's first offset, and its end for this reader: the last stable offset, or the high watermark."""

    def bounds(self, partitions: Sequence[int], timeout_s: float) -> dict[int, tuple[int, int]]:
        """`start_and_end` of many partitions, asked for together: each as of a moment after the call."""

    def ends(self, partitions: Sequence[int], timeout_s: float) -> dict[int, int]:
        """The ends alone, in half the time."""

    def close(self) -> None: ...


class TopicState(NamedTuple):
    """A topic as the cluster describes it."""

    topic_id: str
    partitions: int
    replication: int
    config: Mapping[str, str]
    may_write: bool = True
    """As far as the cluster says it; a transaction finds out otherwise too late to tell which topic it was."""


class GroupMember(NamedTuple):
    """A live member of a consumer group."""

    member_id: str
    client_id: str
    host: str
    partitions: Sequence[tuple[str, int]]


class Cluster(Protocol):
    """Administration."""

    def cluster_id(self, timeout_s: float) -> str: ...

    def describe(self, topics: Iterable[str], timeout_s: float) -> dict[str, TopicState]:
        """Existing ones of `topics`; a missing one is left out."""

    def topic_ids(self, topics: Iterable[str], timeout_s: float) -> dict[str, str]:
        """The ids of those of `topics` that there are and that may be seen. Asks nothing else, so Describe will do."""

    def create(
        self, topic: str, partitions: int, replication: int, config: Mapping[str, str], timeout_s: float
    ) -> None:
        """Create it and wait until it has leaders; an existing one is left as it is."""

    def broker_config(self, name: str, timeout_s: float) -> dict[int, str | None]:
        """What each live broker has for a broker setting; None where it does not know the setting (an older one)."""

    def group_members(self, group: str, timeout_s: float) -> list[GroupMember]:
        """Live members of a consumer group; none of one that does not exist."""

    def group_offsets(self, group: str, topic: str, timeout_s: float) -> dict[int, int]:
        """Committed offsets of a group by partition of `topic`; a partition without one is left out."""

    def stable_offsets(
        self, group: str, partitions: Collection[tuple[str, int]], timeout_s: float
    ) -> dict[tuple[str, int], int]:
        """Committed offsets of a group by (topic, partition), of these partitions and of all others that have any, once
        no transaction with some of these is open. Raises DeadlineError while one is."""

    def stable_positions(
        self, group: str, partitions: Collection[tuple[str, int]], timeout_s: float
    ) -> dict[tuple[str, int], Position]:
        """`stable_offsets`, with the topics' ids."""

    def delete_records(self, topic: str, offsets: Mapping[int, int], timeout_s: float) -> None:
        """Delete each partition's records below its offset, for good: the log then starts there."""

    def close(self) -> None: ...


class Kafka(Protocol):
    """Makes the clients of one process."""

    def transactional_producer(self, transactional_id: str) -> TransactionalProducer: ...

    def plain_producer(self) -> PlainProducer: ...

    def reader(self, topic: str, *, committed: bool = True, wait_ms: int = READ_MS) -> Reader:
        """A reader that sees committed records only, and the last stable offset as the end; or, with `committed`
        false, everything, and the high watermark. `wait_ms` is LOOK_MS, READ_MS or FOLLOW_MS."""

    def cluster(self) -> Cluster: ...
