"""`kafka-journal queues` and `messages`: what is in a message store, from a read-only load that consumes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from journal.cli.common import Chosen, JsonOption, errors, journal_command, print_json, print_table
from journal.cli.store import find_queue, loaded_queues
from journal.cli.text import duration, printable
from journal.engine import Base
from journal.runtime import wall_ms
from journal.script import encode_data
from journal.store.loaded import LoadedStore
from journal.store.model import Message, ReferenceInfo, Value
from journal.store.queue_entry import MessageEntry, QueueEntry
from journal.store.queue_state import QueueState
from journal.store.records import decode_message
from journal.v1.journal_pb2 import Record
from journal.wire.keys import record_key

_PROGRESS_MESSAGES = 256
_DEFAULT_LIMIT = 100


# ---- queues ------------------------------------------------------------------------------------------------


@journal_command
def queues(chosen: Chosen, as_json: JsonOption = False) -> None:
    """The queues, and what is in them: depth, bytes, what is held and by whom, what is scheduled, the oldest.

    As of the WAL's committed end. Needs no worker and disturbs nobody.
    """
    settings = chosen.settings()
    with loaded_queues(settings) as (loaded, _, _progress):
        found = queue_lines(loaded.state, wall_ms())
    if as_json:
        print_json(found)
    elif not found:
        typer.echo(f"journal {settings.journal} has no queues: kafka-journal send --create makes one, to try it out")
    else:
        print_table(f"queues of journal {settings.journal}", _QUEUE_COLUMNS, [_queue_row(line) for line in found])
    _say_of_orphans(loaded)


def queue_lines(state: QueueState, now_ms: float) -> list[dict[str, Any]]:
    """Queues as `--json` prints them, by name. `depth` counts all messages but those that transactions still add."""
    holders: dict[int, dict[str, int]] = {}
    oldest_held: dict[int, int] = {}
    for holder in state.holders():
        for message, queue in state.held_by(holder):
            counts = holders.setdefault(queue, {})
            counts[holder] = counts.get(holder, 0) + 1
            timestamp = state.message(message).timestamp
            if timestamp:
                oldest_held[queue] = min(timestamp, oldest_held.get(queue, timestamp))
    return [
        _queue_line(state, entry, holders.get(entry.record_id, {}), oldest_held.get(entry.record_id, 0), now_ms)
        for entry in sorted(state.queues(), key=lambda entry: entry.config.name)
    ]


def _queue_line(
    state: QueueState, entry: QueueEntry, holders: Mapping[str, int], oldest_held: int, now_ms: float
) -> dict[str, Any]:
    config = entry.config
    oldest = min((timestamp for timestamp in (entry.oldest, oldest_held) if timestamp), default=0)
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
        "bindings": [{"key": each.key, "filter": each.filter} for each in state.bindings(entry.record_id)],
        "depth": entry.ready + entry.held + entry.locked + entry.scheduled,
        "bytes": entry.bytes,
        "ready": entry.ready,
        "held": entry.held,
        "locked": entry.locked,
        "scheduled": entry.scheduled,
        "in_doubt": entry.arriving,
        "holders": holders,
        "oldest_age_seconds": age_s(oldest, now_ms),
    }


_QUEUE_COLUMNS = (
    *("queue", "address", "depth", "bytes", "held", "locked", "scheduled", "in doubt", "holders", "oldest"),
)


def _queue_row(line: Mapping[str, Any]) -> tuple[object, ...]:
    numbers = [f"{line[name]:,}" for name in ("depth", "bytes", "held", "locked", "scheduled", "in_doubt")]
    holders = ", ".join(f"{name} ({count:,})" for name, count in line["holders"].items())
    return line["queue"], line["address"], *numbers, holders, _age(line["oldest_age_seconds"])


def _say_of_orphans(loaded: LoadedStore) -> None:
    if loaded.orphaned_messages:
        count = f"{loaded.orphaned_messages:,} messages that no queue refers to"
        errors.print(f"{count}: the next activation deletes them", style="dim", highlight=False)


# ---- messages ----------------------------------------------------------------------------------------------


@journal_command
def messages(
    chosen: Chosen,
    queue: Annotated[str, typer.Argument(help="The queue's name.")],
    limit: Annotated[int, typer.Option(min=0, help="Only the first ones; 0: all.")] = _DEFAULT_LIMIT,
    as_json: JsonOption = False,
) -> None:
    """The messages of a queue, in the order of delivery; nothing is consumed, and nobody disturbed."""
    settings = chosen.settings()
    now_ms = wall_ms()
    found: list[dict[str, Any]] = []
    with loaded_queues(settings) as (loaded, state, progress):
        entry = find_queue(loaded, queue, settings.journal)
        total = entry.ready + entry.held + entry.locked + entry.scheduled
        shown = min(total, limit or total)
        for info in loaded.state.browse(entry.record_id):
            if len(found) == shown:
                break
            message = read_message(state.base, info.message)
            found.append(message_line(info, loaded.state.message(info.message), message, now_ms))
            if len(found) % _PROGRESS_MESSAGES == 0:
                progress("messages", len(found), shown)
    if as_json:
        print_json(found)
        return
    print_table(f"messages of queue {queue}", _MESSAGE_COLUMNS, [_message_row(line, now_ms) for line in found])
    if shown < total:
        errors.print(f"{shown:,} of {total:,} messages: --limit 0 shows all", style="dim", highlight=False)


def read_message(base: Base, message_id: int) -> Message:
    """A message without a large body, from its record."""
    return decode_message(Record.FromString(base.get(record_key(message_id)) or b"").data)


def message_line(info: ReferenceInfo, entry: MessageEntry, message: Message, now_ms: float) -> dict[str, Any]:
    """A message in a queue as `--json` prints it. Times are milliseconds since 1970, 0: none; bytes are base64."""
    return {
        "id": info.message,
        "state": info.state.value,
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
        "text": f"in {len(entry.chunks)} chunks" if entry.chunks else printable(message.body),
    }


def shown_values(values: Mapping[str, Value]) -> dict[str, object]:
    """Headers or properties as `--json` prints them."""
    return {name: encode_data(value) if isinstance(value, bytes) else value for name, value in values.items()}


_MESSAGE_COLUMNS = (
    *("id", "state", "priority", "bytes", "age", "deliveries", "who has it", "due in", "expires in", "body"),
)


def _message_row(line: Mapping[str, Any], now_ms: float) -> tuple[object, ...]:
    who = f"transaction {line['tx']}" if line["tx"] else line["holder"]
    times = [duration((line[name] - now_ms) / 1000) if line[name] else "" for name in ("due", "expires")]
    return (
        line["id"],
        line["state"],
        line["priority"],
        f"{line['bytes']:,}",
        _age(line["age_seconds"]),
        line["deliveries"],
        who,
        *times,
        line["text"],
    )


def age_s(timestamp: int, now_ms: float) -> float | None:
    """Seconds since a moment; None if it is not known."""
    return round(max(0.0, now_ms - timestamp) / 1000, 3) if timestamp else None


def _age(seconds: float | None) -> str:
    return "" if seconds is None else duration(seconds)
