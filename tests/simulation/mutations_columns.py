"""Mutations of frames in columns: how the writer orders operations, and what the fold makes of runs."""

from __future__ import annotations

from typing import Any

import journal.fold.engine
from journal.append.group import Group
from journal.append.operations import Append
from journal.fold.engine import Fold
from journal.fold.updates import UpdateTable
from journal.v1.journal_pb2 import ADD, COMMIT, UPDATE
from journal.wire.frames import Frame, FrameRun
from journal.wire.operations import FrameOperations
from tests.simulation.mutations import Patch, mutation

# ---- how the writer orders operations ------------------------------------------------------------------------------


@mutation
def frames_go_on_behind_a_commit() -> list[Patch]:
    """An operation behind a COMMIT is put into the COMMIT's frame, and so comes before it."""
    put_append = Group.put_append

    def putting(self: Any, op: Append) -> None:
        put_append(self, op)
        if op.type == COMMIT:
            self._room[op.shard] = max(self._room[op.shard], self._room_behind_commit[op.shard])

    return [(Group, "put_append", putting)]


@mutation
def updates_come_in_reverse() -> list[Patch]:
    """The updates of a frame change places, so that what was replaced last is not what stays."""
    columns = FrameOperations.columns

    def turned(self: Any) -> list[bytes]:
        updates = [self.updates[at : at + 5] for at in range(0, len(self.updates), 5)]
        self.updates = [value for each in reversed(updates) for value in each]
        return columns(self)

    return [(FrameOperations, "columns", turned)]


# ---- what the fold makes of runs -----------------------------------------------------------------------------------


@mutation
def rows_count_from_their_run() -> list[Patch]:
    """The position in an update's row is the operation's in its run, not in its frame."""
    update_rows = journal.fold.engine.update_rows

    def counting(frame: Frame, begin: int, end: int, offset: int) -> list[bytes]:
        from journal.wire.rows import row_of

        rows = update_rows(frame, begin, end, offset)
        return [row_of(frame.operation(begin + n), offset, n, 0) for n in range(len(rows))]

    return [(journal.fold.engine, "update_rows", counting)]


@mutation
def replaceable_updates_in_runs_pile_up() -> list[Patch]:
    """A replaceable update is kept beside the one that it replaces."""
    each = Fold._apply_each

    def piling_up(self: Any, offset: int, frame: Frame, run: FrameRun) -> int:
        if run.rank != UPDATE:
            return each(self, offset, frame, run)
        before, frame.replaceable = frame.replaceable, b""
        try:
            return each(self, offset, frame, run)
        finally:
            frame.replaceable = before

    return [(Fold, "_apply_each", piling_up)]


@mutation
def frame_issues_nothing() -> list[Patch]:
    """A frame does not say which ids were issued."""
    apply = Fold.apply

    def forgetting(self: Any, offset: int, timestamp: int, frame: Frame) -> bool:
        frame.issued = 0
        return apply(self, offset, timestamp, frame)

    return [(Fold, "apply", forgetting)]


@mutation
def staged_operations_take_effect_at_once() -> list[Patch]:
    """Adds of a transaction are taken for adds outside of it."""
    runs = Frame.runs

    def plain(self: Any) -> Any:
        return (FrameRun(ADD, *run[1:]) if set(self.types[run.begin : run.end]) == {ADD} else run for run in runs(self))

    return [(Frame, "runs", plain)]


@mutation
def update_forgets_those_before() -> list[Patch]:
    """An update that is not replaceable is taken for its record's first one."""
    put = UpdateTable.put

    def putting(self: Any, record_id: int, value: bytes, fresh: bool, replaced: Any = None) -> int:
        return put(self, record_id, value, fresh or replaced is None, replaced)

    return [(UpdateTable, "put", putting)]
