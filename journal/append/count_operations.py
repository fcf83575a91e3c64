"""Operations in columns (`NewRecords`, `DeletedRecords`) counted, measured and listed as plain operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from journal.append.arguments import check_deleted_records, check_new_records
from journal.append.operations import AnyOperation, DeletedRecords, NewRecords, PlainOperation
from journal.limits import OPERATION_OVERHEAD_BYTES
from journal.v1.journal_pb2 import ADD, DELETE, UPDATE


def count_and_size(operations: Sequence[AnyOperation]) -> tuple[int, int]:
    """The number of plain operations, and an upper bound of their bytes in frames."""
    count = size = 0
    for operation in operations:
        if isinstance(operation, NewRecords):
            count += 2 * len(operation.ids)
            size += sum(map(len, operation.data))
        elif isinstance(operation, DeletedRecords):
            count += 2 * len(operation.ids)
            size += len(operation.ids) * len(operation.data)
        else:
            count += 1
            size += len(operation[3])
    return count, size + count * OPERATION_OVERHEAD_BYTES


def one_by_one(operations: Sequence[AnyOperation], data_bytes_max: int) -> Iterator[PlainOperation]:
    """The plain operations in order. Raises the error that refuses operations in columns."""
    for operation in operations:
        if isinstance(operation, NewRecords):
            kind, ids, data, update_kind, subject = operation
            check_new_records(kind, ids, data, update_kind, subject, data_bytes_max)
            for record_id, each in zip(ids, data, strict=True):
                yield ADD, record_id, kind, each, False, 0
                yield UPDATE, record_id, update_kind, b"", False, subject
        elif isinstance(operation, DeletedRecords):
            ids, kind, ending, subject = operation
            check_deleted_records(ids, kind, ending, subject, data_bytes_max)
            for record_id in ids:
                yield UPDATE, record_id, kind, ending, False, subject
                yield DELETE, record_id, 0, b"", False, 0
        else:
            yield operation
