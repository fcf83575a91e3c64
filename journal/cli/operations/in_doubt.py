"""Prepared transactions from a state's rows, in the form in which `--json` prints them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from journal.cli.script import encode_data
from journal.cli.text import printable
from journal.errors import RowError, TransactionUnknownError
from journal.fold.rows import Base
from journal.load.loading import LoadedPart, prepared_transactions
from journal.process.commands import command
from journal.store.records import decode_queue
from journal.v1.journal_pb2 import DELETE, UPDATE, Operation, Record, Transaction
from journal.v1.store_pb2 import ACKNOWLEDGE, QUEUE, REFERENCE, ROUTE
from journal.wire.keys import record_key, transaction_key
from journal.xa.xid import Xid, decode_xid, text

_DOES: dict[int, str] = {ROUTE: "adds", ACKNOWLEDGE: "acknowledges", REFERENCE: "changes"}


class Reference(NamedTuple):
    """An effect of a transaction on one queue of a message store."""

    queue: str
    message: int
    does: str
    """`adds` a message, or `acknowledges` or `changes` one (acquires, releases, counts, schedules). Until the
    transaction is settled, the queue holds that message locked."""


@dataclass(frozen=True, slots=True)
class InDoubtTransaction:
    """A prepared transaction."""

    tx: int
    data: bytes
    prepared_ms: int
    shards: Sequence[int]
    """The shards that have a part of the transaction."""
    prepared_in: int
    """The number of shards in which it was prepared. It is larger than the number of `shards` if a skip has caused one
    part to be settled alone, or never prepared."""
    operations: Sequence[Operation]
    references: Sequence[Reference]
    destroys: Sequence[str]
    """Queues of a message store that the transaction destroys."""

    @property
    def xid(self) -> Xid | None:
        """The xid; None if the transaction was prepared without XA."""
        return decode_xid(self.data)

    @property
    def text(self) -> str:
        """The name by which people know the transaction."""
        return name_of(self.data)

    @property
    def records(self) -> int:
        """Number of records that its operations hold locked."""
        return len({op.id for op in self.operations})


def name_of(data: bytes) -> str:
    """The name of a transaction with this data: its xid, or the data."""
    xid = decode_xid(data)
    return printable(data) if xid is None else text(xid)


def in_doubt(base: Base) -> Iterator[InDoubtTransaction]:
    """Prepared transactions of a state, in order of tx, one in memory at a time."""
    for tx, data, operations, parts in prepared_transactions(base):
        yield InDoubtTransaction(
            tx,
            data,
            _prepared_ms(base, tx, parts),
            [part.shard for part in parts],
            parts[0].prepared_in,
            operations,
            references_of(base, operations),
            [name for op in operations if op.type == DELETE and (name := queue_name(base, op.id))],
        )


def find_in_doubt(base: Base, named: str, journal: str) -> InDoubtTransaction:
    """The transaction that is named by its number, or by its xid as `tx list` shows it. Raises TransactionUnknownError,
    which says where to look."""
    called = []
    for transaction in in_doubt(base):
        if str(transaction.tx) == named:
            return transaction
        if transaction.text == named:
            called.append(transaction)
    if len(called) == 1:
        return called[0]
    if called:
        numbers = ", ".join(str(each.tx) for each in called)
        raise TransactionUnknownError(f"several transactions are called {named}, name one by its number: {numbers}")
    raise unknown(journal, named)


def unknown(journal: str, named: object) -> TransactionUnknownError:
    return TransactionUnknownError(
        f"no transaction {named} is in doubt: {command('tx list', journal=journal)} shows those that are"
    )


def _prepared_ms(base: Base, tx: int, parts: Sequence[LoadedPart]) -> int:
    rows = [base.get(transaction_key(tx, part.shard)) for part in parts]
    return max(Transaction.FromString(row or b"").timestamp for row in rows)


def references_of(base: Base, operations: Sequence[Operation]) -> list[Reference]:
    """The effects of operations on the queues of a message store; empty if the journal belongs to another broker."""
    does: dict[tuple[int, int], str] = {}
    for op in operations:
        if op.type == UPDATE and op.kind in _DOES:
            key = op.subject, op.id
            if op.kind != REFERENCE or key not in does:  # a transaction may change a message before it acknowledges it
                does[key] = _DOES[op.kind]
    names = {queue: queue_name(base, queue) for queue in {queue for queue, _ in does}}
    return [Reference(names[queue], message, each) for (queue, message), each in does.items() if names[queue]]


def queue_name(base: Base, record_id: int) -> str:
    """The queue's name; empty if there is no such queue. Another broker may use this kind for something else."""
    row = base.get(record_key(record_id))
    record = Record() if row is None else Record.FromString(row)
    try:
        return decode_queue(record.data).name if record.kind == QUEUE else ""
    except RowError:
        return ""


def xid_line(xid: Xid) -> dict[str, Any]:
    """An xid as `--json` prints it."""
    return {"format_id": xid.format_id, "gtrid": encode_data(xid.gtrid), "bqual": encode_data(xid.bqual)}


def summary(transaction: InDoubtTransaction, now_ms: float) -> dict[str, Any]:
    """One transaction as `--json` prints it."""
    xid = transaction.xid
    queues: dict[str, dict[str, int]] = {}
    for reference in transaction.references:
        counts = queues.setdefault(reference.queue, dict.fromkeys(_DOES.values(), 0))
        counts[reference.does] += 1
    return {
        "tx": transaction.tx,
        "xid": xid and xid_line(xid),
        "data": encode_data(transaction.data),
        "text": transaction.text,
        "age_seconds": round(max(0.0, now_ms - transaction.prepared_ms) / 1000, 3),
        "queues": queues,
        "destroys": list(transaction.destroys),
        "messages": len({reference.message for reference in transaction.references}),
        "operations": len(transaction.operations),
        "records": transaction.records,
        "shards": list(transaction.shards),
        "prepared_in": transaction.prepared_in,
    }
