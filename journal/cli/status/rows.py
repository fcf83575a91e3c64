"""How many rows each shard has in the tables, and how many transactions are staged in it. Marks do not contain all of
these numbers.

The rows are counted in the command's own copy of the tables, so workers and nodes have no work with it. By default they
are counted only if there is little to read, so that `status` answers soon.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from google.protobuf.message import DecodeError

from journal.cli.reading import LOAD_TIMEOUT_S, caught_up_copy
from journal.config import Settings
from journal.errors import CorruptionError, OperatingError, RowError
from journal.fold.rows import Base
from journal.kafka.ports import Kafka
from journal.process.progress import Progress
from journal.topics.control_rows import ControlRows
from journal.topics.names import table_topic
from journal.v1.journal_pb2 import Mark, Transaction
from journal.wire.keys import (
    MARK_PREFIX,
    RECORD_TAG,
    SKIPPED_PREFIX,
    STAGED_PREFIX,
    TRANSACTION_PREFIX,
    shard_of_row,
)
from journal.words import counted

UNASKED_OFFSETS_MAX = 100_000
"""`status` reads and counts this much without being asked; it takes some tenths of a second."""
_UNASKED_S = 5.0
"""By default, the tables are followed for this long at most."""
_PROGRESS_ROWS = 4096


class ShardRows(NamedTuple):
    """The rows of one shard's tables at a WAL offset."""

    offset: int
    rows: int
    staged_transactions: int
    """Transactions with a part in this shard that is not prepared."""


@dataclass(frozen=True, slots=True)
class CountedRows:
    """The rows by shard, or why there are none."""

    shards: Mapping[int, ShardRows] = field(default_factory=dict)
    missing: str = ""


NOT_WANTED = CountedRows()
"""The value when nobody asked for rows, so that no reason is shown."""


def counted_rows(
    kafka: Kafka, settings: Settings, control: ControlRows, wanted: bool | None, progress: Progress
) -> CountedRows:
    """The numbers of rows now, if they are `wanted`. With None they are counted if that is cheap, and an error only
    becomes the reason for their absence. If they are wanted and cannot be counted, this raises OperatingError and
    CorruptionError."""
    if wanted is False:
        return NOT_WANTED
    if wanted:
        return _counted(kafka, settings, control, progress, LOAD_TIMEOUT_S)
    try:
        offsets = _table_offsets(kafka, settings, control)
        if offsets > UNASKED_OFFSETS_MAX:
            return CountedRows(missing=f"the tables have {counted(offsets, 'offset')}: --rows counts them")
        return _counted(kafka, settings, control, progress, _UNASKED_S)
    except (OperatingError, CorruptionError) as error:
        return CountedRows(missing=str(error))


def _table_offsets(kafka: Kafka, settings: Settings, control: ControlRows) -> int:
    """An upper bound for the number of rows to read."""
    shards = range(control.require_identity(settings.journal).shards)
    reader = kafka.reader(table_topic(settings.journal))
    try:
        bounds = reader.bounds(shards, settings.request_timeout_ms / 1000)
    finally:
        reader.close()
    return sum(end - start for start, end in bounds.values())


def _counted(
    kafka: Kafka, settings: Settings, control: ControlRows, progress: Progress, timeout_s: float
) -> CountedRows:
    with caught_up_copy(settings, kafka, control, progress=progress, timeout_s=timeout_s) as (replica, store):
        return CountedRows(count_rows(store, replica.marks(), progress))


def count_rows(tables: Base, marks: Mapping[int, Mark], progress: Progress) -> dict[int, ShardRows]:
    """The rows of each shard in `tables`, which stand at `marks`. Raises RowError."""
    shards = len(marks)
    rows, staged = Counter[int](), Counter[int]()
    for key, value in tables.scan(TRANSACTION_PREFIX):
        staged[shard_of_row(key, shards)] += not _part(key, value).prepared
    total = sum(mark.records for mark in marks.values())
    prefixes = (RECORD_TAG, TRANSACTION_PREFIX, STAGED_PREFIX, MARK_PREFIX, SKIPPED_PREFIX)
    keys = (key for prefix in prefixes for key, _ in tables.scan(prefix))
    for done, key in enumerate(keys):
        rows[shard_of_row(key, shards)] += 1
        if done % _PROGRESS_ROWS == 0:
            progress("rows", done, max(done, total))
    return {shard: ShardRows(mark.offset, rows[shard], staged[shard]) for shard, mark in marks.items()}


def _part(key: bytes, value: bytes) -> Transaction:
    try:
        return Transaction.FromString(value)
    except DecodeError as error:
        raise RowError(f"the row of key {key.hex()} does not parse: {error}") from None
