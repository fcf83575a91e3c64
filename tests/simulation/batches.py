"""Calls that are made as one: operations that belong together, and new or deleted records as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from journal.append.operations import AnyOperation, DeletedRecords, NewRecords
from journal.errors import CallerError
from journal.v1.journal_pb2 import ADD, DELETE, UPDATE
from tests.simulation.reference import Call, Reference

_TYPES = {"add": ADD, "update": UPDATE, "delete": DELETE}
_SUBJECTS = 3
_RECORDS_MAX = 4
_VIRTUAL_SHARDS = 1024

Batch = tuple[Sequence[Call], Sequence[AnyOperation]]
"""What it means, and how it is said."""


def refusal_of(reference: Reference, calls: Sequence[Call]) -> type[CallerError] | None:
    """How calls that are made as one must be refused, if so: as the first of them that must be."""
    if len(calls) == 1:
        return reference.refusal(calls[0])
    after = reference.copy()
    for call in calls:
        refusal = after.refusal(call)
        if refusal is not None:
            return refusal
        after.apply(call)
    return None


class Batches:
    """Makes them up."""

    def __init__(self, chance: Random, next_data: Callable[[], bytes]) -> None:
        self._chance = chance
        self._next_data = next_data

    def together(self, calls: Sequence[Call]) -> Batch:
        """Calls outside of transactions."""
        return calls, [(_TYPES[each.verb], *each[1:6]) for each in calls]

    def new_records(self, ids: Sequence[int]) -> Batch:
        """Adds of these, which are of one virtual shard, each with an update that has no data."""
        kind, update_kind, subject = (self._chance.randrange(n) for n in (3, 2, _SUBJECTS))
        data = [self._next_data() for _ in ids]
        calls: list[Call] = []
        for record_id, each in zip(ids, data, strict=True):
            calls += [Call("add", record_id, kind, each), Call("update", record_id, update_kind, subject=subject)]
        return calls, [NewRecords(kind, ids, data, update_kind, subject)]

    def deleted_records(self, ids: Sequence[int]) -> Batch | None:
        """An update and the delete of some of these; None if there are none."""
        if not ids:
            return None
        virtual_shard = self._chance.choice(ids) % _VIRTUAL_SHARDS
        chosen = [each for each in ids if each % _VIRTUAL_SHARDS == virtual_shard][:_RECORDS_MAX]
        kind, subject = self._chance.randrange(2), self._chance.randrange(_SUBJECTS)
        data = self._next_data() if len(chosen) == 1 else b""  # what is in the WAL is found by its data
        calls: list[Call] = []
        for each in chosen:
            calls += [Call("update", each, kind, data, subject=subject), Call("delete", each)]
        return calls, [DeletedRecords(chosen, kind, data, subject)]
