"""`kafka-journal apply`: activate the journal and append the operations of a script."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Annotated, BinaryIO

import typer

from journal.cli.activating import activated_journal
from journal.cli.common import (
    Chosen,
    JsonOption,
    StepProgress,
    TakeOverOption,
    journal_command,
    print_facts,
    print_json,
)
from journal.cli.script import apply_operation, parse_line
from journal.errors import ScriptError
from journal.journal import BlockingJournal

_PROGRESS_LINES = 1000


@journal_command
def apply(
    chosen: Chosen,
    file: Annotated[str, typer.Argument(help="A script of JSON lines; - reads standard input.")],
    take_over: TakeOverOption = False,
    as_json: JsonOption = False,
) -> None:
    """Activate the journal, append the operations of a script in order, and close.

    A bad line ends the command with its number; the operations before that line are in the journal.
    """
    settings = chosen.settings()
    with (
        nullcontext(sys.stdin.buffer) if file == "-" else _opened(file) as lines,
        StepProgress() as progress,
        activated_journal(settings, take_over=take_over, progress=progress) as (opened, report),
    ):
        began = time.monotonic()
        in_doubt = set(report.in_doubt)
        operations = _append_lines(opened, lines, in_doubt, progress)
        seconds = time.monotonic() - began
    facts: dict[str, object] = {
        "operations": operations,
        "epoch": report.epoch,
        "seconds": round(seconds, 3),
        "in_doubt": sorted(in_doubt),
    }
    if as_json:
        print_json(facts)
        return
    facts["in_doubt"] = ", ".join(map(str, sorted(in_doubt))) or "none"
    print_facts(f"applied to journal {settings.journal}", facts)


def _opened(file: str) -> BinaryIO:
    """A file, or whatever else can be read. Raises BadParameter."""
    try:
        return open(file, "rb")
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}", param_hint="FILE") from None


def _append_lines(journal: BlockingJournal, lines: Iterable[bytes], in_doubt: set[int], progress: StepProgress) -> int:
    """Append every line, and keep `in_doubt`. Everything appended is committed when this returns or raises
    ScriptError."""
    count = 0
    try:
        for number, text in enumerate(lines, start=1):
            if not text.strip():
                continue
            op = parse_line(text, number)
            apply_operation(journal, op, number)
            if op["op"] == "prepare":
                in_doubt.add(op["tx"])
            elif op["op"] in ("commit", "rollback"):
                in_doubt.discard(op["tx"])
            count += 1
            if count % _PROGRESS_LINES == 0:
                progress("apply", count, 0)
    except ScriptError:
        journal.flush().wait()
        raise
    journal.flush().wait()
    return count
