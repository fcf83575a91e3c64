"""How `status` shows nodes and the last failover."""

from __future__ import annotations

import pytest

from journal.cli.status.nodes import NODE_COLUMNS, failover_note, namesake_notes, node_lines, node_row, recovery_notes
from journal.topics.control_rows import ControlRows, NodeRow
from journal.v1.journal_pb2 import Failover, NodeStatus

NOW_MS = 2_000_000.0

FAILOVER = Failover(
    epoch=3,
    timestamp=int(NOW_MS) - 60_000,
    reason="node two is silent",
    silence_ms=2100,
    fence_ms=10,
    claim_ms=20,
    gate_ms=30,
    load_ms=1,
    ready_ms=5,
    callback_ms=2,
    warm=True,
)


def rows(*nodes: NodeStatus, ago_ms: int = 1000) -> ControlRows:
    return ControlRows(nodes={node.name: NodeRow(node, int(NOW_MS) - ago_ms) for node in nodes})


def node(name: str, role: str, **more: object) -> NodeStatus:
    return NodeStatus(name=name, role=role, since=int(NOW_MS) - 5000, report_ms=5000, **more)  # type: ignore[arg-type]


def test_what_the_active_node_has_done_over_is_shown_and_told() -> None:
    found = node_lines(
        rows(node("a", "standby", recoveries=7), node("b", "active", recoveries=3, checks=9, inits=4)), NOW_MS
    )
    assert [found[1][name] for name in ("recoveries", "checks", "inits")] == [3, 9, 4]
    assert recovery_notes(found) == [
        "node b has recovered 3 times since it became active (9 checks, 4 producers): its log says why"
    ]


def test_nodes_are_lines_by_name_with_what_their_last_failover_took() -> None:
    found = node_lines(
        rows(
            node("two", "standby", fit=True, lag_offsets=7, lag_ms=1500),
            node("one", "active", epoch=3, last_failover=FAILOVER),
        ),
        NOW_MS,
    )
    assert [(line["name"], line["role"], line["gone"]) for line in found] == [
        ("one", "active", False),
        ("two", "standby", False),
    ]
    assert found[0]["last_failover"]["total_ms"] == 68
    assert found[0]["last_failover"]["silence_ms"] == 2100
    assert (found[1]["lag_offsets"], found[1]["lag_seconds"], found[1]["last_failover"]) == (7, 1.5, None)


def test_two_nodes_of_one_name_are_told() -> None:
    found = node_lines(rows(node("a", "active"), node("b", "standby")), NOW_MS, ["a", "b", "b"])
    assert [line["members"] for line in found] == [1, 2]
    (note,) = namesake_notes(found)
    assert note.startswith("2 nodes are named b, and the table shows the one that reported last")


def test_a_row_of_the_table_says_who_takes_over_and_who_does_not() -> None:
    found = node_lines(
        rows(
            node("a", "active", epoch=3),
            node("b", "standby", fit=True, preferred=True),
            node("c", "standby", why_not="the local copy is being built"),
        ),
        NOW_MS,
    )
    table = [dict(zip(NODE_COLUMNS, node_row(line, NOW_MS), strict=True)) for line in found]
    assert [row["takes over"] for row in table] == ["", "yes, warm", "no: the local copy is being built"]
    assert [row["node"] for row in table] == ["a", "b (preferred)", "c"]
    assert [row["epoch"] for row in table] == [3, "", ""]


@pytest.mark.parametrize("role", ["starting", "activating", "stopping", "fenced"])
def test_a_node_that_takes_nothing_over_for_what_it_is_says_that(role: str) -> None:
    (line,) = node_lines(rows(node("a", role, fit=True)), NOW_MS)
    assert node_row(line, NOW_MS)[NODE_COLUMNS.index("takes over")] == f"no: {role}"


def test_a_node_that_reports_no_more_is_gone() -> None:
    (line,) = node_lines(rows(node("a", "active", epoch=3), ago_ms=10_001), NOW_MS)
    assert line["gone"]
    row = dict(zip(NODE_COLUMNS, node_row(line, NOW_MS), strict=True))
    assert (row["role"], row["takes over"]) == ("active?", "no: gone")


def test_a_standby_that_is_not_in_the_group_or_late_is_not_fit() -> None:
    standbys = node("here", "standby", fit=True), node("left", "standby", fit=True)
    found = {line["name"]: line for line in node_lines(rows(*standbys), NOW_MS, {"here"})}
    assert (found["here"]["fit"], found["left"]["fit"], found["left"]["gone"]) == (True, False, False)
    row = dict(zip(NODE_COLUMNS, node_row(found["left"], NOW_MS), strict=True))
    assert row["takes over"] == "no: not in the nodes' group: joining, or gone"
    late = {line["name"]: line for line in node_lines(rows(*standbys, ago_ms=10_001), NOW_MS, {"here"})}
    assert (late["here"]["fit"], late["here"]["gone"], late["here"]["why_not"]) == (False, True, "its report is late")


def test_the_newest_failover_is_told_with_its_parts() -> None:
    older = Failover(epoch=2, reason="no node was ever active")
    found = node_lines(
        rows(node("a", "standby", last_failover=older), node("b", "active", last_failover=FAILOVER)), NOW_MS
    )
    assert failover_note(found, NOW_MS) == (
        "last failover: epoch 3 to b, warm, 1 min ago, in 68 ms (fence 10 ms, claim 20 ms, gate 30 ms, load 1 ms, "
        "ready 5 ms, callback 2 ms); the WAL had stood still for 2.1 s: node two is silent"
    )
    assert failover_note(node_lines(rows(node("a", "standby")), NOW_MS), NOW_MS) is None
