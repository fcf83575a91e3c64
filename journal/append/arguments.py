"""The arguments of appends. Types and ranges are checked before anything changes. Pure.

Hot path: one condition checks all arguments together; only if it fails is each of them checked.
"""

from __future__ import annotations

from collections.abc import Sequence

from journal.errors import InvalidOperationError
from journal.limits import ID_MAX, KIND_MAX, SUBJECT_MAX
from journal.v1.journal_pb2 import ADD, DELETE, UPDATE
from journal.wire.ids import SHARD_MASK

_PLAIN_TYPES = (ADD, UPDATE, DELETE)


def require_type(name: str, value: object, wanted: type) -> None:
    """Raises TypeError for a value of another type. Otherwise the value would fail only when its operation is packed,
    after it was accepted."""
    if not isinstance(value, wanted):
        raise TypeError(f"{name} is {type(value).__name__}, not {wanted.__name__}")


def check_data(data: bytes, bytes_max: int) -> None:
    """Raises TypeError, or InvalidOperationError for data of more than `bytes_max`."""
    require_type("data", data, bytes)
    if len(data) > bytes_max:
        raise InvalidOperationError(f"data of {len(data)} bytes is over the limit of {bytes_max} (data_bytes_max)")


def check_operation(
    type_: int, record_id: int, kind: int, data: bytes, replaceable: bool, subject: int, data_bytes_max: int
) -> None:
    """Raises TypeError, or InvalidOperationError for an add, update or delete that no frame can carry."""
    if (
        type(type_) is type(record_id) is type(kind) is type(subject) is int
        and type(data) is bytes
        and type(replaceable) is bool
        and type_ in _PLAIN_TYPES
        and 0 < record_id <= ID_MAX
        and 0 <= kind <= KIND_MAX
        and 0 <= subject <= SUBJECT_MAX
        and len(data) <= data_bytes_max
    ):
        return
    for name, value in (("type", type_), ("id", record_id), ("kind", kind), ("subject", subject)):
        require_type(name, value, int)
    require_type("replaceable", replaceable, bool)
    if type_ not in _PLAIN_TYPES:
        raise InvalidOperationError(f"type {type_} is none of add, update and delete")
    if not 0 < record_id <= ID_MAX:
        raise InvalidOperationError(f"id {record_id} is not in 1 to 2^63 - 1")
    if not 0 <= kind <= KIND_MAX:
        raise InvalidOperationError(f"kind {kind} is not in 0 to {KIND_MAX}")
    if not 0 <= subject <= SUBJECT_MAX:
        raise InvalidOperationError(f"subject {subject} is not in 0 to 2^63 - 1")
    check_data(data, data_bytes_max)


def check_new_records(
    kind: int, ids: Sequence[int], data: Sequence[bytes], update_kind: int, subject: int, data_bytes_max: int
) -> None:
    """`check_operation` for the adds of records of one virtual shard, and for an update without data of each."""
    if not ids or len(ids) != len(data):
        raise InvalidOperationError(f"new records and their data must be as many, not {len(ids)} and {len(data)}")
    check_operation(UPDATE, ids[0], update_kind, b"", False, subject, data_bytes_max)
    if _are_ids(ids) and {*map(type, data)} == {bytes} and max(map(len, data)) <= data_bytes_max:
        check_operation(ADD, ids[0], kind, b"", False, 0, data_bytes_max)
    else:
        for record_id, each in zip(ids, data, strict=True):
            check_operation(ADD, record_id, kind, each, False, 0, data_bytes_max)
    _check_one_shard(ids)


def check_deleted_records(ids: Sequence[int], kind: int, data: bytes, subject: int, data_bytes_max: int) -> None:
    """`check_operation` for the deletes of records of one virtual shard, and for an update of each."""
    if not ids:
        raise InvalidOperationError("no records to delete")
    for record_id in ids[:1] if _are_ids(ids) else ids:
        check_operation(UPDATE, record_id, kind, data, False, subject, data_bytes_max)
    _check_one_shard(ids)


def _are_ids(ids: Sequence[int]) -> bool:
    return {*map(type, ids)} == {int} and min(ids) > 0 and max(ids) <= ID_MAX


def _check_one_shard(ids: Sequence[int]) -> None:
    if len({record_id & SHARD_MASK for record_id in ids}) > 1:
        raise InvalidOperationError("records given as columns must all be in one virtual shard")


def check_tx(tx: int) -> None:
    """Raises TypeError, or InvalidOperationError for a value that cannot be a transaction's number."""
    require_type("tx", tx, int)
    if not 0 < tx <= ID_MAX:
        raise InvalidOperationError(f"tx {tx} is not in 1 to 2^63 - 1")
