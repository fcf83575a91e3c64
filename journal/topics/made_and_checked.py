"""The journal's topics and identity: made by `init`, checked at every start.

A journal is refused if its topics could lose acknowledged records, or if its control rows would become slow to read.
The error has the commands that mend all faults.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing

from journal.errors import FatalProducerError, NoJournalError, TopicError
from journal.kafka.ports import LOOK_MS, Cluster, Kafka
from journal.process.clocks import Clock
from journal.process.commands import command
from journal.settings import JournalSettings
from journal.topics.control_keys import IDENTITY_KEY, control_row
from journal.topics.control_reading import control_lost, prove_control, read_control
from journal.topics.control_rows import ControlRows
from journal.topics.names import control_topic, table_topic, wal_topic, writer_id
from journal.topics.required_topics import RequiredTopic, required_topics
from journal.topics.topic_faults import error_of, faults_of
from journal.v1.journal_pb2 import Identity
from journal.wire.frames import FORMAT, MAGIC

_VERIFICATION = "transaction.partition.verification.enable"


def init_journal(
    kafka: Kafka,
    settings: JournalSettings,
    uuid: Callable[[], bytes],
    *,
    clock: Clock,
    wall_ms: Clock,
    timeout_s: float,
    change_shards: bool = False,
) -> ControlRows:
    """Make the missing topics and the identity of a journal, and check all of them. If it is killed, a second run
    completes it; several runs at the same time give the same identity. Existing topics are checked before anything is
    written.

    `change_shards`: an identity with another number of shards is replaced, if nothing was written to the journal yet.
    """
    name = settings.journal

    def made() -> Identity:
        return Identity(
            magic=MAGIC,
            format=FORMAT,
            journal=uuid(),
            name=name,
            shards=settings.shards,
            created=int(wall_ms()),
        )

    with closing(kafka.cluster()) as cluster:

        def is_due(rows: ControlRows) -> bool:
            if rows.identity is None:
                return True
            if not change_shards or rows.identity.shards == settings.shards or rows.epoch.epoch:
                return False
            return not _has_records(kafka, cluster, name, timeout_s)

        rows = _rows(kafka, cluster, name, clock, timeout_s)
        shards = settings.shards if is_due(rows) else rows.require_identity(name).shards
        _check_what_is_there(kafka, cluster, settings, rows, shards, timeout_s)
        *_, control = required_topics(settings, shards)
        _create(cluster, control, timeout_s)
        rows = _identified(kafka, name, is_due, made, clock, timeout_s)
        identity = rows.require_identity(name)
        *others, _ = required_topics(settings, identity.shards)
        for topic in others:
            _create(cluster, topic, timeout_s)
        check_journal(cluster, settings, identity, timeout_s)
    return rows


def _create(cluster: Cluster, topic: RequiredTopic, timeout_s: float) -> None:
    cluster.create(topic.name, topic.partitions, topic.replication, topic.config, timeout_s)


def _rows(kafka: Kafka, cluster: Cluster, journal: str, clock: Clock, timeout_s: float) -> ControlRows:
    """The control rows. They have no identity only if nothing was ever written to the journal. Raises ControlLostError
    if they have none although the WAL or the tables have records."""
    control = control_topic(journal)
    is_there = control in cluster.describe([control], timeout_s)
    rows = read_control(kafka, journal, clock, timeout_s) if is_there else ControlRows()
    if rows.identity is None and _has_records(kafka, cluster, journal, timeout_s):
        rows = prove_control(kafka, journal, clock, timeout_s) if is_there else rows
        if rows.identity is None:
            raise control_lost(journal, f"there is no identity, and {wal_topic(journal)} or its table has records")
    return rows


def _has_records(kafka: Kafka, cluster: Cluster, journal: str, timeout_s: float) -> bool:
    """Whether the WAL or the table ever had records."""
    for topic, state in cluster.describe([wal_topic(journal), table_topic(journal)], timeout_s).items():
        with closing(kafka.reader(topic, committed=False, wait_ms=LOOK_MS)) as reader:
            if any(reader.start_and_end(partition, timeout_s)[1] for partition in range(state.partitions)):
                return True
    return False


def _identified(
    kafka: Kafka,
    journal: str,
    is_due: Callable[[ControlRows], bool],
    made: Callable[[], Identity],
    clock: Clock,
    timeout_s: float,
) -> ControlRows:
    """The control rows with their final identity: the existing one or, if one is due, the one from `made`."""
    until = clock() + timeout_s
    while True:
        rows = read_control(kafka, journal, clock, timeout_s)
        if not is_due(rows):
            return rows
        try:
            found = _write_identity(kafka, journal, is_due, made, clock, timeout_s)
            if found is not None:
                return found
        except FatalProducerError as error:
            if not error.fenced or clock() >= until:
                raise


def _write_identity(
    kafka: Kafka,
    journal: str,
    is_due: Callable[[ControlRows], bool],
    made: Callable[[], Identity],
    clock: Clock,
    timeout_s: float,
) -> ControlRows | None:
    """Write the identity if it is still due; returns the rows if it is not. A node that wrote an identity or was active
    before our init is noticed by the check after it, even if a deposed leader answers; a later one fences this
    producer."""
    producer = kafka.transactional_producer(writer_id(journal))
    try:
        producer.init(timeout_s)
        rows = prove_control(kafka, journal, clock, timeout_s)
        if not is_due(rows):
            return rows
        producer.send([control_row(journal, IDENTITY_KEY, made())], timeout_s)
        producer.commit_transaction(timeout_s)
        return None
    finally:
        producer.close()


def open_journal(kafka: Kafka, settings: JournalSettings, *, clock: Clock, timeout_s: float) -> ControlRows:
    """The control rows of a journal that `init` has made. Its topics are checked first.

    Raises NoJournalError, TopicError, ControlLostError."""
    with closing(kafka.cluster()) as cluster:
        if control_topic(settings.journal) not in cluster.describe([control_topic(settings.journal)], timeout_s):
            raise NoJournalError(
                f"there is no journal {settings.journal}: run `{command('init', journal=settings.journal)}`"
            )
        rows = _rows(kafka, cluster, settings.journal, clock, timeout_s)
        check_journal(cluster, settings, rows.require_identity(settings.journal), timeout_s)
    return rows


def check_journal(cluster: Cluster, settings: JournalSettings, identity: Identity, timeout_s: float) -> None:
    """Raises one TopicError for all faults of the journal's topics, with the commands that mend them."""
    topics = required_topics(settings, identity.shards)
    found = cluster.describe([topic.name for topic in topics], timeout_s)
    if faults := faults_of(settings, topics, found, unused=False):
        raise error_of(settings, faults)
    _check_brokers(cluster, timeout_s)


def _check_what_is_there(
    kafka: Kafka, cluster: Cluster, settings: JournalSettings, rows: ControlRows, shards: int, timeout_s: float
) -> None:
    """Check the topics that a journal has already, before `init` makes the others. The journal shall have `shards`."""
    required = required_topics(settings, shards)
    found = cluster.describe([topic.name for topic in required], timeout_s)
    topics = [topic for topic in required if topic.name in found]
    if faults := faults_of(settings, topics, found, unused=False):
        advice = ""
        if not rows.epoch.epoch and not _has_records(kafka, cluster, settings.journal, timeout_s):
            faults = faults_of(settings, topics, found, unused=True)
            sharded = found.keys() - {control_topic(settings.journal)}
            advice = _as_it_is(settings, shards, {found[topic].partitions for topic in sharded})
        raise error_of(settings, faults, advice)
    _check_brokers(cluster, timeout_s)


def _as_it_is(settings: JournalSettings, shards: int, found: Collection[int]) -> str:
    """The advice for topics that all have the same, but another, number of partitions."""
    if len(found) != 1 or shards in found:
        return ""
    return f"or take that number of partitions: {command('init', '--shards', min(found), journal=settings.journal)}"


def _check_brokers(cluster: Cluster, timeout_s: float) -> None:
    for broker, value in cluster.broker_config(_VERIFICATION, timeout_s).items():
        if value != "true":
            why = "is older than Kafka 3.6" if value is None else f"has {_VERIFICATION}={value}"
            raise TopicError(f"broker {broker} {why}: it may write a late request into a transaction that has ended")
