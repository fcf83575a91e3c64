"""The demo's active node: activates the journal, finds out where the flights stand, and carries on to the year's end.

Run as `python -m journal.cli.flights.node`; it tells what it does on standard output, one JSON object a line. It may
be killed at any time: where it was is in the journal and nowhere else.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from journal.cli.common import set_up_logging
from journal.cli.flights.child import end_with_parent
from journal.cli.flights.data import read_in_order
from journal.cli.flights.expected import Contents, FlightsLoader, compare, state_when
from journal.cli.flights.plan import PROGRESS, PROGRESS_ID, DoubtRule, Step, Verb, resume, steps
from journal.completion import Completion
from journal.config import load_settings
from journal.journal import BlockingJournal

_TELL_S = 0.05


def tell(event: str, **fields: object) -> None:
    """One line for the demo."""
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


class _Pending(NamedTuple):
    completion: Completion
    step: int
    operations: int


class FlightsNode:
    """Appends steps, keeping track of which are acknowledged."""

    def __init__(self, journal: BlockingJournal, rule: DoubtRule, loaded: FlightsLoader, done: int) -> None:
        """`done` operations are done already."""
        self._journal = journal
        self._rule = rule
        self.progress = loaded.step
        """What the progress record says, or will say when what was appended is committed."""

        self._appended = self._acknowledged = done
        self._in_doubt = set(loaded.contents.prepared)
        self._pending: deque[_Pending] = deque()
        self._acknowledged_step = loaded.step
        self._began = self._told = time.monotonic()

    def append(self, left: Iterator[Step], *, hold_at: int) -> None:
        """Append every step. From `hold_at` operations on (0: never) go on with the last one's progress, for ever."""
        self._began = time.monotonic()
        for step in left:
            self._append(step)
            self._look()
            if hold_at and self._appended >= hold_at:
                self._hold()
        while self._pending:
            self._pending[0].completion.wait()
            self._look()

    def settle(self) -> tuple[int, int]:
        """Commit every other day that was left in doubt, and roll the rest back; how many of each."""
        committed = 0
        for tx in sorted(self._in_doubt):
            if self._rule.commits(self._rule.day(tx)):
                self._journal.commit(tx)
                committed += 1
            else:
                self._journal.rollback(tx)
        self._journal.flush().wait()
        return committed, len(self._in_doubt) - committed

    def tell_acknowledged(self) -> None:
        tell(
            "acknowledged",
            step=self._acknowledged_step,
            operations=self._acknowledged,
            appended=self._appended,
            seconds=round(time.monotonic() - self._began, 3),
        )

    def _append(self, step: Step) -> None:
        tx = self._rule.transaction_of(step)
        if tx is not None:
            self._journal.begin(tx)
            self._operate(step, tx)
            completion = self._journal.prepare(tx, f"cancellations of day {step.cancelled_day}".encode())
            self._in_doubt.add(tx)
        else:
            tx = self._journal.begin()
            self._operate(step, tx)
            if not self.progress:
                self._journal.add(PROGRESS_ID, PROGRESS, b"", tx=tx)
            self._write_progress(step.number, tx)
            completion = self._journal.commit(tx)
            self.progress = step.number
        self._appended += len(step.operations)
        self._pending.append(_Pending(completion, step.number, len(step.operations)))

    def _operate(self, step: Step, tx: int) -> None:
        journal = self._journal
        for verb, record_id, kind, data in step.operations:
            if verb is Verb.ADD:
                journal.add(record_id, kind, data, tx=tx)
            elif verb is Verb.UPDATE:
                journal.update(record_id, kind, data, tx=tx)
            else:
                journal.delete(record_id, tx=tx)

    def _write_progress(self, step: int, tx: int) -> Completion:
        return self._journal.update(PROGRESS_ID, PROGRESS, str(step).encode(), replaceable=True, tx=tx)

    def _hold(self) -> None:
        """Keep writing without getting any further, until somebody kills this process."""
        while True:
            self._write_progress(self.progress, 0).wait()
            self._look()

    def _look(self) -> None:
        """Take note of what is acknowledged; raises the error of what failed."""
        pending = self._pending
        while pending and pending[0].completion.done:
            done = pending.popleft()
            done.completion.wait()
            self._acknowledged_step = done.step
            self._acknowledged += done.operations
        if time.monotonic() - self._told >= _TELL_S:
            self._told = time.monotonic()
            self.tell_acknowledged()


def run(config: Path, name: str, flights: Path, rule: DoubtRule, hold_at: int) -> None:
    """The life of a node."""
    settings = load_settings(config, node=name)

    def progress(step: str, done: int, total: int) -> None:
        tell("progress", step=step, done=done, total=total)

    with BlockingJournal(settings, copy_name=name, progress=progress) as journal:
        loaded = FlightsLoader()
        report = journal.activate(loaded)
        tell("active", **asdict(report))
        resumed = resume(steps(read_in_order(flights)), rule, loaded.step, loaded.contents.prepared)
        last = resumed.last
        expected = state_when(read_in_order(flights), rule, last.until, last.cancelled_before) if last else Contents()
        tell(
            "resumed",
            step=last.number if last else 0,
            operations=resumed.operations,
            comparison=asdict(compare(expected, loaded)),
        )
        node = FlightsNode(journal, rule, loaded, resumed.operations)
        node.append(resumed.left, hold_at=hold_at)
        node.tell_acknowledged()
        committed, rolled_back = node.settle()
        tell("settled", committed=committed, rolled_back=rolled_back, progress_step=node.progress)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--flights", type=Path, required=True)
    parser.add_argument("--in-doubt-every-days", type=int, required=True)
    parser.add_argument("--hold-at", type=int, default=0)
    given = parser.parse_args()
    set_up_logging(False)
    end_with_parent()
    run(given.config, given.name, given.flights, DoubtRule(given.in_doubt_every_days), given.hold_at)


if __name__ == "__main__":
    main()
