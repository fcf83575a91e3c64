"""The only code that deletes from the WAL: its beginning, which neither the tables nor an archive need any more.

`kafka-journal trim` runs it, and so does the worker of shard 0, on a schedule (`streams.worker.trimming`).

A shard's WAL is deleted below the lowest offset that one of these still needs:

    the tables       a worker continues behind the table's mark
    the archive      if the journal is archived, archiving continues behind the archive's mark
    the writer       from the last transaction up to the table's mark the active node learns what became of its own
                     transaction, and the next active node learns the shard's last numbers
    transactions     `verify` folds again what unsettled transactions have staged, from the first such operation on

Before anything is deleted, a control row of the shard says where the WAL will begin. That row has the epoch markers
that are about to be deleted: a node that one of these epochs has fenced learns from them the fate of its last
transaction. The row also has a digest of the tables' state, from which `verify` then starts. Without an archive,
deleted records can never be folded again. So the tables are compared with them first, and a shard that differs is not
trimmed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from journal.errors import TrimError
from journal.kafka.ports import Kafka
from journal.process.clocks import Clock
from journal.process.commands import command
from journal.settings import JournalSettings
from journal.topics.control_keys import control_row, trim_key
from journal.topics.control_reading import read_control
from journal.topics.control_rows import ControlRows
from journal.topics.marks import FoundMark
from journal.topics.names import wal_topic
from journal.upkeep.shard_reading import ShardReading
from journal.v1.journal_pb2 import Archive, Mark, Passed, Transaction, Trim
from journal.verify import verify_shard
from journal.verify.base import base_of, note_transactions, state_digest
from journal.verify.differences import Differences
from journal.verify.report import ShardReport
from journal.verify.state import VerifiedShard
from journal.verify.table_state import read_table
from journal.wal.reading import WalReader
from journal.wire.frames import Frame
from journal.words import called, counted

_NO_FAULT_OF_THE_TABLES = frozenset({"skipped", "rejected"})
"""Sorts of differences that are faults of the WAL: the tables are right where they differ from it."""

_BACK_OFFSETS = 16
_BACK_GROWTH = 16

_PASSED_KEPT = 256
"""Number of markers in a control row. A node that was fenced more epochs ago does not learn what became of its last
transaction."""


@dataclass(frozen=True, slots=True)
class ShardTrim:
    """What a trim does to one shard: its WAL begins at `start` now, and at `offset` afterwards. `held_by` says what
    keeps the later records."""

    shard: int
    start: int
    offset: int
    held_by: str
    row: Trim | None = None
    """The control row to write; None if there is nothing to delete."""


def archives_of(rows: ControlRows, journal: str) -> dict[int, Archive]:
    """The archive's mark of each shard; empty if the journal is not archived. Marks of another journal with this name
    are ignored."""
    uuid = rows.require_identity(journal).journal
    return {shard: row for shard, row in rows.archives.items() if row.journal == uuid}


class Trimming:
    """One trim of a journal: `plan` reads, and `delete` deletes."""

    def __init__(
        self,
        kafka: Kafka,
        settings: JournalSettings,
        rows: ControlRows,
        progress: Callable[[str, int, int], None],
        *,
        without_archive: bool,
        clock: Clock = time.monotonic,
    ) -> None:
        """Raises TrimError if there is no archive and `without_archive` is false, or if there is an archive and
        `without_archive` is true."""
        self._kafka = kafka
        self._clock = clock
        self._settings = settings
        self._rows = rows
        self._identity = rows.require_identity(settings.journal)
        self._timeout_s = settings.request_timeout_ms / 1000
        self._reading = ShardReading(kafka, settings, progress, clock)
        self._archives = archives_of(rows, settings.journal)
        if self._archives and without_archive:
            path = next(iter(self._archives.values())).path
            raise TrimError(f"{called(settings.journal)} is archived to {path}: trim it without --without-archive")
        if not self._archives and not without_archive:
            raise TrimError(
                f"{called(settings.journal)} has no archive, and what a trim deletes would be gone for good: "
                f"`{command('spark archive', '--to', 'PATH', journal=settings.journal)}` makes one, "
                "--without-archive does without"
            )

    # ---- what can be deleted ----------------------------------------------------------------------------------------

    def plan(self, operator: str, now_ms: float) -> list[ShardTrim]:
        """What can be deleted of each shard. Raises TrimError if the tables differ from the records to be deleted."""
        wal = WalReader(self._kafka, self._settings.journal, self._identity.journal, self._identity.shards, self._clock)
        try:
            return [self._plan(wal, shard, operator, now_ms) for shard in range(self._identity.shards)]
        finally:
            wal.close()

    def _plan(self, wal: WalReader, shard: int, operator: str, now_ms: float) -> ShardTrim:
        start = wal.bounds(shard, self._timeout_s)[0]
        mark = self._reading.newest_mark(shard).mark
        needed = [(mark.offset + 1, "the tables' mark")]
        if self._archives:
            archive = self._archives.get(shard, Archive())
            needed.append((archive.offset, f"the archive at {archive.path}" if archive.path else "the archive"))
        if min(needed)[0] > start:
            needed.append((_last_transaction(wal, mark, start, self._timeout_s), "the last transaction"))
        offset, held_by = min(needed)
        if offset <= start:
            return ShardTrim(shard, start, start, held_by)
        state, found, transactions = self._state(shard, start)
        for tx, part in state.transactions.items():
            if part.staged and part.staged[0].position[0] < offset:
                offset, held_by = part.staged[0].position[0], f"transaction {tx}, which is not settled"
        if offset <= start:
            return ShardTrim(shard, start, start, held_by)
        row = Trim(
            journal=self._identity.journal,
            shard=shard,
            offset=offset,
            archived=bool(self._archives),
            mark=found.mark,
            digest=state_digest(state),
            transactions=transactions,
            checked=not self._archives,
            operator=operator,
            timestamp=int(now_ms),
            passed=self._passed(wal, mark, start, offset),
        )
        if row.ByteSize() > self._settings.limits.message_bytes_max:
            raise TrimError(
                f"shard {shard} has {counted(len(transactions), 'unsettled transaction')}: settle some first"
            )
        return ShardTrim(shard, start, offset, held_by, row)

    def _passed(self, wal: WalReader, mark: Mark, start: int, offset: int) -> list[Passed]:
        """The markers below the `offset` at which the WAL will begin, with those in the row of the trim before."""
        before = self._rows.trims.get(mark.shard)
        passed = list(before.passed) if before is not None and start else []
        passed += _markers(wal, mark, start, offset, self._timeout_s)
        return passed[-_PASSED_KEPT:]

    def _state(self, shard: int, start: int) -> tuple[VerifiedShard, FoundMark, list[Transaction]]:
        """The tables' state at a mark. Without an archive the state is compared with the WAL first."""
        found: list[FoundMark] = []
        transactions: dict[bytes, bytes] = {}
        rows = note_transactions(self._reading.table(shard, found), transactions)
        if self._archives:
            state, _ = read_table(shard, self._identity.shards, rows, Differences(shard))
        else:
            states: list[VerifiedShard] = []
            report = verify_shard(
                shard,
                self._identity.shards,
                self._identity.journal,
                wal=self._reading.wal(shard),
                table=rows,
                wal_topic=wal_topic(self._settings.journal),
                base=base_of(self._rows.trims.get(shard), start),
                with_tables=states.append,
            )
            _require_sound(self._settings.journal, report)
            state = states[0]
        try:
            return state, found[-1], [Transaction.FromString(value) for value in transactions.values()]
        except DecodeError as error:
            raise TrimError(
                f"a transaction's row of shard {shard} does not parse ({error}): nothing was deleted; "
                f"`{command('verify', journal=self._settings.journal)}` names it"
            ) from None

    # ---- deleting --------------------------------------------------------------------------------------------------

    def delete(self, plan: Sequence[ShardTrim]) -> None:
        """Write the control rows, then delete the records. If the process is killed in between, only the control rows
        have changed.

        Raises TrimError if another trim ran since the plan was made, or if an archive was begun or replaced. If two
        trims write a row for a shard, the last one replaces the other, so it must have the later state.
        """
        name = self._settings.journal
        rows = [control_row(name, trim_key(each.shard), each.row) for each in plan if each.row is not None]
        if not rows:
            return
        found = read_control(self._kafka, name, self._clock, self._timeout_s)
        archives = archives_of(found, name)
        if found.trims != self._rows.trims or archives.keys() != self._archives.keys():
            raise TrimError(
                f"{called(name)} was trimmed by somebody else, or its archive was begun, while this was planned: "
                "nothing was deleted; try again"
            )
        for each in plan:
            if each.row is not None and each.row.archived and not self._is_in(archives[each.shard], each):
                raise TrimError(
                    f"the archive at {archives[each.shard].path} took the place of what this was planned with, and "
                    f"has less of shard {each.shard}: nothing was deleted; try again"
                )
        producer = self._kafka.plain_producer()
        try:
            producer.send(rows, self._timeout_s)
        finally:
            producer.close()
        cluster = self._kafka.cluster()
        try:
            below = {each.shard: each.offset for each in plan if each.row is not None}
            cluster.delete_records(wal_topic(name), below, self._timeout_s)
        finally:
            cluster.close()

    def _is_in(self, archive: Archive, trim: ShardTrim) -> bool:
        """Whether `archive`, which exists now, is the one of the plan, and holds all records that are to be deleted."""
        return archive.archive == self._archives[trim.shard].archive and archive.offset >= trim.offset

    def close(self) -> None:
        self._reading.close()


def _require_sound(journal: str, report: ShardReport) -> None:
    differ = {what: count for what, count in report.differences.counts.items() if what not in _NO_FAULT_OF_THE_TABLES}
    # After an earlier trim, the comparison may leave the records that it deleted unchecked, if one of them has changed
    # since. This is accepted, because the records that are deleted now were compared.
    if differ or report.findings or (report.unchecked and not report.base):
        raise TrimError(
            f"the tables of shard {report.shard} differ from the WAL, or could not be compared with it, and it is the "
            f"only proof of them: nothing was deleted; `{command('verify', journal=journal)}` says why"
        )


def _last_transaction(wal: WalReader, mark: Mark, start: int, timeout_s: float) -> int:
    """The offset at which the last transaction up to a mark begins in its shard. The frames of one transaction follow
    each other there, and the end of a transaction takes an offset of its own."""
    end, back = mark.offset + 1, _BACK_OFFSETS
    while True:
        since = max(start, end - back)
        first = last = -1
        for record, _ in wal.frames(mark.shard, since, end, timeout_s):
            if record.offset != last + 1:
                first = record.offset
            last = record.offset
        if first > since or since == start:
            return max(first, start)
        back *= _BACK_GROWTH


def _markers(wal: WalReader, mark: Mark, start: int, end: int, timeout_s: float) -> list[Passed]:
    """The epoch markers between two offsets of the mark's shard. Each is found by bisection, because they are few and
    far apart."""
    shard, behind = mark.shard, mark.offset + 1
    markers: list[tuple[int, Passed]] = []
    epoch = 0
    found = _first_newer(wal, shard, epoch, start, behind, timeout_s)
    misled = found is None
    while found is not None and not misled:
        place, frame = found
        if frame.nonce:
            markers.append((place, Passed(epoch=frame.epoch, number=frame.number)))
        misled = epoch > 0 and not (frame.nonce and frame.epoch == epoch + 1)
        epoch = frame.epoch
        found = _first_newer(wal, shard, epoch, place + 1, behind, timeout_s)
    if misled or epoch != mark.epoch:  # frames of older epochs can mislead the bisection
        read = wal.frames(shard, start, end, timeout_s)
        return [Passed(epoch=each.epoch, number=each.number) for _, each in read if each.nonce]
    return [passed for place, passed in markers if place < end]


def _first_newer(
    wal: WalReader, shard: int, epoch: int, start: int, end: int, timeout_s: float
) -> tuple[int, Frame] | None:
    """The first frame between two offsets that has a newer epoch than `epoch`, with its offset. This may miss the first
    one, if a frame of an older epoch lies behind it."""
    low, high = start, end
    while low < high:
        middle = (low + high) // 2
        found = _first_frame(wal, shard, middle, end, timeout_s)
        if found is None or found[1].epoch > epoch:
            high = middle
        else:
            low = found[0] + 1
    return _first_frame(wal, shard, low, end, timeout_s)


def _first_frame(wal: WalReader, shard: int, start: int, end: int, timeout_s: float) -> tuple[int, Frame] | None:
    if start >= end:
        return None
    for record, frame in wal.frames(shard, start, end, timeout_s):
        return record.offset, frame
    return None
