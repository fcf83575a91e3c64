"""A message that is in a journal, for `routes test --id`: as the tables and the WAL behind them have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from journal.cli.common import PROGRESS_AFTER_S, StepProgress
from journal.cli.reading import loaded_snapshot, opened_journal
from journal.config import Settings
from journal.engine import Base
from journal.errors import InvalidOperationError, RecordMissingError
from journal.routing.router import Body
from journal.v1.journal_pb2 import Record
from journal.v1.store_pb2 import MESSAGE
from journal.wire.keys import record_key
from streams.divert.targets import Targets, fixed_topics


class LiveMessage(NamedTuple):
    """The data of a MESSAGE record, what reads its large body, and the targets' limits as the cluster has them."""

    data: bytes
    body: Body
    bytes_max: Mapping[str, int]


@contextmanager
def live_message(settings: Settings, message_id: int) -> Iterator[LiveMessage]:
    """At the WAL's committed end, needing no worker and disturbing nobody.

    Raises RecordMissingError if no record of that id lives, InvalidOperationError for one that is no message.
    """
    with (
        opened_journal(settings) as (kafka, rows),
        StepProgress(after_s=PROGRESS_AFTER_S) as progress,
        loaded_snapshot(settings, kafka, rows, now=True, progress=progress) as state,
    ):
        progress.hide()
        targets = Targets(kafka, settings)
        targets.look_up(fixed_topics(settings.routing))
        record = _record(state.base, message_id)
        if record is None:
            raise RecordMissingError(
                f"no message {message_id} lives in journal {settings.journal}; of one that was deleted "
                f"`kafka-journal routes replay ROUTE --ids {message_id} --dry-run` tells"
            )
        if record.kind != MESSAGE:
            raise InvalidOperationError(f"record {message_id} is no message: kafka-journal explain {message_id}")

        def body(chunks: Sequence[int]) -> bytes | None:
            parts = [_record(state.base, chunk) for chunk in chunks]
            return b"".join(part.data for part in parts if part is not None) if None not in parts else None

        yield LiveMessage(record.data, body, targets.bytes_max)


def _record(base: Base, record_id: int) -> Record | None:
    row = base.get(record_key(record_id))
    return None if row is None else Record.FromString(row)
