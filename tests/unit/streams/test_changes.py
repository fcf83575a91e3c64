"""What an agent is told of a checkpoint, and the state that it keeps."""

from __future__ import annotations

import pytest

from journal.errors import InvalidOperationError
from journal.fold.engine import Fold
from journal.v1.journal_pb2 import Mark, Operation
from journal.wire.keys import record_key
from streams.agents.changes import STATE_PREFIX, AgentState, Changes, LiveRecord, all_records
from tests.support.build import DictBase, add, commit, delete, frame, marker, prepare, replace, update


class Shard:
    """A shard's table, and the changes of its next checkpoint."""

    def __init__(self, updates_row_bytes_max: int = 4096) -> None:
        self.base = DictBase()
        self._fold = Fold(Mark(offset=-1), self.base, updates_row_bytes_max=updates_row_bytes_max)
        self._number = 0
        self.checkpoint(marker())

    def changes(self, *operations: Operation, first: bool = False) -> Changes:
        self._number += 1
        self._fold.apply(self._number, 0, frame(self._number, *operations))
        changed = dict(self._fold.changes())
        return Changes(0, self._fold.mark, self.base, changed, AgentState(self.base), now_ms=0, first=first)

    def checkpoint(self, *operations: Operation) -> None:
        self.changes(*operations)
        self.base.write(self._fold.changes())
        self._fold.checkpointed()


def data_of(record: LiveRecord | None) -> tuple[bytes, ...] | None:
    """A record's data, and that of its updates."""
    return None if record is None else (record.data, *(update.data for update in record.updates))


def told(changes: Changes) -> list[tuple[int, object, object]]:
    return [(change.id, data_of(change.old), data_of(change.new)) for change in changes.records()]


def test_a_record_is_told_whole_as_it_was_and_as_it_is() -> None:
    shard = Shard()
    shard.checkpoint(add(1, b"a"), add(2, b"b"), update(2, b"x"), add(3, b"c"))
    changes = shard.changes(update(1, b"u"), delete(2), add(4, b"d"), add(5, b"short"), delete(5))
    assert sorted(told(changes)) == [(1, (b"a",), (b"a", b"u")), (2, (b"b", b"x"), None), (4, None, (b"d",))]


def test_a_record_that_was_deleted_and_added_again_is_told_once() -> None:
    shard = Shard()
    shard.checkpoint(add(1, b"a"), update(1, b"x"))
    assert told(shard.changes(delete(1), add(1, b"b"))) == [(1, (b"a", b"x"), (b"b",))]


def test_updates_that_have_rows_of_their_own_are_told_with_their_record() -> None:
    shard = Shard(updates_row_bytes_max=60)
    shard.checkpoint(add(1, b"a"), *(update(1, b"%d" % n * 20) for n in range(4)), replace(1, b"r", kind=9))
    before = (b"a", *(b"%d" % n * 20 for n in range(4)), b"r")
    changes = shard.changes(update(1, b"new"), replace(1, b"s", kind=9))
    assert told(changes) == [(1, before, (*before[:-1], b"new", b"s"))]
    assert [data_of(record) for record in all_records(shard.base)] == [before]


def test_a_row_that_is_as_it_was_is_not_told_and_neither_is_the_mark() -> None:
    shard = Shard()
    shard.checkpoint(add(1, b"a"))
    changes = shard.changes(add(1, b"refused"))
    assert list(changes.rows()) == []


def test_transactions_in_doubt_are_told_as_rows_and_records_when_they_commit() -> None:
    shard = Shard()
    prepared = shard.changes(add(1, b"a", tx=9), prepare(9, 1))
    assert told(prepared) == []
    assert {row.key[:1] for row in prepared.rows()} == {b"t", b"x"}
    assert told(shard.changes(commit(9, 1))) == [(1, None, (b"a",))]


def test_the_first_telling_has_all_that_is_there_and_nothing_of_the_agents_own() -> None:
    shard = Shard()
    shard.checkpoint(add(1, b"a"), update(1, b"x"), add(2, b"b"))
    shard.base.write([(STATE_PREFIX + b"r", b"mine")])
    changes = Changes(0, Mark(), shard.base, {}, AgentState(shard.base), now_ms=0, first=True)
    assert told(changes) == [(1, None, (b"a", b"x")), (2, None, (b"b",))]
    assert all(row.old is None and row.key[:1] == b"r" for row in changes.rows())


def test_a_record_can_be_looked_up_as_it_is_now() -> None:
    shard = Shard()
    shard.checkpoint(add(1, b"a"), add(2, b"b"))
    changes = shard.changes(delete(1), update(2, b"u"))
    assert changes.record(1) is None
    assert data_of(changes.record(2)) == (b"b", b"u")


# ---- state ---------------------------------------------------------------------------------------------------------


def test_a_state_shows_what_was_written_over_what_was_there() -> None:
    base = DictBase({STATE_PREFIX + key: b"old" for key in (b"a1", b"a2", b"a3", b"b1")} | {record_key(1): b""})
    state = AgentState(base)
    state.put(b"a2", b"new")
    state.put(b"a0", b"new")
    state.delete(b"a3")
    assert list(state.scan(b"a")) == [(b"a0", b"new"), (b"a1", b"old"), (b"a2", b"new")]
    assert [key for key, _ in state.scan()] == [b"a0", b"a1", b"a2", b"b1"]
    assert (state.get(b"a3"), state.get(b"b1"), state.get(b"none")) == (None, b"old", None)
    state.delete(b"never there")
    assert state.written == {b"a2": b"new", b"a0": b"new", b"a3": None}


def test_a_scan_is_not_disturbed_by_what_is_written_meanwhile() -> None:
    state = AgentState(DictBase({STATE_PREFIX + b"%d" % n: b"" for n in range(3)}))
    for key, _ in state.scan():
        state.delete(key)
        state.put(b"9" + key, b"")
    assert [key for key, _ in state.scan()] == [b"90", b"91", b"92"]


@pytest.mark.parametrize(("key", "value"), [("text", b""), (b"key", "text"), (b"key", None)])
def test_a_state_takes_bytes_only(key: bytes, value: bytes) -> None:
    with pytest.raises(InvalidOperationError, match="are bytes"):
        AgentState(DictBase()).put(key, value)
