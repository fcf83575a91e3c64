"""`repair control`: writes a journal's identity and epoch anew, from its WAL and tables.

It is for control rows that were lost or cannot be read, and for a WAL that lost the newest epoch's marker. The epoch
row that it writes has no nonce. So the active node is fenced, and the next activation takes the following epoch, and
does not expect the WAL to have a marker of the epoch in that row.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from journal.errors import DeadlineError, FatalProducerError, RepairError, TopicError
from journal.kafka.ports import LOOK_MS, Kafka
from journal.process.clocks import Clock
from journal.settings import JournalSettings
from journal.topics.control_keys import EPOCH_KEY, IDENTITY_KEY, RELEASED_KEY, control_row
from journal.topics.control_reading import prove_control
from journal.topics.control_rows import ControlRows
from journal.topics.marks import MarkReader
from journal.topics.names import control_topic, table_topic, wal_topic, writer_id
from journal.topics.required_topics import topic_configs
from journal.v1.journal_pb2 import Epoch, FrameColumns, Identity, Mark, Released
from journal.wal.reading import read_tails
from journal.wire.frames import FORMAT, MAGIC
from journal.words import called

_NODE = "repair control"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the WAL and the tables say of the journal."""

    uuid: bytes
    shards: int
    epochs: Sequence[int]
    """The newest epoch of each shard."""
    marks: Sequence[Mark]
    """The newest mark of each shard."""


@dataclass(frozen=True, slots=True)
class ControlRepair:
    """The evidence that was found, and the rows to be written."""

    found: ControlRows
    identity: Identity
    epoch: int


class ControlRepairer:
    """One repair: call `plan`, and then `write` if the operator agrees to the plan."""

    def __init__(
        self, kafka: Kafka, settings: JournalSettings, *, clock: Clock, wall_ms: Clock, uuid: bytes = b""
    ) -> None:
        """`uuid` is the journal's uuid. It is needed only if the WAL has no frame left, because each frame contains
        it."""
        self._kafka = kafka
        self._settings = settings
        self._clock = clock
        self._wall_ms = wall_ms
        self._uuid = uuid
        self._timeout_s = settings.request_timeout_ms / 1000

    def plan(self) -> ControlRepair:
        """Read the topics and make a plan. It writes nothing, but makes the control topic if that is gone. Raises
        RepairError if there is nothing to mend, or if nothing tells what the journal was, and TopicError for topics
        that do not fit together."""
        shards = self._shards()
        rows = prove_control(self._kafka, self._settings.journal, self._clock, self._timeout_s, repairing=True)
        rows.require_not_destroyed(self._settings.journal)
        evidence = self._evidence(shards)
        identity = rows.identity
        is_same = identity is not None and (identity.journal, identity.shards) == (evidence.uuid, evidence.shards)
        counter = rows.epoch if rows.epoch.journal in (b"", evidence.uuid) else Epoch()
        epochs = evidence.epochs
        told = is_same and not rows.unreadable
        strange = any(mark.epoch == counter.epoch and mark.nonce != counter.nonce for mark in evidence.marks)
        whole = not counter.nonce or (min(epochs) >= counter.epoch and not strange)
        if told and max(epochs) <= counter.epoch and whole:
            raise RepairError(
                f"the control rows of {called(self._settings.journal)} have all that its WAL and tables say: epoch "
                f"{counter.epoch}; there is nothing to mend"
            )
        if identity is None or not is_same:
            identity = Identity(
                magic=MAGIC,
                format=FORMAT,
                journal=evidence.uuid,
                name=self._settings.journal,
                shards=evidence.shards,
                created=int(self._wall_ms()),
            )
        return ControlRepair(rows, identity, max(counter.epoch, *epochs))

    def write(self, agreed: ControlRepair) -> None:
        """Fence the active node, read again, and write the rows in one transaction. If the process is killed before the
        commit, nothing has been written.

        Raises RepairError if reading again gives another plan, OperatingError if it is unknown whether the rows were
        written.
        """
        until = self._clock() + self._timeout_s
        while True:
            try:
                self._write(agreed)
                return
            except FatalProducerError as error:
                if not error.fenced or self._clock() >= until:
                    raise

    def _write(self, agreed: ControlRepair) -> None:
        name = self._settings.journal
        producer = self._kafka.transactional_producer(writer_id(name))
        try:
            producer.init(self._timeout_s)
            planned = self.plan()
            if _agreed(planned) != _agreed(agreed):
                raise RepairError(f"{called(name)} went on meanwhile, to epoch {planned.epoch}: look again")
            counter = Epoch(
                journal=agreed.identity.journal, epoch=agreed.epoch, node=_NODE, timestamp=int(self._wall_ms())
            )
            released = Released(
                journal=counter.journal, epoch=counter.epoch, node=counter.node, timestamp=counter.timestamp
            )
            rows = [
                *(control_row(name, key, None) for key in agreed.found.unreadable),
                control_row(name, IDENTITY_KEY, agreed.identity),
                control_row(name, EPOCH_KEY, counter),
                control_row(name, RELEASED_KEY, released),  # nobody has to wait until the node of that epoch is silent
            ]
            producer.send(rows, self._timeout_s)
            producer.commit_transaction(self._timeout_s)
        finally:
            producer.close()

    # ---- reading what exists
    # -------------------------------------------------------------------------------------------

    def _shards(self) -> int:
        """The number of shards that the topics have, once there is a control topic."""
        name = self._settings.journal
        wal, table = wal_topic(name), table_topic(name)
        with closing(self._kafka.cluster()) as cluster:
            found = cluster.describe([wal, table], self._timeout_s)
            for topic in (wal, table):
                if topic not in found:
                    raise TopicError(f"topic {topic} is missing: control rows cannot be made without it")
            shards = found[wal].partitions
            if found[table].partitions != shards:
                raise TopicError(f"{wal} has {shards} partitions, and {table} {found[table].partitions}")
            control, config = control_topic(name), topic_configs(self._settings)[control_topic(name)]
            cluster.create(control, 1, self._settings.replication, config, self._timeout_s)
        return shards

    def _evidence(self, shards: int) -> Evidence:
        name = self._settings.journal
        uuid = self._uuid_of(shards)
        tails = read_tails(self._kafka, name, uuid, shards, self._clock, self._timeout_s)
        with closing(MarkReader(self._kafka, table_topic(name), self._clock)) as marks:
            found_marks = marks.newest_of(range(shards), self._timeout_s)
        newest = [found_marks[shard].mark for shard in range(shards)]
        epochs = [max(tail.epoch, mark.epoch) for tail, mark in zip(tails, newest, strict=True)]
        return Evidence(uuid, shards, epochs, newest)

    def _uuid_of(self, shards: int) -> bytes:
        """The uuid in the first frames of the WAL's shards."""
        found = {uuid for shard in range(shards) if (uuid := self._first_uuid(shard))}
        said = ", ".join(sorted(uuid.hex() for uuid in found))
        wal = wal_topic(self._settings.journal)
        if self._uuid and found and self._uuid not in found:
            raise RepairError(f"{wal} has frames of journal {said}, and none of {self._uuid.hex()}")
        if len(found) > 1 and not self._uuid:
            raise RepairError(f"{wal} has frames of more than one journal: {said}; --uuid says which is meant")
        if not found and not self._uuid:
            raise RepairError(
                f"{wal} has no frame that says which journal it is: give the uuid that `init` printed (--uuid), or, if "
                "there is nothing to be kept, delete the topics"
            )
        return self._uuid or found.pop()

    def _first_uuid(self, shard: int) -> bytes:
        """The uuid in a shard's first frame; empty if the shard has none."""
        with closing(self._kafka.reader(wal_topic(self._settings.journal), wait_ms=LOOK_MS)) as reader:
            start, end = reader.start_and_end(shard, self._timeout_s)
            until = self._clock() + self._timeout_s
            reader.seek({shard: start})
            while reader.position(shard) < end:
                left_s = until - self._clock()
                if left_s <= 0:
                    raise DeadlineError(f"{wal_topic(self._settings.journal)}[{shard}] could not be read in time")
                for record in reader.poll(left_s):
                    if uuid := _uuid_in(record.value):
                        return uuid
        return b""


def _agreed(repair: ControlRepair) -> tuple[object, ...]:
    """The parts of a plan that the operator agrees to."""
    return repair.identity.journal, repair.epoch, repair.found.unreadable.keys()


def _uuid_in(raw: bytes | None) -> bytes:
    try:
        head = FrameColumns.FromString(raw or b"")
    except DecodeError:
        return b""
    return head.journal if head.magic == MAGIC and head.format == FORMAT else b""
