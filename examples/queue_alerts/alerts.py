"""An example service: says once when the oldest message of a queue has waited for too long, and once when that is over.

    KAFKA_JOURNAL_JOURNAL=orders python examples/queue_alerts/alerts.py --to queue-alerts --after 60

It is the journal's worker with an agent of its own: start as many as you like, instead of `kafka-journal worker`. The
topic of the alerts has to be there. An alert is a record: the queue's name, and JSON that says what, and since when.

What the agent knows is its state, which is in Kafka, written with the alerts themselves: whichever process is killed,
none is sent twice, and none is missing, for a reader of committed records. Keys, of which Q and M are record ids:

    n Q             a queue's name
    w Q SINCE M     a message that waits in it, since it was sent or, if later, due: the first of these is the oldest
    a n Q           an alert of that name was sent and is not over
"""

from __future__ import annotations

import argparse
import json
import logging
import struct
import sys
from collections.abc import Iterator

from journal import decode_queue, errors, load_settings, message_facts, store_pb2
from loaders import QueueLoader, living_references
from streams import Changes, JournalApp, LiveRecord, RecordChange, make_app, run_app

QUEUE_KEY = struct.Struct(">cq")
WAITING_KEY = struct.Struct(">cqqq")


def waiting_keys(record: LiveRecord | None) -> list[bytes]:
    """Where a message waits, as keys of the state; nowhere if it is none, or does not say since when."""
    if record is None or record.kind != store_pb2.MESSAGE:
        return []
    facts = message_facts(record.data)
    references = living_references(record.updates, facts.due)
    since = {reference.queue: max(facts.timestamp, reference.due) for reference in references}
    return [WAITING_KEY.pack(b"w", queue, since_ms, record.id) for queue, since_ms in since.items() if since_ms]


def note(change: RecordChange, changes: Changes) -> None:
    """Bring the state to what the shard is now."""
    state = changes.state
    for key in waiting_keys(change.old):
        state.delete(key)
    for key in waiting_keys(change.new):
        state.put(key, b"")
    record = change.new or change.old
    if record is not None and record.kind == store_pb2.QUEUE:
        state.delete(QUEUE_KEY.pack(b"n", change.id))
        if change.new is not None:
            state.put(QUEUE_KEY.pack(b"n", change.id), decode_queue(record.data).name.encode())


def oldest(queue: int, changes: Changes) -> tuple[int, int]:
    """Since when the queue's oldest message waits, and its id; 0 if there is none."""
    for key, _ in changes.state.scan(QUEUE_KEY.pack(b"w", queue)):
        _, _, since_ms, message = WAITING_KEY.unpack(key)
        if key in waiting_keys(changes.record(message)):
            return since_ms, message
        changes.state.delete(key)  # gone while this agent was away for so long that nobody knows what it was
    return 0, 0


def make_alerts(to: str, after_s: float, look_every_s: float, **options: object) -> JournalApp:
    """The service; `options` are those of `make_app`."""
    app = make_app(load_settings(), view=QueueLoader, name="alerts", **options)  # type: ignore[arg-type]

    @app.on_change(to=to, every_s=look_every_s)
    def alerts(changes: Changes) -> Iterator[tuple[str, str]]:
        for change in changes.records():
            note(change, changes)
        for key, name in changes.state.scan(b"n"):
            _, queue = QUEUE_KEY.unpack(key)
            since_ms, message = oldest(queue, changes)
            late = message != 0 and changes.now_ms - since_ms > after_s * 1000
            said = changes.state.get(b"a" + key)
            if late and said is None:
                changes.state.put(b"a" + key, name)
                yield name.decode(), json.dumps({"alert": "late", "message": message, "since_ms": since_ms})
            elif said is not None and not late:
                changes.state.delete(b"a" + key)
                yield name.decode(), json.dumps({"alert": "over"})
        for key, name in changes.state.scan(b"a"):
            if changes.state.get(key[1:]) is None:  # the queue itself is gone
                changes.state.delete(key)
                yield name.decode(), json.dumps({"alert": "over"})

    return app


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", default="queue-alerts", help="the alerts' topic")
    parser.add_argument("--after", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--look-every", type=float, default=1.0, metavar="SECONDS")
    parser.add_argument("--port", type=int, default=6066, help="of /queues, /health, /metrics, on this machine")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    try:
        run_app(make_alerts(given.to, given.after, given.look_every, web_port=given.port))
    except errors.JournalError as error:
        logging.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
