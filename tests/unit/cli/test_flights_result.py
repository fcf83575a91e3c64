"""What the demo tells of its nodes."""

from __future__ import annotations

from dataclasses import asdict

from journal.cli.flights.expected import Contents, compare
from journal.cli.flights.result import NodeRun


def test_a_node_has_done_what_was_acknowledged_since_it_resumed() -> None:
    run = NodeRun()
    run.take({"event": "resumed", "step": 7, "operations": 60, "comparison": asdict(compare(Contents(), Contents()))})
    run.take({"event": "acknowledged", "step": 9, "operations": 100, "appended": 110, "seconds": 1.0})
    assert (run.operations, run.done) == (100, 40)
