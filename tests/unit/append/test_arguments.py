"""Arguments of a wrong type, or that no frame can carry: refused before anything changes, whichever way they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from journal.append.arguments import check_data
from journal.append.core import Core
from journal.append.group import FrameOrigin, Group
from journal.append.operations import AnyOperation, DeletedRecords, NewRecords, PlainOperation
from journal.append.writing import Joining
from journal.errors import InvalidOperationError, RecordExistsError, RecordMissingError
from journal.kafka.ports import Consumed
from journal.v1.journal_pb2 import ADD, COMMIT, DELETE, MARKER, UPDATE, Operation
from journal.wire.frames import decode_frame
from tests.support.cores import SHARDS, Committing, active_core

JOURNAL = b"j" * 16
THERE = 1
"""A record that lives."""
NEW = 2
LONG = b"x" * 20_000
CONSUMED = Consumed("group", {("orders", 0): 7})


class Reading(Committing):
    """A writer that reads what it writes as a worker would."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []

    def write(self, group: Group, joining: Joining) -> None:
        self.numbers = group.seal(FrameOrigin(JOURNAL, 3, "node"), self.numbers)
        for record in group.records("wal"):
            self.operations += decode_frame(record.value, JOURNAL, record.partition, SHARDS).operations()
        super().write(group, joining)


class Scene:
    """An active journal with one record."""

    def __init__(self) -> None:
        self.writer = Reading()
        self.core = active_core(self.writer, live=[THERE])

    def require_unchanged(self) -> None:
        """Nothing waits to be written, and the same can be appended as before."""
        assert self.core.flush().done
        self.core.add(NEW, 1, b"")
        self.core.update(THERE, 1, b"")
        self.core.delete(THERE)
        self.core.step(0.0)
        written = [(op.type, op.id) for op in self.writer.operations]
        assert sorted(written) == sorted([(ADD, NEW), (UPDATE, THERE), (DELETE, THERE)])


@pytest.fixture
def scene() -> Scene:
    return Scene()


WRONG_TYPES: list[PlainOperation | Any] = [
    (ADD, "2", 1, b"", False, 0),
    (ADD, 2.5, 1, b"", False, 0),
    (ADD, NEW, 4.5, b"", False, 0),
    (ADD, NEW, "1", b"", False, 0),
    (ADD, NEW, 1, "text", False, 0),
    (ADD, NEW, 1, bytearray(b"data"), False, 0),
    (UPDATE, THERE, 1.0, b"", False, 0),
    (UPDATE, THERE, 1, b"", "yes", 0),
    (UPDATE, THERE, 1, b"", True, 1.5),
    (UPDATE, THERE, 1, LONG, False, 0.0),
    (DELETE, 1.5, 0, b"", False, 0),
    (DELETE, "1", 0, b"", False, 0),
]
OUT_OF_RANGE: list[PlainOperation] = [
    (DELETE, -1, 0, b"", False, 0),
    (DELETE, 2**64, 0, b"", False, 0),
    (ADD, 2**64, 1, b"", False, 0),
    (UPDATE, -1, 1, b"", False, 0),
]
NO_PLAIN: list[PlainOperation] = [(COMMIT, THERE, 0, b"", False, 0), (MARKER, THERE, 0, b"n" * 16, False, 0)]


def one_call(core: Core, operation: PlainOperation, tx: int = 0) -> None:
    type_, record_id, kind, data, replaceable, subject = operation
    if type_ == ADD:
        core.add(record_id, kind, data, tx)
    elif type_ == UPDATE:
        core.update(record_id, kind, data, replaceable, subject, tx)
    else:
        core.delete(record_id, tx)


WAYS: dict[str, Callable[[Core, PlainOperation], object]] = {
    "append_all": lambda core, wrong: core.append_all([(ADD, NEW + 2, 1, b"", False, 0), wrong]),
    "append_all in a transaction": lambda core, wrong: core.append_all([(ADD, NEW + 2, 1, b"", False, 0), wrong], 7),
    "take_in": lambda core, wrong: core.take_in([(ADD, NEW + 2, 1, b"", False, 0), wrong], CONSUMED),
    "with a prepare": lambda core, wrong: core.transactions.prepare(
        7, b"xid", [(ADD, NEW + 2, 1, b"", False, 0), wrong]
    ),
}


@pytest.mark.parametrize("tx", [0, 7])
@pytest.mark.parametrize("wrong", WRONG_TYPES)
def test_an_operation_of_wrong_types_is_refused_and_changes_nothing(
    scene: Scene, wrong: PlainOperation, tx: int
) -> None:
    with pytest.raises(TypeError):
        one_call(scene.core, wrong, tx)
    scene.require_unchanged()


@pytest.mark.parametrize("tx", [0, 7])
@pytest.mark.parametrize("wrong", OUT_OF_RANGE)
def test_an_operation_out_of_range_is_refused_and_changes_nothing(scene: Scene, wrong: PlainOperation, tx: int) -> None:
    with pytest.raises(InvalidOperationError):
        one_call(scene.core, wrong, tx)
    scene.require_unchanged()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wrong", [*WRONG_TYPES, *OUT_OF_RANGE, *NO_PLAIN])
def test_one_wrong_operation_among_several_refuses_them_all(scene: Scene, way: str, wrong: PlainOperation) -> None:
    with pytest.raises((TypeError, InvalidOperationError)):
        WAYS[way](scene.core, wrong)
    scene.require_unchanged()


WRONG_PAIRS: list[Any] = [
    lambda core: core.add_with_update(0, "1", b"", 2, 0),
    lambda core: core.add_with_update(0, 1, "text", 2, 0),
    lambda core: core.add_with_update(0, 1, bytearray(b"data"), 2, 0),
    lambda core: core.add_with_update(0, 1, b"", 2.0, 0),
    lambda core: core.add_with_update(0, 1, b"", 2, 1.5),
    lambda core: core.add_with_update(0, 256, b"", 2, 0),
    lambda core: core.add_with_update(0, 1, b"", 256, 0),
    lambda core: core.add_with_update(0, 1, b"", 2, -1),
    lambda core: core.add_with_update(0, 1, b"", 2, 2**63),
    lambda core: core.add_with_update("0", 1, b"", 2, 0),
    lambda core: core.delete_with_update("1", 2, b"", 0),
    lambda core: core.delete_with_update(1.0, 2, b"", 0),
    lambda core: core.delete_with_update(THERE, "2", b"", 0),
    lambda core: core.delete_with_update(THERE, 2, "", 0),
    lambda core: core.delete_with_update(THERE, 2, bytearray(), 0),
    lambda core: core.delete_with_update(THERE, 2, b"", 0.0),
    lambda core: core.delete_with_update(THERE, 256, b"", 0),
    lambda core: core.delete_with_update(THERE, 2, b"", -1),
    lambda core: core.delete_with_update(2**64, 2, b"", 0),
]


@pytest.mark.parametrize("wrong", WRONG_PAIRS)
def test_a_wrong_record_with_an_update_is_refused_and_changes_nothing(scene: Scene, wrong: Any) -> None:
    with pytest.raises((TypeError, InvalidOperationError)):
        wrong(scene.core)
    scene.require_unchanged()


def test_an_id_that_somebody_else_has_taken_is_refused_once(scene: Scene) -> None:
    taken = scene.core.new_id(0) + 1024
    scene.core.add(taken, 1, b"")
    with pytest.raises(RecordExistsError):
        scene.core.add_with_update(0, 1, b"", 2, 0)
    assert scene.core.add_with_update(0, 1, b"", 2, 0)[0] == taken + 1024


WRONG_NEW_RECORDS: list[Any] = [
    NewRecords(1, [], [], 2, 0),
    NewRecords(1, [NEW], [b"", b""], 2, 0),
    NewRecords(1, [NEW, NEW], [b"", b""], 2, 0),
    NewRecords(1, [NEW, NEW + 1], [b"", b""], 2, 0),
    NewRecords(1, [NEW, 0], [b"", b""], 2, 0),
    NewRecords(1, [NEW, 2**63 + NEW], [b"", b""], 2, 0),
    NewRecords(1, [NEW, float(NEW)], [b"", b""], 2, 0),  # type: ignore[list-item]
    NewRecords(1, [NEW], ["text"], 2, 0),  # type: ignore[list-item]
    NewRecords(256, [NEW], [b""], 2, 0),
    NewRecords(1, [NEW], [b""], "2", 0),  # type: ignore[arg-type]
    NewRecords(1, [NEW], [b""], 2, -1),
]


WRONG_DELETED_RECORDS: list[Any] = [
    DeletedRecords([], 2, b"", 0),
    DeletedRecords([THERE, THERE], 2, b"", 0),
    DeletedRecords([THERE, THERE + 1], 2, b"", 0),
    DeletedRecords([THERE, 0], 2, b"", 0),
    DeletedRecords([THERE, 2**63 + THERE], 2, b"", 0),
    DeletedRecords([THERE, float(THERE)], 2, b"", 0),  # type: ignore[list-item]
    DeletedRecords([THERE], 256, b"", 0),
    DeletedRecords([THERE], "2", b"", 0),  # type: ignore[arg-type]
    DeletedRecords([THERE], 2, "text", 0),  # type: ignore[arg-type]
    DeletedRecords([THERE], 2, bytearray(), 0),  # type: ignore[arg-type]
    DeletedRecords([THERE], 2, b"", -1),
    DeletedRecords([THERE], 2, b"", 1.5),  # type: ignore[arg-type]
]


COLUMN_WAYS: dict[str, Callable[[Core, Sequence[AnyOperation]], object]] = {
    "append_all": lambda core, operations: core.append_all(operations),
    "append_all in a transaction": lambda core, operations: core.append_all(operations, 7),
    "take_in": lambda core, operations: core.take_in(operations, CONSUMED),
}


@pytest.mark.parametrize("way", COLUMN_WAYS)
@pytest.mark.parametrize("wrong", [*WRONG_NEW_RECORDS, *WRONG_DELETED_RECORDS])
def test_wrong_records_in_columns_among_others_refuse_them_all(scene: Scene, way: str, wrong: AnyOperation) -> None:
    other = NewRecords(1, [NEW + 8], [b""], 2, 0)
    with pytest.raises((TypeError, InvalidOperationError, RecordExistsError, RecordMissingError)):
        COLUMN_WAYS[way](scene.core, [(ADD, NEW + 2, 1, b"", False, 0), other, wrong])
    scene.require_unchanged()


@pytest.mark.parametrize("wrong", [*WRONG_TYPES, *OUT_OF_RANGE, *NO_PLAIN])
def test_a_wrong_operation_behind_a_commit_leaves_the_transaction_open(scene: Scene, wrong: PlainOperation) -> None:
    told = scene.core.add(NEW + 2, 1, b"", 7)
    with pytest.raises((TypeError, InvalidOperationError)):
        scene.core.transactions.commit(7, [wrong])
    assert not told.done
    scene.core.transactions.rollback(7)
    scene.require_unchanged()


@pytest.mark.parametrize("tx", ["7", 7.0, [7]])
def test_a_transactions_number_of_a_wrong_type_settles_nothing(scene: Scene, tx: Any) -> None:
    scene.core.transactions.begin(7)
    scene.core.transactions.prepare(7, b"xid")
    scene.core.step(0.0)
    scene.writer.operations.clear()
    calls = (
        lambda: scene.core.transactions.begin(tx),
        lambda: scene.core.add(NEW, 1, b"", tx),
        lambda: scene.core.transactions.prepare(tx, b""),
        lambda: scene.core.transactions.commit(tx),
        lambda: scene.core.transactions.rollback(tx),
    )
    for call in calls:
        with pytest.raises(TypeError):
            call()
    scene.require_unchanged()
    scene.core.transactions.commit(7)


def test_a_prepare_with_a_name_that_is_no_bytes_prepares_nothing(scene: Scene) -> None:
    name: Any = "xid"
    scene.core.add(NEW + 2, 1, b"", 7)
    with pytest.raises(TypeError, match="data is str, not bytes"):
        scene.core.transactions.prepare(7, name)
    scene.core.add(NEW + 4, 1, b"", 7)
    scene.core.transactions.rollback(7)
    scene.require_unchanged()


def test_numbers_of_their_own_types_are_numbers(scene: Scene) -> None:
    class Id(int):
        pass

    scene.core.add(Id(NEW), Id(1), b"")
    scene.core.delete(Id(NEW))
    with pytest.raises(RecordMissingError):
        scene.core.delete(Id(NEW))


def test_data_that_is_too_long_names_the_setting_that_bounds_it() -> None:
    with pytest.raises(InvalidOperationError, match=r"data of 11 bytes is over the limit of 10 \(data_bytes_max\)"):
        check_data(b"x" * 11, 10)
