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
from journal.amqp.message_types import AcceptedState, Declare, DeclaredState, Discharge, ErrorCondition, RejectedState
from journal.amqp.sections import MessageSections
from journal.broker.ports import LinkOwner
from journal.errors import AmqpPeerError, FullError, JournalError, TransactionUnknownError

_CREDIT = 100
_ID_BYTES = 8


class TransactionCoordinator:
    """The transactions of one connection. A transaction's id is the store's number, in eight bytes."""

    def __init__(self, connection: LinkOwner) -> None:
        self._connection = connection
        self._open: dict[bytes, int] = {}

    def attach(self, link: ReceiverLink) -> None:
        """A link to the coordinator was attached."""
        link.flow(_CREDIT)

    def number_of(self, transaction: bytes) -> int | None:
        """The store's number of an open transaction of this connection; None if there is none."""
        return self._open.get(transaction)

    def take(self, link: ReceiverLink, event: TransferReceived) -> None:
        """A message to the coordinator has come."""
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

    def close(self) -> None:
        """The connection is gone: roll back what it has open."""
        for tx in self._open.values():
            self._connection.do(partial(self._connection.store.rollback, tx, release=True))
        self._open.clear()

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
        self._open[transaction] = tx
        link.settle([delivery_id], DeclaredState(transaction))

    def _discharge(self, link: ReceiverLink, delivery_id: int, discharge: Discharge) -> None:
        tx = self._open.get(discharge.txn_id)
        if tx is None:
            self._refuse(link, delivery_id, TRANSACTION_UNKNOWN_ID, "there is no such transaction")
            return
        store = self._connection.store
        try:
            pending = store.rollback(tx, release=True) if discharge.fail else store.commit(tx)
        except FullError:
            self._connection.when_there_is_room(lambda: self._discharge(link, delivery_id, discharge))
            return
        except TransactionUnknownError as error:
            del self._open[discharge.txn_id]
            self._refuse(link, delivery_id, TRANSACTION_UNKNOWN_ID, str(error))
            return
        except JournalError as error:
            # an operation was refused for good, so only a rollback is left, and is made
            del self._open[discharge.txn_id]
            self._connection.do(partial(store.rollback, tx, release=True))
            self._refuse(link, delivery_id, TRANSACTION_ROLLBACK, str(error))
            return
        del self._open[discharge.txn_id]
        pending.add_callback(self._connection.told(partial(self._done, link, delivery_id)))

    def _done(self, link: ReceiverLink, delivery_id: int, error: JournalError | None) -> None:
        if error is None:
            link.settle([delivery_id], AcceptedState())
        else:
            self._refuse(link, delivery_id, TRANSACTION_ROLLBACK, str(error))
        self._connection.flush_later()

    def _refuse(self, link: ReceiverLink, delivery_id: int, condition: str, text: str) -> None:
        link.settle([delivery_id], RejectedState(ErrorCondition(condition, text)))
