"""Whether the active node may append an operation on a record, and which records live. Pure; one owner at a time.

It knows the ids of the records that live after all accepted operations (a bitmap, about two bytes for each). A refusal
raises a CallerError or TypeError, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyroaring import BitMap64

from journal.append.arguments import check_deleted_records, check_new_records, check_operation
from journal.append.locks import Locks
from journal.append.operations import AnyOperation, DeletedRecords, NewRecords
from journal.errors import InvalidOperationError, LockedError, RecordExistsError, RecordMissingError
from journal.limits import ID_MAX, KIND_MAX, SUBJECT_MAX, Limits
from journal.v1.journal_pb2 import ADD, DELETE, UPDATE


class RecordAcceptance:
    """Accepts operations outside of transactions. Each method accepts the operation in its name, or raises the reason
    for refusing it."""

    def __init__(self, limits: Limits, locks: Locks, live: BitMap64) -> None:
        """`locks` are those of open transactions; `live` has the ids of the records that exist."""
        self._data_bytes_max = limits.data_bytes_max
        self._locks = locks
        self._locked = locks.held
        """The locked records. While this is empty, no lock need be checked."""
        self.live = live
        """Ids of the records that live after all accepted operations are applied."""

    def __contains__(self, record_id: int) -> bool:
        return record_id in self.live

    def is_taken(self, record_id: int) -> bool:
        """Whether a record has that id, or an open transaction may still add one. Raises the error that refuses every
        operation with that id."""
        self.check(record_id, 0, b"", 0)
        if record_id in self.live:
            return True
        try:
            self._locks.check_record(record_id, 0)
        except LockedError:
            return True
        return False

    def check(
        self, record_id: int, kind: int, data: bytes, subject: int, replaceable: bool = False, type_: int = UPDATE
    ) -> None:
        """Raises TypeError, or InvalidOperationError for arguments that no frame can carry."""
        check_operation(type_, record_id, kind, data, replaceable, subject, self._data_bytes_max)

    def add(self, record_id: int, kind: int = 0, data: bytes = b"") -> None:
        """Accept an add. Hot path: one condition checks everything; only if it fails is the reason looked for."""
        if (
            type(data) is not bytes
            or type(kind) is not int
            or type(record_id) is not int
            or len(data) > self._data_bytes_max
            or not (0 < record_id <= ID_MAX and 0 <= kind <= KIND_MAX)
        ):
            self.check(record_id, kind, data, 0)
        if self._locked:
            self._add(record_id)
            return
        try:
            self.live.add_checked(record_id)
        except KeyError:
            raise _exists(record_id) from None

    def _add(self, record_id: int) -> None:
        if self._locked and record_id not in self.live:
            self._locks.check_record(record_id, 0)
        try:
            self.live.add_checked(record_id)
        except KeyError:
            raise _exists(record_id) from None

    def update(self, record_id: int, kind: int, subject: int, data: bytes = b"", replaceable: bool = False) -> None:
        self.check(record_id, kind, data, subject, replaceable)
        self._update(record_id, kind, subject)

    def _update(self, record_id: int, kind: int, subject: int) -> None:
        if record_id not in self.live:
            raise RecordMissingError(f"no record {record_id}")
        if self._locked:
            self._locks.check_update(record_id, kind, subject, 0)

    def delete(self, record_id: int) -> None:
        if type(record_id) is not int or not 0 < record_id <= ID_MAX:
            self.check(record_id, 0, b"", 0)
        self._delete(record_id)

    def _delete(self, record_id: int) -> None:
        if record_id not in self.live:
            raise RecordMissingError(f"no record {record_id}")
        if self._locked:
            self._locks.check_record(record_id, 0)
        self.live.discard(record_id)

    def add_with_update(self, record_id: int, kind: int, data: bytes, update_kind: int, subject: int) -> None:
        """Accept an add, and an update without data of the new record. Hot path, like `add`."""
        if (
            type(data) is not bytes
            or not (type(record_id) is type(kind) is type(update_kind) is type(subject) is int)
            or len(data) > self._data_bytes_max
            or not (0 < record_id <= ID_MAX and 0 <= kind <= KIND_MAX)
            or not (0 <= update_kind <= KIND_MAX and 0 <= subject <= SUBJECT_MAX)
        ):
            self.check(record_id, kind, data, 0)
            self.check(record_id, update_kind, b"", subject)
        self._add(record_id)

    def delete_with_update(self, record_id: int, kind: int, data: bytes, subject: int) -> None:
        """Accept an update and the delete of its record. No transaction may hold a lock on any update of the record."""
        if (
            data
            or type(data) is not bytes
            or not (type(record_id) is type(kind) is type(subject) is int)
            or not (0 < record_id <= ID_MAX and 0 <= kind <= KIND_MAX and 0 <= subject <= SUBJECT_MAX)
        ):
            self.check(record_id, kind, data, subject)
        self._delete(record_id)

    def all_of(self, operations: Sequence[AnyOperation]) -> None:
        """Accept operations that belong together, in order: all or, with the error of the first refused one, none."""
        accepted = 0
        try:
            for operation in operations:
                if isinstance(operation, NewRecords):
                    self._add_all(operation)
                elif isinstance(operation, DeletedRecords):
                    self._delete_all(operation)
                else:
                    type_, record_id, kind, data, replaceable, subject = operation
                    check_operation(type_, record_id, kind, data, replaceable, subject, self._data_bytes_max)
                    if type_ == ADD:
                        self._add(record_id)
                    elif type_ == UPDATE:
                        self._update(record_id, kind, subject)
                    else:
                        self._delete(record_id)
                accepted += 1
        except BaseException:
            for operation in reversed(operations[:accepted]):
                self._revert(operation)
            raise

    def _add_all(self, records: NewRecords) -> None:
        """Accept all of the adds, or none. (`|=` of a bitmap would go through all live ids.)"""
        ids = records.ids
        check_new_records(records.kind, ids, records.data, records.update_kind, records.subject, self._data_bytes_max)
        new = BitMap64(ids)
        if len(new) < len(ids):
            raise InvalidOperationError("some of the new records have the same id")
        if not new.isdisjoint(self.live):
            raise _exists((new & self.live).min())
        for record_id in ids if self._locked else ():
            self._locks.check_record(record_id, 0)
        self.live.update(ids)

    def _delete_all(self, records: DeletedRecords) -> None:
        """Accept all of the deletes, or none."""
        ids, live = records.ids, self.live
        check_deleted_records(ids, records.kind, records.data, records.subject, self._data_bytes_max)
        gone = BitMap64(ids)
        if len(gone) < len(ids):
            raise InvalidOperationError("some of the records to delete have the same id")
        if not gone.issubset(live):
            raise RecordMissingError(f"no record {(gone - live).min()}")
        for record_id in ids if self._locked else ():
            self._locks.check_record(record_id, 0)
        discard = live.discard
        for record_id in ids:
            discard(record_id)

    def _revert(self, operation: AnyOperation) -> None:
        if isinstance(operation, NewRecords):
            self.take_back(operation.ids)
        elif isinstance(operation, DeletedRecords):
            self.live.update(operation.ids)
        elif operation[0] == ADD:
            self.live.discard(operation[1])
        elif operation[0] == DELETE:
            self.live.add(operation[1])

    def take_back(self, added: Iterable[int]) -> None:
        """Undo adds whose group is known not to be in the journal. No operation on these records was accepted since."""
        self.live -= BitMap64(added)


def _exists(record_id: int) -> RecordExistsError:
    return RecordExistsError(f"record {record_id} exists")
