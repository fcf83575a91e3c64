"""The operations of commands that need the active node. They are the same in a running node, and in a command that is
the active node while it runs."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from journal.activate.activation import ActivationReport
from journal.append.completion import Completion
from journal.cli.operations.in_doubt import name_of, unknown
from journal.cli.operations.looking import missing_queue
from journal.cli.operations.outcomes import forget, outcomes_among
from journal.cli.operations.ports import Json, QueueAct, Receiving, SendOrder, SendResult, SentSoFar
from journal.cli.operations.queue_acts import QueueActing
from journal.cli.operations.queue_lines import depth_of, shown_values
from journal.cli.operations.views import BROWSE_MAX
from journal.cli.script import encode_data
from journal.errors import (
    AddressMissingError,
    FullError,
    JournalError,
    MessageMissingError,
    QueueMissingError,
    StateError,
)
from journal.journal import BlockingJournal
from journal.process.clocks import wall_ms
from journal.process.commands import command
from journal.process.progress import Progress, no_progress
from journal.store.model import Delivery, Message, QueueConfig, ReferenceState, Routing
from journal.store.operations.look import QueueInfo
from journal.store.pending import Pending
from journal.store.store import MessageStore
from journal.xa.loading import PreparedFound
from journal.xa.ports import LoadedRows, OutcomeRecords, OutcomeRow, PreparedRow, Transactions
from journal.xa.resource import XaResource

log = logging.getLogger(__name__)

RECEIVER = "kafka-journal receive"
"""The prefix of the holder names that `receive` uses."""

WAIT_S = 60.0
"""The longest wait for durability."""

PATIENCE_S = 5.0
"""How long a receiver waits while its node is not sure to be still active, because the machine is slow or the process
was just resumed."""

_LOOK_EVERY_S = 0.02
_BATCH_MESSAGES = 256
"""The number of messages that must be durable before more are accepted, so that other users of the store find room in
its queue."""


class ServedJournal(OutcomeRecords, Protocol):
    """An activated journal of any kind."""

    @property
    def current(self) -> bool: ...

    @property
    def report(self) -> ActivationReport | None: ...


class Served(NamedTuple):
    """An activation that commands may use."""

    store: MessageStore
    journal: ServedJournal
    outcomes: Sequence[OutcomeRow] = ()
    """The XA outcomes that the activation's load found (`LoadedStore.outcomes`)."""
    resource: XaResource | None = None
    """The broker's own XA resource, if it has one. It must be told which transactions are settled by hand."""


class StoreActing:
    """`Acting` on an activation with a message store."""

    def __init__(self, served: Served, journal_name: str, progress: Progress = no_progress) -> None:
        self._served = served
        self._name = journal_name
        self._progress = progress

    def send(self, order: SendOrder, so_far: SentSoFar) -> SendResult:
        store, address = self._served.store, order.message.address
        if order.create:
            _create(store, address)
        queues = list(order.queues or ([address] if order.create else _queues_of(store, address)))
        for queue in set(queues) - {info.config.name for info in store.queues()}:
            raise missing_queue(queue, self._name)
        so_far.queues = queues
        ids: list[int] = []
        while len(ids) < order.count:
            self._progress("send", len(ids), order.count)
            batch = min(_BATCH_MESSAGES, order.count - len(ids))
            so_far.begin(batch)
            sent = [store.send(order.message, queues).id for _ in range(batch)]
            durable = store.flush()
            so_far.handed_in(sent, partial(_is_durable, durable))
            durable.wait(WAIT_S)
            ids += sent
        return SendResult(queues, ids)

    def receiving(self, queue: str, receiver: str) -> Receiving:
        found = next((info.config for info in self._served.store.queues() if info.config.name == queue), None)
        if found is None:
            raise missing_queue(queue, self._name)
        if found.paused:
            resume = command("queues resume", queue, journal=self._name)
            raise StateError(f"queue {queue} is paused and hands out nothing: {resume} ends that")
        # each receiver has a holder name of its own, so that two at once do not release each other's messages
        return StoreReceiving(self._served, queue, f"{RECEIVER} {receiver} {uuid.uuid4().hex[:8]}")

    def queue(self, act: QueueAct, *, operator: str) -> Json:
        return QueueActing(self._served.store, self._name).act(act, operator=operator)

    def settle(self, tx: int, *, commit: bool, operator: str) -> int:
        store, journal, outcomes, resource = self._served
        prepared = _prepared(store)
        row = _row_of(prepared, tx, self._name)
        if resource is None:
            settle(store, journal, _Loaded(prepared, outcomes), tx, commit=commit)
        else:
            settle_with(resource, store, tx, commit=commit)
        _note_settled(row, commit=commit, operator=operator)
        return epoch_of(journal)

    def forget(self, named: str, *, operator: str) -> int:
        store, journal, outcomes, resource = self._served
        known = resource or XaResource(store, journal, _Loaded(_prepared(store), outcomes))
        _forget(known, named, self._name, operator)
        return epoch_of(journal)


class JournalActing:
    """Settles transactions of a journal without a store, which may be any broker's."""

    def __init__(self, journal: BlockingJournal, loaded: LoadedRows, journal_name: str) -> None:
        self._journal = journal
        self._loaded = _Loaded(loaded.prepared, outcomes_among(loaded.outcomes))
        self._name = journal_name

    def settle(self, tx: int, *, commit: bool, operator: str) -> int:
        """The operation of `Acting.settle`."""
        row = _row_of(self._loaded.prepared, tx, self._name)
        settle(self._journal, self._journal, self._loaded, tx, commit=commit)
        _note_settled(row, commit=commit, operator=operator)
        return epoch_of(self._journal)

    def forget(self, named: str, *, operator: str) -> int:
        """The operation of `Acting.forget`."""
        resource = XaResource(self._journal, self._journal, self._loaded)
        _forget(resource, named, self._name, operator)
        return epoch_of(self._journal)


def epoch_of(journal: ServedJournal) -> int:
    if journal.report is None:
        raise StateError("the journal was never activated")
    return journal.report.epoch


def _row_of(prepared: Iterable[PreparedRow], tx: int, journal: str) -> PreparedRow:
    for row in prepared:
        if row.tx == tx:
            return row
    raise unknown(journal, tx)


def _note_settled(row: PreparedRow, *, commit: bool, operator: str) -> None:
    done = "committed" if commit else "rolled back"
    log.warning("transaction %d (%s) was %s by hand, by %s", row.tx, name_of(row.data), done, operator)


def _forget(resource: XaResource, named: str, journal: str, operator: str) -> None:
    forget(resource, named, journal)
    log.warning("the outcome %s was forgotten by hand, by %s", named, operator)


# ---- settling ----------------------------------------------------------------------------------------------


class _Loaded(NamedTuple):
    """The rows that an XA resource starts with: the prepared transactions and the outcomes that a load found."""

    prepared: Sequence[PreparedRow]
    outcomes: Sequence[OutcomeRow]


def _prepared(store: MessageStore) -> list[PreparedFound]:
    return [PreparedFound(info.tx, info.data) for info in store.in_doubt()]


def settle(transactions: Transactions, records: OutcomeRecords, loaded: LoadedRows, tx: int, *, commit: bool) -> None:
    """Settle a transaction. If it has an xid, its outcome is kept until the coordinator has heard of it."""
    settle_with(XaResource(transactions, records, loaded), transactions, tx, commit=commit)


def settle_with(resource: XaResource, transactions: Transactions, tx: int, *, commit: bool) -> None:
    """Settle a transaction through the resource, or directly if the resource does not know the transaction. Raises
    XidError for a branch that is being settled already."""
    xid = resource.xid_of(tx)
    if xid is not None:
        resource.settle(xid, commit=commit)
    elif tx in resource.unnamed:
        resource.settle_unnamed(tx, commit=commit)
    else:
        (transactions.commit(tx) if commit else transactions.rollback(tx)).wait(WAIT_S)


def _is_durable(completion: Completion) -> bool:
    return completion.done and completion.error is None


# ---- sending -----------------------------------------------------------------------------------------------


def _create(store: MessageStore, address: str) -> None:
    if all(entry.name != address for entry in store.addresses()):
        store.create_address(address).wait(WAIT_S)
    if all((info.config.address, info.config.name) != (address, address) for info in store.queues()):
        store.create_queue(QueueConfig(address, address)).wait(WAIT_S)


def _queues_of(store: MessageStore, address: str) -> list[str]:
    if all(entry.name != address for entry in store.addresses()):
        raise AddressMissingError(f"there is no address {address}: --create makes it, with a queue of its name")
    queues = routed_to([info for info in store.queues() if info.config.address == address])
    if not queues:
        raise QueueMissingError(f"address {address} has no queue: --create makes one of its name")
    return queues


def routed_to(infos: Sequence[QueueInfo]) -> list[str]:
    """The queues of an address that a message goes to: all multicast ones, and the anycast one with the fewest
    messages."""
    names = [info.config.name for info in infos if info.config.routing is Routing.MULTICAST]
    anycast = [info for info in infos if info.config.routing is Routing.ANYCAST]
    if anycast:
        names.append(min(anycast, key=lambda info: depth_of(info) + info.arriving).config.name)
    return names


# ---- receiving ---------------------------------------------------------------------------------------------


class StoreReceiving:
    """`Receiving` from a queue of a store."""

    def __init__(self, served: Served, queue: str, holder: str, *, patience_s: float = PATIENCE_S) -> None:
        self._store = served.store
        self._journal = served.journal
        self._queue = queue
        self._holder = holder
        self._patience_s = patience_s

    def take(self) -> Json | None:
        """The next message; None if none is ready. Raises StateError if the node cannot deliver for too long."""
        until = time.monotonic() + self._patience_s
        while True:
            current = self._journal.current
            delivery = self._store.take(self._queue, self._holder)
            if delivery is not None:
                return _received_line(delivery, self._store.message(delivery.message))
            # an empty answer proves nothing yet: the queue may have messages
            if not current or not self._journal.current:
                _wait_to_be_current(until)
            elif 0 < self._store.next_due() <= wall_ms():
                self._store.tick()
            else:
                return None

    def acknowledge(self, message: int) -> None:
        self._store.acknowledge(message, self._queue, self._holder)

    def finish(self) -> int:
        self._store.flush().wait(WAIT_S)
        until = time.monotonic() + self._patience_s
        while not self._journal.current:
            _wait_to_be_current(until)
        return max(0, self._store.queue(self._queue).ready - self._expired())

    def _expired(self) -> int:
        """The number of expired messages that are ready and that nobody holds, among the queue's first `BROWSE_MAX`."""
        expired = self._store.expired(BROWSE_MAX, agreed=False)
        return sum(self._is_ready(message) for message, queue in expired if queue == self._queue)

    def _is_ready(self, message: int) -> bool:
        try:
            references = self._store.explain(message)
        except MessageMissingError:
            return False
        return any(each.queue == self._queue and each.state is ReferenceState.READY for each in references)

    def close(self) -> None:
        """Release the messages that were taken and not acknowledged. They are ready again, with a higher redelivery
        count."""
        try:
            give_back(self._store, self._holder)
        except JournalError as error:
            # the next activation releases the messages for which no holder comes back
            log.info("%s holds what it took until the next activation: %s", self._holder, error)


def _wait_to_be_current(until: float) -> None:
    """Wait a little until the node knows that it is active; the writer's next commit shows it."""
    if time.monotonic() >= until:
        raise StateError("this node did not know that it was still the active one: call again")
    time.sleep(_LOOK_EVERY_S)


def give_back(store: MessageStore, holder: str) -> Pending:
    """Release all messages of a holder, even if the journal is full now."""
    while True:
        try:
            return store.release_holder(holder)
        except FullError:
            store.room().wait(WAIT_S)


def give_back_of_the_dead(store: MessageStore) -> None:
    """Release the messages of killed receivers, in a store that nobody else uses yet."""
    for holder in store.holders():
        if holder.startswith(RECEIVER):
            give_back(store, holder).wait(WAIT_S)


def _received_line(delivery: Delivery, message: Message) -> Json:
    return {
        "id": delivery.message,
        "deliveries": delivery.deliveries,
        "priority": message.priority,
        "timestamp": message.timestamp,
        "headers": shown_values(message.headers),
        "properties": shown_values(message.properties),
        "body": encode_data(message.body),
    }
