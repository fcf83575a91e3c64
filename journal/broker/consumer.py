"""A link that a client receives on: messages are taken from a queue as the client's credit allows, and settled as it
says.

A message that was handed out is held in memory, under the name of the link. What the client does with it:

    accepted    settled, durable before the client is told where it awaits that
    released    given back, not counted       modified    given back; with delivery-failed it is counted
    rejected    settled as a dead letter
    nothing     a link or connection that ends gives back all that it holds, counted
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from journal.amqp import OutgoingDelivery, SenderLink
from journal.amqp.conditions import ILLEGAL_STATE, RESOURCE_DELETED, TRANSACTION_UNKNOWN_ID
from journal.amqp.message_types import (
    AcceptedState,
    ErrorCondition,
    ModifiedState,
    RejectedState,
    ReleasedState,
    State,
    TransactionalState,
)
from journal.broker.messages import transfer_of
from journal.broker.ports import LinkOwner
from journal.errors import FullError, JournalError, MessageHeldError, MessageMissingError, QueueMissingError, StoreError
from journal.store.model import Delivery, Held, Message
from journal.store.operations.cursor import Selects, StoreCursor
from journal.store.operations.move import DEAD, Rejected
from journal.store.pending import Accepted

log = logging.getLogger(__name__)

BATCH = 100
"""The most messages that are taken at once. Other links of the loop have their turn between batches."""


REASON_CHARACTERS_MAX = 1000
"""The longest reason that a dead letter keeps."""


class Consumer:
    """One such link. It holds messages under `holder`."""

    def __init__(
        self,
        connection: LinkOwner,
        link: SenderLink,
        queue: str,
        holder: str,
        *,
        presettled: bool,
        selects: Selects | None = None,
    ) -> None:
        self._connection = connection
        self._link = link
        self.queue = queue
        self.holder = holder
        self._presettled = presettled
        self._rest: list[tuple[Delivery, Message | None]] = []
        """Messages that were taken and could not be sent: the session's window is full, or bodies are being read."""
        self._reading: asyncio.Task[None] | None = None
        self._cursor = None if selects is None else connection.store.cursor(queue, selects)
        """The place in the queue of a link that does not want every message."""
        self._goes_on = False
        """Whether a later step of the loop goes on with this link, or one when the journal has room."""
        self._settling: set[int] = set()
        """Deliveries whose outcome the client has said, and that are not settled yet. What it says of them meanwhile
        changes nothing."""
        self._burying: dict[int, asyncio.Task[None]] = {}
        """Messages that are not yet dead letters, and the task that makes them so. Those where it failed stay here."""
        self.open = True

    # ---- handing out -----------------------------------------------------------------------------------------------

    @property
    def wants(self) -> bool:
        """Whether the client could be sent a message now."""
        return self.open and self._link.credit > 0 and self._reading is None

    @property
    def unsent(self) -> int:
        """Messages that were taken and not sent yet."""
        return len(self._rest)

    def pump(self) -> None:
        """Send a batch of what there is, as far as credit, window and the socket's buffer go. The next batch follows
        once this one is written and other links have had their turn."""
        connection, link = self._connection, self._link
        sure = connection.store.current
        if self.wants and connection.may_write and not self._goes_on:
            if connection.waits_for_room:
                self._go_on_with_room()
            elif (self._rest or self._take()) and self._send_rest() and self.wants:
                self._go_on_later()
        waits = self._rest or self._reading or self._goes_on or not connection.may_write
        # a node that is not sure to be the active one hands out nothing, although there may be messages
        sure = link.credit <= 0 or (sure and connection.store.current)
        if link.drain and self.open and sure and not waits:
            link.drained()
        connection.flush_later()

    def _take(self) -> bool:
        """Take a batch; false if there is nothing to send now."""
        wanted = min(self._link.credit, BATCH, self._connection.in_flight_room(self))
        if wanted <= 0:
            return False
        try:
            taken = self._fetch(wanted)
        except QueueMissingError as error:
            self._connection.detach(self._link, RESOURCE_DELETED, str(error))
            return False
        except FullError:
            self._go_on_with_room()
            return False
        if self._cursor is not None and self._cursor.more:
            if not taken:
                self._go_on(self._cursor)
        elif len(taken) < wanted:
            self._connection.wait_for(self.queue, self)
        # a large body is read when its turn comes, so that one at a time is in memory
        self._rest = [(each, None if each.large else each.content) for each in taken]
        return bool(taken)

    def _fetch(self, count: int) -> list[Delivery]:
        """The next messages for this link."""
        if self._cursor is not None:
            return self._cursor.take_all(self.holder, count)
        return self._connection.store.take_all(self.queue, self.holder, count)

    def _go_on(self, cursor: StoreCursor) -> None:
        """Look on in the queue once other links have had their turn, or once the next messages are read."""
        if cursor.unread:
            self._reading = self._connection.loop.create_task(self._read_ahead(cursor))
        else:
            self._go_on_later()

    def _go_on_later(self) -> None:
        if not self._goes_on:
            self._goes_on = True
            self._connection.loop.call_soon(self._look_on)

    def _go_on_with_room(self) -> None:
        self._goes_on = True
        self._connection.when_there_is_room(self._look_on)

    def _look_on(self) -> None:
        self._goes_on = False
        if self.open:
            self.pump()

    async def _read_ahead(self, cursor: StoreCursor) -> None:
        try:
            await cursor.read()
        except JournalError as error:
            self._connection.detach(self._link, ILLEGAL_STATE, f"messages cannot be read: {error}")
        finally:
            self._reading = None
        self._look_on()

    def _send_rest(self) -> bool:
        """Send taken messages; false if some are left."""
        link, session, now_ms = self._link, self._link.session, self._connection.now_ms()
        sent = 0
        try:
            for each, content in self._rest:
                if link.credit <= 0 or session.remote_window <= 0 or session.writing is not None:
                    break
                if content is None:
                    self._reading = self._connection.loop.create_task(self._read())
                    break
                payload = transfer_of(content, each.deliveries, redelivered=each.redelivered, now_ms=now_ms)
                link.send(payload, context=each.message, settled=self._presettled)
                sent += 1
        finally:
            settled = [each.message for each, _ in self._rest[:sent]] if self._presettled else []
            del self._rest[:sent]
            if settled:
                self._settle_sent(settled)
        return not self._rest

    def _settle_sent(self, ids: Sequence[int]) -> None:
        """Settle messages that were sent settled."""
        self._connection.do(lambda: self._acknowledge(ids))

    async def _read(self) -> None:
        """Read the next messages that are not in memory, or one large one; then go on."""
        try:
            found = await self._found()
        except JournalError as error:
            self._connection.detach(self._link, ILLEGAL_STATE, f"messages cannot be read: {error}")
            return
        finally:
            self._reading = None
        rest, first = self._rest, self._rest[0][0]
        # what was asked for and not found is gone; a large one that is not the first was not asked for
        self._rest = [
            (each, found.get(each.message, content))
            for each, content in rest
            if content is not None or each.message in found or (each.large and each is not first)
        ]
        self.pump()

    async def _found(self) -> dict[int, Message]:
        store, (first, _) = self._connection.store, self._rest[0]
        if not first.large:
            return await store.bodies([each.message for each, found in self._rest if found is None and not each.large])
        with suppress(MessageMissingError):
            return {first.message: await asyncio.to_thread(store.message, first.message)}
        return {}

    # ---- outcomes --------------------------------------------------------------------------------------------------

    def settle(self, deliveries: Sequence[OutgoingDelivery], state: State | None, *, settled: bool) -> None:
        """The client has said what became of deliveries."""
        transaction = b""
        if isinstance(state, TransactionalState):
            transaction, state = state.txn_id, state.outcome
        tx = 0
        if transaction:
            found = self._connection.transactions.number_of(transaction)
            if found is None:
                self._connection.detach(self._link, TRANSACTION_UNKNOWN_ID, "there is no such transaction")
                return
            tx = found
        if state is None and not settled:
            return
        deliveries = [each for each in deliveries if each.delivery_id not in self._settling]
        if not deliveries:
            return
        ids = [each.context for each in deliveries]
        numbers = [each.delivery_id for each in deliveries]
        self._settling.update(numbers)
        for each in ids:
            self._burying.pop(each, None)  # it failed before

        def answer() -> None:
            self._settling.difference_update(numbers)
            if self.open and not settled:
                done = [each.delivery_id for each in deliveries if each.context not in self._burying]
                self._link.settle(done, TransactionalState(transaction, state) if transaction else state)
                self._connection.flush_later()

        def applied() -> None:
            self._once_buried(ids, answer)

        self._connection.do(lambda: self._apply(ids, state, tx), self._link, then=applied, durably=not tx)

    def _apply(self, ids: Sequence[int], state: State | None, tx: int) -> Accepted | None:
        match state:
            case AcceptedState():
                return self._acknowledge(ids, tx)
            case RejectedState(error=error):
                return self._reject(ids, reason_of(error), tx)
            case ModifiedState(delivery_failed=failed, undeliverable_here=elsewhere):
                if elsewhere:
                    self._cursor = self._cursor or self._connection.store.cursor(self.queue)
                    self._cursor.refuse(ids)
                self._release(ids, tx, counts=failed)
            case ReleasedState() | None:
                self._release(ids, tx, counts=state is None)
            case _:
                raise StoreError(f"{type(state).__name__} is no outcome of a message")
        return None

    def _reject(self, ids: Sequence[int], reason: str = DEAD, tx: int = 0) -> Accepted:
        """Settle messages as dead letters. What must be read first is done in a thread."""
        rejected = self._of_held(ids, tx, lambda held: self._connection.store.reject(held, reason, tx))
        if isinstance(rejected, Rejected) and (left := [each for held in rejected.left for each in held.messages]):
            task = self._connection.loop.create_task(self._bury(left, reason, tx))
            self._burying.update(dict.fromkeys(left, task))
        return rejected

    async def _bury(self, ids: Sequence[int], reason: str, tx: int) -> None:
        for each in ids:
            try:
                await asyncio.to_thread(self._bury_one, each, reason, tx)
            except JournalError as error:
                # it is still held, and comes back when the link ends
                log.warning("message %d of queue %s is no dead letter yet: %s", each, self.queue, error)
            else:
                self._burying.pop(each, None)

    def _once_buried(self, ids: Sequence[int], then: Callable[[], None]) -> None:
        """Call `then` once no task makes dead letters of these messages any more."""
        for each in ids:
            task = self._burying.get(each)
            if task is not None and not task.done():
                task.add_done_callback(lambda _: self._once_buried(ids, then))
                return
        then()

    def _bury_one(self, message: int, reason: str, tx: int) -> None:
        """Make a message a durable dead letter, unless it is another's meanwhile. Called in a thread."""
        store = self._connection.store
        with suppress(MessageMissingError, MessageHeldError):
            store.acquire(message, self.queue, self.holder)  # this changes nothing if it is held as it was
            moved = store.dead_letter(message, self.queue, reason=reason, tx=tx)
            if not tx:
                moved.wait()

    def _acknowledge(self, ids: Sequence[int], tx: int = 0) -> Accepted:
        """Settle messages, as consumed."""
        return self._of_held(ids, tx, lambda held: self._connection.store.acknowledge_all(held, tx))

    def _release(self, ids: Sequence[int], tx: int = 0, *, counts: bool) -> None:
        """Give back messages."""
        self._of_held(ids, tx, lambda held: self._connection.store.release_all(held, tx, counts=counts))

    def _of_held(self, ids: Sequence[int], tx: int, operate: Callable[[Sequence[Held]], Accepted]) -> Accepted:
        """Do something with those of the messages that this link still holds: an administrator may have settled or
        released others, and the client has nothing to do with them any more. A transaction needs all of them."""
        left = [*ids]
        while left:
            try:
                return operate([Held(self.queue, left, self.holder)])
            except (MessageMissingError, MessageHeldError) as error:
                if tx:
                    raise
                left.remove(error.message)
        # whoever settled them is perhaps not durable yet
        return Accepted(self._connection.store.flush())

    def _stop(self) -> None:
        self.open = False
        if self._reading is not None:
            self._reading.cancel()
        self._connection.wait_no_more(self.queue, self)
        if self._reading is not None:
            self._reading.cancel()

    def close(self) -> None:
        """The link is gone: give back what it holds. Messages that were not sent are not counted."""
        self._stop()
        unsent = [each.message for each, _ in self._rest]
        self._rest.clear()

        def give_back() -> None:
            self._release(unsent, counts=False)
            unsent.clear()
            self._connection.store.release_holder(self.holder)
            if self._cursor is not None:
                self._cursor.close()

        # what the client has rejected goes to nobody else
        self._once_buried([*self._burying], lambda: self._connection.do(give_back))


def reason_of(error: ErrorCondition | None) -> str:
    """The reason of a dead letter, from what its receiver has said."""
    if error is None:
        return DEAD
    return ": ".join(each for each in ("rejected", error.condition, error.description) if each)[:REASON_CHARACTERS_MAX]
