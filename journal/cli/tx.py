"""`kafka-journal tx`: prepared transactions, listed, looked at, and settled by hand."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console

from journal.cli.activating import activated_journal
from journal.cli.common import (
    Chosen,
    JsonOption,
    StepProgress,
    TakeOverOption,
    YesOption,
    confirm,
    errors,
    journal_command,
    operator,
    print_facts,
    print_json,
    print_table,
)
from journal.cli.reading import loaded_state
from journal.cli.text import duration, printable
from journal.config import Settings
from journal.engine import Base
from journal.errors import RowError, TransactionUnknownError
from journal.journal import BlockingJournal
from journal.loading import LoadedPart, prepared_transactions
from journal.runtime import wall_ms
from journal.script import encode_data, operation_line
from journal.store.records import decode_queue
from journal.v1.journal_pb2 import ADD, DELETE, UPDATE, Operation, Record, Transaction
from journal.v1.store_pb2 import ACKNOWLEDGE, QUEUE, ROUTE
from journal.wire.keys import record_key, transaction_key
from journal.xa.loading import XaLoader
from journal.xa.resource import XaResource
from journal.xa.xid import Xid, decode_xid, text

log = logging.getLogger(__name__)

app = typer.Typer(no_args_is_help=True, help="Prepared transactions: list, show, commit, rollback.")

TxArgument = Annotated[int, typer.Argument(min=1, max=2**63 - 1, help="The transaction's id, as `tx list` shows it.")]

_NAMES: dict[int, str] = {ADD: "add", UPDATE: "update", DELETE: "delete"}
_DOES: dict[int, str] = {ROUTE: "adds", ACKNOWLEDGE: "acknowledges"}


class Reference(NamedTuple):
    """What a transaction does to a queue of a message store."""

    queue: str
    message: int
    does: str
    """`adds` the message, or `acknowledges` it: until then the queue holds it locked."""


@dataclass(frozen=True, slots=True)
class InDoubt:
    """A prepared transaction."""

    tx: int
    data: bytes
    prepared_ms: int
    shards: Sequence[int]
    operations: Sequence[Operation]
    references: Sequence[Reference]

    @property
    def xid(self) -> Xid | None:
        """None for one that was prepared without XA."""
        return decode_xid(self.data)

    @property
    def text(self) -> str:
        """What it is called: its xid, or its data."""
        return printable(self.data) if self.xid is None else text(self.xid)

    @property
    def records(self) -> int:
        """How many records its operations hold locked."""
        return len({op.id for op in self.operations})


def in_doubt(base: Base) -> Iterator[InDoubt]:
    """Prepared transactions of a state, in order of tx, one in memory at a time."""
    for tx, data, operations, parts in prepared_transactions(base):
        shards = [part.shard for part in parts]
        yield InDoubt(tx, data, _prepared_ms(base, tx, parts), shards, operations, references_of(base, operations))


def _prepared_ms(base: Base, tx: int, parts: Sequence[LoadedPart]) -> int:
    rows = [base.get(transaction_key(tx, part.shard)) for part in parts]
    return max(Transaction.FromString(row or b"").timestamp for row in rows)


def references_of(base: Base, operations: Sequence[Operation]) -> list[Reference]:
    """What operations do to the queues of a message store; nothing if the journal is not one's."""
    names: dict[int, str] = {}
    found = []
    for op in operations:
        if op.type != UPDATE or op.kind not in _DOES:
            continue
        if op.subject not in names:
            names[op.subject] = queue_name(base, op.subject)
        if names[op.subject]:
            found.append(Reference(names[op.subject], op.id, _DOES[op.kind]))
    return found


def queue_name(base: Base, record_id: int) -> str:
    """Empty if there is no such queue; any journal may have records of that kind."""
    row = base.get(record_key(record_id))
    record = Record() if row is None else Record.FromString(row)
    try:
        return decode_queue(record.data).name if record.kind == QUEUE else ""
    except RowError:
        return ""


# ---- commands ----------------------------------------------------------------------------------------------


@app.command("list")
@journal_command
def list_(chosen: Chosen, as_json: JsonOption = False) -> None:
    """The transactions in doubt, as of the WAL's committed end. Needs no worker and disturbs nobody."""
    settings = chosen.settings()
    now_ms = wall_ms()
    with loaded_state(settings) as (state, _):
        found = [summary(transaction, now_ms) for transaction in in_doubt(state.base)]
    if as_json:
        print_json(found)
    elif not found:
        typer.echo(f"journal {settings.journal} has no transactions in doubt")
    else:
        print_table(f"in doubt in journal {settings.journal}", _COLUMNS, [_summary_row(line) for line in found])


@app.command()
@journal_command
def show(chosen: Chosen, tx: TxArgument, as_json: JsonOption = False) -> None:
    """A transaction in doubt, the messages that it holds, and the operations that wait in it."""
    transaction = _find(chosen.settings(), tx)
    line = summary(transaction, wall_ms())
    if as_json:
        references = [reference._asdict() for reference in transaction.references]
        held = [operation_line(op) for op in transaction.operations]
        print_json(line | {"references": references, "held": held})
        return
    _show_summary(line)
    if transaction.references:
        rows = [(queue, message, does) for queue, message, does in transaction.references]
        print_table("messages", ("queue", "message", "the transaction"), rows)
    columns = ("operation", "id", "kind", "subject", "data")
    print_table("operations", columns, [_operation_row(op) for op in transaction.operations])


@app.command()
@journal_command
def commit(
    chosen: Chosen,
    tx: TxArgument,
    take_over: TakeOverOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make a transaction's operations take effect, in place of its coordinator."""
    _settle(chosen.settings(), tx, "commit", take_over=take_over, yes=yes, as_json=as_json)


@app.command()
@journal_command
def rollback(
    chosen: Chosen,
    tx: TxArgument,
    take_over: TakeOverOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Drop a transaction's operations, in place of its coordinator."""
    _settle(chosen.settings(), tx, "rollback", take_over=take_over, yes=yes, as_json=as_json)


# ---- settling ----------------------------------------------------------------------------------------------


def _find(settings: Settings, tx: int) -> InDoubt:
    with loaded_state(settings) as (state, _):
        for transaction in in_doubt(state.base):
            if transaction.tx == tx:
                return transaction
    raise _unknown(settings, tx)


def _unknown(settings: Settings, tx: int) -> TransactionUnknownError:
    return TransactionUnknownError(
        f"no transaction {tx} is in doubt: kafka-journal tx list -j {settings.journal} shows those that are"
    )


def _settle(settings: Settings, tx: int, outcome: str, *, take_over: bool, yes: bool, as_json: bool) -> None:
    transaction = _find(settings, tx)
    line = summary(transaction, wall_ms())
    if not yes:
        _show_summary(line, errors)
        confirm(f"{outcome} transaction {tx}, which only its coordinator should decide?", yes=yes)
    loader = None if transaction.xid is None else XaLoader()
    with (
        StepProgress() as progress,
        activated_journal(settings, take_over=take_over, progress=progress, loader=loader) as (opened, report),
    ):
        if tx not in report.in_doubt:
            raise _unknown(settings, tx)
        _call(opened, loader, tx, commit=outcome == "commit")
        done = {"commit": "committed", "rollback": "rolled back"}[outcome]
        log.warning("transaction %d (%s) was %s by hand, by %s", tx, transaction.text, done, operator())
    if as_json:
        print_json(line | {"outcome": outcome, "operator": operator(), "epoch": report.epoch})
    else:
        typer.echo(f"transaction {tx} is {done}")


def _call(journal: BlockingJournal, loader: XaLoader | None, tx: int, *, commit: bool) -> None:
    """With an xid the outcome is kept, too, until the coordinator has heard of it."""
    if loader is not None:
        resource = XaResource(journal, journal, loader.loaded, clock_ms=wall_ms)
        for line in resource.in_doubt():
            if line.tx == tx:
                resource.settle(line.xid, commit=commit)
                return
    (journal.commit(tx) if commit else journal.rollback(tx)).wait()


# ---- words -------------------------------------------------------------------------------------------------

_COLUMNS = ("tx", "xid or data", "age", "queues", "messages", "operations", "records held", "shards")


def summary(transaction: InDoubt, now_ms: float) -> dict[str, Any]:
    """One transaction as `--json` prints it."""
    xid = transaction.xid
    queues: dict[str, dict[str, int]] = {}
    for reference in transaction.references:
        counts = queues.setdefault(reference.queue, {"adds": 0, "acknowledges": 0})
        counts[reference.does] += 1
    return {
        "tx": transaction.tx,
        "xid": xid and {"format_id": xid.format_id, "gtrid": encode_data(xid.gtrid), "bqual": encode_data(xid.bqual)},
        "data": encode_data(transaction.data),
        "text": transaction.text,
        "age_seconds": round(max(0.0, now_ms - transaction.prepared_ms) / 1000, 3),
        "queues": queues,
        "messages": len({reference.message for reference in transaction.references}),
        "operations": len(transaction.operations),
        "records": transaction.records,
        "shards": list(transaction.shards),
    }


def _summary_row(line: dict[str, Any]) -> tuple[object, ...]:
    queues = ", ".join(f"{name} ({_effects(counts)})" for name, counts in line["queues"].items())
    shards = ", ".join(map(str, line["shards"]))
    age = duration(line["age_seconds"])
    return line["tx"], line["text"], age, queues, line["messages"], line["operations"], line["records"], shards


def _effects(counts: dict[str, int]) -> str:
    return ", ".join(f"{does} {count}" for does, count in counts.items() if count)


def _show_summary(line: dict[str, Any], to: Console | None = None) -> None:
    print_facts("in doubt", dict(zip(("transaction", *_COLUMNS[1:]), _summary_row(line), strict=True)), to=to)


def _operation_row(op: Operation) -> tuple[object, ...]:
    if op.type == DELETE:
        return "delete", op.id, "", "", ""
    replaceable = " (replaceable)" if op.replaceable else ""
    subject = op.subject if op.type == UPDATE else ""
    return _NAMES[op.type] + replaceable, op.id, op.kind, subject, printable(op.data)
