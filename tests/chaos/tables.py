"""A shard's state as its table rows show it, which `tests.support.golden` decodes."""

from __future__ import annotations

from collections.abc import Iterable

from journal.v1.journal_pb2 import Mark
from tests.chaos.fold import Told, plain_effect
from tests.chaos.history import digest
from tests.support.golden import outcome_of_rows


def table_state(rows: Iterable[tuple[bytes, bytes | None]]) -> tuple[Told, Mark]:
    """The state of the last mark, and the mark; rows behind it belong to no state yet."""
    kept: dict[bytes, bytes | None] = {}
    waiting: dict[bytes, bytes | None] = {}
    mark = Mark(offset=-1)
    for key, value in rows:
        waiting[key] = value
        if key[:1] == b"m" and value is not None:
            mark = Mark.FromString(value)
            kept |= waiting
            waiting = {}
    return _told({key: value for key, value in kept.items() if value is not None}, mark.shard), mark


def _told(rows: dict[bytes, bytes], shard: int) -> Told:
    outcome = outcome_of_rows(rows, shard)
    records = {
        record_id: {
            "kind": record["kind"],
            "data": digest(record["data"]),
            "at": list(record["position"]),
            "updates": [
                [kind, digest(data), replaceable, subject] for kind, data, subject, replaceable, _ in record["updates"]
            ],
        }
        for record_id, record in outcome["records"].items()
    }
    parts = {}
    for tx, part in outcome["transactions"].items():
        staged = [plain_effect(*operation[:-1]) for operation in part["operations"]]
        parts[tx] = part["prepared"], digest(part["data"]) if part["data"] else "", staged
    # rows without a record or transaction would show in no load; they are a difference all the same
    return records | {number: {"rows of": "nothing"} for number in outcome.get("orphans", ())}, parts
