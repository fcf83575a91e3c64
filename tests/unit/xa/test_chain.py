"""Distributed transactions of a database and a chain of stores: the first store's journal is the decision log."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import transaction  # type: ignore[import-untyped]

from journal.errors import ChainError
from journal.store.chain.chain import MessageStoreChain
from journal.store.chain.realigning import realign
from journal.store.model import Message, QueueConfig
from journal.v1.store_pb2 import MESSAGE, OUTCOME
from journal.xa.coordinator import Coordinator
from journal.xa.data_manager import Decision, StoreDataManager
from journal.xa.resource import XaResource
from tests.support.stores import StoreNode, bodies, kinds_in_journal
from tests.support.xa import START_MS, MemoryConnection, MemoryDatabase

WAIT_S = 30
PREPARED = 1
"""The database's step, from its work on, behind which all have prepared."""

_INSTANCES = (f"{number:016x}" for number in itertools.count())


class Scene:
    """Two stores and a database in one transaction."""

    def __init__(self, directory: Path) -> None:
        self.nodes = [StoreNode(directory / name) for name in ("first", "second")]
        self.database = MemoryDatabase()
        self.manager = transaction.TransactionManager()
        self.start()
        self.chain.create_address("orders")
        self.chain.create_queue(QueueConfig("q", "orders")).wait(WAIT_S)

    def start(self) -> None:
        first, second = self.nodes
        realign([first.store, second.store])
        self.chain = MessageStoreChain([first.store, second.store], names=["first", "second"])
        self.resource = XaResource(self.chain, first.journal, first.loader.loaded, clock_ms=lambda: START_MS)
        self.resource.start()
        self.coordinator = Coordinator(self.resource, "test", [self.database], instance=next(_INSTANCES))

    def crash(self) -> None:
        """Both nodes go on from what is on their disks, and the coordinator settles what it left."""
        for node in self.nodes:
            node.crash()
        self.database.down = False
        self.start()
        self.coordinator.recover()
        self.chain.flush().wait(WAIT_S)

    def work(self, name: bytes = b"both") -> StoreDataManager:
        """A message and a row, not committed."""
        work = self.coordinator.join(self.manager)
        self.chain.send(Message("orders", name), ["q"], work.tx)
        connection = self.coordinator.enlist(work, self.database)
        assert isinstance(connection, MemoryConnection)
        connection.insert(name)
        return work

    def require(self, *names: bytes) -> None:
        """These are there, in all three, and nothing is in doubt or owed."""
        self.chain.flush().wait(WAIT_S)
        assert [bodies(node.store) for node in self.nodes] == [list(names)] * 2
        assert self.database.committed == set(names)
        assert not self.database.prepared
        assert not self.resource.in_doubt()
        for node in self.nodes:
            assert not node.store.transactions()
            assert kinds_in_journal(node)[OUTCOME] == 0
            assert kinds_in_journal(node)[MESSAGE] == len(names)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    found = Scene(tmp_path)
    yield found
    for node in found.nodes:
        node.close()


def test_a_transaction_is_in_all_stores_and_the_database_or_in_none(scene: Scene) -> None:
    scene.work(b"one")
    scene.manager.commit()
    scene.require(b"one")
    scene.work(b"two")
    scene.manager.abort()
    scene.require(b"one")
    scene.crash()
    scene.require(b"one")


def test_a_branch_of_one_phase_commits_in_all_stores(scene: Scene) -> None:
    xid = scene.resource.xid(1, "global", "branch")
    scene.resource.tpc_begin(xid)
    scene.chain.send(Message("orders", b"one"), ["q"], scene.resource.tx(xid))
    scene.resource.end(xid)
    scene.resource.tpc_commit(xid, one_phase=True)
    assert [bodies(node.store) for node in scene.nodes] == [[b"one"], [b"one"]]


def test_a_decision_outlives_a_crash_in_the_first_stores_journal(scene: Scene) -> None:
    work = scene.work()
    scene.database.steps.at(PREPARED, lambda: setattr(scene.database, "down", True))
    scene.manager.commit()
    assert work.decision is Decision.COMMITTED
    assert scene.database.prepared
    assert [kinds_in_journal(node)[OUTCOME] for node in scene.nodes] == [1, 0]
    scene.crash()
    scene.require(b"both")


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
def test_what_is_settled_by_hand_is_settled_in_all_stores(scene: Scene, commit: bool) -> None:
    xid = scene.resource.xid(1, "global", "branch")
    scene.resource.tpc_begin(xid)
    scene.chain.send(Message("orders", b"one"), ["q"], scene.resource.tx(xid))
    scene.resource.end(xid)
    scene.resource.tpc_prepare(xid)
    for node in scene.nodes:
        node.crash()
    scene.start()
    scene.resource.settle(xid, commit=commit)
    assert [bodies(node.store) for node in scene.nodes] == [[b"one"] * commit] * 2
    scene.resource.forget(xid)
    assert [kinds_in_journal(node)[OUTCOME] for node in scene.nodes] == [0, 0]


def test_a_store_that_fails_behind_a_commit_takes_no_other_branch_back(scene: Scene) -> None:
    work = scene.work()
    scene.database.steps.at(PREPARED, scene.nodes[1].store.close)
    with pytest.raises(ChainError, match=r"^second: ClosedError"):
        scene.manager.commit()
    scene.manager.abort()
    assert work.decision is Decision.DECIDING
    assert scene.database.prepared
    scene.nodes[0].store.flush().wait(WAIT_S)
    scene.crash()
    scene.require(b"both")


def test_a_store_that_fails_before_a_prepare_rolls_everything_back(scene: Scene) -> None:
    scene.work()
    scene.nodes[1].store.close()
    with pytest.raises(ChainError, match=r"^second: ClosedError"):
        scene.manager.commit()
    scene.manager.abort()
    assert not scene.database.prepared
    scene.nodes[0].store.flush().wait(WAIT_S)
    scene.crash()
    scene.require()
