"""The ingress of one activation: consume, take in, commit, and begin again at the committed offsets after an error.

    begin     the committed offsets (stable: the activation's init has settled what a predecessor left open), and where
              partitions without one begin, which is committed first
    batch     records are converted while the batch before them is on its way into the journal
    take in   one group, one Kafka transaction: messages, dead letters and offsets
    again     when a batch is not in the journal, when there are other partitions, when a source stops

Partitions are assigned, never subscribed to: who may consume is decided by who may write. One batch is on its way at a
time, as only the last one's end says where to go on. A journal without room pauses it: then nothing is consumed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from journal.errors import (
    AddressMissingError,
    DeadlineError,
    FullError,
    MessageHeldError,
    MessageMissingError,
    OperatingError,
    QueueMissingError,
)
from journal.ingress.batch import Batch, Converter
from journal.ingress.consumer import SourceConsumer
from journal.ingress.positions import Partition, positions_of
from journal.ingress.status import IngressStatus
from journal.ingress.stops import Place, Resumption, Stops
from journal.kafka.ports import Cluster, Consumed
from journal.routing.config import EARLIEST, LATEST, RoutingConfig, SourceConfig, start_ms
from journal.routing.ingress import Ingress, SourceRecord
from journal.store.store import MessageStore
from journal.store.taking_in import TakenIn, Takes

log = logging.getLogger(__name__)

_POLL_S = 0.1
_LOOK_S = 0.2
"""How soon a wait notices that it is to end."""
_PAUSE_S = 0.1
_PAUSE_MAX_S = 30.0


@dataclass(frozen=True, slots=True)
class LoopConfig:
    """Bounds and times of the loop."""

    group: str
    request_s: float
    list_every_s: float
    batch_records: int


class _Flight(NamedTuple):
    """A batch on its way into the journal."""

    batch: Batch
    taken: TakenIn


class _Again(Exception):
    """Raised inside, to begin again at the committed offsets: nothing is wrong."""


class IngressLoop:
    """Used by one thread, but for `stop`."""

    def __init__(
        self,
        config: LoopConfig,
        routing: RoutingConfig,
        ingress: Ingress,
        store: MessageStore,
        converter: Converter,
        takes: Takes,
        consumer: Callable[[], SourceConsumer],
        cluster: Callable[[], Cluster],
        status: IngressStatus,
        stops: Stops,
    ) -> None:
        self._config = config
        self._routing = routing
        self._ingress = ingress
        self._store = store
        self._converter = converter
        self._takes = takes
        self._make_consumer = consumer
        self._make_cluster = cluster
        self._status = status
        self._stop = threading.Event()
        self._stops = stops
        self._ids: dict[str, str] = {}
        """Of the topics that are consumed, as first seen."""
        self._topics: dict[str, int] = {}
        self._sources: dict[str, SourceConfig] = {}
        self._faults: dict[str, str] = {}
        """Sources that are stopped until what is wrong with their topics is mended."""
        self._committed: dict[Partition, int] = {}
        """What was found committed at the beginning, of stopped sources too."""
        self._offsets: dict[Partition, int] = {}
        """What was committed last, or is on its way."""
        self._pause_s = _PAUSE_S

    def stop(self) -> None:
        """End soon. What is on its way is committed or not; the offsets say which."""
        self._stop.set()

    def run(self) -> None:
        """Until stopped, or the journal takes nothing more."""
        while not self._stop.is_set():
            try:
                self._consume()
            except _Again:
                continue
            except OperatingError as error:
                self._status.fail(str(error))
                log.warning("the ingress begins again at its committed offsets in %g s: %s", self._pause_s, error)
                self._stop.wait(self._pause_s)
                self._pause_s = min(2 * self._pause_s, _PAUSE_MAX_S)

    # ---- one beginning ---------------------------------------------------------------------------------------------

    def _consume(self) -> None:
        """From the committed offsets until something is to begin again."""
        consumer, cluster = self._make_consumer(), self._make_cluster()
        try:
            self._begin(consumer, cluster)
            self._go_on(consumer, cluster)
        finally:
            consumer.close()
            cluster.close()

    def _begin(self, consumer: SourceConsumer, cluster: Cluster) -> None:
        config = self._config
        self._topics = consumer.topics(config.request_s)
        self._sources = self._ingress.topics(self._topics)
        partitions = [(topic, number) for topic in self._sources for number in range(self._topics[topic])]
        committed = self._committed = cluster.stable_offsets(config.group, partitions, config.request_s)
        self._converter.partitions = self._topics
        self._compare_ids(cluster)
        stopped = self._stops.reasons()
        found = positions_of(self._routing, self._topics, self._sources, committed, stopped)
        for name in (source.name for source in self._routing.sources):
            self._tell_stopped(name, stopped.get(name) or found.stopped.get(name, ""))
        self._faults = found.stopped
        starts = {part: self._start_of(consumer, part, start) for part, start in found.beginning.items()}
        self._offsets = found.known | starts
        if starts:
            self._land(self._submit(Batch(offsets=dict(starts))))
        consumer.assign(self._offsets)
        self._tell_where(consumer)
        self._status.fail("")

    def _start_of(self, consumer: SourceConsumer, partition: Partition, start: str) -> int:
        request_s = self._config.request_s
        if start == EARLIEST:
            return consumer.earliest(partition, request_s)
        moment = start_ms(start)
        if start == LATEST or moment is None:
            return consumer.latest(partition, request_s)
        return consumer.at(partition, moment, request_s)

    def _name_of(self, partition: Partition) -> str:
        return self._sources[partition[0]].name

    def _tell_where(self, consumer: SourceConsumer) -> None:
        for name in (source.name for source in self._routing.sources):
            mine = {part: offset for part, offset in self._offsets.items() if self._name_of(part) == name}
            self._status.stands(name, partitions=len(mine), lag=sum(consumer.lag(mine).values()))

    def _tell_stopped(self, source: str, reason: str) -> None:
        self._status.stop(source, reason)
        if reason:
            log.error("source %s is stopped: %s", source, reason)

    # ---- records ---------------------------------------------------------------------------------------------------

    def _go_on(self, consumer: SourceConsumer, cluster: Cluster) -> None:
        flight: _Flight | None = None
        records: Sequence[SourceRecord] = ()
        list_at = time.monotonic() + self._config.list_every_s
        while not self._stop.is_set():
            if not records:
                if self._offsets:
                    records = consumer.poll(0 if flight else _POLL_S, self._config.batch_records)
                else:
                    self._stop.wait(_POLL_S)
            if flight is not None and self._converter.has_replies(records):
                self._land(flight)  # it may have a request that they answer
                flight = None
            batch = self._converter.batch(records) if records else None
            if flight is not None and (batch is not None or flight.taken.completion.done):
                self._land(flight)
                flight = None
            elif flight is not None:
                self._wait_a_little(flight)
            if batch is not None:
                records = batch.left
                flight = self._submit(batch) if batch.offsets else None
                if batch.stopped:
                    self._stop_sources(batch.stopped, batch.stopped_at, flight)
            if stopped := consumer.stopped():
                self._stop_sources({self._name_of(part): str(error) for part, error in stopped.items()}, {}, flight)
            if (asked := self._stops.asked()) is not None:
                self._resume(asked, flight)
            if time.monotonic() >= list_at:
                list_at = time.monotonic() + self._config.list_every_s
                if flight is not None:
                    self._land(flight)
                    flight = None
                self._give_up()
                self._look(consumer, cluster)

    def _stop_sources(
        self, reasons: Mapping[str, str], places: Mapping[str, Place], flight: _Flight | None
    ) -> NoReturn:
        """Go on without these sources, once everything before is committed: a skip must pass over one record alone.

        Raises _Again, NotTakenInError.
        """
        if flight is not None:
            self._land(flight)
        self._stops.add(reasons, places)
        raise _Again

    def _resume(self, asked: Resumption, flight: _Flight | None) -> NoReturn:
        """Have a source go on as an operator wants. Raises _Again."""
        if flight is not None:
            self._land(flight)
        if asked.skip is not None:
            topic, partition, offset = asked.skip
            self._land(self._submit(Batch(offsets={(topic, partition): offset + 1})))
        self._stops.granted(asked)
        log.warning("source %s goes on%s", asked.source, f" without {asked.skip}" if asked.skip else "")
        raise _Again

    def _look(self, consumer: SourceConsumer, cluster: Cluster) -> None:
        """List the topics again. Raises _Again if there are others to consume."""
        self._tell_where(consumer)
        topics = consumer.topics(self._config.request_s)
        sources = self._ingress.topics(topics)
        committed = self._committed | self._offsets
        faults = positions_of(self._routing, topics, sources, committed, self._stops.reasons()).stopped
        before = {topic: self._topics[topic] for topic in self._sources}
        if {topic: topics[topic] for topic in sources} != before or faults != self._faults:
            raise _Again
        if self._compare_ids(cluster):
            raise _Again

    def _compare_ids(self, cluster: Cluster) -> bool:
        """Stop the sources of topics that are not those of before under their names; whether there are such."""
        stopped = self._stops.reasons()
        wanted = [topic for topic, source in self._sources.items() if source.name not in stopped]
        states = cluster.describe(wanted, self._config.request_s) if wanted else {}
        anew = {
            self._sources[topic].name: f"topic {topic} was deleted and made anew, and where it was consumed up to says "
            "nothing of the new one. Delete the offsets of that topic from the journal's ingress group to begin anew, "
            "and have the source go on"
            for topic, state in states.items()
            if self._ids.get(topic, state.topic_id) != state.topic_id
        }
        self._ids |= {topic: state.topic_id for topic, state in states.items()}
        self._stops.add(anew, {})
        return bool(anew)

    def _give_up(self) -> None:
        """Requests that have waited too long for their replies."""
        while not self._stop.is_set():
            batch = self._converter.overdue(dict(list(self._offsets.items())[:1]))
            if batch is None:
                return
            self._land(self._submit(batch))

    # ---- batches ---------------------------------------------------------------------------------------------------

    def _submit(self, batch: Batch) -> _Flight:
        """Have the journal take a batch, when it has room. Raises _Again when this is to end first."""
        consumed = Consumed(self._config.group, batch.offsets)
        while not self._stop.is_set():
            try:
                taken = self._store.take_in(batch.messages, consumed, batch.beside, self._takes, batch.settles)
                return _Flight(batch, taken)
            except (AddressMissingError, QueueMissingError, MessageMissingError, MessageHeldError) as error:
                raise _Again from error  # it went just now: its records are refused, by their source's policy
            except FullError:
                self._status.pause(paused=True)
                room = self._store.room()
                if room.done:
                    self._stop.wait(_POLL_S)  # it is another bound that is reached
                while not room.done and not self._stop.is_set():
                    self._wait(room.wait)
            finally:
                self._status.pause(paused=False)
        raise _Again

    def _wait_a_little(self, flight: _Flight) -> None:
        """For the batch on its way, while nothing else has arrived."""
        self._wait(flight.taken.completion.wait, _POLL_S / 10)

    @staticmethod
    def _wait(wait: Callable[[float], None], seconds: float = _LOOK_S) -> None:
        try:
            wait(seconds)
        except DeadlineError:
            return

    def _land(self, flight: _Flight) -> None:
        """Wait for what becomes of a batch. Raises NotTakenInError, _Again when this is to end first."""
        completion, batch = flight.taken.completion, flight.batch
        while not completion.done:
            if self._stop.is_set():
                raise _Again
            self._wait(completion.wait)
        if completion.error is not None:
            raise completion.error
        self._pause_s = _PAUSE_S
        self._offsets |= batch.offsets
        for name, counts in batch.counts.items():
            self._status.change(
                name, records=counts.records, messages=counts.messages, dead_letters=counts.dead_letters
            )
            if counts.refused:
                self._status.refuse(name, counts.refused)
        self._status.dropped(flight.taken.unrouted, flight.taken.duplicates)
