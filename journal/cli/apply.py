"""`kafka-journal apply`: activate the journal and append the operations of a script."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Annotated, BinaryIO

import typer

from journal.append.completion import Completion
from journal.cli.activating import activated_journal
from journal.cli.common import (
    Chosen,
    JsonOption,
    StepProgress,
    TakeOverOption,
    journal_command,
    print_json,
    print_note,
    said_if_cut_off,
)
from journal.cli.script import apply_operation, checked_lines, parse_line
from journal.cli.standard_streams import note_done
from journal.cli.tables import print_facts
from journal.errors import ScriptError
from journal.journal import BlockingJournal
from journal.words import called, counted

_PROGRESS_LINES = 1000
_IN_TRANSACTIONS = ("add", "update", "delete")


@journal_command
def apply(
    chosen: Chosen,
    file: Annotated[str, typer.Argument(help="A script of JSON lines; - reads standard input.")],
    take_over: TakeOverOption = False,
    as_json: JsonOption = False,
) -> None:
    """Activate the journal, append the operations of a script in order, and close.

    A bad line ends the command with its number. A line of a file that is no operation, or the first one of a pipe, does
    so before the journal is activated. The operations before any other bad line are in the journal. A command that is
    interrupted says up to which line they are.
    """
    settings = chosen.settings()
    applied = Applied()
    with (
        said_if_cut_off(lambda: _cut_off(applied, as_json=as_json), lambda: applied.operations > 0),
        nullcontext(sys.stdin.buffer) if file == "-" else _opened(file) as script,
        nullcontext(checked_lines(script)) as lines,
        StepProgress() as progress,
        activated_journal(settings, take_over=take_over, progress=progress) as (opened, report),
    ):
        began = time.monotonic()
        in_doubt = set(report.in_doubt)
        _append_lines(opened, lines, in_doubt, progress, applied)
        seconds = time.monotonic() - began
    facts: dict[str, object] = {
        "operations": applied.operations,
        "epoch": report.epoch,
        "seconds": round(seconds, 3),
        "in_doubt": sorted(in_doubt),
    }
    note_done(f"applied to the journal: {counted(applied.operations, 'operation')}")
    if as_json:
        print_json(facts)
        return
    facts["in_doubt"] = ", ".join(map(str, sorted(in_doubt))) or "none"
    print_facts(f"applied to {called(settings.journal)}", facts)


def _opened(file: str) -> BinaryIO:
    """A file, or another stream that can be read. Raises BadParameter."""
    try:
        return open(file, "rb")
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}", param_hint="FILE") from None


class Applied:
    """How far a script was appended, and how much of that is committed."""

    def __init__(self) -> None:
        self.operations = 0
        self.line = 0
        """The last line whose operation was appended."""
        self._committed = (0, 0)
        self._pending: deque[tuple[Completion, int, int]] = deque()
        """For each group that may not be committed yet: its completion, and the number of operations and the line at
        its end."""

    def appended(self, line: int, completion: Completion, *, waits: bool) -> None:
        """Note that the operation of a line was appended. If it `waits` for its transaction, its completion does not
        count."""
        self.operations, self.line = self.operations + 1, line
        if waits:
            return
        if self._pending and self._pending[-1][0] is completion:
            self._pending.pop()
        self._pending.append((completion, self.operations, line))
        self.committed()

    def committed(self) -> tuple[int, int]:
        """The number of operations that are committed by now, and the line of the last one."""
        while self._pending and self._pending[0][0].done and self._pending[0][0].error is None:
            _, operations, line = self._pending.popleft()
            self._committed = operations, line
        return self._committed


def _cut_off(applied: Applied, *, as_json: bool) -> None:
    """Print up to which line a script that was cut off is in the journal. The journal is closed by now, and the close
    has committed the appended operations if that was possible."""
    operations, line = applied.committed()
    unknown = applied.operations - operations
    if as_json:
        print_json({"operations": operations, "line": line, "unknown": unknown})
    more = f"; in the journal or not: {unknown:,} more, up to line {applied.line}" if unknown else ""
    print_note(f"cut off: in the journal: {counted(operations, 'operation')}, up to line {line}{more}")


def _append_lines(
    journal: BlockingJournal, lines: Iterable[bytes], in_doubt: set[int], progress: StepProgress, applied: Applied
) -> None:
    """Append every line, and keep `in_doubt` and `applied`. Everything appended is committed when this returns or
    raises ScriptError."""
    try:
        for number, text in enumerate(lines, start=1):
            if not text.strip():
                continue
            op = parse_line(text, number)
            completion = apply_operation(journal, op, number)
            applied.appended(number, completion, waits=bool(op.get("tx")) and op["op"] in _IN_TRANSACTIONS)
            if op["op"] == "prepare":
                in_doubt.add(op["tx"])
            elif op["op"] in ("commit", "rollback"):
                in_doubt.discard(op["tx"])
            if applied.operations % _PROGRESS_LINES == 0:
                progress("apply", applied.operations, 0)
    except ScriptError:
        journal.flush().wait()
        raise
    journal.flush().wait()
