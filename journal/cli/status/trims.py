"""How far each shard's WAL was trimmed, in `status`: to which offset, when, by whom, and where the deleted part is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from journal.cli.text import duration
from journal.v1.journal_pb2 import Trim


def trim_json(row: Trim | None, journal: bytes, wal_start: int) -> dict[str, Any] | None:
    """What `--json` prints of a shard; None if its WAL has its beginning, or no trim of this journal has cut it off.

    The row is written before anything is deleted, so a WAL that still begins at 0 was not trimmed.
    """
    if row is None or row.journal != journal or wal_start == 0:
        return None
    return {
        "offset": row.offset,
        "timestamp": row.timestamp,
        "operator": row.operator,
        "archived": row.archived,
    }


def trim_notes(trims: Mapping[int, dict[str, Any]], now_ms: float) -> list[str]:
    """A line for each trim. Shards that were trimmed together, all with an archive or all without, share a line."""
    together: dict[tuple[int, str, bool], list[tuple[int, int]]] = {}
    for shard, trim in sorted(trims.items()):
        alike = (trim["timestamp"], trim["operator"], trim["archived"])
        together.setdefault(alike, []).append((shard, trim["offset"]))
    lines = []
    for (timestamp, operator, archived), places in together.items():
        where = ", ".join(f"shard {shard} to {offset}" for shard, offset in places)
        ago = duration(max(0.0, now_ms - timestamp) / 1000)
        vouched = "an archive has what was deleted" if archived else "no archive has what was deleted"
        lines.append(f"the WAL was trimmed {ago} ago by {operator}: {where}; {vouched}")
    return lines
