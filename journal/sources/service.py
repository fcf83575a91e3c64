"""`SourcesService`: the sources of a node while it is active.

    service = SourcesService(settings, store)      # in on_active, with a store that was started
    service.start()
    ...
    service.close()                                # in on_standby, before the store is closed; in on_fenced: stop

It is safe not to close it: all messages go through the activation's journal, and when that is closed the service ends.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from journal.config import Settings
from journal.errors import ClosedError, FencedError, JournalError, OutcomeUnknownError, StateError
from journal.kafka.clients import kafka_of
from journal.process.clocks import AgreedTime, monotonic_ms, wall_ms
from journal.routing.record_in import Replies, Sources, nobody_waits
from journal.sources.batch import Converter
from journal.sources.beginnings import ControlBeginnings
from journal.sources.consumer import SourceConsumer
from journal.sources.filters import Filters
from journal.sources.identities import require_none_outlived
from journal.sources.letters import LetterTopics
from journal.sources.loop import LoopConfig, SourcesLoop
from journal.sources.reporting import SourcesReporter
from journal.sources.requests import Waiting
from journal.sources.status import SourcesStatus, SourceStatus
from journal.sources.stops import Stops
from journal.store.store import MessageStore
from journal.topics.names import OwnTopics, sources_group
from journal.words import shortened

log = logging.getLogger(__name__)

BATCH_RECORDS = 1000
"""The most records in one Kafka transaction. The store's lock is held while they are appended, some 10 ms."""

BATCH_BYTES = 4 * 1024 * 1024
"""The most bytes of values in one Kafka transaction; one record more may exceed it."""

LIST_EVERY_S = 10.0
"""How often topics are listed. A pattern finds a new topic that soon."""

_END_S = 5.0


def sources_of(
    settings: Settings, replies: Replies = nobody_waits, bytes_max: Mapping[str, int] | None = None
) -> Sources:
    """The sources of a journal. Raises ConfigError for topics that belong to the journal itself, and for requests
    without a dead-letter topic. `Sources` explains `bytes_max`."""
    own = OwnTopics(settings.journal)
    return Sources(settings.routing, journal=settings.journal, own_topics=own, replies=replies, bytes_max=bytes_max)


class SourcesService:
    """The sources of one activation. Its methods may be called from any thread."""

    def __init__(
        self,
        settings: Settings,
        store: MessageStore,
        *,
        batch_records: int = BATCH_RECORDS,
        list_every_s: float = LIST_EVERY_S,
        group: str = "",
    ) -> None:
        """`group` is the consumer group that keeps the offsets, if it is not the journal's own.

        Raises ConfigError as `sources_of` does.
        """
        self._settings = settings
        self._store = store
        self._batch_records = batch_records
        self._list_every_s = list_every_s
        self._group = group or sources_group(settings.journal)
        routing = settings.routing
        self._status = SourcesStatus({source.name: SourceStatus(source.name) for source in routing.sources})
        self._stops = Stops()
        self._loop = self._make_loop()
        self._reporter = SourcesReporter(
            kafka_of(settings), settings.journal, settings.node, self.status, settings.request_timeout_ms / 1000
        )
        self._thread = threading.Thread(target=self._run, name="kafka-journal-sources", daemon=True)

    def start(self) -> None:
        """Start the thread that consumes, if there are sources."""
        if self._settings.routing.sources:
            self._thread.start()
            self._reporter.start()

    def stop(self) -> None:
        """Ask the thread to end soon, without waiting. A batch on its way is stored together with its consumer offsets,
        or not at all."""
        self._loop.stop()
        self._reporter.stop()

    def close(self) -> None:
        """Wait a short while until the thread has ended."""
        self._loop.stop()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_END_S)
        self._reporter.close()

    def resume(self, source: str, *, skip: bool) -> str:
        """Resume a stopped source soon. With `skip` the record that has stopped it is left out, and returned.

        Raises InvalidOperationError if the source is not stopped by a record or a partition, if `skip` finds no such
        record, or if the source has positions in a topic that was deleted and created again. Raises OperatingError.
        """
        self._stops.require(source)
        self._require_none_outlived(source)
        place = self._stops.ask(source, skip=skip).skip
        return "" if place is None else str(place)

    def _require_none_outlived(self, source: str) -> None:
        settings, timeout_s = self._settings, self._settings.request_timeout_ms / 1000
        config = next(each for each in settings.routing.sources if each.name == source)
        with closing(kafka_of(settings).cluster()) as cluster:
            found = cluster.stable_positions(self._group, [], timeout_s)
            positions = {part: position for part, position in found.items() if config.takes(part[0])}
            ids = cluster.topic_ids({topic for topic, _ in positions}, timeout_s)
        require_none_outlived(positions, ids, group=self._group, bootstrap_servers=settings.bootstrap_servers)

    def status(self) -> dict[str, Any]:
        """The state of each source, in values that JSON has."""
        return self._status.as_json()

    def _make_loop(self) -> SourcesLoop:
        settings, store = self._settings, self._store
        routing, kafka, request_s = settings.routing, kafka_of(settings), settings.request_timeout_ms / 1000
        agreed_ms = AgreedTime(wall_ms, monotonic_ms, settings.store.expiry_agreement_ms)
        waiting, letters = Waiting(store, routing.sources, wall_ms, agreed_ms), LetterTopics(settings)
        sources = sources_of(settings, waiting.address, letters.bytes_max)
        filters = Filters(store)
        config = LoopConfig(self._group, request_s, self._list_every_s, self._batch_records)
        converter = Converter(
            sources,
            routing,
            store,
            filters,
            waiting,
            letters,
            settings.limits,
            batch_bytes=BATCH_BYTES,
            request_s=request_s,
        )
        return SourcesLoop(
            config,
            routing,
            sources,
            store,
            converter,
            filters.takes,
            lambda: SourceConsumer(kafka.settings, self._group),
            kafka.cluster,
            self._status,
            self._stops,
            ControlBeginnings(kafka, settings.journal, request_s),
        )

    def _run(self) -> None:
        try:
            self._loop.run()
        except (StateError, ClosedError, FencedError, OutcomeUnknownError) as error:
            log.info("the sources end with the activation: %s", error)
        except JournalError as error:
            log.error("the sources end: %s", error)
            self._status.fail(str(error))
        except Exception as error:
            log.exception("the sources end")
            self._status.fail(shortened(repr(error)))
