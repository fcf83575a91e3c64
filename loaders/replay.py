"""Replay: operations of an archived journal, appended to another one by its active node; nothing twice.

    target's load (ReplayTarget) -> how far earlier runs came -> operations from there on, group by group of the source
    -> groups of the target, each with its progress

Progress (`loaders.replay_state`) moves in the group of the operations that it counts, and what was put in doubt is
remembered in the group of its PREPARE. So a replay that was killed goes on where the target has it; what a consumer
deleted meanwhile does not come back, and what was settled meanwhile is not in doubt again. A group of the source is
never torn: each becomes a part of one group of the target, or one transaction.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from google.protobuf.message import DecodeError
from pyroaring import BitMap64

from journal.append.appends import Appends
from journal.append.completion import Completion
from journal.append.operations import PlainOperation
from journal.errors import LockedError, RecordExistsError, RowError, TransactionPreparedError
from journal.limits import OPERATION_OVERHEAD_BYTES, Limits
from journal.process.commands import command
from journal.v1.journal_pb2 import ADD, DELETE, UPDATE, OperationType, Replay
from journal.v1.store_pb2 import Binding, Message, RecordKind, UpdateKind
from journal.wire.ids import SHARD_MASK, make_id, sequence_of
from loaders.replay_state import Progress, ReplaySource, ReplayTarget, Selected

_BLOCK = 4096
"""Number of sequences that are remapped together."""
_ISSUED_AT_ONCE = 100_000
_IN_FLIGHT_MAX = 16
"""Most groups that are appended and not yet complete."""
_TYPES: Mapping[str, OperationType.ValueType] = {"ADD": ADD, "UPDATE": UPDATE, "DELETE": DELETE}
_OF_A_QUEUE = (UpdateKind.ROUTE, UpdateKind.REFERENCE, UpdateKind.ACKNOWLEDGE)


@dataclass(slots=True)
class ReplayResult:
    """The result of one run."""

    operations: int = 0
    left_out: int = 0
    """Updates and deletes of records that do not exist in the target, or not any more."""
    in_doubt: list[int] = field(default_factory=list)
    """Transactions that this run prepared."""
    groups: int = 0
    """Groups of the source, or parts of them."""
    before: int = 0
    """Operations that earlier runs replayed."""


class Replaying:
    """One run of a replay, which appends a source's operations to an active journal. `journal` must have been activated
    with `target` as its loader, and nobody else may append meanwhile.

    It has many attributes because one pass carries all of them from group to group: the two journals and their limits,
    the batch of operations that is not yet appended with its size, and the operations about ids and transactions that
    the next group must also contain.
    """

    def __init__(
        self,
        journal: Appends,
        limits: Limits,
        source: ReplaySource,
        target: ReplayTarget,
        *,
        operator: str,
        now_ms: Callable[[], float],
        told: Callable[[int], None] = lambda _operations: None,
    ) -> None:
        """`told` is called after each append with the number of operations that this run has appended so far."""
        self._journal = journal
        self._limits = limits
        self._source = source
        self._target = target
        self._operator = operator
        self._now_ms = now_ms
        self._told = told
        # half of a group's size is reserved for its progress
        self._at_once = min(limits.transaction_buffer_operations_max, limits.queue_operations_max // 2)
        self._bytes_at_once = min(limits.transaction_buffer_bytes_max, limits.queue_bytes_max // 2)
        self.progress = Progress(source, target)
        self.result = ReplayResult(before=self.progress.operations)
        self._home = min(source.ends)
        """The shard whose progress record holds what belongs to no single shard."""
        self._first = not self.progress.known
        self._batch: list[PlainOperation] = []
        self._batch_bytes = 0
        self._beside: list[PlainOperation] = []
        """Operations about ids and transactions that the next group must contain besides the replayed ones."""
        self._moved: set[int] = set()
        self._in_flight: deque[Completion] = deque()

    def run(self, operations: Iterable[Selected]) -> ReplayResult:
        """Append `operations`, which begin after `progress`. Everything is committed when this returns.

        Raises RecordExistsError for a record that the target has of its own, and LockedError if a transaction in doubt
        there holds one. What was appended before stays, and the next run begins with the operation that was refused.
        """
        if not self._source.remapped:
            self._issue_like_source()
        for (group, in_doubt, tx), rows in groupby(operations, key=_unit):
            if in_doubt:
                # an earlier run has prepared it in the target; if the source settles it later, this run replays that
                self._end()
                self._prepare(tx, rows)
            else:
                self._take_group(group, list(rows))
        self._end()
        self._journal.flush().wait()
        return self.result

    # ---- what took effect ----------------------------------------------------------------------------------------

    def _take_group(self, group: int, rows: list[Selected]) -> None:
        """Add one group of the source to the batch, or append the batch first if it would grow too large."""
        found = [(row, self._accepted(row)) for row in rows]
        operations = [operation for _, operation in found if operation is not None]
        size = sum(map(_size, operations))
        if len(self._batch) + len(operations) > self._at_once or self._batch_bytes + size > self._bytes_at_once:
            self._flush()
        # this comes after the flush, because the flushed batch has the progress of the groups before this one
        for row, operation in found:
            self._count(row, replayed=operation is not None)
            self._move(row.shard, row.offset, group)
        self.result.groups += 1
        limits = self._limits
        if len(operations) > limits.queue_operations_max // 2 or size > limits.queue_bytes_max // 2:
            self._flush_large(operations)
            return
        self._batch += operations
        self._batch_bytes += size

    def _accepted(self, row: Selected) -> PlainOperation | None:
        """The operation as the target will have it; None for an operation on a record that the target does not have."""
        type_, record_id, live = _TYPES[row.type], self._id(row.id), self._target.live
        if type_ == ADD:
            if record_id in live:
                raise RecordExistsError(
                    f"the target has a record {record_id} of its own (group {row.group} of the source adds one): "
                    "replay into a new journal, or with --remap-ids"
                )
            live.add(record_id)
        elif not self._is_there(record_id):
            return None
        elif type_ == DELETE:
            live.discard(record_id)
        return self._operation(row, type_, record_id)

    def _is_there(self, record_id: int, tx: int = 0) -> bool:
        """Whether the target has a record, or will have it once `tx` commits. Raises LockedError for a record that
        another transaction in doubt adds, because its outcome is not known yet."""
        if record_id in self._target.live:
            return True
        adding = self._target.added_in_doubt.get(record_id)
        if adding is None or adding == tx:
            return adding is not None
        raise _locked(LockedError(f"record {record_id} is added by transaction {adding}"))

    def _count(self, row: Selected, *, replayed: bool) -> None:
        progress = self.progress.shards[row.shard]
        if replayed:
            progress.operations += 1
            self.result.operations += 1
        else:
            progress.left_out += 1
            self.result.left_out += 1

    def _flush(self) -> None:
        """Append the batch and its progress, as parts of one group."""
        if self._batch or self._moved or self._beside:
            self._append(self._head() + self._batch + self._tail())
            self._batch, self._batch_bytes = [], 0

    def _flush_large(self, operations: list[PlainOperation]) -> None:
        """Append a group of the source that is too large for one group, as a transaction whose commit holds the
        progress."""
        tx = self._journal.begin()
        try:
            for operation in operations:
                self._journal.append_all((operation,), tx=tx)
        except LockedError as error:
            raise _locked(error) from error
        self._sent(self._journal.commit(tx, then=self._head() + self._tail()))

    def _append(self, operations: list[PlainOperation]) -> None:
        try:
            self._sent(self._journal.append_all(operations))
        except LockedError as error:
            raise _locked(error) from error

    def _sent(self, completion: Completion) -> None:
        self._in_flight.append(completion)
        if len(self._in_flight) > _IN_FLIGHT_MAX:
            self._in_flight.popleft().wait()
        self._told(self.result.operations)

    # ---- what is in doubt ----------------------------------------------------------------------------------------

    def _prepare(self, tx: int, rows: Iterable[Selected]) -> None:
        """Prepare a transaction of the source in the target, with the same number. A replay with another filter may
        have done so already."""
        data, operations = b"", []
        for row in rows:
            if row.type == "PREPARE":
                data = data or bytes(row.data)
            else:
                operations.append(row)
        staged = self._staged(tx, operations)
        there = self._target.in_doubt.get(tx)
        kept = UPDATE, self._source.record_id(self._home), UpdateKind.KEPT, b"", True, tx
        if there is None:
            self._journal.begin(tx)
            for operation in staged:
                self._journal.append_all([operation], tx=tx)
            self.result.operations += len(staged)
            self._flush()  # blocks of ids must be known before the operations that use them
            self._sent(self._journal.prepare(tx, data, then=(kept,)))
        elif there.data != data:
            raise TransactionPreparedError(f"the target has a transaction {tx} of its own in doubt: settle it first")
        elif missing := Counter(staged) - there.operations:
            raise TransactionPreparedError(
                f"transaction {tx} is in doubt in the target by another replay, without {missing.total()} operations "
                f"that this one would prepare: settle it first (`{command('tx list')}`)"
            )
        else:
            self._append([kept])
        self.progress.kept.add(tx)
        self.result.in_doubt.append(tx)

    def _staged(self, tx: int, rows: Iterable[Selected]) -> list[PlainOperation]:
        """The operations of a transaction in doubt as the target will have them, without those on records that the
        target does not have."""
        added, gone, found = BitMap64(), BitMap64(), list[PlainOperation]()
        for row in rows:
            record_id, type_ = self._id(row.id), _TYPES[row.type]
            if type_ != ADD and (record_id in gone or not (record_id in added or self._is_there(record_id, tx))):
                self.result.left_out += 1
                continue
            found.append(self._operation(row, type_, record_id))
            (gone if type_ == DELETE else added).add(record_id)
        return found

    # ---- progress ------------------------------------------------------------------------------------------------

    def _move(self, shard: int, offset: int, group: int) -> None:
        progress = self.progress.shards[shard]
        progress.offset = max(progress.offset, offset)
        progress.group = max(progress.group, group)
        self._moved.add(shard)

    def _end(self) -> None:
        """Write the final progress: all operations were looked at, also in shards where none was selected."""
        for shard, end in self._source.ends.items():
            if self.progress.shards[shard].offset < end:
                self._move(shard, end, 0)
        self._flush()

    def _head(self) -> list[PlainOperation]:
        """The operations that must come before those of the group: the replay's own records, once, and blocks of
        ids."""
        source, found = self._source, list[PlainOperation]()
        if self._first:
            self._first = False
            for shard in source.ends:
                record_id = source.record_id(shard)
                if record_id in self._target.live:
                    raise RecordExistsError(f"the target has a record {record_id} that is not a replay's")
                self._target.live.add(record_id)
                found.append((ADD, record_id, RecordKind.REPLAY, self._provenance(shard), False, 0))
        found += self._beside
        self._beside = []
        return found

    def _provenance(self, shard: int) -> bytes:
        source = self._source
        return Replay(
            source=source.uuid,
            journal=source.journal,
            archive=source.archive,
            path=source.path,
            filter=source.filter,
            filtered=source.filtered,
            shard=shard,
            shards=len(source.ends),
            operator=self._operator,
            timestamp=int(self._now_ms()),
        ).SerializeToString()

    def _tail(self) -> list[PlainOperation]:
        """The operations that write the progress after this group."""
        found: list[PlainOperation] = []
        for shard in sorted(self._moved):
            progress = self.progress.shards[shard]
            progress.timestamp = int(self._now_ms())
            record_id = self._source.record_id(shard)
            found.append((UPDATE, record_id, UpdateKind.REPLAYED, progress.SerializeToString(), True, 0))
        self._moved.clear()
        return found

    # ---- ids -----------------------------------------------------------------------------------------------------

    def _issue_like_source(self) -> None:
        """Keep the target from issuing an id that the source has issued, because a record with that id may be replayed
        later."""
        while (left := self._source.issued - sequence_of(self._journal.new_id())) > 0:
            self._journal.new_ids([0] * min(left, _ISSUED_AT_ONCE))

    def _id(self, source_id: int) -> int:
        """The record's id in the target: the same one, or one that the target issued in the same virtual shard. It
        stays the same for good."""
        if not self._source.remapped:
            return source_id
        block, place = divmod(sequence_of(source_id), _BLOCK)
        first = self.progress.blocks.get(block)
        if first is None:
            first = sequence_of(self._journal.new_ids([0] * _BLOCK)[0])
            self.progress.blocks[block] = first
            home = self._source.record_id(self._home)
            self._beside.append((UPDATE, home, UpdateKind.REMAPPED, first.to_bytes(8, "big"), True, block))
        return make_id(first + place, source_id & SHARD_MASK)

    def _operation(self, row: Selected, type_: OperationType.ValueType, record_id: int) -> PlainOperation:
        data, subject = bytes(row.data), row.subject
        if self._source.remapped:
            if type_ == ADD:
                data = self._remapped(row.kind, data, record_id)
            elif type_ == UPDATE and row.kind in _OF_A_QUEUE:
                subject = self._id(subject)
        return type_, record_id, row.kind, data, row.replaceable, subject

    def _remapped(self, kind: int, data: bytes, record_id: int) -> bytes:
        """The data of a message store's record, with the ids in it remapped."""
        try:
            if kind == RecordKind.BINDING:
                binding = Binding.FromString(data)
                binding.queue = self._id(binding.queue)
                return binding.SerializeToString()
            if kind == RecordKind.MESSAGE:
                message = Message.FromString(data)
                if not message.chunks and not message.origin.message:
                    return data
                message.chunks[:] = [self._id(chunk) for chunk in message.chunks]
                if message.origin.message:
                    message.origin.message = self._id(message.origin.message)
                return message.SerializeToString()
        except DecodeError as error:
            raise RowError(
                f"record {record_id} of kind {kind} is not a message store's, and ids in it cannot be remapped: {error}"
            ) from None
        return data


def _unit(row: Selected) -> tuple[int, bool, int]:
    """The key of operations that are replayed as a whole: those of a group, or of a transaction in doubt."""
    return row.group, row.in_doubt, row.tx if row.in_doubt else 0


def _size(operation: PlainOperation) -> int:
    return len(operation[3]) + OPERATION_OVERHEAD_BYTES


def _locked(error: LockedError) -> LockedError:
    return LockedError(f"{error}: a transaction in doubt in the target holds it; settle it (`{command('tx list')}`)")
