"""Rows as messages, for tests that compare what rows say."""

from __future__ import annotations

from google.protobuf.message import Message

from journal.v1.journal_pb2 import Mark, Record, Skipped, Staged, Transaction, Update, Updates
from journal.wire.keys import RowType, row_type

_MESSAGES: dict[RowType, type[Message]] = {
    RowType.RECORD: Record,
    RowType.UPDATES: Updates,
    RowType.SPILLED: Update,
    RowType.TRANSACTION: Transaction,
    RowType.STAGED: Staged,
    RowType.MARK: Mark,
    RowType.SKIPPED: Skipped,
}


def decode_row(key: bytes, value: bytes) -> Message:
    """The message that a row's value holds; its key says of which type."""
    return _MESSAGES[row_type(key)].FromString(value)
