"""Nodes as processes on a real Kafka: one is active, and another takes over when it dies, hangs, or leaves."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from journal.config import Settings
from journal.kafka.clients import kafka_of
from journal.topics.control_reading import read_control
from journal.topics.names import node_group
from tests.support.children.driven_node import BROKEN_LOADER
from tests.support.in_process import made_journal, running_worker
from tests.support.processes.child import DEADLINE_S, Event
from tests.support.processes.command import command_env, run_command
from tests.support.processes.node import DrivenNode
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

ENV = {
    "KAFKA_JOURNAL_FENCE_CHECK_MS": "1000",
    "KAFKA_JOURNAL_NODE_SESSION_TIMEOUT_MS": "3000",
    "KAFKA_JOURNAL_NODE_HEARTBEAT_MS": "300",
    "KAFKA_JOURNAL_NODE_REPORT_MS": "5000",
    "KAFKA_JOURNAL_CHECKPOINT_INTERVAL_MS": "50",
}

Start = Callable[..., DrivenNode]
Pair = tuple[DrivenNode, DrivenNode]


@pytest.fixture
def settings(bootstrap: str, tmp_path: Path) -> Settings:
    return made_journal(bootstrap, tmp_path / "worker", shards=2, checkpoint_interval_ms=50)


@pytest.fixture
def start(bootstrap: str, settings: Settings, tmp_path: Path) -> Iterator[Start]:
    """Starts a node; all end with the test. A worker runs meanwhile."""
    with running_worker(settings), ExitStack() as nodes:

        def start_node(name: str, **env: str) -> DrivenNode:
            return nodes.enter_context(DrivenNode(bootstrap, settings.journal, tmp_path, name, ENV | env))

        yield start_node


@pytest.fixture
def active_and_standby(start: Start, settings: Settings) -> Pair:
    """Two nodes, of which the first is active and has written, and the second has told the others that it is fit."""
    first = start("first")
    first.wait_for("active")
    first.wait_for("role", role="active")
    first.write(200)
    second = start("second")
    wait_until(lambda: reported_fit(settings, "second"), lambda: "no report of the second")
    wait_until(lambda: members(settings) == {"first", "second"}, lambda: "not both in the group")
    return first, second


def test_a_standby_has_everything_soon_after_the_active_node_was_killed(active_and_standby: Pair) -> None:
    first, second = active_and_standby
    first.tell("busy")
    for _ in range(50):
        first.wait_for("written")
    killed = first.kill()
    active = second.wait_for("active")
    print(f"kill to active: {active['at'] - killed:.2f} s, warm: {active['warm']}")
    assert active["warm"]
    assert first.written() <= set(active["ids"])
    assert len(active["ids"]) - len(first.written()) <= 1  # the one that was on its way
    second.wait_for("role", role="active")
    assert second.write(10)


def test_a_node_that_ends_in_order_hands_over_at_once(active_and_standby: Pair) -> None:
    first, second = active_and_standby
    first.tell("busy")
    for _ in range(50):
        first.wait_for("written")
    began = first.send_signal(signal.SIGTERM)
    assert first.terminate() == 0
    active = second.wait_for("active")
    print(f"SIGTERM to active: {active['at'] - began:.2f} s")
    assert set(active["ids"]) == first.written()
    assert second.wait_for("role", role="active")["reason"] == "node first handed over to this one"
    second.write(1)


def test_a_dead_standby_is_named_no_successor_once_its_membership_ended(
    start: Start, settings: Settings, tmp_path: Path
) -> None:
    first = start("first")
    first.wait_for("role", role="active")
    second = start("second", KAFKA_JOURNAL_NODE_REPORT_MS="60000")  # its reports alone would count for minutes
    wait_until(lambda: reported_fit(settings, "second"), lambda: "no report of the second")
    wait_until(lambda: members(settings) == {"first", "second"}, lambda: "not both in the group")
    second.kill()
    wait_until(lambda: members(settings) == {"first"}, lambda: "the second is a member still")
    env = command_env(settings.bootstrap_servers, settings.journal, tmp_path / "command", ENV)
    found = {line["name"]: line for line in json.loads(run_command("status", "--json", env=env).stdout)["nodes"]}
    assert (found["second"]["fit"], found["second"]["gone"]) == (False, False)
    refused = run_command("node", "hand-over", env=env)
    assert refused.returncode == 1
    assert "second is not in the nodes' group" in refused.stderr
    ids = first.write(10)
    assert first.terminate() == 0
    rows = read_control(kafka_of(settings), settings.journal, time.monotonic, DEADLINE_S)
    assert rows.released is not None
    assert rows.released.to == ""
    assert set(start("third").wait_for("active")["ids"]) == ids


def reported_fit(settings: Settings, name: str) -> bool:
    rows = read_control(kafka_of(settings), settings.journal, time.monotonic, DEADLINE_S)
    return name in rows.nodes and rows.nodes[name].status.fit


def members(settings: Settings) -> set[str]:
    """Client ids of the members of the nodes' group."""
    with closing(kafka_of(settings).cluster()) as cluster:
        return {member.client_id for member in cluster.group_members(node_group(settings.journal), DEADLINE_S)}


def test_a_row_makes_the_active_node_hand_over(active_and_standby: Pair, settings: Settings, tmp_path: Path) -> None:
    first, second = active_and_standby
    env = command_env(settings.bootstrap_servers, settings.journal, tmp_path / "command", ENV)
    ended = run_command("node", "hand-over", "--json", env=env)
    assert ended.returncode == 0, ended.stderr
    assert '"node": "second"' in ended.stdout
    active = second.wait_for("active")
    assert set(active["ids"]) == first.written()
    first.wait_for("standby")
    first.wait_for("role", role="standby", fit=True)
    second.write(10)
    refused = run_command("node", "hand-over", "--to", "nobody", env=env)
    assert (refused.returncode, "there is no node nobody" in refused.stderr) == (1, True)
    assert run_command("node", "hand-over", "--to", "first", env=env).returncode == 0
    again = run_command("node", "hand-over", "--to", "first", env=env)
    assert (again.returncode, "active already" in again.stdout) == (0, True)
    again = first.wait_for("active")
    assert set(again["ids"]) == first.written() | second.written()


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_a_zombie_is_fenced_tells_its_owner_and_becomes_a_standby(active_and_standby: Pair, busy: bool) -> None:
    first, second = active_and_standby
    if busy:
        first.tell("busy")
        for _ in range(50):
            first.wait_for("written")
    first.send_signal(signal.SIGSTOP)
    active = second.wait_for("active")
    second.wait_for("role", role="active")
    mine = second.write(10)
    first.send_signal(signal.SIGCONT)
    first.wait_for("fenced")
    first.wait_for("standby")
    first.wait_for("role", role="standby", fit=True)
    first.tell("write 1")
    first.wait_for("refused", error="no journal")
    assert first.written() <= set(active["ids"])
    second.kill()
    again = first.wait_for("active")
    assert first.written() | mine <= set(again["ids"])
    assert again["epoch"] > active["epoch"]


def test_after_a_stop_of_all_whichever_starts_first_is_active(start: Start, active_and_standby: Pair) -> None:
    first, second = active_and_standby
    first.kill()
    second.kill()
    again = start("second")
    assert set(again.wait_for("active")["ids"]) == first.written()
    again.wait_for("role", role="active")
    ids = again.write(10)
    other = start("first")
    other.wait_for("role", role="standby", fit=True)
    assert again.terminate() == 0
    assert set(other.wait_for("active")["ids"]) == first.written() | ids


def test_a_preferred_node_gets_the_journal_back(start: Start, active_and_standby: Pair) -> None:
    first, second = active_and_standby
    assert first.terminate() == 0
    second.wait_for("role", role="active")
    back = start("first", KAFKA_JOURNAL_PREFERRED="true", KAFKA_JOURNAL_FAIL_BACK="true")
    active = back.wait_for("active")
    assert set(active["ids"]) == first.written()
    second.wait_for("standby")
    second.wait_for("role", role="standby", fit=True)


def test_a_named_node_follows_the_active_one_of_three_and_then_an_unnamed_one(
    start: Start, active_and_standby: Pair, settings: Settings, tmp_path: Path
) -> None:
    first, second = active_and_standby
    third = start("third")
    third.wait_for("role", role="standby", fit=True)
    env = command_env(settings.bootstrap_servers, settings.journal, tmp_path / "command", ENV)
    assert run_command("node", "hand-over", "--to", "third", env=env).returncode == 0
    before = third.wait_for("active")["epoch"]
    third.wait_for("role", role="active")
    first.wait_for("role", role="standby", fit=True)
    third.write(10)
    third.kill()
    active, found = next_active((first, second), before)
    assert first.written() | third.written() <= set(found["ids"])
    active.write(1)


def next_active(nodes: tuple[DrivenNode, ...], before: int) -> tuple[DrivenNode, Event]:
    """The node that is active in a newer epoch than `before`, and what it said then."""
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        for node in nodes:
            for found in list(node.events):
                if found["event"] == "active" and found["epoch"] > before:
                    return node, found
        time.sleep(0.02)
    raise AssertionError("".join(node.told() for node in nodes))


def test_a_standby_that_is_not_fit_leaves_the_journal_to_one_that_is(start: Start) -> None:
    first = start("first")
    first.wait_for("role", role="active")
    first.write(10)
    broken = start("broken", **{BROKEN_LOADER: "yes"})
    broken.wait_for("role", role="standby")
    third = start("third")
    third.wait_for("role", role="standby", fit=True)
    first.kill()
    assert set(third.wait_for("active")["ids"]) == first.written()
    third.wait_for("role", role="active")
    third.kill()
    # nobody else is left: it tries, says what it met, and goes on trying
    for _ in range(2):
        failed = broken.wait_for("role", role="standby", reason="activation failed: this loader takes no record")
        assert not failed["fit"]
    whole = start("whole")
    assert set(whole.wait_for("active")["ids"]) == first.written()
