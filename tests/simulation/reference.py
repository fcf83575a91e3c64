"""What callers may expect, said by calls alone: no frames, no rows, no engine.

A `Reference` knows the records and transactions that a sequence of accepted calls makes, says which calls must be
refused and how, and what a new epoch leaves of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from journal.errors import (
    CallerError,
    LockedError,
    RecordExistsError,
    RecordMissingError,
    TransactionPreparedError,
    TransactionUnknownError,
)

Verb = Literal["add", "update", "delete", "prepare", "commit", "rollback"]


class Call(NamedTuple):
    """A call of the journal's; `tx` 0 is outside of transactions."""

    verb: Verb
    id: int = 0
    kind: int = 0
    data: bytes = b""
    replaceable: bool = False
    subject: int = 0
    tx: int = 0


SeenUpdate = tuple[int, bytes, bool, int]
"""Kind, data, replaceable, subject."""

SeenRecord = tuple[int, bytes, tuple[SeenUpdate, ...]]

SeenOperation = tuple[str, int, int, bytes, bool, int]
"""Verb, id, kind, data, replaceable, subject."""

SeenPrepared = tuple[bytes, tuple[SeenOperation, ...]]
"""Data, and the operations sorted by shard."""


class Seen(NamedTuple):
    """A state as a load tells it."""

    records: dict[int, SeenRecord]
    prepared: dict[int, SeenPrepared]


@dataclass(slots=True)
class Record:
    kind: int
    data: bytes
    updates: list[SeenUpdate] = field(default_factory=list)

    def copy(self) -> Record:
        return Record(self.kind, self.data, list(self.updates))


@dataclass(slots=True)
class Transaction:
    calls: list[Call] = field(default_factory=list)
    prepared: bool = False
    data: bytes = b""

    def copy(self) -> Transaction:
        return Transaction(list(self.calls), self.prepared, self.data)


class Reference:
    """The state of a sequence of calls."""

    def __init__(self) -> None:
        self.records: dict[int, Record] = {}
        self.transactions: dict[int, Transaction] = {}

    def copy(self) -> Reference:
        other = Reference()
        other.records = {id: record.copy() for id, record in self.records.items()}
        other.transactions = {tx: one.copy() for tx, one in self.transactions.items()}
        return other

    def new_epoch(self) -> None:
        self.transactions = {tx: one for tx, one in self.transactions.items() if one.prepared}

    # ---- refusals --------------------------------------------------------------------------------------------

    def refusal(self, call: Call) -> type[CallerError] | None:
        """How the call must be refused, if so."""
        own = self.transactions.get(call.tx)
        if call.verb in ("commit", "rollback"):
            return None if own is not None else TransactionUnknownError
        if own is not None and own.prepared:
            return TransactionPreparedError
        if call.verb == "prepare":
            return None
        exists = call.id in self.records
        for done in own.calls if own is not None else ():
            if done.id == call.id and done.verb != "update":
                exists = done.verb == "add"
        if exists == (call.verb == "add"):
            return RecordExistsError if exists else RecordMissingError
        return LockedError if self._is_locked(call) else None

    def _is_locked(self, call: Call) -> bool:
        for tx, other in self.transactions.items():
            if tx == call.tx:
                continue
            for done in other.calls:
                if done.id == call.id and not (
                    done.verb == call.verb == "update" and (done.kind, done.subject) != (call.kind, call.subject)
                ):
                    return True
        return False

    # ---- effects ---------------------------------------------------------------------------------------------

    def apply(self, call: Call) -> None:
        """An accepted call's effect."""
        if call.verb == "prepare":
            one = self.transactions.setdefault(call.tx, Transaction())
            one.prepared, one.data = True, call.data
        elif call.verb in ("commit", "rollback"):
            settled = self.transactions.pop(call.tx)
            for done in settled.calls if call.verb == "commit" else ():
                self._take_effect(done)
        elif call.tx:
            self.transactions.setdefault(call.tx, Transaction()).calls.append(call)
        else:
            self._take_effect(call)

    def _take_effect(self, call: Call) -> None:
        if call.verb == "add":
            self.records[call.id] = Record(call.kind, call.data)
        elif call.verb == "delete":
            del self.records[call.id]
        else:
            updates = self.records[call.id].updates
            if call.replaceable:
                updates[:] = [u for u in updates if not (u[2] and (u[0], u[3]) == (call.kind, call.subject))]
            updates.append((call.kind, call.data, call.replaceable, call.subject))

    # ---- as loads tell it --------------------------------------------------------------------------------------

    def seen(self, shards: int) -> Seen:
        records = {id: (one.kind, one.data, tuple(one.updates)) for id, one in self.records.items()}
        prepared = {
            tx: (one.data, by_shard((seen_operation(call) for call in one.calls), shards))
            for tx, one in self.transactions.items()
            if one.prepared
        }
        return Seen(records, prepared)

    @staticmethod
    def of(seen: Seen) -> Reference:
        """What goes on from a loaded state."""
        reference = Reference()
        for id, (kind, data, updates) in seen.records.items():
            reference.records[id] = Record(kind, data, list(updates))
        for tx, (data, operations) in seen.prepared.items():
            calls = [Call(verb, id, kind, of, rep, subject, tx) for verb, id, kind, of, rep, subject in operations]  # type: ignore[arg-type]
            reference.transactions[tx] = Transaction(calls, True, data)
        return reference


def seen_operation(call: Call) -> SeenOperation:
    return call.verb, call.id, call.kind, call.data, call.replaceable, call.subject


def by_shard(operations: Iterable[SeenOperation], shards: int) -> tuple[SeenOperation, ...]:
    """Sorted by shard, as loads tell a transaction's operations."""
    return tuple(sorted(operations, key=lambda one: one[1] % 1024 % shards))
