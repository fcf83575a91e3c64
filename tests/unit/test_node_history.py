"""The checker of the tests that kill nodes: it accepts what may happen, and catches one planted fault of each kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from journal.v1.journal_pb2 import Operation
from tests.support.build import JOURNAL, add, delete, frame, marker, update
from tests.support.children.telling import Notes
from tests.support.evidence import Evidence, Row, order_faults
from tests.support.node_history import Activation, check_history, happenings, parse_history
from tests.support.script_model import Line, ScriptModel, encode

SHARDS = 2


def line(n: int, op: str, **more: object) -> Line:
    data = {"data": encode(b"%d" % n)} if op in ("add", "update", "prepare") else {}
    return {"n": n, "op": op} | data | more


SUBMITTED = [
    line(1, "add", id=1),
    line(2, "add", id=2),
    line(3, "update", id=1),
    line(4, "update", id=1),
    line(5, "delete", id=2),
    line(6, "add", id=3, tx=7),
    line(7, "add", id=4, tx=7),
    line(8, "commit", tx=7),
    line(9, "update", id=3, tx=8),
    line(10, "prepare", tx=8),
    line(11, "add", id=5),
]


def loaded(after: int, lines: list[Line] | None = None) -> list[Line]:
    """What is loaded when so many of the submitted operations took effect."""
    model = ScriptModel(SHARDS)
    model.apply((SUBMITTED if lines is None else lines)[:after])
    return model.dump()


def faults(load: list[Line], done: set[int], failed: set[int] | None = None) -> list[str]:
    first = Activation(1, [], SUBMITTED, done, failed or set())
    return check_history([Activation(2, load), first], SHARDS).faults


ALL = set(range(1, 12))


@pytest.mark.parametrize(("after", "done"), [(11, ALL), (11, set()), (5, {1, 2, 3}), (0, set()), (8, {1, 2, 3, 6, 7})])
def test_any_beginning_with_all_that_was_acknowledged_is_accepted(after: int, done: set[int]) -> None:
    verdict = check_history([Activation(1, [], SUBMITTED, done), Activation(2, loaded(after))], SHARDS)
    assert not verdict.faults
    assert ScriptModel(SHARDS).dump() == []
    assert loaded(after) == loaded(len(verdict.effective[1]))


def without(*numbers: int) -> list[Line]:
    """The load if these operations were lost, and all others took effect."""
    return loaded(99, [line for line in SUBMITTED if line["n"] not in numbers])


def reordered() -> list[Line]:
    """The load if two operations had changed places."""
    lines = SUBMITTED.copy()
    lines[2], lines[3] = lines[3], lines[2]
    return loaded(99, lines)


def back(load: list[Line]) -> list[Line]:
    """With the record that was deleted."""
    return sorted([*load, loaded(2)[1]], key=lambda line: (line["type"] != "record", line.get("id", 0)))


@pytest.mark.parametrize(
    ("load", "done", "failed", "says"),
    [
        (loaded(10), ALL, set(), "ends before operation 11, which was acknowledged"),
        (loaded(7), {8}, set(), "ends before operation 8"),
        (loaded(7), {7}, set(), "ends before operation 8"),
        (loaded(11), set(), {11}, "has operation 11, which was said to have failed"),
        (without(1, 3, 4), ALL, set(), "record 1"),
        (without(3), ALL, set(), "record 1"),
        (without(7), {1}, set(), "record 4"),
        (without(6, 9), {1}, set(), "record 3"),
        (without(9), ALL, set(), "prepared 8"),
        (without(10), ALL, set(), "prepared 8"),
        (reordered(), ALL, set(), "record 1"),
        (reordered(), set(), set(), "record 1"),
        (without(5), ALL, set(), "record 2 (deleted before)"),
        (back(loaded(11)), ALL, set(), "record 2 (deleted before)"),
        (loaded(11) + loaded(11)[-1:], ALL, set(), "an entry twice"),
    ],
    ids=[
        "last-acknowledged-lost",
        "transaction-lost",
        "operation-of-a-transaction-lost",
        "failed-but-there",
        "add-lost",
        "update-lost",
        "half-a-transaction",
        "the-other-half",
        "prepared-without-its-operation",
        "prepared-lost",
        "reordered",
        "reordered-before-any-answer",
        "delete-lost",
        "deleted-came-back",
        "twice",
    ],
)
def test_a_planted_fault_is_caught(load: list[Line], done: set[int], failed: set[int], says: str) -> None:
    found = faults(load, done, failed)
    assert any(says in fault for fault in found), found


def test_a_prepared_transaction_stays_until_it_is_settled() -> None:
    first = Activation(1, [], SUBMITTED, ALL)
    settled = line(20, "commit", tx=8)
    lost = Activation(3, [line for line in loaded(11) if line["type"] == "record"])
    idle = Activation(2, loaded(11))
    assert "prepared 8" in check_history([first, idle, lost], SHARDS).faults[0]
    settling = Activation(2, loaded(11), [settled])
    kept = Activation(3, loaded(99, [*SUBMITTED, settled]))
    assert not check_history([first, settling, kept], SHARDS).faults
    rolled_back = Activation(3, loaded(99, [*SUBMITTED, line(20, "rollback", tx=8)]))
    assert check_history([first, settling, rolled_back], SHARDS).faults


def test_a_rollback_of_what_was_not_prepared_says_nothing_about_what_came_before() -> None:
    lines = [*SUBMITTED, line(12, "add", id=6, tx=9), line(13, "rollback", tx=9)]
    first = Activation(1, [], lines, {1, 13})
    assert not check_history([first, Activation(2, loaded(5))], SHARDS).faults
    assert check_history([first, Activation(2, loaded(0))], SHARDS).faults


def test_one_epoch_is_activated_once() -> None:
    assert check_history([Activation(1, []), Activation(1, [])], SHARDS).faults == ["epoch 1 was activated twice"]


def test_a_history_is_read_up_to_where_a_kill_cut_it_off() -> None:
    lines = [
        {"loaded": [], "epoch": 3},
        {"active": 3},
        SUBMITTED[0],
        SUBMITTED[1],
        {"refused": 2},
        {"done": 1},
        SUBMITTED[2],
        {"failed": 3, "error": "FencedError"},
        SUBMITTED[3],
        {"failed": 4, "error": "OutcomeUnknownError"},
        {"critical": "FencedError"},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"done":'
    kept = [SUBMITTED[0], SUBMITTED[2], SUBMITTED[3]]
    assert parse_history(text) == [Activation(3, [], kept, {1}, {3}, ["FencedError"])]


# ---- order ---------------------------------------------------------------------------------------------------


def wal(*operations: Operation) -> list[Row]:
    frames = [frame(1, marker()), frame(2, *operations)]
    return [(2 * n, 0, None, one.SerializeToString()) for n, one in enumerate(frames)]


def in_shard_1(change: Callable[[list[Operation]], list[Operation]]) -> list[str]:
    """What is wrong with a WAL whose shard 1 was changed."""
    operations = [add(1, b"1"), update(1, b"3"), update(1, b"4"), add(3, b"6"), add(5, b"11")]
    shard_0 = [add(2, b"2"), delete(2), add(4, b"7")]
    evidence = Evidence(JOURNAL, [wal(*shard_0), wal(*change(operations))], [[], []])
    return order_faults(evidence, happenings([SUBMITTED], SHARDS))


def test_what_happened_once_and_in_order_is_accepted() -> None:
    assert in_shard_1(lambda operations: operations) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda operations: operations[:-1],
        lambda operations: [*operations, update(1, b"more")],
        lambda operations: [operations[0], operations[2], operations[1], *operations[3:]],
        lambda operations: [*operations[:2], operations[1], *operations[2:]],
        lambda operations: [*operations, add(1, b"1")],
    ],
    ids=["lost", "invented", "reordered", "twice", "refused"],
)
def test_operations_that_took_effect_in_another_order_are_caught(
    change: Callable[[list[Operation]], list[Operation]],
) -> None:
    assert in_shard_1(change)


def test_a_line_that_a_kill_cut_off_is_not_gone_on_with(tmp_path: Path) -> None:
    history = tmp_path / "history"
    history.write_bytes(b'{"loaded":[],"epoch":1}\n{"n":1,"op":"add"}\n{"do')
    Notes(history).write(loaded=[], epoch=2)
    first, second = parse_history(history.read_text())
    assert ([line["n"] for line in first.submitted], first.done, second.epoch) == ([1], set(), 2)
