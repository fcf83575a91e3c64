"""`kafka-journal tx`: prepared transactions, listed, looked at, and settled by hand."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console

from journal.cli.activating import activated_journal
from journal.cli.common import (
    BootstrapOption,
    ConfigOption,
    JournalOption,
    JsonOption,
    PropertyOption,
    StepProgress,
    TakeOverOption,
    YesOption,
    confirm,
    errors,
    exit_codes,
    operator,
    print_facts,
    print_json,
    print_table,
    settings_from,
)
from journal.cli.reading import loaded_snapshot, opened_journal
from journal.cli.text import duration, printable
from journal.config import Settings
from journal.engine import Base
from journal.errors import TransactionUnknownError
from journal.loading import LoadedPart, prepared_transactions
from journal.runtime import wall_ms
from journal.script import encode_data, operation_line
from journal.v1.journal_pb2 import ADD, DELETE, UPDATE, Operation, Transaction
from journal.wire.keys import transaction_key

log = logging.getLogger(__name__)

app = typer.Typer(no_args_is_help=True, help="Prepared transactions: list, show, commit, rollback.")

TxArgument = Annotated[int, typer.Argument(min=1, max=2**63 - 1, help="The transaction's id, as `tx list` shows it.")]

_NAMES: dict[int, str] = {ADD: "add", UPDATE: "update", DELETE: "delete"}


@dataclass(frozen=True, slots=True)
class InDoubt:
    """A prepared transaction."""

    tx: int
    data: bytes
    prepared_ms: int
    shards: Sequence[int]
    operations: Sequence[Operation]

    @property
    def records(self) -> int:
        """How many records its operations hold locked."""
        return len({op.id for op in self.operations})


def in_doubt(base: Base) -> Iterator[InDoubt]:
    """Prepared transactions of a state, in order of tx, one in memory at a time."""
    for tx, data, operations, parts in prepared_transactions(base):
        yield InDoubt(tx, data, _prepared_ms(base, tx, parts), [part.shard for part in parts], operations)


def _prepared_ms(base: Base, tx: int, parts: Sequence[LoadedPart]) -> int:
    rows = [base.get(transaction_key(tx, part.shard)) for part in parts]
    return max(Transaction.FromString(row or b"").timestamp for row in rows)


# ---- commands ----------------------------------------------------------------------------------------------


@app.command("list")
def list_(
    bootstrap: BootstrapOption = None,
    journal: JournalOption = None,
    properties: PropertyOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """The transactions in doubt, as of the WAL's committed end. Needs no worker and disturbs nobody."""
    with exit_codes():
        settings = settings_from(bootstrap, journal, properties, config)
        now_ms = wall_ms()
        with opened_journal(settings) as (kafka, rows), loaded_snapshot(settings, kafka, rows, now=True) as state:
            found = [summary(transaction, now_ms) for transaction in in_doubt(state.base)]
    if as_json:
        print_json(found)
    elif not found:
        typer.echo(f"journal {settings.journal} has no transactions in doubt")
    else:
        columns = ("tx", "data", "age", "operations", "records held", "shards")
        print_table(f"in doubt in journal {settings.journal}", columns, [_summary_row(line) for line in found])


@app.command()
def show(
    tx: TxArgument,
    bootstrap: BootstrapOption = None,
    journal: JournalOption = None,
    properties: PropertyOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """A transaction in doubt, and the operations that wait in it."""
    with exit_codes():
        settings = settings_from(bootstrap, journal, properties, config)
        transaction = _find(settings, tx)
    line = summary(transaction, wall_ms())
    if as_json:
        print_json(line | {"held": [operation_line(op) for op in transaction.operations]})
        return
    _show_summary(line)
    columns = ("operation", "id", "kind", "subject", "data")
    print_table("operations", columns, [_operation_row(op) for op in transaction.operations])


@app.command()
def commit(
    tx: TxArgument,
    bootstrap: BootstrapOption = None,
    journal: JournalOption = None,
    take_over: TakeOverOption = False,
    yes: YesOption = False,
    properties: PropertyOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a transaction's operations take effect, in place of its coordinator."""
    with exit_codes():
        settings = settings_from(bootstrap, journal, properties, config)
        _settle(settings, tx, "commit", take_over=take_over, yes=yes, as_json=as_json)


@app.command()
def rollback(
    tx: TxArgument,
    bootstrap: BootstrapOption = None,
    journal: JournalOption = None,
    take_over: TakeOverOption = False,
    yes: YesOption = False,
    properties: PropertyOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Drop a transaction's operations, in place of its coordinator."""
    with exit_codes():
        settings = settings_from(bootstrap, journal, properties, config)
        _settle(settings, tx, "rollback", take_over=take_over, yes=yes, as_json=as_json)


# ---- settling ----------------------------------------------------------------------------------------------


def _find(settings: Settings, tx: int) -> InDoubt:
    with opened_journal(settings) as (kafka, rows), loaded_snapshot(settings, kafka, rows, now=True) as state:
        for transaction in in_doubt(state.base):
            if transaction.tx == tx:
                return transaction
    raise _unknown(settings, tx)


def _unknown(settings: Settings, tx: int) -> TransactionUnknownError:
    return TransactionUnknownError(
        f"no transaction {tx} is in doubt: kafka-journal tx list -j {settings.journal} shows those that are"
    )


def _settle(settings: Settings, tx: int, outcome: str, *, take_over: bool, yes: bool, as_json: bool) -> None:
    line = summary(_find(settings, tx), wall_ms())
    if not yes:
        _show_summary(line, errors)
        confirm(f"{outcome} transaction {tx}, which only its coordinator should decide?", yes=yes)
    with (
        StepProgress() as progress,
        activated_journal(settings, take_over=take_over, progress=progress) as (opened, report),
    ):
        if tx not in report.in_doubt:
            raise _unknown(settings, tx)
        (opened.commit(tx) if outcome == "commit" else opened.rollback(tx)).wait()
        done = {"commit": "committed", "rollback": "rolled back"}[outcome]
        log.warning("transaction %d (%s) was %s by hand, by %s", tx, line["text"], done, operator())
    if as_json:
        print_json(line | {"outcome": outcome, "operator": operator(), "epoch": report.epoch})
    else:
        typer.echo(f"transaction {tx} is {done}")


# ---- words -------------------------------------------------------------------------------------------------


def summary(transaction: InDoubt, now_ms: float) -> dict[str, Any]:
    """One transaction as `--json` prints it."""
    return {
        "tx": transaction.tx,
        "data": encode_data(transaction.data),
        "text": printable(transaction.data),
        "age_seconds": round(max(0.0, now_ms - transaction.prepared_ms) / 1000, 3),
        "operations": len(transaction.operations),
        "records": transaction.records,
        "shards": list(transaction.shards),
    }


def _summary_row(line: dict[str, Any]) -> tuple[object, ...]:
    shards = ", ".join(map(str, line["shards"]))
    return line["tx"], line["text"], duration(line["age_seconds"]), line["operations"], line["records"], shards


def _show_summary(line: dict[str, Any], to: Console | None = None) -> None:
    names = ("transaction", "data", "age", "operations", "records held", "shards")
    print_facts("in doubt", dict(zip(names, _summary_row(line), strict=True)), to=to)


def _operation_row(op: Operation) -> tuple[object, ...]:
    if op.type == DELETE:
        return "delete", op.id, "", "", ""
    replaceable = " (replaceable)" if op.replaceable else ""
    subject = op.subject if op.type == UPDATE else ""
    return _NAMES[op.type] + replaceable, op.id, op.kind, subject, printable(op.data)
