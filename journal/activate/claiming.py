"""The claim of an activation: which epoch it takes, and how it proves that no other node has this epoch and that no
earlier frame is lost.

The epoch is the counter's next. The counter, each shard's last frame and its newest mark are read after the init. If
the counter is below an epoch in the WAL or in a mark, it is read again behind an acknowledged write; if it is still
below, it is lost. Counter and markers go out in one transaction. The transaction is committed only if every marker lies
right where the reading of its shard ended: then no deposed leader has hidden a newer marker, or a frame that the claim
must follow. If a marker does not lie beyond its shard's mark, or the newest epoch's marker is not there, the WAL has
lost its end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, NamedTuple

from journal.append.group import FrameNumbers, FrameOrigin, Group
from journal.append.writing import Claim
from journal.errors import DeadlineError, OperatingError, StaleReadError, StateError
from journal.kafka.ports import Kafka, Sent, TransactionalProducer
from journal.limits import Limits
from journal.process.background import InBackground
from journal.process.clocks import Timing
from journal.process.commands import command
from journal.topics.control_keys import EPOCH_KEY, control_row
from journal.topics.control_reading import control_lost
from journal.topics.control_rows import ControlRows
from journal.topics.marks import MarkReader
from journal.topics.names import table_topic, wal_topic
from journal.v1.journal_pb2 import MARKER, Epoch, Mark
from journal.wal.config import WriterConfig
from journal.wal.fencing import RETRY_PAUSE_S, Fence, RequireOpen, Standing
from journal.wal.reading import Tail, read_tails, require_nothing_between, wal_lost
from journal.wal.writer import Writer, last_numbers
from journal.words import called

log = logging.getLogger(__name__)

_KEEPS = (
    "keeps what the tables have. Nothing lets this journal go on: what came now would lie at offsets that they have "
    'passed. docs/OPERATIONS.md, "When the WAL has lost its end", has the steps to another one'
)


class _Found(NamedTuple):
    """The state that a claim follows: the newest counter, and each shard's last frame and newest mark."""

    counter: Epoch
    tails: Sequence[Tail]
    marks: Sequence[Mark]


def _behind(mark: Mark, tail: Tail) -> Tail:
    """The tail of a shard. If the shard was trimmed up to its mark, the mark gives the tail. If the log starts before
    the mark but has no frames, frames are lost."""
    is_trimmed = not tail.number and tail.start > mark.offset
    return Tail(mark.number, mark.group, mark.epoch, tail.end) if is_trimmed else tail


class Claiming:
    """Makes the claims of one activation. One thread uses it."""

    def __init__(
        self,
        kafka: Kafka,
        config: WriterConfig,
        limits: Limits,
        claim_as: Callable[[int], Claim],
        fence: Fence,
        timing: Timing,
        *,
        wall_ms: Callable[[], float],
        beside: InBackground,
        require_open: RequireOpen,
    ) -> None:
        """The arguments are those of `journal.activate.activation.Activation`."""
        self._kafka = kafka
        self._config = config
        self._limits = limits
        self._claim_as = claim_as
        self._fence = fence
        self._timing = timing
        self._wall_ms = wall_ms
        self._beside = beside
        self._require_open = require_open

    def claim(self, producer: TransactionalProducer) -> Writer:
        """Write counter and markers in one transaction; returns the writer of that epoch. After an unknown outcome come
        check, init, check.

        `producer` has just been initialised. It becomes the writer's, or is closed. Raises FencedError for another
        activation, StateError for a journal made anew, CorruptionError for what is proven to be lost, OperatingError.
        """
        until = self._timing.clock() + self._timing.recovery_s
        while True:
            found = self._read(producer)
            claim = self._claim_as(found.counter.epoch + 1)
            last, records = self._markers(claim, found)
            ends, clean, standing = [tail.end for tail in found.tails], False, Standing.OWN
            try:
                places = producer.send(records, self._timing.request_s)[1:]
                self._require_whole(found, places)
                ends = [place + 1 for place in places]
                clean = producer.commit_transaction(self._timing.request_s)
            except StaleReadError as error:
                producer = self._again(producer, until, error)
                continue
            except OperatingError as error:
                producer, standing = self._resolve(producer, claim, until, str(error))
            except BaseException:
                producer.close()
                raise
            if standing is Standing.OLDER:
                continue
            writer = Writer(self._kafka, self._config, claim, self._fence, producer, last, ends, self._timing)
            if not clean:
                self._regain(writer, until)
            return writer

    def _read(self, producer: TransactionalProducer) -> _Found:
        """Read all that the next epoch depends on, after the init of `producer`, with parallel requests."""
        config, clock, request_s = self._config, self._timing.clock, self._timing.request_s
        tails_now = partial(read_tails, self._kafka, config.journal, config.uuid, config.shards, clock, request_s)
        try:
            asked: list[Future[Any]] = [self._beside(one) for one in (self._fence.rows, tails_now, self._newest_marks)]
            reading, tailing, marking = asked
            try:
                rows = reading.result()
                self._require_same_journal(rows)
                tails, marks = tailing.result(), marking.result()
            except BaseException:
                wait(asked, self._timing.request_s)  # every request must have ended before the next try begins
                raise
            counter = self._newest(rows, tails, marks)
            tails = [_behind(mark, tail) for mark, tail in zip(marks, tails, strict=True)]
            self._require_open()
        except BaseException:
            producer.close()
            raise
        return _Found(counter, tails, marks)

    def _newest_marks(self) -> list[Mark]:
        marks = MarkReader(self._kafka, table_topic(self._config.journal), self._timing.clock)
        try:
            found = marks.newest_of(range(self._config.shards), self._timing.request_s)
        finally:
            marks.close()
        return [found[shard].mark for shard in range(self._config.shards)]

    def _require_same_journal(self, rows: ControlRows) -> None:
        """Raises StateError for a journal that was deleted and made again. A standby checked its topics some time ago;
        the frames in topics made since then belong to another journal."""
        if rows.identity is not None and rows.identity.journal != self._config.uuid:
            raise StateError(f"{called(self._config.journal)} was made anew: close this one, and start another")

    def _newest(self, rows: ControlRows, tails: Sequence[Tail], marks: Sequence[Mark]) -> Epoch:
        """The newest claim. Raises ControlLostError if the control rows are proven to lack it."""
        epochs = {f"the WAL of shard {shard}": tail.epoch for shard, tail in enumerate(tails)}
        epochs |= {f"the table of shard {mark.shard}": mark.epoch for mark in marks}
        where, highest = max(epochs.items(), key=lambda item: item[1])
        if rows.identity is None or rows.epoch.epoch < highest:
            rows = self._fence.proven_rows()
            self._require_same_journal(rows)
        if rows.identity is None:
            raise control_lost(self._config.journal, "the journal's identity is not there")
        if rows.epoch.epoch < highest:
            what = f"the epoch counter stands at {rows.epoch.epoch}, and {where} at epoch {highest}"
            raise control_lost(self._config.journal, what)
        return rows.epoch

    def _require_whole(self, found: _Found, places: Sequence[int]) -> None:
        """Called before the claim is committed; its markers lie at `places`. Raises StaleReadError, and CorruptionError
        for a WAL that has lost its end: frames that the tables prove, or the newest epoch's marker.

        `repair control` mends a missing marker, but only if no shard has lost frames that its tables prove.
        """
        name, counter = self._config.journal, found.counter
        for shard, (place, tail, mark) in enumerate(zip(places, found.tails, found.marks, strict=True)):
            if place > mark.offset:
                require_nothing_between(name, {shard: tail.end}, [(shard, place)])
            if place <= mark.offset or tail.number < mark.number or tail.epoch < mark.epoch:
                lost = (
                    f"the tables have frame {mark.number} of offset {mark.offset} and epoch {mark.epoch}, and the last "
                    f"one is {tail.number} of epoch {tail.epoch}"
                )
                raise wal_lost(name, shard, place, lost, f"{command('dump', journal=name)}` {_KEEPS}")
        for shard, (place, tail) in enumerate(zip(places, found.tails, strict=True)):
            if counter.nonce and tail.epoch < counter.epoch:
                lost = f"epoch {counter.epoch} began with a marker in every shard, and there is none here"
                mend = f"{command('repair control', journal=name)}` has the next activation go on with what is left"
                raise wal_lost(name, shard, place, lost, mend)

    def _markers(self, claim: Claim, found: _Found) -> tuple[FrameNumbers, list[Sent]]:
        config = self._config
        group = Group(config.shards, self._limits.frame_bytes_max)
        for shard in range(config.shards):
            group.put(shard, MARKER, 0, 0, claim.nonce)
        last = group.seal(FrameOrigin(config.uuid, claim.epoch, claim.node), last_numbers(found.tails))
        counter = Epoch(
            journal=config.uuid,
            epoch=claim.epoch,
            node=claim.node,
            nonce=claim.nonce,
            timestamp=int(self._wall_ms()),
            fence_check_ms=int(self._timing.fence_check_s * 1000),
        )
        row = control_row(config.journal, EPOCH_KEY, counter)
        return last, [row, *group.records(wal_topic(config.journal))]

    def _resolve(
        self, producer: TransactionalProducer, claim: Claim, until: float, reason: str
    ) -> tuple[TransactionalProducer, Standing]:
        """A new producer, and whether the claim is in the control rows. Raises FencedError if another activation's
        claim is."""
        log.warning("epoch %d: markers of unknown outcome; check, init, check: %s", claim.epoch, reason)
        producer.close()
        try:
            return self._fence.check_init_check(claim, until, self._require_open, claimed=False)
        except DeadlineError as error:
            raise DeadlineError(
                f"epoch {claim.epoch} is not known to be claimed: {reason}; and then: {error}"
            ) from error

    def _again(self, producer: TransactionalProducer, until: float, stale: StaleReadError) -> TransactionalProducer:
        """A new producer for another try. Nothing was claimed yet, because a read was answered by a deposed leader."""
        producer.close()
        if self._timing.clock() >= until:
            raise stale
        log.warning("read again before an epoch is claimed: %s", stale)
        self._timing.pause(RETRY_PAUSE_S)
        return self._fence.initialise(until, self._require_open)

    def _regain(self, writer: Writer, until: float) -> None:
        """Have the writer check, init, check: the claim is in the control rows, but its producer cannot be trusted any
        more."""
        try:
            writer.regain(until, self._require_open)
        except BaseException:
            writer.close()
            raise
