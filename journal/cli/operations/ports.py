"""The operations of commands, and their values: what JSON can say, so that a socket may lie in between.

`Looking` changes nothing, `Acting` needs the active node, and a running node does both (`NodeOperations`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from journal.store.model import Message

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SendOrder:
    """What `send` sends."""

    message: Message
    queues: Sequence[str] = ()
    """None: as the address routes."""
    count: int = 1
    create: bool = False
    """Make the address, and a queue of its name, if missing."""


class Sent(NamedTuple):
    """What became of it: durable."""

    queues: list[str]
    messages: list[int]


class QueuesFound(NamedTuple):
    """The lines of `queues`, and how many messages no queue refers to."""

    queues: list[Json]
    orphaned: int


class MessagesFound(NamedTuple):
    """How many messages a queue has, and the lines of those asked for."""

    total: int
    lines: Iterator[Json]


class MessageRead(NamedTuple):
    """A message as its record has it, and a large one's body, which the record has not, piece by piece."""

    data: bytes
    is_large: bool
    pieces: Iterator[bytes]


class TransactionsFound(NamedTuple):
    """The lines of transactions in doubt, and of the outcomes that are kept for those who have to hear of them."""

    in_doubt: list[Json]
    outcomes: list[Json]


class TransactionFound(NamedTuple):
    """A transaction in doubt: its line, its messages, its operations."""

    summary: Json
    references: list[Json]
    held: list[Json]


class Receiving(Protocol):
    """Messages taken one by one for one receiver, until `close` gives back what was not acknowledged."""

    def take(self) -> Json | None:
        """The next message as `receive --json` prints it; None if none is ready."""

    def acknowledge(self, message: int) -> None:
        """It was received: accepted, and durable once `finish` returns."""

    def finish(self) -> int:
        """Everything acknowledged is durable; how many more are ready. Raises StateError if `take` may have lied."""

    def close(self) -> None: ...


class Looking(Protocol):
    """What changes nothing."""

    def queues(self) -> QueuesFound: ...

    def messages(self, queue: str, limit: int) -> MessagesFound:
        """The first `limit` (0: all) in delivery order. Raises QueueMissingError."""

    def explain(self, record_id: int) -> Json:
        """What `explain --json` prints. Raises RecordMissingError."""

    def transactions(self) -> TransactionsFound: ...

    def transaction(self, tx: int) -> TransactionFound:
        """Raises TransactionUnknownError."""


class Acting(Protocol):
    """What the active node does."""

    def send(self, order: SendOrder) -> Sent:
        """Raises AddressMissingError, QueueMissingError, and what the store refuses."""

    def receiving(self, queue: str, receiver: str) -> Receiving:
        """Raises QueueMissingError."""

    def settle(self, tx: int, *, commit: bool, operator: str) -> int:
        """Decide a transaction in doubt in place of its coordinator; the epoch. Raises TransactionUnknownError."""

    def forget(self, xid: str, *, operator: str) -> int:
        """Drop the outcome of a transaction that was settled so, called as its line says; the epoch.

        Raises XidError for one that is not kept, or that recovery needs.
        """


class NodeOperations(Looking, Acting, Protocol):
    """What a running node does for commands."""

    def status(self) -> Mapping[str, Any]: ...

    def message(self, message_id: int) -> MessageRead:
        """A message that is there now, whatever becomes of it. Raises RecordMissingError, NotActiveError."""

    def hand_over(self, to: str) -> Mapping[str, Any]:
        """Have another node (empty: any) become active; what the node says of it."""

    def resume_source(self, source: str, *, skip: bool, operator: str) -> Mapping[str, Any]:
        """Have a stopped source go on, with `skip` without the record that has stopped it; what is skipped.

        Raises NotActiveError, InvalidOperationError for one that is not stopped, or not by a record.
        """
