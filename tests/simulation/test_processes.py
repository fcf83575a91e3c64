"""Processes of a simulation that have more than one side: a worker and its reader, standbys and their group, disks."""

from __future__ import annotations

from random import Random

import pytest

from journal.errors import DisconnectedError, LocalStorageError
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.faults import Faults
from tests.simulation.nodes_group import SESSION_S, NodesGroup, SimulatedMembership
from tests.simulation.reader_process import Link
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.test_traces import Stage

LONG_S = 10.0


def test_messages_between_a_worker_and_its_reader_keep_their_order_and_end_with_one_of_them() -> None:
    scheduler = Scheduler(Random(1))
    worker, reader = Process("worker"), Process("reader")
    link = Link(scheduler, Random(1), worker, reader)
    received: list[int] = []
    ends: list[str] = []

    def send() -> None:
        for number in range(20):
            link.of_reader.send((number, b"frame"))

    def receive() -> None:
        try:
            while True:
                received.append(link.of_worker.receive()[0])
        except DisconnectedError:
            ends.append("the reader is gone")

    scheduler.spawn(worker, receive)
    scheduler.spawn(reader, send)
    assert scheduler.run(LONG_S, lambda: bool(ends))
    assert received == list(range(len(received))), "some may be lost with the reader, from the end"


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
