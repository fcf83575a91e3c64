"""The operations of commands and their values. The values can be written as JSON, so that they can go through a socket.

`ReadingOperations` change nothing, `Acting` needs the active node, and a running node offers both (`NodeOperations`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from journal.store.model import Message

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SendOrder:
    """The arguments of a `send`."""

    message: Message
    queues: Sequence[str] = ()
    """The queues to route to. If this is empty, the message goes to the queues that its address routes to."""
    count: int = 1
    create: bool = False
    """Create the address, and a queue of the same name, if missing."""


class SentSoFar:
    """How far a `send` has come, in case it is interrupted. It is asked after the journal is closed, because the close
    completes appends that were begun."""

    def __init__(self) -> None:
        self.queues: list[str] = []
        self._parts: list[tuple[int, list[int], Callable[[], bool]]] = []
        """For each part that was begun: its messages, their ids as far as they are known, and whether it is durable."""

    def begin(self, count: int) -> None:
        """Note that this number of messages is being handed in."""
        self._parts.append((count, [], lambda: False))

    def handed_in(self, ids: Sequence[int], is_durable: Callable[[], bool]) -> None:
        """Note that the messages of the last part have these ids, and are stored once `is_durable` returns true."""
        count, _, _ = self._parts[-1]
        self._parts[-1] = count, list(ids), is_durable

    @property
    def begun(self) -> bool:
        return bool(self._parts)

    @property
    def stored(self) -> list[int]:
        """The ids of the messages that are stored."""
        return [each for _, ids, is_durable in self._parts if is_durable() for each in ids]

    @property
    def unknown(self) -> int:
        """The number of messages that were handed in, and may be stored or not."""
        return sum(count for count, _, _ in self._parts) - len(self.stored)


class SendResult(NamedTuple):
    """The result of `send`. All of it is durable."""

    queues: list[str]
    messages: list[int]


class QueueAct(NamedTuple):
    """What `queues create|change|delete|pause|resume|purge` does to a queue."""

    action: str
    """The name of the command."""
    queue: str
    fields: Mapping[str, Any]
    """The fields of the queue that the command names."""


class QueuesFound(NamedTuple):
    """The lines of `queues`, and the number of messages that no queue refers to."""

    queues: list[Json]
    orphaned: int


class MessagesFound(NamedTuple):
    """The number of messages in a queue, and the requested lines."""

    total: int
    lines: Iterator[Json]


class MessageRead(NamedTuple):
    """A message from its record, and the body of a large one, which is not in the record, piece by piece."""

    data: bytes
    is_large: bool
    pieces: Iterator[bytes]


class TransactionsFound(NamedTuple):
    """The lines of transactions in doubt, and of outcomes that are kept until their coordinators are told."""

    in_doubt: list[Json]
    outcomes: list[Json]


class TransactionFound(NamedTuple):
    """A transaction in doubt: its line, its messages, its operations."""

    summary: Json
    references: list[Json]
    held: list[Json]


class Receiving(Protocol):
    """Messages that one receiver takes one by one. `close` gives back what was not acknowledged."""

    def take(self) -> Json | None:
        """The next message as `receive --json` prints it; None if none is ready."""

    def acknowledge(self, message: int) -> None:
        """Acknowledge the message. This is durable once `finish` returns."""

    def finish(self) -> int:
        """Make all acknowledgements durable; returns how many more messages are ready. Raises StateError if the node
        may not have been active during `take`."""

    def close(self) -> None: ...


class ReadingOperations(Protocol):
    """Operations that change nothing."""

    def queues(self) -> QueuesFound: ...

    def messages(self, queue: str, limit: int) -> MessagesFound:
        """The first `limit` messages (0: all) in delivery order. Raises QueueMissingError."""

    def explain(self, record_id: int) -> Json:
        """The object that `explain --json` prints. Raises RecordMissingError."""

    def transactions(self) -> TransactionsFound: ...

    def transaction(self, named: str) -> TransactionFound:
        """One transaction in doubt, named by its number or its xid. Raises TransactionUnknownError."""


class Acting(Protocol):
    """Operations of the active node."""

    def send(self, order: SendOrder, so_far: SentSoFar) -> SendResult:
        """Store and route messages, and note them in `so_far`. Raises AddressMissingError, QueueMissingError, and the
        errors of the store."""

    def receiving(self, queue: str, receiver: str) -> Receiving:
        """Begin to receive from a queue. Raises QueueMissingError."""

    def queue(self, act: QueueAct, *, operator: str) -> Json:
        """Create, change, delete, pause, resume or purge a queue; returns the object that `--json` prints. Raises
        QueueMissingError, QueueExistsError, InvalidOperationError."""

    def settle(self, tx: int, *, commit: bool, operator: str) -> int:
        """Settle a transaction in doubt in the place of its coordinator; returns the epoch. Raises
        TransactionUnknownError."""

    def forget(self, named: str, *, operator: str) -> int:
        """Forget the outcome of a transaction that `settle` has settled, named by its xid or by the outcome's record;
        returns the epoch.

        Raises XidError for an outcome that is not kept, or that recovery needs.
        """


class NodeOperations(ReadingOperations, Acting, Protocol):
    """Operations of a running node for commands."""

    def status(self) -> Mapping[str, Any]: ...

    def message(self, message_id: int) -> MessageRead:
        """A message that exists now, even if it is deleted later. Raises RecordMissingError, NotActiveError."""

    def hand_over(self, to: str) -> Mapping[str, Any]:
        """Hand over to another node (empty: to any); returns what the node reports."""

    def resume_source(self, source: str, *, skip: bool, operator: str) -> Mapping[str, Any]:
        """Let a stopped source go on. With `skip` the record that stopped it is left out, and its place is returned.

        Raises NotActiveError, and InvalidOperationError for a source that is not stopped, or not by a record.
        """
