"""The loop of one activation's sources: consume, take in, commit; after an error begin again at the committed offsets.

  begin     read the committed offsets (they are stable, because the activation's init has ended the transaction that a
            predecessor left open), and commit where partitions without an offset begin
  batch     convert records while the batch before them is on its way into the journal
  take in   write messages, dead letters and offsets as one group in one Kafka transaction
  again     begin again if a batch did not get into the journal, the partitions have changed, or a source stops

Partitions are assigned and never subscribed to, because only the active node may consume. One batch at a time is on its
way, because only its end tells where to go on. While the journal is full nothing is consumed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from journal.errors import OperatingError, TopicError
from journal.kafka.ports import Cluster, Position
from journal.routing.config import RoutingConfig
from journal.routing.parts import SourceConfig
from journal.routing.record_in import Sources
from journal.routing.source_record import SourceRecord
from journal.sources.batch import Converter, SourceBatch
from journal.sources.beginnings import BeginningRows, Beginnings, BegunTopic, offsets_lost, row_unreadable
from journal.sources.consumer import SourceConsumer
from journal.sources.identities import TopicIds, made_anew
from journal.sources.lags import asked_lag, known_lag
from journal.sources.patience import Patience
from journal.sources.positions import Partition, Positions, positions_of
from journal.sources.renewal import COMMIT_AGAIN_S, Renewal
from journal.sources.starts import start_of
from journal.sources.status import SourcesStatus
from journal.sources.stops import RecordPlace, Resumption, Stops
from journal.sources.taking import Again, BatchUnderWay, SourceTaking
from journal.store.operations.take_in import Takes
from journal.store.store import MessageStore
from journal.words import shortened

log = logging.getLogger(__name__)

_POLL_S = 0.1
_ASK_S = 2.0
"""How long to wait for a partition's end. It can be asked for again later, so the time is short."""
_TELL_S = 2.0
"""How often the lag is reported."""
_PAUSE_S = 0.1
_PAUSE_MAX_S = 30.0


@dataclass(frozen=True, slots=True)
class LoopConfig:
    """The bounds and times of the loop."""

    group: str
    request_s: float
    list_every_s: float
    batch_records: int
    commit_again_s: float = COMMIT_AGAIN_S


class SourcesLoop:
    """The loop of one activation. One thread uses it; any thread may call `stop`."""

    def __init__(
        self,
        config: LoopConfig,
        routing: RoutingConfig,
        sources: Sources,
        store: MessageStore,
        converter: Converter,
        takes: Takes,
        consumer: Callable[[], SourceConsumer],
        cluster: Callable[[], Cluster],
        status: SourcesStatus,
        stops: Stops,
        beginnings: BeginningRows,
    ) -> None:
        self._config = config
        self._routing = routing
        self._sources = sources
        self._converter = converter
        self._make_consumer = consumer
        self._make_cluster = cluster
        self._status = status
        self._stop = threading.Event()
        self._stops = stops
        self._ids = TopicIds()
        self._beginnings = Beginnings(beginnings)
        self._taking = SourceTaking(
            store,
            takes,
            converter,
            status,
            self._stop,
            ids=self._ids,
            group=config.group,
            batch_records=config.batch_records,
        )
        self._topics: dict[str, int] = {}
        self._source_by_topic: dict[str, SourceConfig] = {}
        self._faults: dict[str, str] = {}
        """The reason by source, for each source that is stopped until its topics are mended."""
        self._committed: dict[Partition, int] = {}
        """The offsets that were committed when the loop began, also those of stopped sources."""
        self._begun: set[str] = set()
        """Sources that have been consumed."""
        self._suspected: set[Partition] = set()
        """Partitions that had no committed offset at the last look, although they were consumed before."""
        self._patience = Patience(converter, self._taking)
        self._renewal = Renewal(self._taking, config.commit_again_s)
        self._flight: BatchUnderWay | None = None

    def stop(self) -> None:
        """Ask the loop to end soon. The batch on its way may still be committed; the committed offsets show it."""
        self._stop.set()

    def run(self) -> None:
        """Take records in until the loop is stopped, or the journal accepts nothing more."""
        pause_s = _PAUSE_S
        while not self._stop.is_set():
            landed = self._taking.landed
            try:
                self._consume()
            except Again:
                continue
            except OperatingError as error:
                if self._taking.landed > landed:
                    pause_s = _PAUSE_S
                self._status.fail(str(error))
                log.warning("the sources begin again at their committed offsets in %g s: %s", pause_s, error)
                self._stop.wait(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    # ---- one beginning ---------------------------------------------------------------------------------------------

    def _consume(self) -> None:
        """Consume from the committed offsets until the loop must begin again."""
        consumer, cluster = self._make_consumer(), self._make_cluster()
        try:
            self._begin(consumer, cluster)
            self._go_on(consumer, cluster)
        finally:
            consumer.close()
            cluster.close()

    def _begin(self, consumer: SourceConsumer, cluster: Cluster) -> None:
        config = self._config
        self._land()  # the committed offsets are final only when that batch has landed
        self._topics = consumer.topics(config.request_s)
        self._source_by_topic = self._sources.topics(self._topics)
        positions = self._stable_positions(cluster)
        committed = self._committed = {part: position.offset for part, position in positions.items()}
        changed = self._converter.letters.look(cluster, config.request_s)
        self._meet_refusal(changed)
        self._compare_ids(cluster)
        self._stop_of_topics({topic for topic, _ in self._ids.outlived(positions)})
        unreadable = self._beginnings.unreadable(source.name for source in self._routing.sources)
        self._stops.add({name: row_unreadable(name) for name in unreadable}, {})
        self._stop_of_lost(committed)
        stopped = self._stops.reasons()
        found = self._positions(self._topics, self._source_by_topic, committed)
        self._begin_partitions(consumer, cluster, found)
        self._note_begun({*found.stopped, *stopped})
        for name in (source.name for source in self._routing.sources):
            self._tell_stopped(name, stopped.get(name) or found.stopped.get(name, ""), waits=name not in stopped)
        self._faults = found.stopped
        consumer.assign(self._taking.offsets)
        self._patience.begin()
        self._begun |= {source.name for source in self._routing.sources} - {*found.stopped, *stopped}
        self._status.fail("")

    def _stable_positions(self, cluster: Cluster) -> dict[Partition, Position]:
        """The committed positions of all sources, also of stopped ones."""
        partitions = [(topic, number) for topic in self._source_by_topic for number in range(self._topics[topic])]
        return cluster.stable_positions(self._config.group, partitions, self._config.request_s)

    def _positions(
        self, topics: Mapping[str, int], sources: Mapping[str, SourceConfig], committed: Mapping[Partition, int]
    ) -> Positions:
        unfit, stopped = self._converter.letters.faults, self._stops.reasons()
        later = self._beginnings.later(
            (source, topic, topic_id) for topic, source in sources.items() if (topic_id := self._ids.id_of(topic))
        )
        return positions_of(
            *(self._routing, topics, sources, committed, stopped),
            group=self._config.group,
            unfit=unfit,
            begun=self._begun,
            later=later,
            anew=self._beginnings.anew,
        )

    def _note_begun(self, stopped: Collection[str]) -> None:
        """Note which topics are consumed now, for the node that is active next."""
        names = [source.name for source in self._routing.sources]
        begun: dict[str, dict[str, BegunTopic]] = {name: {} for name in names if name not in stopped}
        for topic, source in self._source_by_topic.items():
            if source.name in begun:
                begun[source.name][topic] = BegunTopic(self._ids.id_of(topic), self._topics[topic])
        self._beginnings.note(begun, names)

    def _stop_of_lost(self, committed: Mapping[Partition, int]) -> None:
        """Stop the sources whose committed offsets are gone. Raises OperatingError at the first look that finds some:
        Kafka deletes a topic's offsets, and brokers may list that topic for a moment longer."""
        lost = self._beginnings.lost(self._source_by_topic, self._ids.id_of, committed)
        found = {part for partitions in lost.values() for part in partitions}
        suspected, self._suspected = self._suspected, found
        if not found <= suspected:
            raise TopicError("committed offsets of topics that were consumed are gone: they are asked for once more")
        group, stopped = self._config.group, self._stops.reasons()
        sources = [each for each in self._routing.sources if each.name in lost and each.name not in stopped]
        self._stops.add({each.name: offsets_lost(each, lost[each.name], group) for each in sources}, {})

    def _meet_refusal(self, changed: Collection[str]) -> None:
        """Stop a source at the record whose dead letter Kafka has refused, after all records before it are
        committed."""
        letter = self._taking.refused_letter(changed)
        if letter is None:
            return
        fault = f"Kafka refuses its dead letter for topic {letter.topic}"
        if letter.place is None:
            self._stops.add({letter.source: f"{letter.what}: {fault}"}, {})
        else:
            self._converter.letters.refused[letter.place] = fault

    def _begin_partitions(self, consumer: SourceConsumer, cluster: Cluster, found: Positions) -> None:
        """Commit the first offset of partitions that have none, for each source in turn. If Kafka refuses it for one
        source, or does not tell the offset, only this source is stopped, until the next look."""
        of_sources: dict[str, dict[Partition, str]] = {}
        for part, start in found.beginning.items():
            of_sources.setdefault(self._source_of(part), {})[part] = start
        offsets, request_s = dict(found.known), self._config.request_s
        for name, starts in of_sources.items():
            try:
                begun = {part: start_of(consumer, part, start, request_s) for part, start in starts.items()}
                self._require_same(cluster, {topic for topic, _ in begun})
                self._taking.land(self._taking.submit(SourceBatch(offsets=begun)))
            except OperatingError as error:
                topics = ", ".join(sorted({topic for topic, _ in starts}))
                found.stopped[name] = f"where it begins in {topics} cannot be committed: {error}"
            else:
                offsets |= begun
        stopped = found.stopped
        self._taking.offsets = {part: at for part, at in offsets.items() if self._source_of(part) not in stopped}

    def _source_of(self, partition: Partition) -> str:
        """The source that consumes a partition; empty if the partition does not exist, or no source takes it."""
        topic, number = partition
        source = self._source_by_topic.get(topic)
        return "" if source is None or number >= self._topics[topic] else source.name

    def _tell_where(self, consumer: SourceConsumer, *, ask: bool = False) -> None:
        """Report the lag of the sources; with `ask` also of those that are not being consumed."""
        consumed: dict[str, dict[Partition, int]] = {source.name: {} for source in self._routing.sources}
        waiting: dict[str, dict[Partition, int]] = {}
        for part, offset in self._taking.offsets.items():
            consumed[self._source_of(part)][part] = offset
        for part, offset in self._committed.items() if ask else ():
            if (name := self._source_of(part)) and not consumed[name]:
                waiting.setdefault(name, {})[part] = offset
        for name, offsets in consumed.items():
            lag = asked_lag(consumer, waiting[name], _ASK_S) if name in waiting else known_lag(consumer, offsets)
            self._status.stands(name, partitions=len(offsets), lag=lag)

    def _tell_stopped(self, source: str, reason: str, *, waits: bool) -> None:
        reason = shortened(reason)
        if self._status.stop(source, reason, waits=waits) and reason:
            log.error("source %s is stopped: %s", source, reason)

    # ---- records ---------------------------------------------------------------------------------------------------

    def _go_on(self, consumer: SourceConsumer, cluster: Cluster) -> None:
        records: Sequence[SourceRecord] = ()
        list_at, tell_at = time.monotonic() + self._config.list_every_s, 0.0
        while not self._stop.is_set():
            if not records:
                if self._taking.offsets:
                    records = consumer.poll(0 if self._flight else _POLL_S, self._config.batch_records)
                    self._require_same(cluster, {record.topic for record in records})
                else:
                    self._stop.wait(_POLL_S)
            if self._converter.has_replies(records):
                self._land()  # the batch on its way may contain the request that these records answer
            batch = self._taking.batch(records) if records else None
            if batch is not None or (self._flight is not None and self._flight.taken.completion.done):
                self._land()
            elif self._flight is not None:
                self._taking.wait_a_little(self._flight)
            if batch is not None:
                batch, self._flight = self._taking.take_in(batch, records)
                records = batch.left
                if batch.stopped:
                    self._stop_sources(batch.stopped, batch.stopped_at)
            if stopped := consumer.stopped():
                self._require_same(cluster, {topic for topic, _ in stopped})
                if any(isinstance(error, TopicError) for error in stopped.values()):
                    self._land()
                    # a missing topic stops a source only if the topic list confirms that it is missing
                    self._look(consumer, cluster)
                self._stop_sources({self._source_of(part): str(error) for part, error in stopped.items()}, {})
            if (asked := self._stops.asked()) is not None:
                self._resume(asked, cluster)
            if time.monotonic() >= tell_at:
                tell_at = time.monotonic() + _TELL_S
                self._tell_where(consumer)
            if time.monotonic() >= list_at:
                list_at = time.monotonic() + self._config.list_every_s
                self._land()
                self._give_up(consumer, cluster, {(record.topic, record.partition) for record in records})
                self._look(consumer, cluster)
                self._renewal.renew(lambda: self._stable_positions(cluster), self._source_of)

    def _land(self) -> None:
        """Wait until the batch on its way, if there is one, is in the journal. Raises Again, NotTakenInError."""
        flight, self._flight = self._flight, None
        if flight is not None:
            self._taking.land(flight)

    def _stop_sources(self, reasons: Mapping[str, str], places: Mapping[str, RecordPlace]) -> NoReturn:
        """Stop these sources after all batches before are committed, so that an operator's skip leaves out only the
        stopping record.

        Raises Again, NotTakenInError.
        """
        self._land()
        self._stops.add(reasons, places)
        self._converter.letters.refused.clear()
        raise Again

    def _resume(self, asked: Resumption, cluster: Cluster) -> NoReturn:
        """Resume a source as an operator asked, never from before its committed offset. Raises Again."""
        self._land()
        if asked.skip is not None:
            topic, number, offset = asked.skip
            partition = (topic, number)
            if self._stop_of_topics(self._ids.look(cluster, [topic], self._config.request_s)[0]):
                raise Again
            committed = cluster.stable_offsets(self._config.group, [partition], self._config.request_s)
            if committed.get(partition, 0) <= offset:
                self._taking.land(self._taking.submit(SourceBatch(offsets={partition: offset + 1})))
        self._beginnings.forget(asked.source)
        void = self._stops.granted(asked)
        log.warning("%s", asked)
        for each in void:
            log.warning("not done, as it was asked for before that: %s", each)
        raise Again

    def _look(self, consumer: SourceConsumer, cluster: Cluster) -> None:
        """List the topics again. Raises Again if the topics to consume have changed."""
        self._tell_where(consumer, ask=True)
        self._converter.letters.look(cluster, self._config.request_s)
        topics = consumer.topics(self._config.request_s)
        sources = self._sources.topics(topics)
        if self._faults:  # these may be offsets that Kafka has deleted since
            self._committed = {part: position.offset for part, position in self._stable_positions(cluster).items()}
        committed = self._committed | self._taking.offsets
        faults = self._positions(topics, sources, committed).stopped
        before = {topic: self._topics[topic] for topic in self._source_by_topic}
        if {topic: topics[topic] for topic in sources} != before or faults != self._faults:
            raise Again
        if self._compare_ids(cluster):
            raise Again

    def _compare_ids(self, cluster: Cluster) -> bool:
        """Stop the sources of topics whose ids have changed; returns whether there are any."""
        stopped = self._stops.reasons()
        wanted = [topic for topic, source in self._source_by_topic.items() if source.name not in stopped]
        anew, _ = self._ids.look(cluster, wanted, self._config.request_s)
        return self._stop_of_topics(anew)

    def _require_same(self, cluster: Cluster, topics: Collection[str]) -> None:
        """Require that the topics that were just read are those that are consumed. If ids have changed, it stops their
        sources and raises Again. If a topic is missing, it raises TopicError, because one broker may not know a topic
        that others list."""
        anew, gone = self._ids.look(cluster, topics, self._config.request_s)
        if anew or gone:
            self._land()
        if anew:
            self._stop_of_topics(anew)
            raise Again
        if gone:
            raise TopicError(f"a broker says that topic {', '.join(sorted(gone))} is not there, which was just read")

    def _stop_of_topics(self, anew: Collection[str]) -> bool:
        """Stop the sources of topics that were deleted and created again; returns whether there are any."""
        of_sources: dict[str, set[str]] = {}
        for topic in anew:
            if topic in self._source_by_topic:
                of_sources.setdefault(self._source_by_topic[topic].name, set()).add(topic)
        self._stops.add({name: made_anew(topics, self._config.group) for name, topics in of_sources.items()}, {})
        return bool(of_sources)

    def _give_up(self, consumer: SourceConsumer, cluster: Cluster, pending: Collection[Partition]) -> None:
        """Give up requests that have waited too long for a reply. Raises Again if a source is stopped."""
        for late in self._patience.over(consumer, self._source_of, pending):
            self._require_same(cluster, {topic for topic, _ in late.partitions})
            self._give_up_of(late.source, late.asked_ms, dict([next(iter(late.partitions.items()))]))

    def _give_up_of(self, source: str, now_ms: float, offsets: Mapping[Partition, int]) -> None:
        while not self._stop.is_set():
            batch = self._taking.overdue(source, now_ms, offsets)
            if batch is None:
                return
            self._flight = self._taking.submit(batch) if batch.settles else None
            if batch.stopped:
                self._stop_sources(batch.stopped, {})
            self._land()
