"""`kafka-journal apply`: activate the journal and append the operations of a script."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, TextIO

import typer

from journal.cli.common import (
    BootstrapOption,
    ConfigOption,
    JournalOption,
    JsonOption,
    PropertyOption,
    StepProgress,
    TakeOverOption,
    exit_codes,
    print_facts,
    print_json,
    settings_from,
)
from journal.completion import Completion
from journal.errors import ScriptError
from journal.journal import BlockingJournal
from journal.liveness import require_no_active_node
from journal.runtime import kafka_of
from journal.script import apply_operation, parse_line

_PROGRESS_LINES = 1000


def apply(
    file: Annotated[str, typer.Argument(help="JSON lines; - for standard input.")],
    bootstrap: BootstrapOption = None,
    journal: JournalOption = None,
    take_over: TakeOverOption = False,
    properties: PropertyOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Activate the journal, append the operations of a script in order, and close.

    A bad line stops it with the line's number, and the journal holds exactly what came before it.
    """
    with exit_codes():
        settings = settings_from(bootstrap, journal, properties, config)
        if file != "-" and not Path(file).is_file():
            raise ScriptError(0, f"no file {file}")
        with StepProgress() as progress:
            opened = BlockingJournal(settings, copy_name="apply", progress=progress)
            try:
                rows = opened.start()
                if not take_over:
                    require_no_active_node(
                        kafka_of(settings),
                        settings.journal,
                        rows,
                        clock=time.monotonic,
                        pause=time.sleep,
                        fence_check_s=settings.fence_check_ms / 1000,
                    )
                report = opened.activate()
                began = time.monotonic()
                with nullcontext(sys.stdin) if file == "-" else open(file, encoding="utf-8") as lines:
                    operations = _append_lines(opened, lines, progress)
            finally:
                opened.close()
        facts = {
            "operations": operations,
            "epoch": report.epoch,
            "seconds": round(time.monotonic() - began, 3),
            "in_doubt": report.in_doubt,
        }
    if as_json:
        print_json(facts)
    else:
        print_facts(f"applied to journal {settings.journal}", facts)


def _append_lines(journal: BlockingJournal, lines: TextIO, progress: StepProgress) -> int:
    """Append every line; what was appended is committed before this returns, or raises for a bad line."""
    count = 0
    try:
        for number, text in enumerate(lines, start=1):
            if not text.strip():
                continue
            apply_operation(journal, parse_line(text, number), number, Completion.wait)
            count += 1
            if count % _PROGRESS_LINES == 0:
                progress("apply", count, 0)
    except ScriptError:
        journal.flush().wait()
        raise
    journal.flush().wait()
    return count
