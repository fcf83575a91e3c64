"""Who followed a node that was asked to hand over, as the control rows tell."""

from __future__ import annotations

import pytest

from journal.cli.node.handover import next_active
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
