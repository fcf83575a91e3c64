"""A thousand transactions in doubt on Kafka, with the messages and queues that they hold, carried through twenty
failovers (a node is killed at work, or another takes over from it) and then settled as their coordinator says."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from journal.config import Settings
from journal.errors import MessageHeldError, QueueInDoubtError
from journal.journal import BlockingJournal
from journal.store.model import Message, QueueConfig
from journal.store.store import MessageStore
from journal.xa.branch import Vote
from journal.xa.resource import XaResource
from journal.xa.xid import Xid, make_xid
from tests.support.children.in_doubt import ADDRESS, NOISE, SOURCE, TARGET, ActiveStore, active_store, work
from tests.support.in_process import made_journal, running_worker
from tests.support.processes.child import Child, program
from tests.support.processes.command import command_env
from tests.support.stores import bodies

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

BRANCHES = 1000
FAILOVERS = 20
KILLED_EVERY = 5
THREADS = 32
WAIT_S = 60.0

XIDS = [make_xid(1, f"global-{number:04}", "branch") for number in range(BRANCHES)]


class Nodes:
    """One node after another on a journal: each takes over from the one before, which is still at work."""

    def __init__(self, settings: Settings, ending: ExitStack) -> None:
        self._settings = settings
        self._ending = ending
        self._count = 0

    def take_over(self) -> ActiveStore:
        """The next node; two have a local copy of the tables in turns."""
        self._count += 1
        with self._ending.pop_all():
            journal = BlockingJournal(self._settings, copy_name=f"node-{self._count % 2}")
            return self._ending.enter_context(opened(journal))

    def kill_one(self) -> None:
        """Another process takes over, and is killed with operations on their way."""
        env = command_env(self._settings.bootstrap_servers, self._settings.journal, self._settings.directory)
        log = self._settings.directory / "child.log"
        with Child("another node", program("in_doubt"), log, env, listens=True).start() as child:
            assert child.wait_for("working")["in_doubt"] == BRANCHES


@contextmanager
def opened(journal: BlockingJournal) -> Iterator[ActiveStore]:
    with journal, active_store(journal) as node:
        yield node


def test_a_thousand_in_doubt_survive_twenty_failovers_and_are_settled_once(bootstrap: str, tmp_path: Path) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=2)
    with running_worker(settings), ExitStack() as ending:
        nodes = Nodes(settings, ending)
        prepare_all(*nodes.take_over())
        for failover in range(FAILOVERS):
            if failover % KILLED_EVERY == KILLED_EVERY - 1:
                nodes.kill_one()
            store, resource = nodes.take_over()
            require_in_doubt(store, resource, XIDS[failover])
            work(store, 100)
        settle_all(*nodes.take_over())
        require_settled(*nodes.take_over())


def prepare_all(store: MessageStore, resource: XaResource) -> None:
    """Every branch acknowledges a message and sends another."""
    store.create_address(ADDRESS)
    for name in (SOURCE, TARGET, NOISE):
        store.create_queue(QueueConfig(name, ADDRESS))
    sent = {xid: store.send(Message(ADDRESS, xid.gtrid), [SOURCE]).id for xid in XIDS}
    store.flush().wait(WAIT_S)

    def prepare(xid: Xid) -> Vote:
        resource.tpc_begin(xid)
        tx = resource.tx(xid)
        store.acknowledge(sent[xid], SOURCE, tx=tx)
        store.send(Message(ADDRESS, b"done " + xid.gtrid), [TARGET], tx)
        resource.end(xid)
        return resource.tpc_prepare(xid)

    with ThreadPoolExecutor(THREADS) as pool:
        assert set(pool.map(prepare, XIDS)) == {Vote.COMMIT}


def require_in_doubt(store: MessageStore, resource: XaResource, xid: Xid) -> None:
    """All are, with their messages; of one it is looked at closely."""
    assert sorted(resource.tpc_recover()) == XIDS
    source, target = store.queue(SOURCE), store.queue(TARGET)
    assert (source.locked, source.ready, source.held) == (BRANCHES, 0, 0)
    assert (target.arriving, target.ready) == (BRANCHES, 0)
    assert store.take(SOURCE, "somebody") is None
    assert store.take(TARGET, "somebody") is None
    (tx,) = [line.tx for line in resource.in_doubt() if line.xid == xid]
    info = store.transaction(tx)
    ((taken, taken_from),), ((sent, sent_to),) = info.acknowledgements, info.references
    assert (taken_from, sent_to) == (SOURCE, TARGET)
    assert store.message(taken).body == xid.gtrid
    assert info.messages == (sent,)
    with pytest.raises(MessageHeldError):
        store.acknowledge(taken, SOURCE)
    with pytest.raises(QueueInDoubtError):
        store.destroy_queue(SOURCE)


def settle_all(store: MessageStore, resource: XaResource) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(resource.tpc_commit, XIDS[::2]))
        list(pool.map(resource.tpc_rollback, XIDS[1::2]))


def require_settled(store: MessageStore, resource: XaResource) -> None:
    assert resource.tpc_recover() == []
    assert store.in_doubt() == []
    assert bodies(store, SOURCE) == [xid.gtrid for xid in XIDS[1::2]]
    assert sorted(bodies(store, TARGET)) == [b"done " + xid.gtrid for xid in XIDS[::2]]
    assert store.take(SOURCE, "somebody") is not None
    assert store.orphaned_messages == 0
