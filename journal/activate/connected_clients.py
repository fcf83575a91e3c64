"""Clients that were made and connected before they are asked for: a node's, for its next activation and its leaving.

Only connections are older than the call that takes a client, never answers. A producer that waits here was never
initialised: that would fence whoever is active. A reader that waits here has read nothing, and whatever it is asked it
asks the brokers. Each is given out once, to one taker.
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
"""Whoever takes a client has better use for the processor just then than another client's connecting."""


class _Client(Protocol):
    def close(self) -> None: ...


_T = TypeVar("_T", bound=_Client)


class _Kept(Generic[_T]):
    """One client that waits, or none. Thread-safe."""

    def __init__(self, make: Callable[[], _T], connect: Callable[[_T, float], bool]) -> None:
        """`connect` says whether a broker answered, and may run while somebody takes the client."""
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
        """Make and connect it, or use its connection, so that it is not closed for being idle. One that no broker
        answers is thrown away: it might wait before it connects again."""
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
                    return  # it waits on, or is somebody else's by now
                self._client = None
        client.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
        if client is not None:
            client.close()


class AheadClients:
    """`ports.Kafka` over another one. Thread-safe, but that one thread at a time calls `keep`."""

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
        """Whether there is something for `keep` to make, now that whoever took a client has had its rest."""
        return self._clock() >= self._rests_until and not all(kept.waits for kept in self._all)

    def keep(self, timeout_s: float) -> None:
        """Have every client made and connected, each within `timeout_s`; just after one was taken, none."""
        for kept in self._all:
            if self._clock() >= self._rests_until:
                kept.keep(timeout_s)

    def close(self) -> None:
        """Let those go that nobody took, and keep none from now on."""
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
