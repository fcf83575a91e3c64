"""Distributed transactions cut off at every step of the journal and of a database: after a recovery both agree.

1. A transaction's message is in the journal if and only if its row is in the database.
2. What was reported committed is committed.
3. After a recovery that reached everybody nothing is in doubt, and no outcome is kept.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable

import pytest
import transaction  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from journal.errors import JournalError
from journal.xa.coordinator import Coordinator
from tests.support.xa import (
    MESSAGE_KIND,
    Crash,
    DatabaseError,
    MemoryConnection,
    MemoryDatabase,
    MemoryJournal,
    MemoryLog,
    Steps,
    opened,
)

_INSTANCES = (f"{number:016x}" for number in itertools.count(1))


class Node:
    """An activation of the journal, and its coordinator."""

    def __init__(self, log: MemoryLog, databases: list[MemoryDatabase], steps: Steps) -> None:
        self.databases = databases
        self.journal: MemoryJournal
        self.journal, resource = opened(log, steps)
        self.coordinator = Coordinator(resource, "test", databases, instance=next(_INSTANCES))

    def transfer(self, data: bytes) -> None:
        """A message and a row in each database, together."""
        manager = transaction.TransactionManager()
        work = self.coordinator.join(manager)
        self.journal.add(self.journal.new_id(), MESSAGE_KIND, data, tx=work.tx)
        for database in self.databases:
            connection = self.coordinator.enlist(work, database)
            assert isinstance(connection, MemoryConnection)
            connection.insert(data)
        try:
            manager.commit()
        except (JournalError, DatabaseError):
            manager.abort()
            raise


class World:
    """A journal and databases, and the nodes that come and go."""

    def __init__(self, databases: int = 1) -> None:
        self.log = MemoryLog()
        self.steps = Steps()
        self.databases = [MemoryDatabase(f"database-{number}") for number in range(databases)]
        for database in self.databases:
            database.steps = self.steps
        self.reported: set[bytes] = set()

    def node(self) -> Node:
        return Node(self.log, self.databases, self.steps)

    def transfer(self, node: Node, data: bytes) -> None:
        node.transfer(data)
        self.reported.add(data)

    def check(self) -> None:
        """After a recovery."""
        messages = self.log.messages()
        assert messages >= self.reported
        for database in self.databases:
            assert database.committed == messages
            assert not database.prepared
        assert not self.log.prepared
        assert not self.log.loaded().outcomes


def steps_of_a_transfer(databases: int) -> int:
    world = World(databases)
    node = world.node()
    before = len(world.steps.names)
    node.transfer(b"one")
    world.node().coordinator.recover()
    world.check()
    return len(world.steps.names) - before


@pytest.mark.parametrize("databases", [1, 2])
@pytest.mark.parametrize("kept", [True, False])
def test_store_and_participants_agree_whatever_step_a_crash_cuts_off(databases: int, kept: bool) -> None:
    """kept: what the journal had accepted was on its way, and arrived; then recoveries crash at every step too."""
    for first, second in itertools.product(range(steps_of_a_transfer(databases)), range(12)):
        world = World(databases)
        node = world.node()
        world.steps.crash_at(first)
        crashed(world, node, functools.partial(world.transfer, node, b"one"), kept)
        node = world.node()
        world.steps.crash_at(second)
        crashed(world, node, node.coordinator.recover, kept)
        world.steps.calm()
        world.node().coordinator.recover()
        world.check()


def crashed(world: World, node: Node, act: Callable[[], object], kept: bool) -> None:
    try:
        act()
    except Crash:
        if kept:
            node.journal.flush()
        else:
            node.journal.lose()
    world.steps.calm()


@pytest.mark.parametrize("kept", [True, False])
def test_store_and_participants_agree_when_another_node_takes_over_at_any_step_and_the_first_goes_on(
    kept: bool,
) -> None:
    """The first does not know that it is fenced; the second recovers, and has a transaction of its own in between."""
    for number, where in itertools.product(range(steps_of_a_transfer(1)), range(11)):
        world = World()
        first = world.node()
        successors: list[Node] = []

        def take_over(world: World = world, first: Node = first, successors: list[Node] = successors) -> None:
            if kept:
                first.journal.flush(told=False)
            successors.append(world.node())
            successors[-1].coordinator.recover()

        def recover_as_if_active(first: Node = first) -> None:
            with pytest.raises(JournalError):
                first.coordinator.recover()

        world.steps.at(number, take_over)
        try:
            world.transfer(first, b"one")
        except JournalError:
            assert successors
        world.steps.calm()
        if not successors:
            take_over()
        (second,) = successors
        # the fenced one sees a branch that is not its own, in the middle of the other's commit
        world.steps.at(where, recover_as_if_active if where in _MIDDLE else _nothing)
        world.transfer(second, b"two")
        world.steps.calm()
        world.node().coordinator.recover()
        world.check()


def _nothing() -> None:
    """Nobody comes in between."""


_MIDDLE = range(6, 9)
"""Steps of the second's transaction at which its branches are prepared and it has not decided."""


@settings(max_examples=150)
@given(st.data())
def test_any_history_of_transfers_outages_crashes_and_recoveries_ends_in_agreement(data: st.DataObject) -> None:
    world = World(data.draw(st.integers(1, 2)))
    node = world.node()
    for number in range(data.draw(st.integers(1, 8))):
        for database in world.databases:
            database.down = data.draw(st.integers(0, 5)) == 0
        act = data.draw(st.sampled_from(["transfer", "transfer", "recover", "restart"]))
        goes_down = data.draw(st.none() | st.integers(0, 20))
        if goes_down is not None:
            faults = ["crash", "outage", "refusal", "slow"] + ["recover"] * (act == "transfer")
            fault = data.draw(st.sampled_from(faults))
            world.steps.at(goes_down, _fault(fault, world, node))
        try:
            if act == "transfer":
                world.transfer(node, b"%d" % number)
            elif act == "recover":
                node.coordinator.recover()
            else:
                node = world.node()
        except Crash:
            if data.draw(st.booleans()):
                node.journal.flush()
            else:
                node.journal.lose()
            world.steps.calm()
            node = world.node()
        except (JournalError, DatabaseError):
            pass
        world.steps.calm()
    for database in world.databases:
        database.down = False
    world.node().coordinator.recover()
    world.check()


def _fault(kind: str, world: World, node: Node) -> Callable[[], None]:
    def outage() -> None:
        world.databases[0].down = True

    def refusal() -> None:
        node.journal.refusals = 1

    def slow() -> None:
        node.journal.slow = 1

    def recover() -> None:
        with contextlib.suppress(JournalError):
            node.coordinator.recover()

    faults = {"crash": world.steps.crash, "outage": outage, "refusal": refusal, "slow": slow, "recover": recover}
    return faults[kind]
