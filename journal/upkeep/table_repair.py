"""`repair table`: deletes rows that no worker wrote from a shard's table, or makes its mark count the rows that exist.

A mark says how many rows there are, and every load compares this number. So a repair is written only if the mark agrees
with the rows afterwards, or if the operator says that missing rows stay lost. A worker's transaction ends with a mark.
So rows behind the last mark, and rows of another shard, are always strays, and the operator need not name them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

from journal.disk.ports import LocalStore
from journal.errors import RepairError, RowError, StaleReadError
from journal.kafka.ports import LOOK_MS, Kafka, LogRecord, Sent
from journal.load.counts import Numbers
from journal.load.loading import counted
from journal.process.clocks import Clock
from journal.process.commands import command
from journal.topics.marks import FoundMark, MarkReader, records_between
from journal.topics.names import table_topic, wal_topic, worker_group, worker_id
from journal.v1.journal_pb2 import Identity, Mark
from journal.wire.keys import mark_key, row_type, shard_of_row

_ROWS_PER_WRITE = 5000


@dataclass(frozen=True, slots=True)
class TableRepair:
    """What was found, and the rows to be written."""

    shard: int
    found: FoundMark
    changes: Mapping[bytes, bytes | None]
    """The new values of rows, by key; None deletes a row."""
    numbers: Numbers
    """Numbers of rows once the changes are written."""

    @property
    def said(self) -> Numbers:
        """The numbers that the mark says now."""
        return Numbers.of(self.found.mark)

    @property
    def mark(self) -> Mark:
        """The mark that is written behind the rows. It follows the mark that was found, and differs from it only in the
        numbers of rows."""
        mark = Mark()
        mark.CopyFrom(self.found.mark)
        mark.previous = self.found.name
        mark.records, mark.updates, mark.staged, mark.prepared = self.numbers
        return mark


class TableRepairer:
    """One repair of one shard: call `plan`, and then `write` if the operator agrees to the plan."""

    def __init__(
        self,
        kafka: Kafka,
        journal: str,
        identity: Identity,
        shard: int,
        store: LocalStore,
        *,
        clock: Clock,
        timeout_s: float,
        delete: Collection[bytes] = (),
        recount: bool = False,
    ) -> None:
        """`store` takes the table's rows; it is cleared first. `delete` are prefixes of the keys of rows to delete.
        With `recount` the mark gets the numbers of the rows that exist."""
        self._kafka = kafka
        self._journal = journal
        self._identity = identity
        self._shard = shard
        self._store = store
        self._clock = clock
        self._timeout_s = timeout_s
        self._delete = frozenset(delete)
        self._recount = recount
        self._topic = table_topic(journal)
        self._name = f"{self._topic}[{shard}]"

    def plan(self) -> TableRepair:
        """Read the table and make a plan; writes nothing. Raises RepairError while a worker has the shard, if there is
        nothing to mend, or if the numbers of the rows that stay are not those in the mark."""
        self._require_no_worker()
        with closing(MarkReader(self._kafka, self._topic, self._clock)) as marks:
            found = marks.newest(self._shard, self._timeout_s)
        if found.place < 0:
            raise RepairError(f"{self._name} has no mark: a worker begins it anew from the WAL")
        changes = self._changes(found)
        self._store.write(changes.items(), {})
        try:
            numbers = counted(self._store, self._shard)
        except RowError as error:
            raise RepairError(f"{self._name}: {error}: name the rows that no worker wrote (--row)") from error
        planned = TableRepair(self._shard, found, changes, numbers)
        if numbers == planned.said and not changes:
            raise RepairError(f"{self._name} has the rows that its mark says ({numbers}): there is nothing to mend")
        if numbers != planned.said and not self._recount:
            raise RepairError(
                f"{self._name} would have {numbers}, and its mark says {planned.said}. Name the rows that no worker "
                f"wrote (--record, --row; {command('verify', journal=self._journal)} names them). "
                "If rows are lost, make the table anew from the WAL if all of it is there; else --recount lets the "
                "journal go on without them"
            )
        return planned

    def write(self, agreed: TableRepair) -> None:
        """Fence the worker of the shard, read again, and write the rows and the mark in one transaction. If the process
        is killed before the commit, nothing has been written.

        Raises RepairError if reading again gives another plan, OperatingError if it is unknown whether the rows were
        written.
        """
        producer = self._kafka.transactional_producer(worker_id(self._journal, self._shard))
        try:
            producer.init(self._timeout_s)
            planned = self.plan()
            if (planned.found.name, planned.changes) != (agreed.found.name, agreed.changes):
                raise RepairError(f"{self._name} went on meanwhile: look again")
            rows = [*planned.changes.items(), (mark_key(self._shard), planned.mark.SerializeToString())]
            sent = [Sent(self._topic, self._shard, key, value) for key, value in rows]
            first = producer.send(sent, self._timeout_s)[0]
            if first != planned.found.end:
                producer.abort_transaction(self._timeout_s)
                what = f"{self._name} was read to {planned.found.end}, and goes on at {first}"
                raise StaleReadError(f"{what}: a leader that was deposed has answered. Nothing is written; try again")
            producer.commit_transaction(self._timeout_s)
        finally:
            producer.close()

    # ---- reading what exists
    # ------------------------------------------------------------------------------------------

    def _require_no_worker(self) -> None:
        with closing(self._kafka.cluster()) as cluster:
            members = cluster.group_members(worker_group(self._journal), self._timeout_s)
        place = (wal_topic(self._journal), self._shard)
        for member in members:
            if place in member.partitions:
                raise RepairError(f"worker {member.client_id} at {member.host} has shard {self._shard}: stop it first")

    def _changes(self, found: FoundMark) -> dict[bytes, bytes | None]:
        """Fill the store with the rows up to the mark; returns the changes to be written behind it."""
        self._store.clear()
        changes: dict[bytes, bytes | None] = {}
        rows: list[tuple[bytes, bytes | None]] = []
        strays: list[bytes] = []
        for record in self._records(found.end):
            key = record.key or b""
            if self._shard_of(record) != self._shard:
                changes[key] = None
            elif record.offset > found.place:
                strays.append(key)
            else:
                rows.append((key, record.value))
            if len(rows) >= _ROWS_PER_WRITE:
                self._store.write(rows, {}, durable=False)
                rows.clear()
        self._store.write(rows, {}, durable=False)
        self._store.flush()
        changes |= {key: self._store.get(key) for key in strays}
        for beginning in self._delete:
            named = [key for key, _ in self._store.scan(beginning)]
            if not named:
                raise RepairError(f"{self._name} has no row {beginning.hex()}")
            changes |= dict.fromkeys(named)
        return changes

    def _records(self, end: int) -> Iterator[LogRecord]:
        with closing(self._kafka.reader(self._topic, wait_ms=LOOK_MS)) as reader:
            start, _ = reader.start_and_end(self._shard, self._timeout_s)
            yield from records_between(
                reader, self._shard, start, end, clock=self._clock, stall_s=self._timeout_s, name=self._name
            )

    def _shard_of(self, record: LogRecord) -> int:
        """The shard of a row, by its key. Raises RepairError for bytes that are no key."""
        key = record.key or b""
        try:
            row_type(key)
        except RowError as error:
            raise RepairError(
                f"{self._name}@{record.offset}: {error.reason}. No reader passes over it, whatever is written behind "
                "it: such a table can only be made anew from the WAL"
            ) from error
        return shard_of_row(key, self._identity.shards)
