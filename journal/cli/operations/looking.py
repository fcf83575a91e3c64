"""How commands look at a journal: in the same way at the state of a read-only load, and at that of a running node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol

from journal.cli.operations.explaining import Explaining
from journal.cli.operations.in_doubt import find_in_doubt, in_doubt, summary
from journal.cli.operations.outcomes import kept_outcomes, outcome_line
from journal.cli.operations.ports import Json, MessagesFound, QueuesFound, TransactionFound, TransactionsFound
from journal.cli.operations.queue_lines import message_line
from journal.cli.operations.views import Browsed, LoadedQueues, QueuesView, StoreQueues
from journal.cli.queue_loads import tell_queues
from journal.cli.reading import loaded_snapshot, loaded_state, opened_journal
from journal.cli.script import operation_line
from journal.config import Settings
from journal.errors import QueueMissingError, RecordMissingError
from journal.fold.rows import Base
from journal.process.clocks import wall_ms
from journal.process.commands import command
from journal.process.progress import Progress, no_progress
from journal.store.store import MessageStore
from journal.v1.journal_pb2 import Mark
from journal.wire.ids import is_volatile, sequence_of
from journal.xa.outcomes import KeptOutcome
from journal.xa.resource import XaResource
from loaders.snapshot import SnapshotState

_PROGRESS_MESSAGES = 256


class StateRows(Protocol):
    """The rows of a consistent state, and the marks up to which it was folded. A `SnapshotState` is one."""

    @property
    def base(self) -> Base: ...

    @property
    def marks(self) -> Mapping[int, Mark]: ...


RowsOf = Callable[[], AbstractContextManager[StateRows]]
"""Opens the rows of a journal as of the WAL's committed end."""


class States(Protocol):
    """Where a command looks at a journal's state. Each state is open until its context ends."""

    progress: Progress
    """Shows the progress of reading a state."""

    def rows(self) -> AbstractContextManager[StateRows]: ...

    def queues(self) -> AbstractContextManager[QueuesView]: ...

    def both(self) -> AbstractContextManager[tuple[StateRows, QueuesView]]: ...

    def outcomes(self, rows: StateRows) -> Sequence[KeptOutcome]:
        """The outcomes of global transactions that the journal keeps."""


class LoadedStates:
    """States of read-only loads, a new load for each context. They disturb neither the active node nor the worker."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.progress: Progress = no_progress

    @contextmanager
    def rows(self) -> Iterator[SnapshotState]:
        with loaded_state(self._settings) as (state, progress):
            self.progress = progress
            yield state

    @contextmanager
    def queues(self) -> Iterator[QueuesView]:
        with self.both() as (_, queues):
            yield queues

    @contextmanager
    def both(self) -> Iterator[tuple[StateRows, QueuesView]]:
        with self.rows() as state, tell_queues(self._settings.journal, state, self.progress) as loaded:
            yield state, LoadedQueues(loaded, state.base)

    def outcomes(self, rows: StateRows) -> Sequence[KeptOutcome]:
        return kept_outcomes(rows.base, self.progress)


class ServedStates:
    """States of a working node: the queues of its store, and rows."""

    progress: Progress = staticmethod(no_progress)

    def __init__(self, store: MessageStore, rows: RowsOf, resource: XaResource | None) -> None:
        self._store = store
        self._resource = resource
        self.rows = rows

    @contextmanager
    def queues(self) -> Iterator[QueuesView]:
        yield StoreQueues(self._store)

    @contextmanager
    def both(self) -> Iterator[tuple[StateRows, QueuesView]]:
        with self.rows() as state, self.queues() as queues:
            yield state, queues

    def outcomes(self, rows: StateRows) -> Sequence[KeptOutcome]:
        """The outcomes that the broker's own resource knows, if it has one, so that the node need not scan for them."""
        return kept_outcomes(rows.base, self.progress) if self._resource is None else self._resource.outcomes()


@contextmanager
def rows_of_a_load(settings: Settings) -> Iterator[SnapshotState]:
    """Rows of a read-only load inside a node. Its copies are kept with the node's own."""
    copies = settings.journal_directory / "read"
    with (
        opened_journal(settings) as (kafka, rows),
        loaded_snapshot(settings, kafka, rows, now=True, copies=copies) as state,
    ):
        yield state


class StateLooking:
    """`Looking` at states. Its results may be read until it is closed."""

    def __init__(self, journal: str, states: States) -> None:
        self._journal = journal
        self._states = states
        self._open = ExitStack()

    def queues(self) -> QueuesFound:
        with self._states.queues() as queues:
            return QueuesFound(queues.lines(wall_ms()), queues.orphaned)

    def messages(self, queue: str, limit: int) -> MessagesFound:
        queues = self._open.enter_context(self._states.queues())
        try:
            total, browsed = queues.browse(queue, limit)
        except QueueMissingError as error:
            raise missing_queue(queue, self._journal) from error
        return MessagesFound(total, self._lines(browsed, min(total, limit or total)))

    def _lines(self, browsed: Iterator[Browsed], count: int) -> Iterator[Json]:
        now_ms = wall_ms()
        for number, (info, entry, message) in enumerate(browsed):
            if number % _PROGRESS_MESSAGES == 0:
                self._states.progress("messages", number, count)
            yield message_line(info, entry, message, now_ms)

    def explain(self, record_id: int) -> Json:
        with self._states.both() as (state, queues):
            shards = len(state.marks)
            found = Explaining(record_id, queues, state.base, shards, wall_ms(), self._states.progress).explanation()
            if found is None:
                issued = max(mark.issued for mark in state.marks.values())
                raise RecordMissingError(_missing(record_id, issued, self._journal))
        return {
            "id": found.id,
            "what": found.what,
            **found.facts,
            "references": found.references,
            "transactions": found.transactions,
            "why": found.why,
        }

    def transactions(self) -> TransactionsFound:
        with self._states.rows() as state:
            now_ms = wall_ms()
            return TransactionsFound(
                [summary(transaction, now_ms) for transaction in in_doubt(state.base)],
                [outcome_line(kept, now_ms) for kept in self._states.outcomes(state)],
            )

    def transaction(self, named: str) -> TransactionFound:
        with self._states.rows() as state:
            found = find_in_doubt(state.base, named, self._journal)
        references = [reference._asdict() for reference in found.references]
        return TransactionFound(summary(found, wall_ms()), references, [operation_line(op) for op in found.operations])

    def close(self) -> None:
        self._open.close()

    def __enter__(self) -> StateLooking:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def missing_queue(queue: str, journal: str) -> QueueMissingError:
    """The error for a missing queue, which says where to look."""
    look = command("queues", journal=journal)
    return QueueMissingError(f"there is no queue {queue}: {look} lists those that there are")


def _missing(record_id: int, issued: int, journal: str) -> str:
    if is_volatile(record_id):
        why = "what it is of is not durable: only the active node has it (--node), until it is gone"
    elif sequence_of(record_id) <= issued:
        why = "it was deleted (a message: acknowledged everywhere), or it never came to be"
    else:
        why = "the journal has not issued that id yet"
    look = command("messages", "QUEUE", journal=journal)
    return f"there is no record {record_id}: {why}; {look} shows ids that there are"
