"""A node that decided to activate and then had to wait for its local copy: who was faster stays active."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from journal.append.state import JournalState
from journal.journal import BlockingJournal
from journal.kafka.clients import kafka_of
from journal.topics.control_reading import read_control
from journal.v1.journal_pb2 import Mark
from loaders.node.node import Node
from loaders.node.roles import Role
from loaders.node.standing import ActiveNode
from tests.support.children.loaders import KeptState
from tests.support.in_process import made_journal, running_worker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

DEADLINE_S = 60.0
OLD_S = 1.5
"""A decision of so long ago is made again."""


class SlowState(KeptState):
    """One whose scan begins when it may."""

    def __init__(self, begun: threading.Event, may_go_on: threading.Event) -> None:
        super().__init__()
        self._begun = begun
        self._may_go_on = may_go_on

    def begin(self, marks: Mapping[int, Mark]) -> None:
        self._begun.set()
        assert self._may_go_on.wait(DEADLINE_S)


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_node_that_waited_for_its_copy_fences_nobody_who_was_faster(bootstrap: str, tmp_path: Path) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=2, fence_check_ms=1000, node="slow")
    begun, may_go_on = threading.Event(), threading.Event()
    activated: list[ActiveNode] = []
    with (
        running_worker(settings),
        BlockingJournal(settings.model_copy(update={"node": "faster"}), copy_name="faster") as faster,
        Node(settings, loader=lambda: SlowState(begun, may_go_on), on_active=activated.append) as node,
    ):
        assert begun.wait(DEADLINE_S)
        node.wait_for(Role.ACTIVATING, DEADLINE_S)
        decided_by = time.monotonic()
        epoch = faster.activate().epoch
        faster.add(faster.new_id(0), 45, b"acknowledged").wait(DEADLINE_S)
        wait_for(lambda: time.monotonic() > decided_by + OLD_S)
        may_go_on.set()
        node.wait_for(Role.STANDBY, DEADLINE_S)
        wait_for(lambda: node.status().fit)
        rows = read_control(kafka_of(settings), settings.journal, time.monotonic, DEADLINE_S)
        assert (rows.epoch.epoch, faster.state, activated) == (epoch, JournalState.ACTIVE, [])
        faster.add(faster.new_id(0), 45, b"acknowledged too").wait(DEADLINE_S)
