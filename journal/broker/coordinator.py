"""Transactions of one connection: its clients declare and discharge them by messages to a coordinator.

A commit is answered once it is durable. Where its outcome is unknown the connection ends and the discharge is never
answered: a client that was told `rejected` would take the transaction for rolled back, and send everything again.
"""

from __future__ import annotations

from functools import partial

from journal.amqp import ReceiverLink
from journal.amqp.conditions import (
    DECODE_ERROR,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSACTION_ROLLBACK,
    TRANSACTION_UNKNOWN_ID,
)
from journal.amqp.events import TransferReceived
from journal.amqp.links import Link
from journal.amqp.message_types import AcceptedState, Declare, DeclaredState, Discharge, ErrorCondition, RejectedState
from journal.amqp.sections import MessageSections
from journal.broker.ports import LinkOwner
from journal.errors import (
    AmqpPeerError,
    CallerError,
    FullError,
    JournalError,
    QueueFullError,
    StateError,
    TransactionUnknownError,
)

_CREDIT = 100
_ID_BYTES = 8


class TransactionCoordinator:
    """The transactions of one connection. A transaction's id is the store's number, in eight bytes."""

    def __init__(self, connection: LinkOwner) -> None:
        self._connection = connection
        self._open: dict[bytes, int] = {}
        self._links: dict[bytes, ReceiverLink] = {}
        """The link to the coordinator by which each open transaction was declared."""
        self._failed: dict[bytes, str] = {}
        """Why transactions can only be rolled back."""

    def attach(self, link: ReceiverLink) -> None:
        """A link to the coordinator was attached."""
        link.flow(_CREDIT)

    def number_of(self, transaction: bytes) -> int | None:
        """The store's number of an open transaction of this connection; None if there is none."""
        return self._open.get(transaction)

    def take(self, link: ReceiverLink, event: TransferReceived) -> None:
        """A message to the coordinator has come. Raises QueueFullError if the journal has no room: call this again when
        it has."""
        try:
            _, body = MessageSections(event.payload).body()
        except AmqpPeerError as error:
            self._refuse(link, event.delivery_id, error.condition, str(error))
            return
        if isinstance(body, Declare):
            self._declare(link, event.delivery_id, body)
        elif isinstance(body, Discharge):
            self._discharge(link, event.delivery_id, body)
        else:
            self._refuse(link, event.delivery_id, DECODE_ERROR, "a coordinator takes declare and discharge")
        if link.credit <= _CREDIT // 2:
            link.flow(_CREDIT)

    def fail(self, transaction: bytes, text: str) -> None:
        """A message of a transaction is refused, and its client, who has settled it, is not told: the transaction can
        only be rolled back."""
        self._failed.setdefault(transaction, text)

    def leave(self, link: Link) -> None:
        """A link to the coordinator is gone: roll back what was declared by it and is open."""
        for transaction in [each for each, of in self._links.items() if of is link]:
            self._roll_back(transaction)

    def close(self) -> None:
        """The connection is gone: roll back what it has open."""
        for transaction in list(self._open):
            self._roll_back(transaction)

    def _roll_back(self, transaction: bytes) -> None:
        tx = self._forget(transaction)
        self._connection.do(partial(self._connection.store.rollback, tx, release=True))

    def _forget(self, transaction: bytes) -> int:
        self._failed.pop(transaction, None)
        del self._links[transaction]
        return self._open.pop(transaction)

    def _declare(self, link: ReceiverLink, delivery_id: int, declare: Declare) -> None:
        if declare.global_id is not None:
            self._refuse(link, delivery_id, NOT_IMPLEMENTED, "distributed transactions are not in AMQP 1.0")
            return
        try:
            tx = self._connection.store.begin()
        except FullError as error:
            self._refuse(link, delivery_id, RESOURCE_LIMIT_EXCEEDED, str(error))
            return
        transaction = tx.to_bytes(_ID_BYTES, "big")
        self._open[transaction], self._links[transaction] = tx, link
        link.settle([delivery_id], DeclaredState(transaction))

    def _discharge(self, link: ReceiverLink, delivery_id: int, discharge: Discharge) -> None:
        tx = self._open.get(discharge.txn_id)
        if tx is None:
            self._refuse(link, delivery_id, TRANSACTION_UNKNOWN_ID, "there is no such transaction")
            return
        if not discharge.fail and (why := self._failed.get(discharge.txn_id)):
            self._roll_back(discharge.txn_id)
            self._refuse(link, delivery_id, TRANSACTION_ROLLBACK, why)
            return
        store = self._connection.store
        try:
            pending = store.rollback(tx, release=True) if discharge.fail else store.commit(tx)
        except (QueueFullError, StateError):
            raise
        except TransactionUnknownError as error:
            self._forget(discharge.txn_id)
            self._refuse(link, delivery_id, TRANSACTION_UNKNOWN_ID, str(error))
            return
        except (CallerError, FullError) as error:
            # an operation was refused for good, so only a rollback is left, and is made
            self._roll_back(discharge.txn_id)
            self._refuse(link, delivery_id, TRANSACTION_ROLLBACK, str(error))
            return
        self._forget(discharge.txn_id)
        pending.add_callback(self._connection.told(partial(self._done, link, delivery_id)))

    def _done(self, link: ReceiverLink, delivery_id: int, error: JournalError | None) -> None:
        if error is None:
            link.settle([delivery_id], AcceptedState())
        else:
            self._refuse(link, delivery_id, TRANSACTION_ROLLBACK, str(error))
        self._connection.flush_later()

    def _refuse(self, link: ReceiverLink, delivery_id: int, condition: str, text: str) -> None:
        link.settle([delivery_id], RejectedState(ErrorCondition(condition, text)))
