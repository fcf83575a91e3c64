"""Clients that are made and connected before they are needed: for a node's next activation, and for its leaving.

A client that waits here has a connection and nothing else. A producer was never initialised, because that would fence
the active node; a reader has read nothing, so that no answer is older than the call that takes it. Each client is given
out once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from journal.errors import JournalError
from journal.kafka.ports import LOOK_MS, READ_MS, Cluster, Kafka, PlainProducer, Reader, TransactionalProducer
from journal.process.clocks import Clock
from journal.topics.names import control_topic, wal_topic, writer_id

log = logging.getLogger(__name__)

_REST_S = 1.0
"""How long after a client was taken no new one is made, because the taker needs the processor just then."""


class _Client(Protocol):
    def close(self) -> None: ...


_T = TypeVar("_T", bound=_Client)


class _Kept(Generic[_T]):
    """A place for one client that waits. Thread-safe."""

    def __init__(self, make: Callable[[], _T], connect: Callable[[_T, float], bool]) -> None:
        """`connect` returns whether a broker answered. It may run while somebody takes the client."""
        self._make = make
        self._connect = connect
        self._lock = threading.Lock()
        self._client: _T | None = None
        self._closed = False

    @property
    def waits(self) -> bool:
        return self._client is not None

    def take(self) -> _T | None:
        with self._lock:
            client, self._client = self._client, None
            return client

    def keep(self, timeout_s: float) -> None:
        """Make and connect a client, or use the connection of the one that waits, so that it is not closed for being
        idle. A client that no broker answers is closed: it might wait before it connects again."""
        client = self._client
        made = client is None
        if client is None:
            client = self._make()
        try:
            answered = self._connect(client, timeout_s)
        except JournalError as error:
            log.debug("a client that is to be kept ready cannot connect: %s", error)
            answered = False
        with self._lock:
            if made and answered and not self._closed:
                self._client = client
                return
            if not made:
                if answered or self._client is not client:
                    return  # no broker answered: close it, unless somebody has taken it meanwhile
                self._client = None
        client.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
        if client is not None:
            client.close()


class AheadClients:
    """A `Kafka` that gives out connected clients of another one. Thread-safe, but one thread at a time calls `keep`."""

    def __init__(self, kafka: Kafka, journal: str, shards: Callable[[], Sequence[int]], clock: Clock) -> None:
        self._kafka = kafka
        self._clock = clock
        self._writer = writer_id(journal)
        wal, control = wal_topic(journal), control_topic(journal)
        topics = (wal, control)
        self._transactional = _Kept(
            lambda: kafka.transactional_producer(self._writer),
            lambda producer, timeout_s: producer.connect(topics, timeout_s),
        )
        self._plain = _Kept(kafka.plain_producer, lambda producer, timeout_s: producer.connect(topics, timeout_s))
        self._readers = {
            (wal, True): self._reader(wal, shards),
            (wal, False): self._reader(wal, shards, committed=False),
            (control, True): self._reader(control, lambda: (0,)),
            (control, False): self._reader(control, lambda: (0,), committed=False),
        }
        self._all: tuple[_Kept[Any], ...] = (self._transactional, *self._readers.values(), self._plain)
        self._rests_until = 0.0

    def _reader(self, topic: str, partitions: Callable[[], Sequence[int]], *, committed: bool = True) -> _Kept[Reader]:
        kafka = self._kafka
        return _Kept(
            lambda: kafka.reader(topic, committed=committed, wait_ms=LOOK_MS),
            lambda reader, timeout_s: bool(reader.bounds(partitions(), timeout_s)),
        )

    @property
    def lacks_some(self) -> bool:
        """Whether `keep` would make a client: one is missing, and `_REST_S` has passed since one was taken."""
        return self._clock() >= self._rests_until and not all(kept.waits for kept in self._all)

    def keep(self, timeout_s: float) -> None:
        """Make and connect every client, each within `timeout_s`. It does nothing for a short time after a client was
        taken."""
        for kept in self._all:
            if self._clock() >= self._rests_until:
                kept.keep(timeout_s)

    def close(self) -> None:
        """Close the clients that nobody took, and keep none from now on."""
        for kept in self._all:
            kept.close()

    # ---- ports.Kafka -----------------------------------------------------------------------------------------------

    def transactional_producer(self, transactional_id: str) -> TransactionalProducer:
        kept = self._taken(self._transactional) if transactional_id == self._writer else None
        return kept or self._kafka.transactional_producer(transactional_id)

    def plain_producer(self) -> PlainProducer:
        return self._taken(self._plain) or self._kafka.plain_producer()

    def reader(self, topic: str, *, committed: bool = True, wait_ms: int = READ_MS) -> Reader:
        kept = self._readers.get((topic, committed)) if wait_ms == LOOK_MS else None
        reader = self._taken(kept) if kept is not None else None
        return reader or self._kafka.reader(topic, committed=committed, wait_ms=wait_ms)

    def cluster(self) -> Cluster:
        return self._kafka.cluster()

    def _taken(self, kept: _Kept[_T]) -> _T | None:
        self._rests_until = self._clock() + _REST_S
        return kept.take()
