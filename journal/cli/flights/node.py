"""The demo's active node. It activates the journal, finds the step that was done last, and carries on to the end of the
year.

It runs as `python -m journal.cli.flights.node` and reports on standard output, one JSON object on each line. It may be
killed at any time: its progress is stored in the journal only.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from journal.cli.child import end_with_parent
from journal.cli.flights.data import read_in_order
from journal.cli.flights.expected import CORRECTIONS, PROGRESS, Contents, compare, contents_of, state_when
from journal.cli.flights.landed import is_landed, landed_address, landings_of
from journal.cli.flights.plan import HOUR_MINUTES, PUBLISHED_AHEAD_MINUTES, DoubtRule, Step, Verb, resume, steps
from journal.cli.logs import set_up_logging
from journal.config import load_settings
from journal.errors import AddressExistsError, StateError
from journal.journal import BlockingJournal
from journal.sources.service import SourcesService
from journal.store.model import Message, QueueConfig, Routing
from journal.store.pending import Pending
from journal.store.settings import REFERENCES_IN_MEMORY_MAX
from journal.store.store import MessageStore
from loaders.queues import QueueLoader

_TELL_S = 0.05
_IN_FLIGHT_MINUTES = PUBLISHED_AHEAD_MINUTES - 2 * HOUR_MINUTES
"""Minutes of the year that steps in flight may span. A plane that departs less than an hour early still finds its
message."""


def tell(event: str, **fields: object) -> None:
    """Print one event for the demo."""
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


class _InFlight(NamedTuple):
    pending: Pending
    step: Step


class _Beside(NamedTuple):
    """A message that records progress or landed flights. A later step acknowledges it."""

    queue: str
    message: int
    pending: Pending


class FlightsNode:
    """Carries out steps on a store, and keeps track of which are acknowledged."""

    def __init__(self, store: MessageStore, rule: DoubtRule) -> None:
        """`store` must have been started, and not used yet."""
        self._store = store
        self._rule = rule
        self._declared = {info.config.name for info in store.queues()}
        for name in (PROGRESS, CORRECTIONS):
            self._declare(name, name)
        beside = [name for name in sorted(self._declared) if name == PROGRESS or is_landed(name)]
        found = [(name, info.message) for name in beside for info in store.browse(name)]
        self._beside = deque(_Beside(name, message, Pending(message)) for name, message in found)
        """Messages of progress and of landed flights, to be acknowledged once newer ones are stored."""
        progress = [message for name, message in found if name == PROGRESS]
        self.progress = int(store.message(progress[-1]).body) if progress else 0
        """The progress as it is once everything appended is committed."""

        self._appended = self._acknowledged = 0
        self._in_flight: deque[_InFlight] = deque()
        self._acknowledged_step = self.progress
        self._began = self._told = time.monotonic()

    def contents(self) -> Contents:
        """All queues in their present state, with bodies."""
        store = self._store
        prepared = {info.tx: {message for message, _ in info.acknowledgements} for info in store.in_doubt()}
        return contents_of(self._declared, prepared, store.browse, lambda message: store.message(message).body)

    def carry_on(self, left: Iterator[Step], *, done: int, hold_at: int) -> None:
        """Carry out every step after the first `done` operations. From `hold_at` operations on (0 means never), repeat
        the last step's progress for ever."""
        self._appended = self._acknowledged = done
        self._began = time.monotonic()
        for step in left:
            self._wait_for(step.until - _IN_FLIGHT_MINUTES)
            self._carry_out(step)
            self._look()
            if hold_at and self._appended >= hold_at:
                self._hold()
        while self._in_flight:
            self._in_flight[0].pending.wait()
            self._look()

    def wait_for_corrections(self, count: int) -> None:
        """Wait until this many corrections were taken in. Nothing is printed meanwhile, so the demo, which waits for
        the next line, ends this with its time-out."""
        while self._store.queue(CORRECTIONS).ready < count:
            time.sleep(_TELL_S)

    def settle(self) -> tuple[int, int]:
        """Commit every other day that was left in doubt, and roll the others back; returns how many of each."""
        committed = 0
        in_doubt = self._store.in_doubt()
        for tx, *_ in in_doubt:
            if self._rule.commits(self._rule.day(tx)):
                self._store.commit(tx)
                committed += 1
            else:
                self._store.rollback(tx)
        self._store.flush().wait()
        return committed, len(in_doubt) - committed

    def tell_acknowledged(self) -> None:
        tell(
            "acknowledged",
            step=self._acknowledged_step,
            operations=self._acknowledged,
            appended=self._appended,
            seconds=round(time.monotonic() - self._began, 3),
        )

    def _carry_out(self, step: Step) -> None:
        store, in_doubt = self._store, self._rule.transaction_of(step)
        tx = store.begin(in_doubt or 0)
        for verb, message, queue, plane, body in step.operations:
            if verb is Verb.SEND:
                address, _, airline = queue.partition("/")
                if queue not in self._declared:
                    self._declare(queue, address, airline)
                store.send(Message(address, body), (queue,), tx, id=message)
            elif verb is Verb.ACQUIRE:
                self._acquire(message, queue, plane)
            else:
                store.acknowledge(message, queue, plane, tx)
        if in_doubt is None:
            pending = self._commit(step.number, tx, landings_of(step.operations))
            self.progress = step.number
        else:
            pending = store.prepare(tx, f"cancellations of day {step.cancelled_day}".encode())
        self._appended += len(step.operations)
        self._in_flight.append(_InFlight(pending, step))

    def _acquire(self, message: int, queue: str, plane: str) -> None:
        """Acquire once this node knows that it is still active. On a busy machine a commit may take long."""
        while True:
            try:
                self._store.acquire(message, queue, plane)
                return
            except StateError:
                self._store.flush().wait()  # this raises the error that ends this node, if there is one
                time.sleep(_TELL_S)

    def _declare(self, queue: str, address: str, airline: str = "") -> None:
        """Create an airline's durable subscription at an airport, or a plain queue."""
        if queue in self._declared:
            return
        with suppress(AddressExistsError):
            self._store.create_address(address)
        routing = Routing.MULTICAST if airline else Routing.ANYCAST
        subscription = address if airline else ""
        self._store.create_queue(
            QueueConfig(
                queue, address, routing, client_id=airline, subscription=subscription, journaled_acquisition=True
            )
        )
        self._declared.add(queue)

    def _commit(self, step: int, tx: int, landings: Mapping[str, bytes] | None = None) -> Pending:
        """Commit the step with the new progress and the landed flights of each airport. The earlier messages of both
        are acknowledged once that is possible."""
        store, beside = self._store, self._beside
        said = [(PROGRESS, store.send(Message(PROGRESS, str(step).encode()), (PROGRESS,), tx).id)]
        for airport, body in (landings or {}).items():
            name = landed_address(airport)
            self._declare(name, name)
            said.append((name, store.send(Message(name, body), (name,), tx).id))
        while beside and beside[0].pending.done:
            done = beside.popleft()
            store.acknowledge(done.message, done.queue, tx=tx)
        pending = store.commit(tx)
        beside.extend(_Beside(name, message, Pending(message, pending.completion)) for name, message in said)
        return pending

    def _wait_for(self, minute: int) -> None:
        """Wait until every step that ends by this minute is acknowledged."""
        while self._in_flight and self._in_flight[0].step.until <= minute:
            self._in_flight[0].pending.wait()
            self._look()

    def _hold(self) -> None:
        """Keep writing without getting any further, until somebody kills this process."""
        while True:
            self._commit(self.progress, self._store.begin()).wait()
            self._look()

    def _look(self) -> None:
        """Note which operations are acknowledged. Raises the error of one that has failed."""
        in_flight = self._in_flight
        while in_flight and in_flight[0].pending.done:
            done = in_flight.popleft()
            done.pending.wait()
            self._acknowledged_step = done.step.number
            self._acknowledged += len(done.step.operations)
        if time.monotonic() - self._told >= _TELL_S:
            self._told = time.monotonic()
            self.tell_acknowledged()


def run(config: Path, name: str, flights: Path, rule: DoubtRule, hold_at: int, corrections: int) -> None:
    """Run the node from its activation to its end. Before the end, it waits until it has taken in this many
    `corrections`."""
    settings = load_settings(config, node=name)

    def progress(step: str, done: int, total: int) -> None:
        tell("progress", step=step, done=done, total=total)

    loader = QueueLoader(
        references_in_memory_max=REFERENCES_IN_MEMORY_MAX, queue_references_in_memory_max=REFERENCES_IN_MEMORY_MAX
    )
    with BlockingJournal(settings, copy_name=name, progress=progress) as journal, MessageStore(journal) as store:
        report = journal.activate(loader)
        store.start(loader.loaded)
        planes = store.holders()
        for plane in planes:
            store.reattach(plane)
        tell("active", **asdict(report), planes=len(planes))
        node = FlightsNode(store, rule)
        resumed = resume(steps(read_in_order(flights)), rule, node.progress, {info.tx for info in store.in_doubt()})
        last = resumed.last
        expected = state_when(read_in_order(flights), rule, last.until, last.cancelled_before) if last else Contents()
        tell(
            "resumed",
            step=last.number if last else 0,
            operations=resumed.operations,
            comparison=asdict(compare(expected, node.contents(), resumed.underway)),
        )
        sources = SourcesService(settings, store)
        sources.start()
        try:
            node.carry_on(resumed.left, done=resumed.operations, hold_at=hold_at)
            node.tell_acknowledged()
            node.wait_for_corrections(corrections)
        finally:
            sources.close()
        committed, rolled_back = node.settle()
        tell("settled", committed=committed, rolled_back=rolled_back, progress_step=node.progress)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--flights", type=Path, required=True)
    parser.add_argument("--in-doubt-every-days", type=int, required=True)
    parser.add_argument("--hold-at", type=int, default=0)
    parser.add_argument("--corrections", type=int, required=True)
    given = parser.parse_args()
    set_up_logging(False)
    end_with_parent()
    rule = DoubtRule(given.in_doubt_every_days)
    run(given.config, given.name, given.flights, rule, given.hold_at, given.corrections)


if __name__ == "__main__":
    main()
