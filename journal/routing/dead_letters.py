"""Refusals of messages and records, and the dead letters that say what was refused and why."""

from __future__ import annotations

from collections.abc import Sequence

from journal.routing.headers import ERROR_PREFIX
from journal.routing.outcomes import (
    Header,
    OnError,
    OutgoingRecord,
    PartitionRule,
    Reason,
    RouteRefusal,
    UnfitError,
)
from journal.routing.partitions import MURMUR2

_RULE = PartitionRule(MURMUR2)


def refusal(
    error: UnfitError,
    *,
    route: str,
    topic: str,
    message: int,
    on_error: OnError,
    dead_letter_topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header],
    bytes_max: int,
) -> RouteRefusal:
    """The refusal of a message or record under its policy. A dead letter that is too large for its topic is sent
    without its value, and without its headers if it is still too large."""
    if error.reason is Reason.RETURNED:  # the comparison by identity is intended
        on_error = OnError.SKIP
    if on_error is not OnError.DEAD_LETTER:
        return RouteRefusal(route, topic, message, error.reason, error.detail, on_error)
    why: list[Header] = [
        (ERROR_PREFIX + "reason", error.reason.value.encode()),
        (ERROR_PREFIX + "detail", error.detail.encode(errors="replace")),
        (ERROR_PREFIX + "route", route.encode()),
        (ERROR_PREFIX + "topic", topic.encode(errors="replace")),
    ]
    kept: Sequence[Header] = [*headers, *why]
    if record_bytes(key, value, kept) > bytes_max:
        value = None
        kept = [*kept, (ERROR_PREFIX + "without", b"value")]
    if record_bytes(key, value, kept) > bytes_max:
        key, kept = None, [*why, (ERROR_PREFIX + "without", b"value, key, headers")]
    letter = OutgoingRecord(route, dead_letter_topic, key, value, kept, _RULE, message)
    return RouteRefusal(route, topic, message, error.reason, error.detail, on_error, letter)


RECORD_OVERHEAD_BYTES = 128
"""An upper bound for the bytes of a record besides key, value and headers: a batch with one record, and the record's
length fields."""

_HEADER_OVERHEAD_BYTES = 10


def record_bytes(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """The bytes of a record that count against its topic's max.message.bytes; the estimate may be a few bytes too
    high."""
    size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += len(name.encode()) + len(content or b"") + _HEADER_OVERHEAD_BYTES
    return size
