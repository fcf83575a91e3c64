"""What an `on_change` agent is called with: the rows that a checkpoint changed, as they were and as they are, and the
agent's own state.

Pure. A `Changes` reads the agent's copy of the table from before the checkpoint. What the agent writes into its state
is kept apart from the copy until both are committed together.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from journal.errors import InvalidOperationError
from journal.fold.rows import Base
from journal.load.loading import LoadedUpdate, one_record
from journal.v1.journal_pb2 import Mark
from journal.wire.keys import RECORD_KEY_BYTES, RECORD_TAG, record_id_of, record_key, updates_key
from journal.wire.rows import updates_in

STATE_PREFIX = b"\xff"
"""The prefix of an agent's own keys, which sort behind all rows of its copy."""


_MARK_TAG = b"m"


class RowChange(NamedTuple):
    """A row of the table before and after the change; None if it did not exist, or does not exist any more."""

    key: bytes
    old: bytes | None
    new: bytes | None


class LiveRecord(NamedTuple):
    """A record with its updates in order, as a loader is told it."""

    id: int
    kind: int
    data: bytes
    updates: Sequence[LoadedUpdate]
    position: tuple[int, int, int]


class RecordChange(NamedTuple):
    """A record with changed rows, as a whole before and after the change; None if it did not exist, or does not exist
    any more."""

    id: int
    old: LiveRecord | None
    new: LiveRecord | None


class AgentState:
    """An agent's own keys and values, separate for each shard. They are written together with the agent's outputs, or
    not at all."""

    def __init__(self, base: Base) -> None:
        self._base = base
        self.written: dict[bytes, bytes | None] = {}
        """Values written since the last commit, by key; None for a deleted value."""

    def get(self, key: bytes) -> bytes | None:
        if key in self.written:
            return self.written[key]
        return self._base.get(STATE_PREFIX + key)

    def put(self, key: bytes, value: bytes) -> None:
        """Store a value. Raises InvalidOperationError if it is not bytes."""
        if not isinstance(key, bytes) or not isinstance(value, bytes):
            raise InvalidOperationError(f"a state's keys and values are bytes: {key!r}, {value!r}")
        self.written[key] = value

    def delete(self, key: bytes) -> None:
        """Delete a value, if it exists."""
        if key in self.written or self._base.get(STATE_PREFIX + key) is not None:
            self.written[key] = None

    def scan(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Keys that begin with `prefix`, with their values, in the order of the keys, as they are at the call."""
        size = len(STATE_PREFIX)
        there = ((key[size:], value) for key, value in self._base.scan(STATE_PREFIX + prefix))
        return _merged(there, self.written, prefix)


class Changes:
    """What changed in one shard, up to a mark. An agent may be told the same changes several times; (`shard`,
    `mark.offset`) then stays the same."""

    def __init__(
        self,
        shard: int,
        mark: Mark,
        base: Base,
        changed: Mapping[bytes, bytes | None],
        state: AgentState,
        *,
        now_ms: int,
        first: bool = False,
        old_known: bool = True,
    ) -> None:
        """`base` has the table's rows before the change, `changed` the rows written since."""
        self.shard = shard
        self.mark = mark
        self.state = state
        self.now_ms = now_ms
        """When the agent is called, in ms since 1970."""
        self.first = first
        """Whether all rows are told, because the agent knows nothing or must forget all. Its state is then empty."""
        self.old_known = old_known
        """False if the agent was away for longer than the topic keeps overwritten rows, and has lost its copy. The old
        form of a row or record may then be None although it existed."""
        self._base = base
        self._changed = changed

    def rows(self) -> Iterator[RowChange]:
        """Every row that has changed, except the mark."""
        if self.first:
            for prefix in (b"r", b"s", b"t", b"x"):
                yield from (RowChange(key, None, value) for key, value in self._base.scan(prefix))
            return
        for key, new in self._changed.items():
            old = self._base.get(key)
            if old != new and key[:1] != _MARK_TAG:
                yield RowChange(key, old, new)

    def records(self) -> Iterator[RecordChange]:
        """Every record with a changed row, as a whole before and after the change."""
        if self.first:
            yield from (RecordChange(record.id, None, record) for record in all_records(self._base))
            return
        seen: set[int] = set()
        now = Overlaid(self._base, self._changed)
        for row in self.rows():
            if row.key[:1] == RECORD_TAG and (record_id := record_id_of(row.key)) not in seen:
                seen.add(record_id)
                yield RecordChange(record_id, record_in(self._base, record_id), record_in(now, record_id))

    def record(self, record_id: int) -> LiveRecord | None:
        """A record of this shard in its present form, whether it has changed or not."""
        return record_in(Overlaid(self._base, self._changed), record_id)


def _merged(
    there: Iterable[tuple[bytes, bytes]], written: Mapping[bytes, bytes | None], prefix: bytes
) -> Iterator[tuple[bytes, bytes]]:
    """Rows whose keys begin with `prefix`, in key order, with the rows written since."""
    own = sorted(item for item in written.items() if item[0].startswith(prefix))
    hidden = {key for key, _ in own}
    kept = (item for item in there if item[0] not in hidden)
    return heapq.merge(kept, ((key, value) for key, value in own if value is not None))


class Overlaid:
    """A base together with the rows written since."""

    def __init__(self, base: Base, changed: Mapping[bytes, bytes | None]) -> None:
        self._base = base
        self._changed = changed

    def get(self, key: bytes) -> bytes | None:
        return self._changed[key] if key in self._changed else self._base.get(key)

    def scan(self, prefix: bytes) -> Iterable[tuple[bytes, bytes]]:
        return _merged(self._base.scan(prefix), self._changed, prefix)


def record_in(base: Base, record_id: int) -> LiveRecord | None:
    """A record with its updates. Spilled updates are looked for only if the record has some."""
    key = record_key(record_id)
    row = base.get(key)
    if row is None:
        return None
    head_key = updates_key(record_id)
    head = base.get(head_key)
    if head is None:
        return LiveRecord(*one_record(row, ()))
    if updates_in(head)[1]:
        return LiveRecord(*one_record(row, [each for each in base.scan(key) if len(each[0]) > RECORD_KEY_BYTES]))
    return LiveRecord(*one_record(row, [(head_key, head)]))


def all_records(base: Base) -> Iterator[LiveRecord]:
    """All records, in the order of their ids."""
    row: bytes | None = None
    updates: list[tuple[bytes, bytes]] = []
    for key, value in base.scan(RECORD_TAG):
        if len(key) > RECORD_KEY_BYTES:
            updates.append((key, value))
            continue
        if row is not None:
            yield LiveRecord(*one_record(row, updates))
        row, updates = value, []
    if row is not None:
        yield LiveRecord(*one_record(row, updates))
