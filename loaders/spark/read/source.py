"""The topics of a journal by Spark's own Kafka source: it reads committed records only, and no gap goes unnoticed.

The journal's settings say once how to connect and authenticate, with librdkafka's names; `client_options` translates
this for the Java client.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from journal.errors import ConfigError, NoJournalError, RowError
from journal.kafka.access import Access, access_of
from journal.topics.control_keys import DESTROYED_KEY, EPOCH_KEY, IDENTITY_KEY
from journal.topics.control_rows import destroyed_journal
from journal.topics.names import control_topic, table_topic, wal_topic
from journal.v1.journal_pb2 import Archive, Destroyed, Identity, SkipRequest, Trim
from loaders.spark.read.client_options import java_options
from loaders.spark.read.decoding import FORMAT, MAGIC
from loaders.spark.session.failures import journal_errors

if TYPE_CHECKING:
    from journal.config import Settings

log = logging.getLogger(__name__)

_Message = TypeVar("_Message", bound=Message)

ARCHIVE_KEYS, TRIM_KEYS, SKIP_KEYS = b"archive/", b"trim/", b"skip/"
EARLIEST, LATEST = -2, -1
"""Values in place of an offset: the start of the partition, or its end."""


@dataclass(frozen=True)
class JournalSource:
    """Where a journal is. `properties` are Kafka client properties: librdkafka's, or Spark's own (`kafka.…`)."""

    bootstrap_servers: str
    journal: str
    """The journal's full name: it begins with `topic_prefix`, if there is one."""
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_settings(cls, settings: Settings) -> JournalSource:
        return cls(settings.bootstrap_servers, settings.journal, settings.client_properties)

    @property
    def wal(self) -> str:
        return wal_topic(self.journal)

    @property
    def table(self) -> str:
        return table_topic(self.journal)

    @property
    def control(self) -> str:
        return control_topic(self.journal)

    @property
    def access(self) -> Access:
        """The client whose permissions the brokers check."""
        return access_of(self.bootstrap_servers, self.properties)

    def options(self) -> dict[str, str]:
        """The options with which Spark's Kafka source and sink reach the brokers. Raises ConfigError for a property
        that Java has no counterpart for."""
        return java_options(self.properties) | {"kafka.bootstrap.servers": self.bootstrap_servers}


@dataclass(frozen=True)
class JournalIdentity:
    """Identity of the journal that frames belong to, from its control row."""

    uuid: bytes
    shards: int


def require_all_shards(journal: JournalIdentity, offsets: Mapping[int, int] | None) -> None:
    """Raises ConfigError for offsets that leave a shard out, or name one that the journal does not have."""
    wanted = set(range(journal.shards))
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


def batch(
    spark: SparkSession,
    source: JournalSource,
    topic: str,
    *,
    starting: Mapping[int, int] | None = None,
    ending: Mapping[int, int] | None = None,
    shards: Collection[int] | None = None,
) -> DataFrame:
    """A topic's committed records, read anew by every action: key, value, topic, partition, offset, timestamp.

    `shards` are the partitions to read, by default all. `starting` (inclusive) and `ending` (exclusive) are {partition:
    offset}, and must name every partition that is read, as Spark requires. They may be `EARLIEST` and `LATEST`.
    """
    which = {"subscribe": topic} if shards is None else {"assign": json.dumps({topic: sorted(shards)})}
    begin = None if starting is None else {topic: starting}
    reader = spark.read.format("kafka").options(**_reading(source, which, begin))
    if ending is not None:
        reader = reader.option("endingOffsets", _offsets({topic: ending}))
    with journal_errors(source):
        return _columns(reader.load())


def batch_topics(
    spark: SparkSession,
    source: JournalSource,
    starting: Mapping[str, Mapping[int, int]],
    ending: Mapping[str, Mapping[int, int]],
) -> DataFrame:
    """Records of several topics, like `batch`, from the partitions where `ending` is beyond `starting`."""
    found = ((topic, {s: end for s, end in ends.items() if end > starting[topic][s]}) for topic, ends in ending.items())
    end = {topic: of for topic, of in found if of}
    begin = {topic: {shard: starting[topic][shard] for shard in of} for topic, of in end.items()}
    which = {"assign": json.dumps({topic: sorted(of) for topic, of in end.items()})}
    options = _reading(source, which, begin) | {"endingOffsets": _offsets(end)}
    with journal_errors(source):
        return _columns(spark.read.format("kafka").options(**options).load())


def stream(
    spark: SparkSession,
    source: JournalSource,
    topic: str,
    *,
    starting: Mapping[int, int] | None = None,
    max_offsets: int | None = None,
) -> DataFrame:
    """A topic as a stream. `starting` counts for a query without a checkpoint; `max_offsets` bounds a micro-batch."""
    begin = None if starting is None else {topic: starting}
    return _streamed(spark, _reading(source, {"subscribe": topic}, begin), max_offsets)


def stream_topics(
    spark: SparkSession,
    source: JournalSource,
    starting: Mapping[str, Mapping[int, int]],
    *,
    max_offsets: int | None = None,
) -> DataFrame:
    """Several topics as one stream; `starting` has the offsets of all partitions of each topic."""
    return _streamed(spark, _reading(source, {"subscribe": ",".join(starting)}, starting), max_offsets)


def identity(spark: SparkSession, source: JournalSource) -> JournalIdentity:
    """The journal's identity. Raises NoJournalError for a journal that `init` has not made, RowError for one of another
    format."""
    return identity_and_begun(spark, source)[0]


def identity_and_begun(spark: SparkSession, source: JournalSource) -> tuple[JournalIdentity, bool]:
    """The journal's identity, and whether it was ever activated: every shard of its WAL has a marker then."""
    return control(spark, source)[:2]


def control(spark: SparkSession, source: JournalSource) -> Control:
    """The control rows, read at once. Raises the errors of `identity`."""
    found, name = _control_rows(spark, source), source.journal
    if DESTROYED_KEY in found:
        raise destroyed_journal(name, Destroyed.FromString(bytes(found[DESTROYED_KEY]["value"])))
    if IDENTITY_KEY not in found:
        raise NoJournalError(
            f"journal {source.journal} is not initialised: run `kafka-journal init -j {source.journal}`"
        )
    told = _identity(source, found[IDENTITY_KEY])
    archives = _advice(source, found, ARCHIVE_KEYS, Archive)
    trims = _advice(source, found, TRIM_KEYS, Trim)
    skips = _advice(source, found, SKIP_KEYS, SkipRequest)
    return Control(
        told,
        EPOCH_KEY in found,
        {mark.shard: mark for mark in archives if mark.journal == told.uuid},
        {trim.shard: trim for trim in trims if trim.journal == told.uuid},
        frozenset((skip.shard, skip.offset) for skip in skips if skip.journal == told.uuid),
    )


def _advice(
    source: JournalSource, rows: Mapping[bytes, Row], keys: bytes, message: type[_Message]
) -> Iterator[_Message]:
    """The rows that are left out if they do not parse (docs/FORMAT.md)."""
    for key, row in rows.items():
        if key.startswith(keys):
            try:
                yield message.FromString(bytes(row["value"]))
            except DecodeError as error:
                place = f"{source.control}[0]@{row['offset']}"
                log.warning("a control row is not what its key says, and counts as absent: %s: %s", place, error)


def _control_rows(spark: SparkSession, source: JournalSource) -> dict[bytes, Row]:
    """The newest row of each key, without deleted ones. There is one partition and few keys, so a shuffle would cost
    more."""
    wanted = F.col("key").isin(IDENTITY_KEY, EPOCH_KEY, DESTROYED_KEY)
    for keys in (ARCHIVE_KEYS, TRIM_KEYS, SKIP_KEYS):
        wanted |= F.substring("key", 1, len(keys)) == F.lit(keys)
    rows = batch(spark, source, source.control).where(wanted)
    with journal_errors(source):
        read = rows.select("key", "value", "offset").collect()
    newest = {bytes(row["key"]): row for row in sorted(read, key=lambda row: int(row["offset"]))}
    return {at: row for at, row in newest.items() if row["value"] is not None}


def _identity(source: JournalSource, row: Row) -> JournalIdentity:
    """The identity that a row holds. Raises RowError for another format."""

    def fault(reason: str) -> RowError:
        return RowError(reason, topic=source.control, partition=0, offset=row["offset"])

    try:
        told = Identity.FromString(bytes(row["value"]))
    except DecodeError:
        told = Identity()
    if told.magic != MAGIC or not told.journal or not told.shards:
        raise fault("the control row of the journal's identity does not parse")
    if told.format != FORMAT:
        raise fault(f"the journal has format {told.format}, this kafka-journal reads {FORMAT}")
    return JournalIdentity(told.journal, told.shards)


def _reading(
    source: JournalSource, which: Mapping[str, str], starting: Mapping[str, Mapping[int, int]] | None
) -> dict[str, str]:
    return {
        # three tries, because an unreachable broker is noticed in a minute but a slow one needs time; users may
        # override it
        "kafka.default.api.timeout.ms": "20000",
        "kafka.request.timeout.ms": "20000",
        # the offsets to read all exist; a fetch of later ones, which a consumer begins by itself, would only delay its
        # next request
        "kafka.fetch.max.wait.ms": "10",
        **source.options(),
        **which,
        "startingOffsets": "earliest" if starting is None else _offsets(starting),
        "failOnDataLoss": "true",
        # otherwise a consumer's request would create a missing topic on brokers with auto.create.topics.enable
        "kafka.allow.auto.create.topics": "false",
        "kafka.isolation.level": "read_committed",
    }


def _streamed(spark: SparkSession, options: Mapping[str, str], max_offsets: int | None) -> DataFrame:
    reader = spark.readStream.format("kafka").options(**options)
    if max_offsets is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(max_offsets))
    return _columns(reader.load())


def _offsets(offsets: Mapping[str, Mapping[int, int]]) -> str:
    return json.dumps({topic: {str(shard): offset for shard, offset in of.items()} for topic, of in offsets.items()})


def _columns(records: DataFrame) -> DataFrame:
    return records.select("key", "value", "topic", "partition", "offset", "timestamp")
