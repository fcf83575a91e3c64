"""`kafka-journal dump`: a read-only load, as JSON lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from journal.cli.common import Chosen, JsonOption, journal_command, print_note
from journal.cli.reading import loaded_state
from journal.cli.script import prepared_line, record_line
from journal.load.loading import LoadCounts, LoadedUpdate
from journal.v1.journal_pb2 import Mark, Operation, Skipped
from journal.wire.keys import SKIPPED_PREFIX
from journal.words import counted


class _Printer:
    """A loader that prints what it is told."""

    def begin(self, marks: Mapping[int, Mark]) -> None: ...

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        sys.stdout.write(json.dumps(record_line(record_id, kind, data, updates), separators=(",", ":")) + "\n")

    def prepared(self, tx: int, data: bytes, operations: Sequence[Operation]) -> None:
        sys.stdout.write(json.dumps(prepared_line(tx, data, operations), separators=(",", ":")) + "\n")

    def complete(self, counts: LoadCounts) -> None:
        sys.stdout.flush()


@journal_command
def dump(
    chosen: Chosen,
    now: Annotated[
        bool, typer.Option("--now", help="Read up to the WAL's committed end, even if the tables are behind.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the journal's state as JSON lines: records in order of their ids, then prepared transactions in order of
    theirs.

    It needs no worker, begins no epoch, and disturbs no active node. The output is JSON with and without --json.
    """
    with loaded_state(chosen.settings(), now=now) as (state, progress):
        progress.hide()  # the printed lines show the progress already
        counts = state.tell(_Printer())
        skipped = [_skipped_line(Skipped.FromString(value)) for _, value in state.base.scan(SKIPPED_PREFIX)]
    for line in skipped:
        print_note(line, style="yellow")
    if not as_json:
        print_note(
            f"{counted(counts.records, 'record')}, {counted(counts.updates, 'update')}, "
            f"{counted(counts.prepared, 'prepared transaction')}",
            style="dim",
        )


def _skipped_line(row: Skipped) -> str:
    return f"not in this state: WAL record {row.offset} of shard {row.shard}, skipped by {row.operator}: {row.reason}"
