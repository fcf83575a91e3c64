"""The state that an activation was given, written down as the checker compares it: every datum by its digest."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tests.chaos.fold import effect_of_operation
from tests.chaos.history import digest
from tests.support.children.loaders import KeptState


class DigestLoader(KeptState):
    """Keeps what it is told, told once or kept warm."""

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Records in order of ids, then whatever else it was told."""
        lines: list[dict[str, Any]] = []
        for record_id, (kind, data, updates, position) in sorted(self.records.items()):
            shown = [[one.kind, digest(one.data), one.replaceable, one.subject] for one in updates]
            record = {"kind": kind, "data": digest(data), "at": list(position), "updates": shown}
            lines.append({"type": "record", "id": record_id, **record})
        for tx, data, operations in self.in_doubt:
            staged = [effect_of_operation(op)._asdict() for op in operations]
            lines.append({"type": "prepared", "tx": tx, "data": digest(data), "operations": staged})
        if self.counts is not None:
            lines.append({"type": "complete", **asdict(self.counts)})
        return lines
