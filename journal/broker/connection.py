"""One client's connection: the socket's bytes to the engine, the engine's events to links, and back.

All of it runs in the loop's thread. While the journal has no room, the socket is not read; while the socket's buffer is
full, nothing is taken from queues. So nothing between a client and the store grows without a bound.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib import metadata
from typing import Any

from journal.amqp import Connection, EngineLimits, ReceiverLink, SenderLink
from journal.amqp.conditions import (
    CONNECTION_FORCED,
    INTERNAL_ERROR,
    INVALID_FIELD,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
)
from journal.amqp.events import (
    ConnectionClosed,
    ConnectionFailed,
    ConnectionOpened,
    DispositionReceived,
    Event,
    LinkAttached,
    LinkDetached,
    LinkFailed,
    LinkFlow,
    SessionBegan,
    SessionEnded,
    TransferReceived,
    WindowOpened,
)
from journal.amqp.filters import source_filters
from journal.amqp.links import Link
from journal.amqp.message_types import CoordinatorTerminus, ErrorCondition, SourceTerminus, TargetTerminus
from journal.amqp.session import AmqpSession
from journal.amqp.transport_types import SETTLED, SaslInitFrame, SaslResponseFrame
from journal.amqp.values import Symbol
from journal.broker.addresses import place_of
from journal.broker.browser import Browser
from journal.broker.consumer import Consumer
from journal.broker.coordinator import TransactionCoordinator
from journal.broker.ports import ConnectionOwner
from journal.broker.producer import Producer
from journal.broker.refusals import condition_of
from journal.broker.security.access import UserAccess
from journal.broker.security.permissions import Action
from journal.broker.security.usage import Counted
from journal.broker.selection import in_force, selection
from journal.broker.subscriptions import Subscription
from journal.errors import (
    AmqpPeerError,
    CallerError,
    FullError,
    JournalError,
    OutcomeUnknownError,
    QueueFullError,
    StateError,
)
from journal.store.pending import Accepted

log = logging.getLogger(__name__)

COPY = "copy"
"""The distribution mode of a source whose messages stay where they are."""

VERSION = metadata.version("kafka-journal")
SOLE_CONNECTION = "sole-connection-for-container"
_UNREAD_BYTES_MAX = 4 * 2**20
"""Bytes that a client has not read, above which nothing more is read of it."""

CAPABILITIES = ("ANONYMOUS-RELAY", "DELAYED_DELIVERY", "SHARED-SUBS", SOLE_CONNECTION)


class AmqpConnection(asyncio.Protocol):
    """A client. The server makes one for each socket."""

    access: UserAccess
    """The user's permissions; they are known once SASL has ended."""

    def __init__(self, server: ConnectionOwner) -> None:
        self._server = server
        self.store = server.store
        self.settings = server.settings
        self.addresses = server.addresses
        self.subscriptions = server.subscriptions
        self.calls = server.calls
        self.loop = server.loop
        self.now_ms = server.now_ms
        self.transactions = TransactionCoordinator(self)
        self.container_id = ""
        self.ended = False
        self.may_write = True
        self._number = uuid.uuid4().hex
        self._limits = EngineLimits(
            idle_timeout_ms=self.settings.idle_timeout_ms,
            message_bytes_max=server.message_bytes_max,
        )
        self._transport: asyncio.Transport | None = None
        self._producers: list[Producer] = []
        """Those whose messages the store has not got."""
        self._consumers: dict[SenderLink, Consumer] = {}
        self._consumer_number = 0
        self._steps: deque[Callable[[], None]] = deque()
        """Calls of the store that are still to be made for the client, in order."""
        self._stepping = False
        self._waits_for_room = False
        self._unread = False
        """Whether so much is written that the client has not read that nothing more is read of it."""
        self._flushing = False
        self._own: dict[Link, str] = {}
        """Temporary queues and queues of subscriptions, by their link."""
        self._logging_in: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    # ---- the socket ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.admit(self)
        self._login = self._server.security.login(transport)
        self._usage = self._server.security.usage()
        self._engine = Connection.server(self._server.container_id, self._login.mechanisms, self._limits)
        self._timer = self.loop.call_later(self.settings.handshake_ms / 1000, self._require_open)

    def data_received(self, data: bytes) -> None:
        self._take_events(self._engine.receive(data))

    def eof_received(self) -> bool:
        self._take_events(self._engine.receive_end())
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def pause_writing(self) -> None:
        self.may_write = False

    def resume_writing(self) -> None:
        self.may_write = True
        self._unread = False
        self._read_or_pause()
        self._pump()

    def _require_open(self) -> None:
        if not self._engine.remotely_open:
            log.info("a client did not open its connection within %d ms", self.settings.handshake_ms)
            self._abort()
            return
        self._tick()

    def _tick(self) -> None:
        again, events = self._engine.tick(self.loop.time())
        self._take_events(events)
        if again is not None and not self.ended:
            self._timer = self.loop.call_at(again, self._tick)

    def _take_events(self, events: list[Event]) -> None:
        for event in events:
            if self.ended:
                break
            try:
                self._take(event)
            except AmqpPeerError as error:
                self.close(error.condition, str(error))
            except JournalError as error:
                self.force(str(error))
            except Exception as error:
                log.exception("a client's connection ends")
                self.close(INTERNAL_ERROR, f"{type(error).__name__}: {error}")
        if self._producers:
            self.in_turn(self._send_producers)
        self._flush()

    # ---- writing ---------------------------------------------------------------------------------------------------

    def flush_later(self) -> None:
        """Write what there is at the end of this step of the loop."""
        if not self._flushing:
            self._flushing = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self._usage.pump_waiting()
        if self._transport is None or self._transport.is_closing():
            return
        if data := self._engine.bytes_to_send():
            self._transport.write(data)
            if not self.may_write and self._transport.get_write_buffer_size() > _UNREAD_BYTES_MAX:
                self._unread = True
                self._read_or_pause()
        if self._engine.finished:
            self._transport.close()

    def _read_or_pause(self) -> None:
        """Read of the socket, or not while the journal has no room or the client reads nothing."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._waits_for_room or self._unread:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def close(self, condition: str, text: str, info: Mapping[str, Any] | None = None) -> None:
        """End the connection with an error."""
        if not self.ended and not self._engine.remotely_open:
            self._abort()
        elif not self.ended and not self._engine.finished:
            self._engine.close(ErrorCondition(condition, text, info))
            self._flush()
            # a client that does not answer the close is not waited for
            self.loop.call_later(1.0, self._abort)
        self._end()

    def force(self, text: str) -> None:
        """End the connection because this node does not serve it any more: clients connect again elsewhere."""
        self.close(CONNECTION_FORCED, text)

    def end_if_removed(self) -> None:
        """End the connection if its user is there no more."""
        if self._engine.remotely_open and self.access.removed:
            self.close(UNAUTHORIZED_ACCESS, f"user {self.access.user} was removed")

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _end(self) -> None:
        if self.ended:
            return
        self.ended = True
        for consumer in list(self._consumers.values()):
            consumer.close()
        self._consumers.clear()
        self.transactions.close()
        for link in list(self._own):
            self._drop(link)
        if self._timer is not None:
            self._timer.cancel()
        if self._logging_in is not None:
            self._logging_in.cancel()  # a password that waits for its check is not checked any more
        self._usage.close()
        self._server.forget(self)

    # ---- events ----------------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        match event:
            case TransferReceived(link=link):
                self._transferred(link, event)
            case DispositionReceived(link=SenderLink() as link, deliveries=deliveries, state=state, settled=settled):
                if (consumer := self._consumers.get(link)) is not None:
                    consumer.settle(deliveries, state, settled=settled)
            case LinkFlow(link=link):
                if (consumer := self._consumers.get(link)) is not None:
                    consumer.pump()
            case WindowOpened():
                self._pump()
            case LinkAttached(link=link, frame=frame):
                self._attached(link, frame.source, frame.target)
            case LinkDetached(link=link, closed=closed):
                self._detached(link, closed=closed)
            case LinkFailed(link=link):
                self._drop(link)
            case SessionBegan(session=session):
                self._begun(session)
            case SessionEnded(session=session):
                self._session_ended(session)
            case ConnectionOpened():
                self._opened()
            case ConnectionClosed():
                if not self._engine.finished:
                    self._engine.close()
                self._end()
            case ConnectionFailed(error=error):
                log.info("a client's connection failed: %s", error.description)
                self._end()
            case SaslInitFrame() | SaslResponseFrame():
                self._logging_in = self.loop.create_task(self._authenticate(event))
            case _:
                pass

    async def _authenticate(self, event: SaslInitFrame | SaslResponseFrame) -> None:
        """The engine gives nothing more of the client before this has answered."""
        answer = await self._login.answer(event)
        if self.ended or self._engine.finished:
            return
        if answer.challenge is not None:
            self._engine.sasl_challenge(answer.challenge)
            self._flush()
            return
        self.access = self._server.security.access(self._login)
        self._usage.user = self.access.user
        self._take_events(self._engine.sasl_outcome(answer.code, answer.data))

    def _opened(self) -> None:
        self._usage.take(Counted.CONNECTION, self)
        peer = self._engine.peer
        assert peer is not None
        self.container_id = peer.container_id
        properties = {
            "product": "kafka-journal",
            "version": VERSION,
            "queue-prefix": "queue://",
            "topic-prefix": "topic://",
        }
        if SOLE_CONNECTION not in peer.desired_capabilities or self._server.claim(self):
            self._engine.open(offered_capabilities=CAPABILITIES, properties=properties)
            return
        self._engine.open(properties={**properties, "amqp:connection-establishment-failed": True})
        text = f"container id {self.container_id} is in use by another connection, and each wants to be the only one"
        self.close(INVALID_FIELD, text, {"invalid-field": Symbol("container-id")})

    def _begun(self, session: AmqpSession) -> None:
        session.begin()
        try:
            self._usage.take(Counted.SESSION, session)
        except AmqpPeerError as error:
            session.end(ErrorCondition(error.condition, str(error)))

    def _session_ended(self, session: AmqpSession) -> None:
        self._usage.give_back(Counted.SESSION, session)
        for link in [link for link in self._usage.links if link.session is session]:
            self._drop(link)
        if session.locally_open:
            session.end()

    # ---- links -----------------------------------------------------------------------------------------------------

    def _attached(self, link: Link, source: SourceTerminus | None, target: object) -> None:
        try:
            self._usage.take(Counted.LINK, link)
            if isinstance(link, ReceiverLink):
                self._producer(link, source, target)
            elif isinstance(link, SenderLink):
                self._consumer(link, source, target)
        except AmqpPeerError as error:
            link.refuse(ErrorCondition(error.condition, str(error)))
        except FullError as error:
            link.refuse(ErrorCondition(RESOURCE_LIMIT_EXCEEDED, str(error)))

    def _producer(self, link: ReceiverLink, source: SourceTerminus | None, target: object) -> None:
        if isinstance(target, CoordinatorTerminus):
            link.attach(source, CoordinatorTerminus(("amqp:local-transactions", "amqp:multi-txns-per-ssn")))
            link.context = self.transactions
            self.transactions.attach(link)
            return
        if not isinstance(target, TargetTerminus):
            raise AmqpPeerError(INVALID_FIELD, "a link to send on needs a target")
        place = None
        if target.dynamic:
            target = replace(target, address=self._temporary_queue(link))
        if target.address:
            place = place_of(target.address, target.capabilities)
            self.access.require(Action.SEND, place.address)
            self.addresses.target(place, self.access)
        link.attach(source, target)
        link.context = Producer(self, link, place)

    def _consumer(self, link: SenderLink, source: SourceTerminus | None, target: object) -> None:
        assert isinstance(target, TargetTerminus | None)
        if (wanted := self.subscriptions.of_link(link, self.container_id, source)) is not None:
            self._subscribe(link, wanted, target)
            return
        if not isinstance(source, SourceTerminus):
            raise AmqpPeerError(INVALID_FIELD, "a link to receive on needs a source")
        filters = source_filters(source.filter)
        selects = selection(filters.selector) if filters.selector else None
        queue, answer = self._source_queue(source, link)
        link.attach(replace(answer, filter=in_force(filters)), target)
        presettled = self._presettled(link)
        consumer = (
            Browser(self, link, queue, presettled=presettled, selects=selects)
            if source.distribution_mode == COPY
            else Consumer(self, link, queue, self._holder(link), presettled=presettled, selects=selects)
        )
        self._consumers[link] = link.context = consumer

    def _holder(self, link: SenderLink) -> str:
        """A name that no other link has, or had before."""
        self._consumer_number += 1
        return f"amqp {self._number} {self._consumer_number} {link.name}"

    @staticmethod
    def _presettled(link: SenderLink) -> bool:
        return link.offered is not None and link.offered.snd_settle_mode == SETTLED

    def _subscribe(self, link: SenderLink, wanted: Subscription, target: TargetTerminus | None) -> None:
        """Attach a link to its subscription, once that is durable: the client relies on it from then on."""
        queue = wanted.queue.name
        self.access.require(Action.CONSUME, wanted.queue.address)
        written = self.subscriptions.join(wanted, link, self.access)
        self._own[link] = queue

        def attach(error: JournalError | None) -> None:
            if error is not None:
                self._drop(link)
                link.refuse(ErrorCondition(INTERNAL_ERROR, str(error)))
                self.flush_later()
                return
            link.attach(wanted.answer, target)
            if link in self._own:
                presettled = self._presettled(link)
                consumer = Consumer(self, link, queue, self._holder(link), presettled=presettled, selects=None)
                self._consumers[link] = link.context = consumer
                consumer.pump()  # the client may have given credit with its attach
            else:
                link.detach(closed=True)  # the client has detached it meanwhile
            self.flush_later()

        if written is None:
            attach(None)
        else:
            written.add_callback(self.told(attach))

    def _source_queue(self, source: SourceTerminus, link: SenderLink) -> tuple[str, SourceTerminus]:
        """The queue of a source, and the source as it is answered."""
        if source.dynamic:
            queue = self._temporary_queue(link)
            return queue, replace(source, address=queue)
        if not source.address:
            raise AmqpPeerError(INVALID_FIELD, "a source has no address")
        place = place_of(source.address, source.capabilities)
        self.access.require(Action.BROWSE if source.distribution_mode == COPY else Action.CONSUME, place.address)
        return self.addresses.source(place, self.access), source

    def _temporary_queue(self, link: Link) -> str:
        queue = self._own[link] = self.addresses.temporary(self.access)
        return queue

    def _detached(self, link: Link, *, closed: bool) -> None:
        def answer() -> None:
            if link.locally_open:
                link.detach(closed=closed)

        self._drop(link, closed=closed, then=answer)

    def _drop(self, link: Link, *, closed: bool = False, then: Callable[[], None] | None = None) -> None:
        """Forget a link that is gone, closed by its client or not; `then` follows once a queue that goes with it is
        destroyed durably."""
        self._usage.give_back(Counted.LINK, link)
        context = link.context
        if isinstance(context, Producer):
            context.close()
        elif isinstance(context, TransactionCoordinator):
            context.leave(link)
        if isinstance(link, SenderLink) and (consumer := self._consumers.pop(link, None)) is not None:
            consumer.close()
        queue = self._own.pop(link, None)
        if queue is not None and self.subscriptions.leave(queue, link, closed=closed):
            self.do(partial(self.subscriptions.destroy, queue), link, then=then, durably=True)
        elif then is not None:
            then()

    def detach(self, link: Link, condition: str, text: str) -> None:
        """End a link with an error."""
        self._drop(link)
        if link.locally_open:
            link.detach(closed=True, error=ErrorCondition(condition, text))
        self.flush_later()

    def _transferred(self, link: ReceiverLink, event: TransferReceived) -> None:
        context = link.context
        if isinstance(context, Producer):
            context.take(event)
        elif isinstance(context, TransactionCoordinator):
            self.in_turn(self._send_producers)
            self.in_turn(partial(context.take, link, event))

    def _pump(self) -> None:
        """Have all consumers send what there is."""
        for consumer in list(self._consumers.values()):
            consumer.pump()

    def wait_for(self, queue: str, consumer: Consumer) -> None:
        """A consumer has found too little in its queue, and is called when there is more."""
        self._server.wait_for(queue, consumer, self)

    @property
    def in_flight(self) -> int:
        """Messages that were taken for the client, and that it has not settled."""
        unsettled = sum(len(each.outgoing_unsettled) for each in self._usage.sessions)
        return unsettled + sum(each.unsent for each in self._consumers.values())

    def in_flight_room(self, consumer: Consumer) -> int:
        """How many more messages the connection's user may be sent. Without room, the consumer is called when there is
        some."""
        return self._usage.room(consumer)

    def wait_no_more(self, queue: str, consumer: Consumer) -> None:
        """A consumer is gone."""
        self._server.wait_no_more(queue, consumer)

    # ---- the store -------------------------------------------------------------------------------------------------

    def send_later(self, producer: Producer) -> None:
        """Give the store a producer's messages once all that was read is taken."""
        if producer not in self._producers:
            self._producers.append(producer)

    def _send_producers(self) -> None:
        """Raises QueueFullError if the journal has no room."""
        while self._producers:
            self._producers[0].send_waiting()
            self._producers.pop(0)

    def do(
        self,
        operate: Callable[[], Accepted | None],
        link: Link | None = None,
        *,
        then: Callable[[], None] | None = None,
        durably: bool = False,
    ) -> None:
        """Have the store do something in its turn; `then` follows, `durably` once it is durable. An operation that is
        refused ends the link, if one is given."""
        self.in_turn(partial(self._do, operate, link, then, durably))

    def _do(
        self,
        operate: Callable[[], Accepted | None],
        link: Link | None,
        then: Callable[[], None] | None,
        durably: bool,
    ) -> None:
        try:
            accepted: Any = operate()
        except (QueueFullError, StateError):
            raise
        except (CallerError, FullError) as error:
            if link is not None:
                self.detach(link, condition_of(error), str(error))
            else:
                log.info("a client's operation is refused: %s", error)
            return
        if then is None:
            return
        if accepted is None or not durably:
            then()
            return
        follow = then

        def done(error: JournalError | None) -> None:
            if error is None:
                follow()
            self.flush_later()

        accepted.add_callback(self.told(done))

    def told(self, done: Callable[[JournalError | None], None]) -> Callable[[JournalError | None], None]:
        """A callback for a completion: `done` is called in the loop, unless the connection has ended by then. Where
        the outcome is unknown the connection ends instead, and `done` is not called: whoever is told nothing finds out
        after the failover."""

        def in_loop(error: JournalError | None) -> None:
            if self.ended:
                return
            if isinstance(error, OutcomeUnknownError):
                self.force("what was being written may or may not be there: the node is no longer active")
            else:
                done(error)

        return lambda error: self.calls.soon(partial(in_loop, error))

    @property
    def waits_for_room(self) -> bool:
        """Whether the journal has no room. Nothing is read until it has."""
        return self._waits_for_room

    def in_turn(self, step: Callable[[], None]) -> None:
        """Take a step behind all that wait for room. One for which the journal has no room (QueueFullError) is taken
        again, before all others, when it has. Any other JournalError ends the connection: the node serves nobody."""
        self._steps.append(step)
        if not self._waits_for_room:
            self._take_steps()

    def when_there_is_room(self, step: Callable[[], None]) -> None:
        """Take a step, behind all that wait already, when the journal has room. Nothing is read until then."""
        self._steps.append(step)
        self._wait_for_room()

    def _wait_for_room(self) -> None:
        if not self._waits_for_room:
            self._waits_for_room = True
            self._read_or_pause()
            self.store.room().add_callback(lambda error: self.calls.soon(self._have_room))

    def _have_room(self) -> None:
        self._waits_for_room = False
        self._take_steps()
        self._read_or_pause()
        self._flush()

    def _take_steps(self) -> None:
        if self._stepping:
            return  # what a step has others do follows it
        self._stepping = True
        try:
            while self._steps and not self._waits_for_room:
                step = self._steps.popleft()
                try:
                    step()
                except QueueFullError:
                    self._steps.appendleft(step)
                    self._wait_for_room()
                except JournalError as error:
                    self.force(str(error))
                except Exception as error:
                    log.exception("a client's connection ends")
                    self.close(INTERNAL_ERROR, f"{type(error).__name__}: {error}")
        finally:
            self._stepping = False
