"""A node whose transfers are one transaction over a message store and PostgreSQL; it kills itself at a step of its own
choosing.

`run` is for a process of its own: `journal` is a local one's directory, or `kafka` for the one that the environment
names. Every call of every branch has a step before it and one behind it; at number `step` the process gets SIGKILL. It
prints each step's name, and at the end `done`.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import transaction  # type: ignore[import-untyped]

from journal.append.appends import Appends
from journal.append.operations import PlainOperation
from journal.config import load_settings
from journal.journal import BlockingJournal
from journal.local.journal import LocalJournal
from journal.process.clocks import wall_ms
from journal.store.model import Message, QueueConfig
from journal.store.store import MessageStore
from journal.xa.coordinator import Coordinator, Recovery
from journal.xa.ports import OutcomeRecords, Participant, Transactions, TwoPhaseConnection, Waitable
from journal.xa.resource import XaResource
from loaders.queues import QueueLoader
from tests.support.postgres import PostgresParticipant

TABLE = "CREATE TABLE transfers (name text PRIMARY KEY)"
ADDRESS = "transfers"
TODO, DONE = "transfers/todo", "transfers/done"

Step = Callable[[str], None]


class Killer:
    """Counts steps and ends the process, without a word, at one of them."""

    def __init__(self, number: int) -> None:
        self._left = number

    def step(self, name: str) -> None:
        print(name, flush=True)
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


class SteppedWait:
    """A wait with a step on each side."""

    def __init__(self, pending: Waitable, name: str, step: Step) -> None:
        self._pending = pending
        self._name = name
        self._step = step

    @property
    def done(self) -> bool:
        return self._pending.done

    @property
    def error(self) -> Any:
        return self._pending.error

    def wait(self, timeout_s: float | None = None) -> None:
        self._pending.wait(timeout_s)
        self._step(f"{self._name} durable")


class SteppedStore:
    """A store and its journal as the two ports of a resource, with a step on each side of every call that appends."""

    def __init__(self, store: MessageStore, journal: Appends, step: Step) -> None:
        self._store = store
        self._journal = journal
        self._step = step
        self.new_id = journal.new_id
        self.begin = store.begin
        self.is_empty = store.is_empty

    def prepare(self, tx: int, data: bytes) -> Waitable:
        return self._stepped("store prepare", lambda: self._store.prepare(tx, data))

    def commit(self, tx: int, *, then: Sequence[PlainOperation] = ()) -> Waitable:
        return self._stepped("store commit", lambda: self._store.commit(tx, then=then))

    def rollback(self, tx: int) -> Waitable:
        return self._stepped("store rollback", lambda: self._store.rollback(tx))

    def add(self, record_id: int, kind: int, data: bytes) -> Waitable:
        return self._stepped("journal add", lambda: self._journal.add(record_id, kind, data))

    def delete(self, record_id: int) -> Waitable:
        return self._stepped("journal delete", lambda: self._journal.delete(record_id))

    def append_all(self, operations: Sequence[PlainOperation]) -> Waitable:
        return self._stepped("journal proof", lambda: self._journal.append_all(operations))

    def _stepped(self, name: str, call: Callable[[], Waitable]) -> Waitable:
        self._step(f"before {name}")
        pending = call()
        self._step(f"after {name}")
        return SteppedWait(pending, name, self._step)


class SteppedConnection:
    """A connection's two-phase calls, with a step on each side."""

    def __init__(self, connection: Any, step: Step) -> None:
        self._connection = connection
        self._step = step
        self.xid = connection.xid
        self.execute = connection.execute
        self.close = connection.close

    def tpc_begin(self, xid: Any) -> None:
        self._stepped("begin", lambda: self._connection.tpc_begin(xid))

    def tpc_prepare(self) -> None:
        self._stepped("prepare", self._connection.tpc_prepare)

    def tpc_commit(self, xid: Any = None) -> None:
        self._stepped("commit", lambda: self._connection.tpc_commit(xid))

    def tpc_rollback(self, xid: Any = None) -> None:
        self._stepped("rollback", lambda: self._connection.tpc_rollback(xid))

    def tpc_recover(self) -> Sequence[Any]:
        found: list[Any] = []
        self._stepped("recover", lambda: found.extend(self._connection.tpc_recover()))
        return found

    def _stepped(self, name: str, call: Callable[[], object]) -> None:
        self._step(f"before postgres {name}")
        call()
        self._step(f"after postgres {name}")


class SteppedParticipant:
    """A participant whose connections step."""

    def __init__(self, participant: PostgresParticipant, step: Step) -> None:
        self.name = participant.name
        self.errors = participant.errors
        self._participant = participant
        self._step = step

    def connect(self) -> SteppedConnection:
        return SteppedConnection(self._participant.connect(), self._step)


class RefusedError(Exception):
    """What `Refusing` votes with."""


class Refusing:
    """A data manager that comes last, when all branches have prepared, and votes no."""

    def __init__(self, manager: Any) -> None:
        self.transaction_manager = manager

    def sortKey(self) -> str:
        return "~"

    def _nothing(self, _: object) -> None: ...

    tpc_begin = commit = tpc_finish = tpc_abort = abort = _nothing

    def tpc_vote(self, _: object) -> None:
        raise RefusedError


class XaNode:
    """An active store with its resource and coordinator."""

    def __init__(
        self, journal: BlockingJournal | LocalJournal, loader: QueueLoader, dsn: str, step: Step | None = None
    ) -> None:
        self.store = MessageStore(journal)
        self.store.start(loader.loaded)
        if not self.store.addresses():
            self.store.create_address(ADDRESS)
            for name in (TODO, DONE):
                self.store.create_queue(QueueConfig(name, ADDRESS)).wait()
        postgres = PostgresParticipant(dsn)
        ports: Transactions = self.store
        records: OutcomeRecords = journal
        self._participant: Participant = postgres
        if step is not None:
            ports = records = SteppedStore(self.store, journal, step)
            self._participant = SteppedParticipant(postgres, step)
        self.resource = XaResource(ports, records, loader.loaded, clock_ms=wall_ms)
        self.resource.start()
        self._coordinator = Coordinator(self.resource, "test", [self._participant], instance=secrets.token_hex(8))

    def recover(self) -> Recovery:
        return self._coordinator.recover()

    def transfer(self, name: str, *, refused: bool = False) -> None:
        """A message of that name goes from one queue to another, and a row of that name into the table."""
        store, body = self.store, name.encode()
        message = store.send(Message(ADDRESS, body), [TODO]).wait()
        store.acquire(message, TODO, name).wait()
        with suppress(RefusedError), transaction.manager:
            work = self._coordinator.join(transaction.manager)
            store.acknowledge(message, TODO, name, tx=work.tx)
            store.send(Message(ADDRESS, body), [DONE], work.tx)
            connection: TwoPhaseConnection = self._coordinator.enlist(work, self._participant)
            connection.execute("INSERT INTO transfers VALUES (%s)", (name,))  # type: ignore[attr-defined]
            if refused:
                transaction.manager.get().join(Refusing(transaction.manager))

    def names(self, queue: str) -> list[str]:
        """The names (bodies) of a queue's messages, sorted."""
        return sorted(self.store.message(info.message).body.decode() for info in self.store.browse(queue))


@contextmanager
def active_node(journal: str, dsn: str, step: Step | None = None) -> Iterator[XaNode]:
    """A node on an activated journal: a local one's directory, or `kafka`."""
    loader = QueueLoader()
    with BlockingJournal(load_settings(None)) if journal == "kafka" else LocalJournal(Path(journal)) as opened:
        opened.activate(loader)
        node = XaNode(opened, loader, dsn, step)
        with node.store:
            yield node


def run(journal: str, dsn: str, act: str, name: str, step: int) -> None:
    """Do `act` (recover, transfer or refuse), up to a step. `name` is a transfer's."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with active_node(journal, dsn, Killer(step).step) as node:
        if act == "recover":
            node.recover()
        else:
            node.transfer(name, refused=act == "refuse")
        print("done", flush=True)
