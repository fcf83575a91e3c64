"""Reads one message from a working store."""

from __future__ import annotations

from journal.cli.operations.ports import MessageRead
from journal.errors import MessageMissingError, RecordMissingError
from journal.process.commands import command
from journal.store.message_records import encode_message
from journal.store.store import MessageStore
from journal.words import called


def read_message(store: MessageStore, message_id: int, journal: str) -> MessageRead:
    """The message, read from the local copy. Raises RecordMissingError."""
    try:
        entry = store.describe(message_id)
        if not entry.durable:
            raise RecordMissingError(f"message {message_id} is not durable: it is in no journal, and no route sends it")
        message = store.message(message_id, body=False)
        pieces = iter(store.body_stream(message_id)) if entry.chunks else iter(())
    except MessageMissingError as error:
        raise missing_message(message_id, journal) from error
    return MessageRead(encode_message(message), bool(entry.chunks), pieces)


def missing_message(message_id: int, journal: str) -> RecordMissingError:
    """The error for a missing message, which says where to look."""
    look = command("routes replay", "ROUTE", "--ids", message_id, "--dry-run", journal=journal)
    return RecordMissingError(
        f"no message {message_id} lives in {called(journal)}; of one that was deleted `{look}` tells"
    )
