"""A link that a client sends on: transfers become messages of the store, and dispositions once they are durable.

All messages that one read of the socket brings for an address and the same queues are one group of the journal, and one
disposition. While the journal is full, the connection is not read, so the client gets no credit and no answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from itertools import islice, takewhile
from typing import NamedTuple

from journal.amqp import ReceiverLink
from journal.amqp.conditions import PRECONDITION_FAILED, TRANSACTION_UNKNOWN_ID
from journal.amqp.events import TransferReceived
from journal.amqp.message_types import (
    AcceptedState,
    ErrorCondition,
    RejectedState,
    ReleasedState,
    State,
    TransactionalState,
)
from journal.amqp.sections import PROPERTIES, MessageSections
from journal.amqp.settings import Durability
from journal.broker.addresses import Place, place_of
from journal.broker.messages import duplicate_id_of, message_of
from journal.broker.ports import LinkOwner
from journal.broker.refusals import condition_of
from journal.broker.security.permissions import Action
from journal.errors import (
    AddressMissingError,
    AmqpPeerError,
    CallerError,
    DuplicateMessageError,
    FullError,
    JournalError,
    QueueFullError,
    QueueMissingError,
    StateError,
)
from journal.store.model import Message

ACCEPTED = AcceptedState()
RELEASED = ReleasedState()


class _Incoming(NamedTuple):
    """A message that has come whole, and is not accepted by the store yet."""

    delivery_id: int
    settled: bool
    message: Message
    queue: str
    """The queue that its sender names; empty for all of the address that want it."""
    queues: Sequence[str]
    transaction: bytes
    """The id of its transaction; empty for none."""


class Producer:
    """One such link. It has no place at the anonymous terminus, where each message names its own."""

    def __init__(self, connection: LinkOwner, link: ReceiverLink, place: Place | None) -> None:
        self._connection = connection
        self._link = link
        self._place = place
        self._parts: list[bytes] = []
        """The parts of a message whose last one has not come."""
        self._transaction = b""
        """The transaction of this message, which any of its parts may name."""
        self._waiting: deque[_Incoming] = deque()
        """Messages that the store has not accepted, in their order."""
        self._credit = connection.settings.credit
        self._open = True
        link.flow(self._credit)

    def close(self) -> None:
        """The link is gone. Messages that have come whole still go to the store: a client that settles them itself
        waits for no answer before it detaches."""
        self._open = False
        self._forget_parts()

    def _forget_parts(self) -> None:
        self._parts.clear()
        self._transaction = b""

    def take(self, event: TransferReceived) -> None:
        """A transfer has come."""
        if event.aborted:
            self._forget_parts()
            return
        if isinstance(event.state, TransactionalState):
            self._transaction = event.state.txn_id
        if event.more or self._parts:
            self._parts.append(event.payload)
            if event.more:
                return
        payload = b"".join(self._parts) if self._parts else event.payload
        transaction = self._transaction
        self._forget_parts()
        unsettled = [] if event.settled else [event.delivery_id]
        try:
            message, queue, queues = self._routed(MessageSections(payload))
        except (AmqpPeerError, AddressMissingError, FullError) as error:
            # full: an address had to be made, and the journal has no room now
            self._refuse(unsettled, condition_of(error), str(error), transaction)
            return
        self._waiting.append(_Incoming(event.delivery_id, event.settled, message, queue, queues, transaction))
        self._connection.send_later(self)

    def _routed(self, sections: MessageSections) -> tuple[Message, str, list[str]]:
        """A message, the queue that its sender names, and the queues that it goes to. It is durable if one of them is,
        unless the setting `durability` asks its sender, who does not say so."""
        addresses, place = self._connection.addresses, self._place
        if place is None:
            to = sections.properties.to if PROPERTIES in sections.places else None
            if not to:
                raise AmqpPeerError(PRECONDITION_FAILED, "a message to the anonymous terminus needs an address in `to`")
            place = place_of(to, ())
            self._connection.access.require(Action.SEND, place.address)
            addresses.target(place, self._connection.access)
        message = message_of(sections, place.address, self._connection.now_ms())
        if addresses.remembers_ids(place.address):
            message.duplicate_id = duplicate_id_of(sections)
        queues = addresses.queues_for(message, place.queue, self._connection.container_id)
        wanted = sections.header.durable or self._connection.settings.durability is Durability.ALWAYS
        message.durable = wanted and any(each.durable for each in queues)
        return message, place.queue, [each.name for each in queues]

    # ---- to the store ----------------------------------------------------------------------------------------------

    def send_waiting(self) -> None:
        """Give the store what has come. Raises FullError if it has no room: call this again when it has. Raises another
        JournalError if the node does not serve the journal any more."""
        waiting, alone = self._waiting, 0
        while waiting:
            run = self._run() if not alone else [waiting[0]]
            if not self._send(run):
                alone = len(run)
                continue
            for _ in run:
                waiting.popleft()
            alone = max(0, alone - 1)
        if self._link.credit <= self._credit // 2 and self._open:
            self._link.flow(self._credit)

    def _run(self) -> list[_Incoming]:
        """The messages from the first one on that can be one group."""
        first = self._waiting[0]
        kind = first.message.address, first.queues, first.transaction
        others = takewhile(
            lambda each: (each.message.address, each.queues, each.transaction) == kind, islice(self._waiting, 1, None)
        )
        return [first, *others]

    def _send(self, run: Sequence[_Incoming]) -> bool:
        """Send messages in one group; false if one of several is refused, and so none was sent."""
        store, transaction = self._connection.store, run[0].transaction
        unsettled = [each.delivery_id for each in run if not each.settled]
        tx = 0
        if transaction:
            found = self._connection.transactions.number_of(transaction)
            if found is None:
                self._refuse(unsettled, TRANSACTION_UNKNOWN_ID, "there is no such transaction", b"")
                return True
            tx = found
        if not run[0].queues:
            # no queue wants them: they are taken, as a topic without subscribers takes what is published
            self._settle(unsettled, ACCEPTED, transaction)
            return True
        try:
            pending = store.send_all([each.message for each in run], list(run[0].queues), tx)
        except (QueueFullError, StateError):
            raise  # no message is at fault
        except (CallerError, FullError) as error:
            if len(run) > 1 or (isinstance(error, QueueMissingError) and self._route_again(run[0])):
                return False
            self._refuse_for(unsettled, error, transaction)
            return True
        if transaction:
            # it is durable with its transaction, whose discharge says so
            self._settle(unsettled, ACCEPTED, transaction)
        elif unsettled:
            pending.add_callback(self._connection.told(partial(self._done, unsettled)))
        return True

    def _route_again(self, first: _Incoming) -> bool:
        """A queue of the first message is gone since it came: whether others want it now."""
        addresses, connection = self._connection.addresses, self._connection
        try:
            queues = addresses.queues_for(first.message, first.queue, connection.container_id)
        except AmqpPeerError:
            return False
        names = [each.name for each in queues]
        if names == first.queues:
            return False
        self._waiting[0] = first._replace(queues=names)
        return True

    def _done(self, unsettled: Sequence[int], error: JournalError | None) -> None:
        """In the loop: a group is durable, or is known to be lost."""
        if self._open:
            self._link.settle(unsettled, ACCEPTED if error is None else RELEASED)
            self._connection.flush_later()

    # ---- answers ---------------------------------------------------------------------------------------------------

    def _settle(self, ids: Sequence[int], state: State, transaction: bytes) -> None:
        if ids and self._open and not self._connection.ended:
            self._link.settle(ids, TransactionalState(transaction, state) if transaction else state)

    def _refuse_for(self, ids: Sequence[int], error: JournalError, transaction: bytes) -> None:
        if isinstance(error, DuplicateMessageError) and not transaction:
            if error.tx:
                # the transaction that has sent this message decides whether it is stored
                self._settle(ids, RELEASED, transaction)
            else:
                flushed = self._connection.store.flush()
                flushed.add_callback(self._connection.told(partial(self._done, ids)))
        else:
            self._refuse(ids, condition_of(error), str(error), transaction)

    def _refuse(self, ids: Sequence[int], condition: str, text: str, transaction: bytes) -> None:
        if transaction and not ids:
            self._connection.transactions.fail(transaction, text)
        self._settle(ids, RejectedState(ErrorCondition(condition, text)), transaction)
