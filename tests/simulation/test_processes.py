"""Processes of a simulation that have more than one side: standbys and their group, disks."""

from __future__ import annotations

from random import Random

import pytest

from journal.errors import LocalStorageError
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.faults import Faults
from tests.simulation.nodes_group import SESSION_S, NodesGroup, SimulatedMembership
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.test_traces import Stage

LONG_S = 10.0


def test_the_duty_passes_on_when_a_members_session_has_ended_and_comes_back_to_it_last() -> None:
    scheduler = Scheduler(Random(1))
    group = NodesGroup(scheduler)
    processes = [Process("a"), Process("b")]
    first, second = (SimulatedMembership(group, process) for process in processes)

    def who() -> list[bool]:
        return [first.granted, second.granted]

    assert who() == [False, False], "they have not joined yet"
    scheduler.pass_to(scheduler.now() + 1.0)
    assert who() == [True, False]
    scheduler.freeze(processes[0], SESSION_S + 1.0)
    scheduler.pass_to(scheduler.now() + SESSION_S)
    assert second.granted
    scheduler.pass_to(scheduler.now() + 1.0)
    assert first.lapsed
    scheduler.pass_to(scheduler.now() + 1.0)
    assert who() == [False, True]
    assert not first.lapsed
    assert [member.client_id for member in group] == ["b", "a"]


def test_an_active_node_commits_while_its_disk_stalls() -> None:
    stage = Stage()
    node = stage.active_node("node")
    node.disk.stalls_until = stage.scheduler.now() + LONG_S
    completion = node.add(1, b"while it stalls")
    stage.until(lambda: completion.done)
    assert completion.error is None
    assert stage.scheduler.now() < node.disk.stalls_until
    stage.judge()


def test_a_disk_without_descriptors_refuses_until_there_are_some() -> None:
    scheduler, disk = Scheduler(Random(1)), Disk()
    store = SimulatedStore(disk, Faults(), "node", scheduler)
    disk.no_descriptors_until = scheduler.now() + 1.0
    with pytest.raises(LocalStorageError, match="too many open files"):
        store.get(b"key")
    with pytest.raises(LocalStorageError, match="too many open files"):
        SimulatedStore(disk, Faults(), "node", scheduler)
    scheduler.pass_to(scheduler.now() + 1.0)
    assert store.get(b"key") is None
