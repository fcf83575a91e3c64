"""Batches on their way into the journal, one at a time: each is submitted when there is room, and has landed when its
fate is known.

A batch that is more than the journal takes at once is made smaller, and so is one that failed for no known reason,
because a slow cluster may not take as much in the time of a request. If Kafka refused a dead letter, the whole batch is
not taken in, and the next batches have single letters, to find which one it was.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from journal.append.completion import Completion
from journal.errors import (
    AddressMissingError,
    DeadlineError,
    FatalProducerError,
    FullError,
    InvalidOperationError,
    JournalError,
    MessageHeldError,
    MessageMissingError,
    NotTakenInError,
    QueueMissingError,
)
from journal.kafka.ports import Consumed
from journal.routing.outcomes import Reason, UnfitError
from journal.routing.source_record import SourceRecord
from journal.sources.batch import Converter, SourceBatch
from journal.sources.identities import TopicIds
from journal.sources.letters import Letter
from journal.sources.positions import Partition
from journal.sources.sizing import Sizing
from journal.sources.status import SourcesStatus
from journal.store.operations.take_in import TakenIn, Takes
from journal.store.store import MessageStore

log = logging.getLogger(__name__)

_POLL_S = 0.1
_LOOK_S = 0.2
"""The longest time until a waiting thread notices that it must stop."""


class BatchUnderWay(NamedTuple):
    """A batch on its way into the journal."""

    batch: SourceBatch
    taken: TakenIn


class Again(Exception):
    """Raised inside the loop to begin again at the committed offsets. It is no error."""


class SourceTaking:
    """Takes batches into the journal. The sources' thread uses it. Raises Again when `stop` is set."""

    def __init__(
        self,
        store: MessageStore,
        takes: Takes,
        converter: Converter,
        status: SourcesStatus,
        stop: threading.Event,
        *,
        ids: TopicIds,
        group: str,
        batch_records: int,
    ) -> None:
        self.offsets: dict[Partition, int] = {}
        """The offset of each consumed partition that was committed last, or is on its way."""
        self.landed = 0
        """Number of batches that are in the journal."""
        self._store = store
        self._takes = takes
        self._converter = converter
        self._status = status
        self._stop = stop
        self._ids = ids
        self._group = group
        self._sizing = Sizing(batch_records)
        self._suspected: Sequence[Letter] = ()
        """The dead letters of the last batch, if Kafka refused one of them."""

    # ---- batches ---------------------------------------------------------------------------------------------------

    def batch(self, records: Sequence[SourceRecord]) -> SourceBatch:
        """A batch of as many of these records as it can take. Raises DeadlineError."""
        return self._converter.batch(records, self._sizing.records_max, self._sizing.letters_max)

    def overdue(self, source: str, now_ms: float, offsets: Mapping[Partition, int]) -> SourceBatch | None:
        """A batch that gives up the source's requests that have waited too long; None if there are none."""
        return self._converter.overdue(source, now_ms, offsets, self._sizing.letters_max)

    def take_in(self, batch: SourceBatch, records: Sequence[SourceRecord]) -> tuple[SourceBatch, BatchUnderWay | None]:
        """Submit a batch of these records, or of fewer if they are more than the journal takes at once; None if there
        is nothing to submit. A single record that is too much is refused under its source's policy."""
        while batch.offsets:
            try:
                return batch, self.submit(batch)
            except InvalidOperationError as error:
                count = len(records) - len(batch.left)
                if count > 1:
                    log.info("a batch of %d records is halved: %s", count, error)
                    self._sizing.halve(count)
                    batch = self.batch(records)
                else:
                    batch = self._converter.refused(records, UnfitError(Reason.TOO_LARGE, str(error)))
        return batch, None

    def submit(self, batch: SourceBatch, topic_ids: Mapping[Partition, str] | None = None) -> BatchUnderWay:
        """Submit a batch to the journal when it has room. Its offsets get the ids of the topics that are consumed, or
        `ids`.

        Raises InvalidOperationError for a batch that is larger than the journal ever takes.
        """
        ids = self._ids.of(batch.offsets) if topic_ids is None else topic_ids
        consumed = Consumed(self._group, batch.offsets, ids)
        while not self._stop.is_set():
            try:
                taken = self._store.take_in(batch.messages, consumed, batch.beside, self._takes, batch.settles)
                return BatchUnderWay(batch, taken)
            except (
                AddressMissingError,
                QueueMissingError,
                MessageMissingError,
                MessageHeldError,
            ) as error:
                # the journal cannot take this message now, so its record is refused under its source's policy
                raise Again from error
            except FullError:
                self._status.pause(paused=True)
                room = self._store.room()
                if room.done:
                    self._stop.wait(_POLL_S)  # the queue's other bounds, and not the batch's size, are the reason
                while not room.done and not self._stop.is_set():
                    with suppress(DeadlineError):
                        room.wait(_LOOK_S)
            finally:
                self._status.pause(paused=False)
        raise Again

    def wait_a_little(self, flight: BatchUnderWay) -> None:
        """Wait a moment for the batch on its way, while no other records have arrived."""
        _wait_for(flight.taken.completion, _POLL_S / 10)

    def land(self, flight: BatchUnderWay) -> None:
        """Wait for the fate of a batch. Raises NotTakenInError."""
        completion, batch = flight.taken.completion, flight.batch
        while not completion.done:
            if self._stop.is_set():
                raise Again
            _wait_for(completion, _LOOK_S)
        if completion.error is not None:
            topic = refused_topic(completion.error)
            self._suspected = [letter for letter in batch.letters if letter.topic == topic]
            if not topic:
                records = sum(counts.records for counts in batch.counts.values())
                self._sizing.failed(max(records, len(batch.letters)))
            raise completion.error
        self.landed += 1
        self._sizing.landed(len(batch.letters))
        consumed = self.offsets
        consumed |= {part: offset for part, offset in batch.offsets.items() if part in consumed}
        for name, counts in batch.counts.items():
            self._status.change(
                name, records=counts.records, messages=counts.messages, dead_letters=counts.dead_letters
            )
            self._status.committed(name, counts.oldest_ms)
            if counts.refused:
                self._status.refuse(name, counts.refused)
        self._status.dropped(flight.taken.unrouted, flight.taken.duplicates)

    # ---- refused letters -------------------------------------------------------------------------------------------

    def refused_letter(self, changed: Collection[str]) -> Letter | None:
        """The dead letter that Kafka has refused. None if there was none, or if it was one of several: then the next
        batches show which.

        `changed` are dead-letter topics that have changed; a letter refused for one of them is made again.
        """
        letters, self._suspected = self._suspected, ()
        if not letters or letters[0].topic in changed or letters[0].topic in self._converter.letters.faults:
            return None
        if len(letters) > 1:
            self._sizing.suspect(len(letters))
            return None
        self._sizing.suspect(0)
        return letters[0]


def _wait_for(completion: Completion, seconds: float) -> None:
    """Wait until the completion is done, without raising its error: `land` does that."""
    with suppress(DeadlineError, NotTakenInError):
        completion.wait(seconds)


def refused_topic(error: JournalError) -> str:
    """The topic for which Kafka has refused a record of a batch, and would refuse it again; empty if none is known.

    The cause of a NotTakenInError is the error that the writer met.
    """
    met: BaseException | None = error
    while met is not None:
        if isinstance(met, FatalProducerError) and met.refused_topic:
            return met.refused_topic
        met = met.__cause__
    return ""
