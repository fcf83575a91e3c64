"""Mutations of sorted frames: how they are sorted, what is made of them, and what becomes of those that are refused."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import journal.fold.sorting
from journal.fold.sorted_frame import SortedFrame, SortedRun
from journal.fold.updates import UpdateTable
from journal.v1.journal_pb2 import COMMIT, Operation
from streams.worker.shard import ShardWorker
from tests.simulation.mutations import Patch, mutation

Runs = list[SortedRun]
Position = Callable[[int], bytes]

# ---- how frames are sorted -----------------------------------------------------------------------------------------


def _resorted(change: Callable[[Runs], Runs]) -> list[Patch]:
    """Runs as they are made, and then changed."""
    with_head = journal.fold.sorting._with_head

    def changed(head: Any, bytes_in_wal: int, nonce: bytes, runs: Runs) -> SortedFrame:
        return with_head(head, bytes_in_wal, nonce, change(runs))

    return [(journal.fold.sorting, "_with_head", changed)]


def _joined(runs: Runs) -> SortedRun:
    """One run of several."""
    added, updated, deleted = array("q"), array("q"), array("q")
    for run in runs:
        added.extend(array("q", run.added))
        updated.extend(array("q", run.updated))
        deleted.extend(array("q", run.deleted))
    added_rows, updated_rows, others = ([*chain.from_iterable(run[place] for run in runs)] for place in (1, 3, 5))
    return SortedRun(added, added_rows, updated, updated_rows, deleted, others)


def _joined_where(runs: Runs, behind_a_commit: bool) -> Runs:
    """Runs joined to the one before: those behind a COMMIT, or those that are not."""
    parts: list[Runs] = [[]]
    for run in runs:
        before = parts[-1][-1] if parts[-1] else None
        if before is not None and _ends_with_commit(before) is not behind_a_commit:
            parts.append([])
        parts[-1].append(run)
    return [_joined(part) for part in parts]


def _ends_with_commit(run: SortedRun) -> bool:
    return bool(run.others) and Operation.FromString(run.others[-1][1]).type == COMMIT


@mutation
def runs_go_on_behind_a_commit() -> list[Patch]:
    """What follows a COMMIT is in its run, and so may be applied before it."""
    return _resorted(lambda runs: _joined_where(runs, behind_a_commit=True))


@mutation
def a_record_twice_in_a_run() -> list[Patch]:
    """Only a COMMIT ends a run, so that two operations on one record may change places."""
    return _resorted(lambda runs: _joined_where(runs, behind_a_commit=False))


@mutation
def commit_comes_first_in_its_run() -> list[Patch]:
    """What a COMMIT settles takes effect before the plain operations in front of it."""

    def apart(runs: Runs) -> Runs:
        return [part for run in runs for part in (_joined([])._replace(others=run.others), run._replace(others=[]))]

    return _resorted(apart)


@mutation
def sorted_rows_count_from_their_run() -> list[Patch]:
    """The position in a sorted row is the operation's in its run, not in its frame."""
    runs = journal.fold.sorting._runs

    def counting(operations: Iterable[Operation], position: Position) -> Runs:
        counted: Runs = []
        rest = list(operations)
        for run in runs(rest, position):
            size = len(run.added) + len(run.updated) + len(run.deleted) + len(run.others)
            counted += runs(rest[:size], position)
            del rest[:size]
        return counted

    return [(journal.fold.sorting, "_runs", counting)]


@mutation
def sorted_replaceable_updates_pile_up() -> list[Patch]:
    """A replaceable update in a sorted frame is kept beside the one that it replaces."""

    runs = journal.fold.sorting._runs

    def appending(operations: Iterable[Operation], position: Position) -> Runs:
        found = runs(operations, position)
        for run in found:
            for index, raw in run.others:
                op = Operation.FromString(raw)
                if not op.tx:
                    assert isinstance(run.updated, array)
                    run.updated.append(op.id)
                    run.updated_rows.append(raw + position(index))
            run.others[:] = [other for other in run.others if Operation.FromString(other[1]).tx]
        return found

    return [(journal.fold.sorting, "_runs", appending)]


@mutation
def sorted_frame_issues_nothing() -> list[Patch]:
    """A sorted frame does not say which ids were issued."""

    def forgetting(*frame: Any) -> SortedFrame:
        return SortedFrame(*frame)._replace(issued=0)

    return [(journal.fold.sorting, "SortedFrame", forgetting)]


# ---- what is made of them ------------------------------------------------------------------------------------------


@mutation
def update_forgets_those_before() -> list[Patch]:
    """An update that is not replaceable is taken for its record's first one."""
    put = UpdateTable.put

    def putting(self: Any, record_id: int, value: bytes, fresh: bool, replaced: Any = None) -> int:
        return put(self, record_id, value, fresh or replaced is None, replaced)

    return [(UpdateTable, "put", putting)]


@mutation
def what_is_refused_does_not_come_again() -> list[Patch]:
    """A sorted frame that is wanted unsorted is passed over."""
    take = ShardWorker.take

    def taking(self: Any, records: Any) -> int | None:
        rest = take(self, records)
        sorted_at = {offset for offset, _, value in records if isinstance(value, SortedFrame)}
        return None if self.wants_unsorted and rest in sorted_at else rest

    return [(ShardWorker, "take", taking)]
