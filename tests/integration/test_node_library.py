"""`Node` as a broker's author meets it: what its calls refuse, and what becomes of activations that fail."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from journal.config import Settings
from journal.errors import DeadlineError, JournalError, StateError
from journal.journal import BlockingJournal
from journal.kafka.clients import KafkaClients
from journal.kafka.membership import Membership
from journal.load.loading import NullLoader
from loaders.node.node import Node
from loaders.node.roles import Role
from loaders.node.standing import ActiveNode
from tests.support.in_process import made_journal, running_worker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

LIMIT_S = 120.0


class Owner:
    """Remembers what it was told, and refuses to be active as often as it is to."""

    def __init__(self, refusals: int = 0) -> None:
        self.told: list[str] = []
        self.active: list[ActiveNode] = []
        self._refusals = refusals

    def on_active(self, active: ActiveNode) -> None:
        self.told.append("active")
        self.active.append(active)
        if len(self.active) <= self._refusals:
            raise RuntimeError("the broker's port is taken")

    def on_standby(self) -> None:
        self.told.append("standby")

    def on_fenced(self, error: JournalError) -> None:
        self.told.append("fenced")


def make_node(settings: Settings, owner: Owner, name: str = "one", **flags: Any) -> Node:
    its_own = settings.model_copy(update={"node": name, **flags})
    return Node(
        its_own,
        loader=NullLoader,
        on_active=owner.on_active,
        on_standby=owner.on_standby,
        on_fenced=owner.on_fenced,
    )


@pytest.fixture
def settings(bootstrap: str, tmp_path: Path) -> Settings:
    return made_journal(bootstrap, tmp_path, shards=2, checkpoint_interval_ms=50)


def test_a_node_without_a_worker_says_so_and_is_active_once_there_is_one(settings: Settings) -> None:
    owner = Owner()
    with make_node(settings, owner, gate_timeout_ms=500, activation_retry_ms=100) as node:
        node.wait_for(Role.ACTIVATING, LIMIT_S)
        node.wait_for(Role.STANDBY, LIMIT_S)
        assert "is a worker running?" in node.status().reason
        assert owner.told == ["standby"]
        with running_worker(settings):
            node.wait_for(Role.ACTIVE, LIMIT_S)
            owner.active[0].journal.add(1 << 10, 1, b"x").wait(LIMIT_S)
        assert node.status().last_failover.epoch == owner.active[0].report.epoch


def test_a_node_whose_owner_cannot_be_active_lets_the_journal_go_and_tries_again(settings: Settings) -> None:
    owner = Owner(refusals=1)
    with running_worker(settings), make_node(settings, owner, activation_retry_ms=100) as node:
        node.wait_for(Role.ACTIVE, LIMIT_S)
        assert owner.told == ["standby", "active", "active"]
        refused, active = owner.active
        assert active.report.epoch > refused.report.epoch
        with pytest.raises(StateError):
            refused.journal.add(1 << 10, 1, b"x").wait(LIMIT_S)
    assert node.role is Role.STOPPED
    assert owner.told[3:] == ["standby"]


def test_a_node_whose_membership_has_ended_joins_again(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    join, topics = KafkaClients.membership, []

    def ending_once(self: KafkaClients, group: str, topic: str, name: str, **times: int) -> Membership:
        topics.append(topic)
        return join(self, group, topic if len(topics) > 1 else "", name, **times)

    monkeypatch.setattr(KafkaClients, "membership", ending_once)
    with running_worker(settings), make_node(settings, Owner()) as node:
        node.wait_for(Role.ACTIVE, LIMIT_S)
    assert len(topics) > 1


def test_a_journal_of_an_earlier_epoch_appends_nothing_after_a_hand_over_and_back(settings: Settings) -> None:
    one, two = Owner(), Owner()
    with running_worker(settings), make_node(settings, one) as first:
        first.wait_for(Role.ACTIVE, LIMIT_S)
        with make_node(settings, two, "two") as second:
            wait_until_fit(second)
            first.hand_over("two", LIMIT_S)
            second.wait_for(Role.ACTIVE, LIMIT_S)
            wait_until_fit(first)
            wait_until_known(first, "two")
        first.wait_for(Role.ACTIVE, LIMIT_S)
        stale, current = one.active
        with pytest.raises(StateError):
            stale.journal.add(1 << 10, 1, b"x")
        current.journal.add(1 << 10, 1, b"x").wait(LIMIT_S)
    assert one.told == ["standby", "active", "standby", "active", "standby"]
    assert two.told == ["standby", "active", "standby"]


def test_the_duty_passes_on_while_a_fenced_nodes_owner_takes_its_time(settings: Settings) -> None:
    stuck, go_on = threading.Event(), threading.Event()

    class Slow(Owner):
        def on_fenced(self, error: JournalError) -> None:
            stuck.set()
            assert go_on.wait(LIMIT_S)
            super().on_fenced(error)

    slow, owner = Slow(), Owner()
    with ExitStack() as ending:
        ending.enter_context(running_worker(settings))
        first = ending.enter_context(make_node(settings, slow))
        first.wait_for(Role.ACTIVE, LIMIT_S)
        second = ending.enter_context(make_node(settings, owner, "two"))
        wait_until_fit(second)
        with BlockingJournal(settings.model_copy(update={"node": "three"}), copy_name="three") as other:
            other.activate()
            assert stuck.wait(LIMIT_S)
        second.wait_for(Role.ACTIVE, LIMIT_S)
        assert first.role is Role.FENCED
        go_on.set()
        first.wait_for(Role.STANDBY, LIMIT_S)
    assert slow.told[:3] == ["standby", "active", "fenced"]


def wait_until_known(node: Node, name: str) -> None:
    """A standby reads who is active from the control rows."""
    until = time.monotonic() + LIMIT_S
    while node.active_node != name:
        assert time.monotonic() < until, node.active_node
        time.sleep(0.02)


def wait_until_fit(node: Node) -> None:
    until = time.monotonic() + LIMIT_S
    while not node.status().fit:
        assert time.monotonic() < until, node.status()
        time.sleep(0.02)


def test_handing_over_needs_an_active_node_and_one_that_is_fit(settings: Settings) -> None:
    owner = Owner()
    with running_worker(settings), make_node(settings, owner) as node:
        node.wait_for(Role.ACTIVE, LIMIT_S)
        with pytest.raises(DeadlineError, match="no standby is fit"):
            node.hand_over(timeout_s=0.5)
        assert node.role is Role.ACTIVE
        owner.active[0].journal.add(1 << 10, 1, b"x").wait(LIMIT_S)
    with pytest.raises(StateError, match="stopped"):
        node.hand_over()
    with pytest.raises(StateError):
        node.start()


def test_closing_cuts_an_activation_off(settings: Settings) -> None:
    owner = Owner()
    node = make_node(settings, owner, gate_timeout_ms=600_000)
    node.start()
    node.wait_for(Role.ACTIVATING, LIMIT_S)
    node.close(LIMIT_S)
    assert node.role is Role.STOPPED
    assert owner.told == ["standby"]
    node.close()
