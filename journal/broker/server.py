"""Listens for AMQP clients while a node is active.

server = AmqpServer(store, settings, container_id="orders", message_bytes_max=2**20)
host, port = server.start()     # a thread of its own runs the event loop
...
server.stop("node b is active") # clients are told `amqp:connection:forced`, and connect again elsewhere
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from journal.amqp.settings import AmqpSettings
from journal.append.callbacks import without_waits
from journal.broker.addresses import Addresses
from journal.broker.connection import AmqpConnection
from journal.broker.consumer import Consumer
from journal.broker.listening import Listener
from journal.broker.loop_calls import LoopCalls
from journal.broker.security.security import ServerSecurity
from journal.broker.subscriptions import Subscriptions
from journal.errors import ConfigError, JournalError, StateError
from journal.store.store import MessageStore

log = logging.getLogger(__name__)

_STOP_S = 10.0


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return int(time.time() * 1000)


class AmqpServer:
    """The front end of one activation's store. Any thread may start and stop it."""

    def __init__(
        self,
        store: MessageStore,
        settings: AmqpSettings,
        *,
        container_id: str,
        message_bytes_max: int,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.store = store
        self.settings = settings
        self.container_id = container_id
        self.message_bytes_max = message_bytes_max
        self.now_ms = now_ms
        self.addresses = Addresses(store, settings)
        self.security = ServerSecurity(settings, lambda: self.calls.soon(self._end_removed))
        self.loop = asyncio.new_event_loop()
        self.subscriptions = Subscriptions(store, self.addresses, self.loop)
        self.calls = LoopCalls(self.loop)
        self._connections: set[AmqpConnection] = set()
        self._sole: dict[str, AmqpConnection] = {}
        """Connections that are the only ones of their container, by its id."""
        self._waiting: dict[str, dict[Consumer, AmqpConnection]] = {}
        """Consumers that have found too little, with their connections, by queue, in the order in which they get what
        comes."""
        self._looking = False
        self._timer: asyncio.TimerHandle | None = None
        self._listener = Listener(
            self.loop,
            lambda: AmqpConnection(self),
            has_room=self._has_room,
            tls=self.security.tls.context if self.security.tls is not None else None,
            handshake_s=settings.handshake_ms / 1000,
        )
        self._thread = threading.Thread(target=self._run, name="kafka-journal-amqp", daemon=True)

    def start(self) -> tuple[str, int]:
        """Listen; returns host and port. Raises ConfigError if the address is in use or not this machine's."""
        try:
            listens = self._listener.open(*self.settings.address)
        except ConfigError:
            self.loop.close()
            raise
        self.store.watch(lambda: self.calls.soon(self._woken))
        self._thread.start()
        return listens

    def stop(self, reason: str) -> None:
        """Listen no more, end all connections with the reason, and wait until that is done."""
        if not self._thread.ident:
            raise StateError("the AMQP front end was not started")
        with suppress(RuntimeError):  # the loop has ended by itself, because the node does not serve the journal
            self.loop.call_soon_threadsafe(self._stop, reason)
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            with without_waits():
                self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    def _stop(self, reason: str) -> None:
        try:
            self._listener.close()
            self.security.close()
            for connection in list(self._connections):
                try:
                    connection.force(reason)
                except Exception:
                    log.exception("a client's connection ends without a reason")
        finally:
            self.loop.call_later(0.05, self.loop.stop)

    # ---- for connections, in the loop ------------------------------------------------------------------------------

    def _has_room(self, arriving: int) -> bool:
        """Whether one more client may come, while `arriving` others have no connection yet."""
        if len(self._connections) + arriving < self.settings.connections_max:
            return True
        log.warning("%d clients are connected: a further one is closed (connections_max)", len(self._connections))
        return False

    def _end_removed(self) -> None:
        """Ends the connections of users who are there no more."""
        for connection in list(self._connections):
            connection.end_if_removed()

    def admit(self, connection: AmqpConnection) -> None:
        self._connections.add(connection)

    def forget(self, connection: AmqpConnection) -> None:
        """A connection has ended."""
        self._connections.discard(connection)
        if self._sole.get(connection.container_id) is connection:
            del self._sole[connection.container_id]

    def claim(self, connection: AmqpConnection) -> bool:
        """Whether a connection may be the only one of its container, until it ends."""
        return self._sole.setdefault(connection.container_id, connection) is connection

    def wait_for(self, queue: str, consumer: Consumer, connection: AmqpConnection) -> None:
        """A consumer of a connection has found too little in its queue, and is called when there is more."""
        self._waiting.setdefault(queue, {})[consumer] = connection
        if not self._looking:
            self._looking = True
            self.loop.call_soon(self._arm)

    def wait_no_more(self, queue: str, consumer: Consumer) -> None:
        """A consumer is gone."""
        waiting = self._waiting.get(queue)
        if waiting is not None:
            waiting.pop(consumer, None)
            if not waiting:
                del self._waiting[queue]

    def _woken(self) -> None:
        """Queues have something again."""
        try:
            names = self.store.woken()
        except JournalError as error:
            self._stop(str(error))
            return
        for name in names:
            for consumer, connection in self._waiting.pop(name, {}).items():
                try:
                    consumer.pump()
                except JournalError as error:
                    connection.force(str(error))
                except Exception as error:  # the others must be woken all the same
                    log.exception("a client's connection ends: it cannot be served from queue %s", name)
                    connection.force(f"{type(error).__name__}: {error}")
        self._arm()

    def _arm(self) -> None:
        """Look again when the next message is due."""
        self._looking = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting:
            return
        try:
            due = self.store.next_due()
            if due:
                self._timer = self.loop.call_later(max(0, due - self.now_ms()) / 1000, self._tick)
        except JournalError as error:
            self._stop(str(error))

    def _tick(self) -> None:
        try:
            self.store.tick()
        except JournalError as error:
            self._stop(str(error))
            return
        self._woken()
