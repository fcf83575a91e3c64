"""`kafka-journal tx` lists prepared transactions, shows them, and settles them by hand."""

from __future__ import annotations

import base64
from typing import Annotated

import typer
from rich.console import Console

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
    print_json,
    print_line,
)
from journal.cli.operations.operation_data import data_text
from journal.cli.operations.outcomes import forgettable
from journal.cli.operations.ports import Json
from journal.cli.optional_value import OptionalValueCommand
from journal.cli.places import NodeOption, looking, settling
from journal.cli.standard_streams import note_done
from journal.cli.tables import print_facts, print_table
from journal.cli.text import duration
from journal.config import Settings
from journal.words import called

app = typer.Typer(no_args_is_help=True, help="Prepared transactions: list, show, commit, rollback, forget.")

TxArgument = Annotated[
    str, typer.Argument(metavar="TX|XID", help="The transaction's number or its xid, as `tx list` shows them.")
]
OutcomeArgument = Annotated[
    str, typer.Argument(metavar="RECORD|XID", help="The outcome's record or its xid, as `tx list` shows them.")
]


# ---- commands ----------------------------------------------------------------------------------------------


@app.command("list", cls=OptionalValueCommand)
@journal_command
def list_(chosen: Chosen, node: NodeOption = None, as_json: JsonOption = False) -> None:
    """List the transactions in doubt, and the outcomes that are kept until their coordinators have heard of them.

    They are listed as of the WAL's committed end. It needs no worker and disturbs nobody.
    """
    settings = chosen.settings()
    with looking(settings, node) as looks:
        found = looks.transactions()
    if as_json:
        print_json(found._asdict())
        return
    if found.in_doubt:
        lines = [_summary_row(line) for line in found.in_doubt]
        print_table(f"in doubt in {called(settings.journal)}", COLUMNS, lines)
    else:
        print_line(f"{called(settings.journal)} has no transactions in doubt")
    if found.outcomes:
        lines = [_outcome_row(line) for line in found.outcomes]
        print_table(f"outcomes kept in {called(settings.journal)}", OUTCOME_COLUMNS, lines)


@app.command(cls=OptionalValueCommand)
@journal_command
def show(chosen: Chosen, tx: TxArgument, node: NodeOption = None, as_json: JsonOption = False) -> None:
    """Show a transaction in doubt: the messages that it holds, and the operations that wait in it."""
    with looking(chosen.settings(), node) as looks:
        line, references, held = looks.transaction(tx)
    if as_json:
        print_json(line | {"references": references, "held": held})
        return
    _show_summary(line)
    if references:
        rows = [(each["queue"], each["message"], each["does"]) for each in references]
        print_table("messages", ("queue", "message", "the transaction"), rows)
    columns = ("operation", "id", "kind", "subject", "data")
    print_table("operations", columns, [_operation_row(op) for op in held])


@app.command(cls=OptionalValueCommand)
@journal_command
def commit(
    chosen: Chosen,
    tx: TxArgument,
    node: NodeOption = None,
    take_over: TakeOverOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Commit a transaction in the place of its coordinator: its operations take effect."""
    _settle(chosen.settings(), tx, "commit", node=node, take_over=take_over, yes=yes, as_json=as_json)


@app.command(cls=OptionalValueCommand)
@journal_command
def rollback(
    chosen: Chosen,
    tx: TxArgument,
    node: NodeOption = None,
    take_over: TakeOverOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Roll a transaction back in the place of its coordinator: its operations are dropped."""
    _settle(chosen.settings(), tx, "rollback", node=node, take_over=take_over, yes=yes, as_json=as_json)


@app.command(cls=OptionalValueCommand)
@journal_command
def forget(
    chosen: Chosen,
    outcome: OutcomeArgument,
    node: NodeOption = None,
    take_over: TakeOverOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Forget the outcome of a transaction that was settled by hand, if its coordinator will never ask for it."""
    settings = chosen.settings()
    with looking(settings, node) as looks:
        line = forgettable(looks.transactions().outcomes, outcome, settings.journal)
    xid = line["text"]
    if not yes:
        print_facts("outcome", dict(zip(OUTCOME_COLUMNS, _outcome_row(line), strict=True)), to=errors)
        confirm(f"forget what became of xid {xid}? Its coordinator hears nothing of it any more", yes=yes)
    with (
        StepProgress() as progress,
        settling(settings, node, of_a_store=False, take_over=take_over, progress=progress) as settles,
    ):
        epoch = settles.forget(str(line["record"]), operator=operator())
    note_done(f"the outcome of xid {xid} is forgotten")
    if as_json:
        print_json(line | {"operator": operator(), "epoch": epoch})
    else:
        print_line(f"the outcome of xid {xid} is forgotten")


def _settle(
    settings: Settings, named: str, outcome: str, *, node: str | None, take_over: bool, yes: bool, as_json: bool
) -> None:
    with looking(settings, node) as looks:
        line = looks.transaction(named).summary
    tx = line["tx"]
    if not yes:
        _show_summary(line, errors)
        confirm(f"{outcome} transaction {tx}, which only its coordinator should decide?", yes=yes)
    of_a_store = bool(line["queues"] or line["destroys"])
    with (
        StepProgress() as progress,
        settling(settings, node, of_a_store=of_a_store, take_over=take_over, progress=progress) as settles,
    ):
        epoch = settles.settle(tx, commit=outcome == "commit", operator=operator())
    done = f"transaction {tx} is {'committed' if outcome == 'commit' else 'rolled back'}"
    note_done(done)
    if as_json:
        print_json(line | {"outcome": outcome, "operator": operator(), "epoch": epoch})
    else:
        print_line(done)


# ---- words -------------------------------------------------------------------------------------------------

COLUMNS = ("tx", "xid or data", "age", "queues", "messages", "operations", "records held", "shards")


def _summary_row(line: Json) -> tuple[object, ...]:
    held = [f"{name} ({_effects(counts)})" for name, counts in line["queues"].items()]
    queues = ", ".join([*held, *(f"{name} (destroyed)" for name in line["destroys"])])
    shards = ", ".join(map(str, line["shards"]))
    if len(line["shards"]) < line["prepared_in"]:
        shards += f" of the {line['prepared_in']} it was prepared in"
    age = duration(line["age_seconds"])
    return line["tx"], line["text"], age, queues, line["messages"], line["operations"], line["records"], shards


OUTCOME_COLUMNS = ("xid", "decision", "age", "record")


def _outcome_row(line: Json) -> tuple[object, ...]:
    return line["text"], line["decision"], duration(line["age_seconds"]), line["record"]


def _effects(counts: dict[str, int]) -> str:
    return ", ".join(f"{does} {count}" for does, count in counts.items() if count)


def _show_summary(line: Json, to: Console | None = None) -> None:
    print_facts("in doubt", dict(zip(("transaction", *COLUMNS[1:]), _summary_row(line), strict=True)), to=to)


def _operation_row(op: Json) -> tuple[object, ...]:
    if op["op"] == "delete":
        return "delete", op["id"], "", "", ""
    replaceable = " (replaceable)" if op.get("replaceable") else ""
    data = data_text(op["op"], op["kind"], base64.b64decode(op["data"]))
    return op["op"] + replaceable, op["id"], op["kind"], op.get("subject", ""), data
