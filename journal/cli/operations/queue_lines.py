"""Queues and messages in the form in which `--json` prints them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from journal.cli.operations.ports import Json
from journal.cli.script import encode_data
from journal.cli.text import printable
from journal.store.model import Message, ReferenceInfo, ReferenceState, Value
from journal.store.operations.look import QueueInfo
from journal.store.queues.counters import HolderInfo, QueueCounts
from journal.store.queues.entry import BindingEntry, MessageEntry, QueueEntry
from journal.words import counted


def queue_line(
    entry: QueueEntry | QueueInfo,
    bindings: Iterable[BindingEntry],
    holders: Mapping[str, int],
    oldest_away: int,
    now_ms: float,
    counts: QueueCounts | None = None,
    holding: Iterable[HolderInfo] = (),
) -> Json:
    """A queue as `--json` prints it. `depth` counts all of its messages, but not those that a transaction in doubt
    would add. `oldest_away` is the lowest timestamp of its messages that are held, locked or scheduled; 0 if there is
    none. `counts` and `holding` are known of a working store only."""
    config = entry.config
    oldest = min((timestamp for timestamp in (entry.oldest, oldest_away) if timestamp), default=0)
    return {
        "queue": config.name,
        "id": entry.record_id,
        "address": config.address,
        "routing": config.routing.name.lower(),
        "client_id": config.client_id,
        "subscription": config.subscription,
        "filter": config.filter,
        "exclusive": config.exclusive,
        "deliveries_max": config.deliveries_max,
        "dead_letter_address": config.dead_letter_address,
        "expiry_address": config.expiry_address,
        "paused": config.paused,
        "bindings": [{"key": each.key, "filter": each.filter} for each in bindings],
        "depth": depth_of(entry),
        "bytes": entry.bytes,
        "ready": entry.ready,
        "held": entry.held,
        "locked": entry.locked,
        "scheduled": entry.scheduled,
        "in_doubt": entry.arriving,
        "holders": dict(holders),
        "holders_acted": {each.holder: each.acted_ms for each in holding},
        "since_activation": counts and counts._asdict(),
        "oldest_age_seconds": age_s(oldest, now_ms),
    }


def depth_of(entry: QueueEntry | QueueInfo) -> int:
    """Number of messages in a queue."""
    return entry.ready + entry.held + entry.locked + entry.scheduled


_WAITING = (ReferenceState.READY, ReferenceState.SCHEDULED)


def message_line(info: ReferenceInfo, entry: MessageEntry, message: Message, now_ms: float) -> Json:
    """A message in a queue as `--json` prints it. An `expired` message is held by nobody and will be delivered to
    nobody. Times are milliseconds since 1970, 0 for none; bytes are base64."""
    has_expired = info.state in _WAITING and 0 < entry.expires <= now_ms
    return {
        "id": info.message,
        "state": "expired" if has_expired else info.state.value,
        "priority": info.priority,
        "bytes": entry.size,
        "age_seconds": age_s(entry.timestamp, now_ms),
        "timestamp": entry.timestamp,
        "expires": entry.expires,
        "due": info.due,
        "deliveries": info.deliveries,
        "holder": info.holder,
        "tx": info.tx,
        "headers": shown_values(message.headers),
        "properties": shown_values(message.properties),
        "origin": message.origin and message.origin._asdict(),
        "body": None if entry.chunks else encode_data(message.body),
        "text": f"in {counted(len(entry.chunks), 'chunk')}" if entry.chunks else printable(message.body),
    }


def shown_values(values: Mapping[str, Value]) -> dict[str, object]:
    """Headers or properties as JSON has them: bytes in base64, and numbers that JSON cannot write (NaN, infinities) as
    text."""
    return {name: _shown(value) for name, value in values.items()}


def _shown(value: Value) -> object:
    if isinstance(value, bytes):
        return encode_data(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def age_s(timestamp: int, now_ms: float) -> float | None:
    """Seconds since a time; None if the time is not known."""
    return round(max(0.0, now_ms - timestamp) / 1000, 3) if timestamp else None
