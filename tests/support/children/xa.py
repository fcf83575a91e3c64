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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import transaction  # type: ignore[import-untyped]

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

STORE_CALLS = {name: name for name in ("prepare", "commit", "rollback")}
JOURNAL_CALLS = {"add": "add", "delete": "delete", "append_all": "proof"}
TWO_PHASE_CALLS = {f"tpc_{name}": name for name in ("begin", "prepare", "commit", "rollback", "recover")}
"""Calls that a node may die before or behind, and what their steps are called."""


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


class Stepped:
    """Another object, with a step before and behind each call of some of its methods."""

    def __init__(self, inner: Any, kind: str, names: Mapping[str, str], step: Step) -> None:
        """`names`: methods, and what their steps are called behind the `kind`."""
        self._inner = inner
        self._kind = kind
        self._names = names
        self._step = step

    def __getattr__(self, method: str) -> Any:
        found = getattr(self._inner, method)
        if method not in self._names:
            return found
        name = f"{self._kind} {self._names[method]}"

        def stepped(*positional: Any, **named: Any) -> Any:
            self._step(f"before {name}")
            result = found(*positional, **named)
            self._step(f"after {name}")
            return SteppedWait(result, name, self._step) if hasattr(result, "wait") else result

        return stepped


class SteppedParticipant:
    """A participant whose connections step."""

    def __init__(self, participant: PostgresParticipant, step: Step) -> None:
        self.name = participant.name
        self.errors = participant.errors
        self._participant = participant
        self._step = step

    def connect(self) -> Any:
        return Stepped(self._participant.connect(), "postgres", TWO_PHASE_CALLS, self._step)


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
            ports = cast(Transactions, Stepped(self.store, "store", STORE_CALLS, step))
            records = cast(OutcomeRecords, Stepped(journal, "journal", JOURNAL_CALLS, step))
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
