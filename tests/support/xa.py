"""A journal and a database in memory, whose every call is a step at which a test may crash, or let another node in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from journal.append.completion import Completion
from journal.append.operations import PlainOperation
from journal.errors import DeadlineError, FencedError, FullError, OutcomeUnknownError, TransactionUnknownError
from journal.v1.journal_pb2 import ADD
from journal.v1.store_pb2 import OUTCOME
from journal.xa.loading import OutcomeFound, PreparedFound, XaRows
from journal.xa.ports import ClockMs
from journal.xa.resource import XaResource
from journal.xa.xid import Xid, make_xid

MESSAGE_KIND = 4
START_MS = 1_700_000_000_000.0


class Crash(BaseException):
    """The process is gone; nobody may catch it."""


class Steps:
    """Counts steps, and does something at one of them."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._dead = False
        self._actions: dict[int, Callable[[], None]] = {}

    def at(self, number: int, action: Callable[[], None]) -> None:
        """`action` at step `number`, counted from now."""
        self._actions[len(self.names) + number] = action

    def step(self, name: str) -> None:
        if self._dead:
            raise Crash
        action = self._actions.pop(len(self.names), None)
        self.names.append(name)
        if action is not None:
            action()

    def crash_at(self, number: int) -> None:
        self.at(number, self.crash)

    def crash(self) -> None:
        """No step succeeds any more, so that nobody's cleaning up does anything: until `calm`, in the next process."""
        self._dead = True
        raise Crash

    def calm(self) -> None:
        self._dead = False
        self._actions.clear()


class MemoryLog:
    """What is durable, and the epoch of who may append."""

    def __init__(self) -> None:
        self.epoch = 0
        self.records: dict[int, tuple[int, bytes]] = {}
        self.prepared: dict[int, tuple[bytes, list[PlainOperation]]] = {}
        self._ids = count(1)

    def new_id(self) -> int:
        return next(self._ids)

    def messages(self) -> set[bytes]:
        """The data of records that are no outcomes."""
        return {data for kind, data in self.records.values() if kind != OUTCOME}

    def apply(self, operations: Sequence[PlainOperation]) -> None:
        for type_, record_id, kind, data, _, _ in operations:
            if type_ == ADD:
                self.records[record_id] = kind, data
            else:
                self.records.pop(record_id, None)

    def loaded(self) -> XaRows:
        return XaRows(
            [PreparedFound(tx, data) for tx, (data, _) in sorted(self.prepared.items())],
            [OutcomeFound(id, data) for id, (kind, data) in sorted(self.records.items()) if kind == OUTCOME],
        )


class MemoryPending(Completion):
    """An accepted group; it becomes durable when somebody waits for it."""

    def __init__(self, journal: MemoryJournal, name: str) -> None:
        super().__init__()
        self._journal = journal
        self._name = name

    def wait(self, timeout_s: float | None = None) -> None:
        self._journal.steps.step(f"{self._name} awaited")
        if self._journal.slow:
            self._journal.slow -= 1
            raise DeadlineError("not durable in time")
        self._journal.flush()
        super().wait(0.0)
        self._journal.steps.step(f"{self._name} durable")


class MemoryJournal:
    """One activation: a port of transactions and of records. Newer activations fence it."""

    def __init__(self, log: MemoryLog, steps: Steps | None = None) -> None:
        log.epoch += 1
        self.steps = steps or Steps()
        self._log = log
        self._epoch = log.epoch
        self._tx = count((self._epoch << 32) + 1)
        self._open: dict[int, list[PlainOperation]] = {}
        self._pending: list[tuple[MemoryPending, Callable[[], None]]] = []
        self.refusals = 0
        """How many of the next appends are refused with an error that changes nothing."""
        self.slow = 0
        """How many of the next waits run past their deadline, with nothing durable."""

    # ---- what becomes durable --------------------------------------------------------------------------------------

    def flush(self, *, told: bool = True) -> None:
        """Everything accepted is durable now, or has failed; unless it is told so, nobody here knows which."""
        fenced = self._log.epoch != self._epoch
        pending, self._pending = self._pending, []
        for completion, effect in pending:
            if not fenced:
                effect()
            completion.resolve(None if told and not fenced else OutcomeUnknownError("nothing more is known"))

    def lose(self) -> None:
        """What was accepted and not durable is gone, with its process."""
        self._pending.clear()

    def _append(self, name: str, effect: Callable[[], None]) -> MemoryPending:
        self.steps.step(f"{name} called")
        if self._log.epoch != self._epoch:
            raise FencedError("another node is active", epoch=self._log.epoch)
        if self.refusals:
            self.refusals -= 1
            raise FullError("no room")
        completion = MemoryPending(self, name)
        self._pending.append((completion, effect))
        self.steps.step(f"{name} accepted")
        return completion

    # ---- the ports -------------------------------------------------------------------------------------------------

    def new_id(self, virtual_shard: int = 0) -> int:
        return self._log.new_id()

    def add(self, record_id: int, kind: int, data: bytes, *, tx: int = 0) -> Completion:
        operation = (ADD, record_id, kind, data, False, 0)
        if tx:
            self._open.setdefault(tx, []).append(operation)  # as a journal does, which begins it anew
            return Completion()
        return self.append_all([operation])

    def delete(self, record_id: int) -> Completion:
        return self._append("delete", lambda: self._log.records.__delitem__(record_id))

    def append_all(self, operations: Sequence[PlainOperation]) -> Completion:
        return self._append("append", lambda: self._log.apply(operations))

    def begin(self) -> int:
        tx = next(self._tx)
        self._open[tx] = []
        return tx

    def is_empty(self, tx: int) -> bool:
        if tx not in self._open:
            raise TransactionUnknownError(f"no transaction {tx}")
        return not self._open[tx]

    def prepare(self, tx: int, data: bytes) -> Completion:
        if tx not in self._open:
            raise TransactionUnknownError(f"no transaction {tx}")
        operations = self._open[tx]
        done = self._append("prepare", lambda: self._log.prepared.__setitem__(tx, (data, operations)))
        self._open.pop(tx)
        return done

    def commit(self, tx: int, *, then: Sequence[PlainOperation] = ()) -> Completion:
        operations = self._operations(tx)
        done = self._append("commit", lambda: self._settle(tx, [*operations, *then]))
        self._open.pop(tx, None)
        return done

    def rollback(self, tx: int) -> Completion:
        self._operations(tx)
        done = self._append("rollback", lambda: self._settle(tx, []))
        self._open.pop(tx, None)
        return done

    def _operations(self, tx: int) -> list[PlainOperation]:
        if tx in self._log.prepared:
            return self._log.prepared[tx][1]
        if tx not in self._open:
            raise TransactionUnknownError(f"no transaction {tx}")
        return self._open[tx]

    def _settle(self, tx: int, operations: Sequence[PlainOperation]) -> None:
        self._log.prepared.pop(tx, None)
        self._log.apply(operations)


def opened(
    log: MemoryLog,
    steps: Steps | None = None,
    *,
    clock_ms: ClockMs = lambda: START_MS,
    elapsed_ms: ClockMs | None = None,
) -> tuple[MemoryJournal, XaResource]:
    """A new activation of a journal in memory, with a resource that has recovered its own."""
    journal = MemoryJournal(log, steps)
    resource = XaResource(journal, journal, log.loaded(), clock_ms=clock_ms, elapsed_ms=elapsed_ms or clock_ms)
    resource.start()
    return journal, resource


class DatabaseError(Exception):
    """What the database's connections raise."""


class MemoryDatabase:
    """A database with two-phase commit; a participant."""

    errors: tuple[type[Exception], ...] = (DatabaseError,)

    def __init__(self, name: str = "database") -> None:
        self.name = name
        self.steps = Steps()
        self.down = False
        self.committed: set[bytes] = set()
        self.prepared: dict[Xid, set[bytes]] = {}

    def connect(self) -> MemoryConnection:
        return MemoryConnection(self)


class MemoryConnection:
    """A connection as PEP 249 describes it. What was not prepared is gone with the connection."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database
        self._xid: Xid | None = None
        self._work: set[bytes] = set()
        self._call("connect")

    def insert(self, data: bytes) -> None:
        self._work.add(data)

    def xid(self, format_id: int, gtrid: str, bqual: str) -> Xid:
        return make_xid(format_id, gtrid, bqual)

    def tpc_begin(self, xid: Xid) -> None:
        self._xid = xid

    def tpc_prepare(self) -> None:
        assert self._xid is not None
        self._call("prepare")
        self._database.prepared[self._xid] = self._work
        self._called("prepare")

    def tpc_commit(self, xid: Xid | None = None) -> None:
        self._call("commit")
        self._database.committed |= self._take(xid)
        self._called("commit")

    def tpc_rollback(self, xid: Xid | None = None) -> None:
        if xid is None and self._xid not in self._database.prepared:
            return
        self._call("rollback")
        self._take(xid)
        self._called("rollback")

    def tpc_recover(self) -> list[Xid]:
        self._call("recover")
        found = list(self._database.prepared)
        self._called("recover")
        return found

    def close(self) -> None:
        """Nothing is open."""

    def _take(self, xid: Xid | None) -> set[bytes]:
        wanted = xid or self._xid
        if wanted is None or wanted not in self._database.prepared:
            raise DatabaseError(f"no prepared transaction {wanted}")
        return self._database.prepared.pop(wanted)

    def _call(self, name: str) -> None:
        if self._database.down:
            raise DatabaseError("the server is down")
        self._database.steps.step(f"database {name} called")

    def _called(self, name: str) -> None:
        self._database.steps.step(f"database {name} done")
