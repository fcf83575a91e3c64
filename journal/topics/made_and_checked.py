"""The journal's topics and identity: made by `init`, checked at every start.

A journal whose topics could lose what it was promised, or whose control rows would grow to be slow to read, is refused
with the command that mends it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from journal.errors import FatalProducerError, TopicError
from journal.kafka.ports import LOOK_MS, Cluster, Kafka, TopicState
from journal.process.clocks import Clock
from journal.settings import JournalSettings
from journal.topics.control_keys import IDENTITY_KEY, control_row
from journal.topics.control_reading import control_lost, prove_control, read_control
from journal.topics.control_rows import ControlRows
from journal.topics.names import control_topic, table_topic, wal_topic, writer_id
from journal.v1.journal_pb2 import Identity
from journal.wire.frames import FORMAT, MAGIC

CONTROL_SEGMENT_MS = 10 * 60 * 1000
CONTROL_SEGMENT_BYTES_MIN = 4 * 1024 * 1024
"""What is written of the control topic is read whole by every activation, and the cleaner never touches the segment
that is being written: by default reports of a week. With these it leaves those of half an hour."""

_UNLIMITED = "-1"
_VERIFICATION = "transaction.partition.verification.enable"


def topic_configs(settings: JournalSettings) -> dict[str, dict[str, str]]:
    """What each topic of the journal is created with."""
    safe = {
        "min.insync.replicas": str(settings.min_insync_replicas),
        "unclean.leader.election.enable": "false",
    }
    wal = safe | {
        "max.message.bytes": str(settings.limits.message_bytes_max),
        "cleanup.policy": "delete",
        "retention.ms": _UNLIMITED,
        "retention.bytes": _UNLIMITED,
        "message.timestamp.type": "LogAppendTime",
    }
    compacted = safe | {
        "max.message.bytes": str(settings.limits.row_message_bytes_max),
        "cleanup.policy": "compact",
        "delete.retention.ms": str(settings.delete_retention_ms),
        "min.compaction.lag.ms": str(settings.min_compaction_lag_ms),
        "message.timestamp.type": "LogAppendTime",
    }
    control = compacted | {
        "segment.ms": str(CONTROL_SEGMENT_MS),
        "segment.bytes": str(max(CONTROL_SEGMENT_BYTES_MIN, 2 * settings.limits.row_message_bytes_max)),
    }
    name = settings.journal
    return {wal_topic(name): wal, table_topic(name): compacted, control_topic(name): control}


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
    """Make what is missing of the journal, and check all of it. Killed in between, a second run completes it; all that
    run at once give the same identity. What is there already is checked before anything is written.

    `change_shards`: an identity with another number of shards than the settings' gives way, while nothing has been
    written to the journal."""
    name = settings.journal
    configs = topic_configs(settings)
    control = control_topic(name)

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
        wanted = settings.shards if is_due(rows) else rows.require_identity(name).shards
        _check_topics(cluster, settings, wanted, timeout_s, all_made=False)
        cluster.create(control, 1, settings.replication, configs.pop(control), timeout_s)
        rows = _identified(kafka, name, is_due, made, clock, timeout_s)
        identity = rows.require_identity(name)
        for topic, config in configs.items():
            cluster.create(topic, identity.shards, settings.replication, config, timeout_s)
        check_journal(cluster, settings, identity, timeout_s)
    return rows


def _rows(kafka: Kafka, cluster: Cluster, journal: str, clock: Clock, timeout_s: float) -> ControlRows:
    """The control rows, which have no identity only if nothing was ever written to the journal. Raises ControlLostError
    if they lack one beside a WAL, or tables, that have something."""
    control = control_topic(journal)
    is_there = control in cluster.describe([control], timeout_s)
    rows = read_control(kafka, journal, clock, timeout_s) if is_there else ControlRows()
    if rows.identity is None and _has_records(kafka, cluster, journal, timeout_s):
        rows = prove_control(kafka, journal, clock, timeout_s) if is_there else rows
        if rows.identity is None:
            raise control_lost(journal, f"there is no identity, and {wal_topic(journal)} or its table has records")
    return rows


def _has_records(kafka: Kafka, cluster: Cluster, journal: str, timeout_s: float) -> bool:
    """Whether the WAL or the table ever had any."""
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
    """The control rows with an identity, for good: the one that is there, else, or if that is due, the one `made`."""
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
    """Write the identity, if it is still due; else give the rows. Who wrote one before the init, or was active, is seen
    by the check behind it, whichever leader answers; who would later has fenced this producer first."""
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
    """The control rows of a journal that `init` made, after checking its topics.

    Raises TopicError, ControlLostError."""
    with closing(kafka.cluster()) as cluster:
        if control_topic(settings.journal) not in cluster.describe([control_topic(settings.journal)], timeout_s):
            raise TopicError(f"there is no journal {settings.journal}: run `kafka-journal init -j {settings.journal}`")
        rows = _rows(kafka, cluster, settings.journal, clock, timeout_s)
        check_journal(cluster, settings, rows.require_identity(settings.journal), timeout_s)
    return rows


def check_journal(cluster: Cluster, settings: JournalSettings, identity: Identity, timeout_s: float) -> None:
    """Raises TopicError for the first topic that is not as the journal needs it, with what mends it."""
    _check_topics(cluster, settings, identity.shards, timeout_s, all_made=True)


def _check_topics(
    cluster: Cluster, settings: JournalSettings, shards: int, timeout_s: float, *, all_made: bool
) -> None:
    """The same of a journal that has, or, unless all of it is made, is to have so many shards."""
    name = settings.journal
    expected = topic_configs(settings)
    found = cluster.describe(expected, timeout_s)
    for topic, config in expected.items():
        state = found.get(topic)
        if state is None:
            if all_made:
                raise TopicError(f"topic {topic} is missing: run `kafka-journal init -j {name}`")
            continue
        _check_partitions(topic, state, 1 if topic == control_topic(name) else shards, name, all_made=all_made)
        if state.replication < settings.replication:
            raise TopicError(
                f"topic {topic} has {state.replication} replicas and {settings.replication} are configured: "
                "add some with kafka-reassign-partitions, or configure less (replication)"
            )
        _check_config(settings, topic, state, config)
    for broker, value in cluster.broker_config(_VERIFICATION, timeout_s).items():
        if value != "true":
            why = "is older than Kafka 3.6" if value is None else f"has {_VERIFICATION}={value}"
            raise TopicError(f"broker {broker} {why}: a late request could write into a transaction that has ended")


def _check_partitions(topic: str, state: TopicState, wanted: int, journal: str, *, all_made: bool) -> None:
    if state.partitions == wanted:
        return
    as_it_is = f"`kafka-journal init -j {journal} --shards {state.partitions}`"
    if not all_made:
        takes = "" if topic == control_topic(journal) else f", or take it as it is ({as_it_is})"
        raise TopicError(
            f"topic {topic} is there already, with {state.partitions} partitions instead of {wanted}, and nothing was "
            f"written: delete it{takes}"
        )
    raise TopicError(
        f"topic {topic} has {state.partitions} partitions and its control rows say {wanted}: while nothing has been "
        f"written to the journal, {as_it_is} mends it; afterwards, make a new journal and replay this one into it"
    )


def _check_config(settings: JournalSettings, topic: str, state: TopicState, expected: dict[str, str]) -> None:
    for key, wanted in expected.items():
        value = state.config.get(key, "")
        exact = topic == wal_topic(settings.journal)
        if not _is_enough(key, value, wanted, exact_size=exact):
            raise TopicError(
                f"topic {topic} has {key}={value or 'nothing'} and needs {wanted}: "
                f"kafka-configs --bootstrap-server {settings.bootstrap_servers} --alter --entity-type topics "
                f"--entity-name {topic} --add-config {key}={wanted}"
            )


def _is_enough(key: str, value: str, wanted: str, *, exact_size: bool) -> bool:
    """Whether a topic's setting is at least as safe, or as small, as what the journal asks for.

    With `exact_size` it may not take larger records either: no `skipped` row could keep a larger foreign one.
    """
    at_least = ("min.insync.replicas", "max.message.bytes", "delete.retention.ms", "min.compaction.lag.ms")
    if key in ("segment.ms", "segment.bytes"):
        return value.isdigit() and int(value) <= int(wanted)
    if key in at_least and not (exact_size and key == "max.message.bytes"):
        return value.isdigit() and int(value) >= int(wanted)
    return value == wanted
