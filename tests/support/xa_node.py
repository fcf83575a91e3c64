"""A node that commits over a journal and PostgreSQL, and kills itself at a step of its own choosing.

Run as `python -m tests.support.xa_node JOURNAL DSN recover|transfer NAME STEP`: JOURNAL is a local journal's directory,
or `kafka` for the one that the environment names. Every call of every branch has a step before it and one behind it;
at number STEP the process gets SIGKILL. It prints each step's name, and at the end `done`.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import transaction  # type: ignore[import-untyped]

from journal.acceptance import PlainOperation
from journal.appends import Appends
from journal.config import load_settings
from journal.journal import BlockingJournal
from journal.loading import Loader
from journal.local_journal import LocalJournal
from journal.runtime import wall_ms
from journal.v1.store_pb2 import MESSAGE
from journal.xa.coordinator import Coordinator, Recovery
from journal.xa.loading import XaLoader
from journal.xa.ports import OutcomeRecords, Participant, Transactions, TwoPhaseConnection, Waitable
from journal.xa.resource import XaResource
from tests.support.postgres import PostgresParticipant

TABLE = "CREATE TABLE transfers (name text PRIMARY KEY)"

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


class SteppedJournal:
    """A journal's two ports, with a step on each side of every call that appends."""

    def __init__(self, journal: Appends, step: Step) -> None:
        self._journal = journal
        self._step = step
        self.new_id = journal.new_id
        self.begin = journal.begin

    def prepare(self, tx: int, data: bytes) -> Waitable:
        return self._stepped("journal prepare", lambda: self._journal.prepare(tx, data))

    def commit(self, tx: int, *, then: Sequence[PlainOperation] = ()) -> Waitable:
        return self._stepped("journal commit", lambda: self._journal.commit(tx, then=then))

    def rollback(self, tx: int) -> Waitable:
        return self._stepped("journal rollback", lambda: self._journal.rollback(tx))

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


class XaNode:
    """An active journal with its resource and coordinator."""

    def __init__(self, journal: Appends, loader: XaLoader, dsn: str, step: Step | None = None) -> None:
        postgres = PostgresParticipant(dsn)
        ports: Transactions = journal
        records: OutcomeRecords = journal
        self._participant: Participant = postgres
        if step is not None:
            ports = records = SteppedJournal(journal, step)
            self._participant = SteppedParticipant(postgres, step)
        self._journal = journal
        self.resource = XaResource(ports, records, loader.loaded, clock_ms=wall_ms)
        self.resource.start()
        self._coordinator = Coordinator(self.resource, "test", [self._participant], instance=secrets.token_hex(8))

    def recover(self) -> Recovery:
        return self._coordinator.recover()

    def transfer(self, name: str) -> None:
        """A message and a row of that name."""
        with transaction.manager:
            work = self._coordinator.join(transaction.manager)
            self._journal.add(self._journal.new_id(), MESSAGE, name.encode(), tx=work.tx)
            connection: TwoPhaseConnection = self._coordinator.enlist(work, self._participant)
            connection.execute("INSERT INTO transfers VALUES (%s)", (name,))  # type: ignore[attr-defined]


@contextmanager
def active_node(journal: str, dsn: str, inner: Loader | None = None, step: Step | None = None) -> Iterator[XaNode]:
    """A node on an activated journal: a local one's directory, or `kafka`."""
    loader = XaLoader(inner)
    with BlockingJournal(load_settings(None)) if journal == "kafka" else LocalJournal(Path(journal)) as opened:
        opened.activate(loader)
        yield XaNode(opened, loader, dsn, step)


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    journal, dsn, act, name, step = sys.argv[1:]
    with active_node(journal, dsn, step=Killer(int(step)).step) as node:
        if act == "recover":
            node.recover()
        else:
            node.transfer(name)
        print("done", flush=True)


if __name__ == "__main__":
    main()
