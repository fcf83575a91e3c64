"""Names the differences between a shard's fold and what was found: the state of its tables, or the result of a load."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from journal.v1.journal_pb2 import ADD, DELETE, UPDATE
from journal.verify.differences import Differences
from journal.verify.state import (
    MarkState,
    Part,
    Position,
    StagedOperation,
    VerifiedShard,
    describe_data,
    fingerprint,
    shard_of,
    unpack_record,
    unpack_update,
)
from journal.words import counted

_NAMES: dict[int, str] = {ADD: "add", UPDATE: "update", DELETE: "delete"}
_TYPES = {name: kind for kind, name in _NAMES.items()}
_NOWHERE = (0, 0, 0)
"""The position of records in the result of a load, which tells none."""


# ---- with the tables ---------------------------------------------------------------------------------------


def compare_states(expected: VerifiedShard, found: VerifiedShard, differences: Differences) -> None:
    """Compare the fold with the state that the tables hold at the same WAL offset."""
    _compare_marks(expected.mark, found.mark, differences)
    for id, packed in expected.records.items():
        other = found.records.get(id)
        if other is None:
            differences.add("record", f"id {id}", _record(packed), "none")
        elif other != packed:
            differences.add("record", f"id {id}", _record(packed), _record(other))
    for id, packed in found.records.items():
        if id not in expected.records:
            differences.add("record", f"id {id}", "none", _record(packed))
    for id in expected.updates.keys() | found.updates.keys():
        if id in expected.records and id in found.records:
            _compare_updates(id, expected.updates.get(id, []), found.updates.get(id, []), differences)
    for tx in expected.transactions.keys() | found.transactions.keys():
        _compare_parts(tx, expected.transactions.get(tx), found.transactions.get(tx), differences)


def _compare_marks(expected: MarkState, found: MarkState, differences: Differences) -> None:
    for field in fields(MarkState):
        should, has = getattr(expected, field.name), getattr(found, field.name)
        if should != has:
            differences.add("mark", field.name, _plain(should), _plain(has))


def _compare_updates(id: int, expected: list[bytes], found: list[bytes], differences: Differences) -> None:
    if expected == found:
        return
    at = next((i for i, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), None)
    if at is None:
        at = min(len(expected), len(found))
    differences.add("updates", f"id {id}", _update_at(expected, at), _update_at(found, at))


def _compare_parts(tx: int, expected: Part | None, found: Part | None, differences: Differences) -> None:
    if expected is None or found is None:
        differences.add("transaction", f"tx {tx}", _part(expected), _part(found))
        return
    for name in ("epoch", "prepared", "data", "shards", "timestamp", "bytes"):
        should, has = getattr(expected, name), getattr(found, name)
        if should != has:
            differences.add("transaction", f"tx {tx} {name}", _plain(should), _plain(has))
    if expected.staged != found.staged:
        differences.add("staged", f"tx {tx}", *_first_staged(expected.staged, found.staged))


# ---- with what a load gave -----------------------------------------------------------------------------------


def compare_loaded(
    shard: int, shards: int, entries: Iterable[Mapping[str, Any]], differences: Differences, state: VerifiedShard
) -> None:
    """Compare the fold with a load's entries in the form of `dump`, one by one. Entries of other shards are ignored."""
    seen: set[int] = set()
    seen_parts: set[int] = set()
    for entry in entries:
        if entry["type"] == "prepared":
            _compare_prepared(state, shard, shards, entry, seen_parts, differences)
            continue
        id = entry["id"]
        if shard_of(id, shards) != shard:
            continue
        if id in seen:
            differences.add("loaded record", f"id {id}", "once", "again")
        seen.add(id)
        _compare_loaded_record(state, id, entry, differences)
    for id in state.records:
        if id not in seen:
            differences.add("loaded record", f"id {id}", _record(state.records[id]), "none")
    for tx, part in state.transactions.items():
        if part.prepared and tx not in seen_parts:
            differences.add("loaded transaction", f"tx {tx}", _part(part), "none")


def _compare_loaded_record(state: VerifiedShard, id: int, entry: Mapping[str, Any], differences: Differences) -> None:
    packed = state.records.get(id)
    if packed is None:
        differences.add("loaded record", f"id {id}", "none", f"kind {entry['kind']}")
        return
    record = unpack_record(packed)
    should = record.kind, record.data
    has = entry["kind"], _printed(entry["data"])
    if should != has:
        differences.add("loaded record", f"id {id}", _kind_data(should), _kind_data(has))
    updates = [unpack_update(update) for update in state.updates.get(id, [])]
    all_should = [(update.kind, update.data, update.subject) for update in updates]
    all_has = [(update["kind"], _printed(update["data"]), update.get("subject", 0)) for update in entry["updates"]]
    if all_should != all_has:
        texts = (
            [f"{_kind_data((kind, data))}, subject {subject}" for kind, data, subject in side]
            for side in (all_should, all_has)
        )
        differences.add("loaded updates", f"id {id}", *_first_different(*texts))


def _compare_prepared(
    state: VerifiedShard,
    shard: int,
    shards: int,
    entry: Mapping[str, Any],
    seen: set[int],
    differences: Differences,
) -> None:
    tx = entry["tx"]
    here = [one for one in entry["operations"] if shard_of(one["id"], shards) == shard]
    home = shard_of(tx, shards) == shard
    part = state.transactions.get(tx)
    if tx in seen:
        differences.add("loaded transaction", f"tx {tx}", "once", "again")
    seen.add(tx)
    if part is None or not part.prepared:
        if here or home:
            differences.add(
                "loaded transaction", f"tx {tx}", _part(part), f"prepared, {counted(len(here), 'operation')}"
            )
        return
    if home and part.data != _printed(entry["data"]):
        differences.add(
            "loaded transaction", f"tx {tx} data", describe_data(part.data), describe_data(_printed(entry["data"]))
        )
    should = [one._replace(position=_NOWHERE) for one in part.staged]
    has = [
        StagedOperation(
            _TYPES[one["op"]],
            one["id"],
            one.get("kind", 0),
            _printed(one.get("data", "")),
            one.get("replaceable", False),
            one.get("subject", 0),
            _NOWHERE,
        )
        for one in here
    ]
    if should != has:
        differences.add("loaded staged", f"tx {tx}", *_first_staged(should, has))


def _printed(data: str) -> bytes:
    return fingerprint(base64.b64decode(data))


# ---- words ---------------------------------------------------------------------------------------------------


def _plain(value: object) -> str:
    return value.hex() or "empty" if isinstance(value, bytes) else str(value)


def _kind_data(value: tuple[int, bytes]) -> str:
    return f"kind {value[0]}, {describe_data(value[1])}"


def _place(position: Position) -> str:
    return ":".join(map(str, position))


def _record(packed: bytes) -> str:
    record = unpack_record(packed)
    return f"{_kind_data((record.kind, record.data))}, at {_place(record.position)}"


def _update_at(updates: list[bytes], at: int) -> str:
    if at >= len(updates):
        return counted(len(updates), "update")
    update = unpack_update(updates[at])
    replaceable = ", replaceable" if update.replaceable else ""
    what = f"{_kind_data((update.kind, update.data))}, subject {update.subject}{replaceable}"
    return f"{counted(len(updates), 'update')}, [{at}] {what}, at {_place(update.position)}"


def _part(part: Part | None) -> str:
    if part is None:
        return "none"
    return (
        f"{'prepared' if part.prepared else 'unprepared'}, epoch {part.epoch}, {counted(len(part.staged), 'operation')}"
    )


def _first_staged(expected: list[StagedOperation], found: list[StagedOperation]) -> tuple[str, str]:
    return _first_different([_staged(one) for one in expected], [_staged(one) for one in found])


def _staged(one: StagedOperation) -> str:
    replaceable = ", replaceable" if one.replaceable else ""
    what = f"{_NAMES[one.type]} id {one.id} {_kind_data((one.kind, one.data))}"
    return f"{what}, subject {one.subject}{replaceable}, at {_place(one.position)}"


def _first_different(expected: list[str], found: list[str]) -> tuple[str, str]:
    at = 0
    while at < min(len(expected), len(found)) and expected[at] == found[at]:
        at += 1
    sides = []
    for side in (expected, found):
        sides.append(f"{len(side)}, [{at}] {side[at]}" if at < len(side) else str(len(side)))
    return sides[0], sides[1]
