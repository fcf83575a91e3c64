"""Whether a node can hand over and to whom, and who followed it, as the control rows tell."""

from __future__ import annotations

import pytest

from journal.cli.node.handover import Obstacle, next_active, obstacle
from journal.errors import DeadlineError
from journal.topics.control_rows import ControlRows, NodeRow
from journal.v1.journal_pb2 import NodeStatus
from loaders.node.liveness import LastActive
from loaders.node.roles import Role

ASKED = LastActive(7, "asked", released=False)


def rows(*nodes: tuple[str, Role, int]) -> ControlRows:
    reports = [NodeStatus(name=name, role=role.value, epoch=epoch) for name, role, epoch in nodes]
    return ControlRows(nodes={report.name: NodeRow(report, 0) for report in reports})


def test_whoever_is_active_in_a_newer_epoch_followed() -> None:
    found = next_active(rows(("asked", Role.STANDBY, 0), ("other", Role.ACTIVE, 8)), ASKED)
    assert found is not None
    assert found.name == "other"


def test_nobody_followed_while_no_node_says_that_it_is_active() -> None:
    assert next_active(rows(("asked", Role.ACTIVE, 7), ("other", Role.ACTIVATING, 0)), ASKED) is None


def test_a_node_that_is_active_again_itself_was_not_followed() -> None:
    with pytest.raises(DeadlineError, match="nobody took over, and node asked is active again"):
        next_active(rows(("asked", Role.ACTIVE, 9), ("other", Role.STANDBY, 0)), ASKED)


FIT = NodeStatus(name="fit", role=Role.STANDBY.value, fit=True, report_ms=1000)
BUILDING = NodeStatus(name="building", role=Role.STANDBY.value, why_not="building its copy", report_ms=1000)
NOW_MS = 10_000
EVERYBODY = frozenset({"asked", "fit", "building"})


def nodes(*reports: NodeStatus, ago_ms: int = 0) -> ControlRows:
    """The reports of these nodes, and one of the active node now."""
    active = NodeStatus(name="asked", role=Role.ACTIVE.value, epoch=7, report_ms=1000)
    rows = {report.name: NodeRow(report, NOW_MS - ago_ms) for report in reports}
    return ControlRows(nodes={**rows, "asked": NodeRow(active, NOW_MS)})


@pytest.mark.parametrize("to", ["", "fit"])
def test_a_fit_standby_in_the_group_can_take_over(to: str) -> None:
    assert obstacle(nodes(FIT, BUILDING), ASKED, to, EVERYBODY) is None


@pytest.mark.parametrize(
    ("to", "found"),
    [
        ("nobody", Obstacle("there is no node nobody: the nodes are asked, building, fit")),
        ("building", Obstacle("building is not fit to take over from asked: building is building its copy")),
    ],
)
def test_what_no_waiting_mends_is_told_at_once_and_each_in_its_own_words(to: str, found: Obstacle) -> None:
    assert obstacle(nodes(FIT, BUILDING), ASKED, to, EVERYBODY) == found


def test_a_node_that_is_gone_is_told_at_once() -> None:
    found = obstacle(nodes(FIT, ago_ms=6000), ASKED, "fit", EVERYBODY)
    assert found == Obstacle("fit is not fit to take over from asked: fit is gone for 6 s")


def test_a_fit_node_that_has_not_joined_the_group_yet_is_waited_for() -> None:
    found = obstacle(nodes(FIT, BUILDING), ASKED, "", EVERYBODY - {"fit"})
    assert found is not None
    assert found.may_pass
    assert "fit is not in the nodes' group" in found.why
    assert "building is building its copy" in found.why


def test_a_node_alone_is_told_that_there_is_no_other() -> None:
    found = obstacle(nodes(), ASKED, "", EVERYBODY)
    assert found == Obstacle("no standby is fit to take over from asked: there is no other node")
