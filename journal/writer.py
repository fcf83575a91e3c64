"""The writer: group after group into the WAL, one Kafka transaction each, and the fate of those that met errors.

A group is told done only when it is known to be in the committed WAL, failed only when it is known not to be, and
otherwise unknown. Nothing is appended behind a newer epoch's marker: the broker fences this node's transactional id,
and after every error check-init-check (`journal.fencing`) decides by the epoch counter, not by the error.

A group that takes in what was consumed has a transaction of its own, with the consumed offsets in it. It is sent once:
if an error met it and it is not in the WAL, neither are its offsets committed, and whoever consumes begins again there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from journal.errors import (
    CorruptionError,
    DeadlineError,
    FencedError,
    JournalError,
    NotTakenInError,
    OperatingError,
    OutcomeUnknownError,
)
from journal.fencing import RETRY_PAUSE_S, Claim, Fence, RequireOpen, Standing, Timing
from journal.group import FrameNumbers, Group, Origin
from journal.kafka.control import control_topic, wal_topic
from journal.kafka.ports import AbortableProducerError, Consumed, Kafka, Sent, TransactionalProducer
from journal.pacing import Pace
from journal.v1.journal_pb2 import MARKER
from journal.wal import Tail, WalReader, read_tails

log = logging.getLogger(__name__)

_JOINED_OPERATIONS_MAX = 200
"""A larger group waits for no second one: so many callers keep the interpreter busy, and each pause then ends late."""


@dataclass(frozen=True, slots=True)
class WriterConfig:
    """What a writer needs to know of its journal."""

    journal: str
    uuid: bytes
    shards: int
    pace_s: float
    """At least this long between a commit's answer and the next produce: docs/ARCHITECTURE.md, Pacing."""
    pace_max_s: float
    """As long as it becomes while transactions meet the last one's markers."""
    join_s: float
    """How long after its first group a transaction waits for a second one to join it."""


def last_numbers(tails: Sequence[Tail]) -> FrameNumbers:
    """What the next group follows."""
    return FrameNumbers(tuple(tail.number for tail in tails), max(tail.group for tail in tails))


class Place(NamedTuple):
    """Where a frame of a group is, or was to be."""

    shard: int
    number: int


Joining = Callable[[Group], Group | None]
"""Gives what has gathered since a group was taken, if it may join that group's transaction."""


def nothing_joins(_: Group) -> Group | None:
    """For a group that is written alone."""
    return None


class _Transaction:
    """Groups that one Kafka transaction writes: their WAL records, and the place of each."""

    def __init__(self, origin: Origin, topic: str, last: FrameNumbers) -> None:
        self.groups: list[Group] = []
        self.records: list[Sent] = []
        self.places: list[Place] = []
        self.beside: list[Sent] = []
        """Records of other topics, sent behind those of the WAL."""
        self.numbers = last
        self._origin = origin
        self._topic = topic

    @property
    def consumed(self) -> Consumed | None:
        """Offsets to be committed with it: then it has one group."""
        return self.groups[0].consumed

    def add(self, group: Group) -> list[Sent]:
        """Seal a group behind what is here; its records."""
        self.numbers = group.seal(self._origin, self.numbers)
        records = group.records(self._topic)
        self.groups.append(group)
        self.records += records
        self.places += [Place(*key) for key in group.numbers()]
        self.beside += group.beside
        return records

    def delivered(self, offsets: Sequence[int]) -> None:
        """Tell the groups where their frames are."""
        place = 0
        for group in self.groups:
            found: dict[int, tuple[int, int]] = {}
            for _ in range(group.frames):
                shard, offset = self.places[place].shard, offsets[place]
                found[shard] = (found.get(shard, (offset, offset))[0], offset)
                place += 1
            group.completion.offsets = found

    def resolve(self, error: JournalError | None = None) -> None:
        """Tell those that were not told yet."""
        for group in self.groups:
            if not group.completion.done:
                group.completion.resolve(error)


class Writer:
    """The active node's producer. Used by one thread."""

    def __init__(
        self,
        kafka: Kafka,
        config: WriterConfig,
        claim: Claim,
        fence: Fence,
        producer: TransactionalProducer,
        numbers: FrameNumbers,
        ends: Sequence[int],
        timing: Timing,
    ) -> None:
        """`numbers` are the last frames written; `ends` WAL offsets behind which this epoch's next frames will be."""
        self.claim = claim
        self.numbers = numbers
        self.committed_at = timing.now()
        """When the last successful commit began."""
        self._kafka = kafka
        self._config = config
        self._fence = fence
        self._producer: TransactionalProducer | None = producer
        self._ends = list(ends)
        self._timing = timing
        self._topic = wal_topic(config.journal)
        self._origin = Origin(config.uuid, claim.epoch, claim.node)
        self._pace = Pace(config.pace_s, config.pace_max_s)

    def write(self, group: Group, joining: Joining = nothing_joins) -> None:
        """Commit a group, and one that joins it; tell their completions.

        Raises FencedError or OutcomeUnknownError after telling it. A group with consumed offsets may be told
        NotTakenInError instead, which is not raised.
        """
        transaction = _Transaction(self._origin, self._topic, self.numbers)
        transaction.add(group)
        began = self._timing.now()
        try:
            self._commit(transaction, joining)
        except NotTakenInError as error:
            log.warning("a group of consumed records is not in the journal: %s", error)
            transaction.resolve(error)
            return
        except Exception as error:  # raised again: whatever it is, nobody may wait for these groups for ever
            self.close()
            told = error if isinstance(error, JournalError) else OutcomeUnknownError(f"the writer failed: {error!r}")
            transaction.resolve(told)
            raise
        self.numbers = transaction.numbers
        self.committed_at = began
        transaction.resolve()

    def write_ready(self, group: Group) -> None:
        """Commit READY. Raises the error that met it: what became of it does not matter; `regain` comes before another.

        One that may have been sent twice is committed all the same: check, init, check comes before the next group.
        """
        self.numbers = group.seal(self._origin, self.numbers)
        began = self._timing.now()
        producer = self._producer
        assert producer is not None
        producer.send(group.records(self._topic), self._timing.fence_check_s)
        clean = producer.commit_transaction(self._timing.fence_check_s)
        took_s = self._timing.age_s(began)
        if took_s > self._timing.fence_check_s:
            raise DeadlineError(f"READY was answered after {took_s:.1f} s: another node may be active by now")
        if not clean:
            self.close()
        self.committed_at = began
        group.completion.resolve()

    def regain(self, until: float, require_open: RequireOpen) -> None:
        """After a READY that was not confirmed: check, init, check, and where this epoch's last frames are.

        Whether that READY is in the WAL says nothing of who is newest now; so the next one is a frame of its own.
        Raises FencedError, or an OperatingError behind `until`.
        """
        config, timing = self._config, self._timing
        while True:
            self.close()
            self._producer, standing = self._fence.check_init_check(self.claim, until, require_open)
            self._require_own(standing)
            try:
                tails = read_tails(
                    self._kafka, config.journal, config.uuid, config.shards, timing.clock, timing.request_s
                )
                self.numbers = last_numbers(tails)
                return
            except OperatingError as error:
                if timing.clock() >= until:
                    raise
                log.warning("the last frames cannot be read yet: %s", error)
                timing.pause(RETRY_PAUSE_S)

    def renew_if_disturbed(self) -> None:
        """After a commit that succeeded but may have been sent twice: check, init, check, before the next group.

        The copy of the first EndTxn could still arrive and commit half of the next group.
        """
        if self._producer is not None:
            return
        until = self._timing.clock() + self._timing.recovery_s
        self._producer, standing = self._fence.check_init_check(self.claim, until)
        self._require_own(standing)

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    # ---- committing ------------------------------------------------------------------------------------------------

    def _commit(self, transaction: _Transaction, joining: Joining) -> None:
        self.renew_if_disturbed()
        producer, timing = self._producer, self._timing
        assert producer is not None
        self._keep_pace()
        try:
            offsets = self._send(producer, transaction, joining)[: len(transaction.places)]
            clean = transaction.consumed is None or producer.send_offsets(transaction.consumed, timing.request_s)
            clean = producer.commit_transaction(timing.request_s) and clean
        except OperatingError as error:
            log.warning("a group met an error; check, init, check: %s", error)
            self.close()
            self._recover(transaction, error)
            return
        self._pace.answered(timing.clock())
        transaction.delivered(offsets)
        for (shard, _), offset in zip(transaction.places, offsets, strict=True):
            self._ends[shard] = max(self._ends[shard], offset + 1)
        if not clean:
            log.warning("a commit may have been sent twice; check, init, check before the next group")
            self.close()

    def _keep_pace(self) -> None:
        wait_s = self._pace.left_s(self._timing.clock())
        if wait_s > 0:
            self._timing.pause(wait_s)

    def _send(self, producer: TransactionalProducer, transaction: _Transaction, joining: Joining) -> list[int]:
        """Produce the frames; one abort and a second try before the outcome is left to recovery."""
        began = self._timing.clock()
        try:
            offsets = producer.send(self._joined(transaction, joining), self._timing.request_s)
        except AbortableProducerError as error:
            log.warning("a group is sent again: %s", error)
            producer.abort_transaction(self._timing.request_s)
            return producer.send([*transaction.records, *transaction.beside], self._timing.request_s)
        self._pace.sent(self._timing.clock() - began - self._config.join_s)
        return offsets

    def _joined(self, transaction: _Transaction, joining: Joining) -> Iterator[Sent]:
        """The records of a transaction's first group; then, after a while in which they set out, those of a second."""
        first = transaction.groups[0]
        yield from (*transaction.records, *transaction.beside)
        if first.operations > _JOINED_OPERATIONS_MAX or first.consumed is not None:
            return
        self._timing.pause(self._config.join_s)
        second = joining(first)
        if second is not None:
            yield from transaction.add(second)

    # ---- after an error --------------------------------------------------------------------------------------------

    def _recover(self, transaction: _Transaction, met: OperatingError) -> None:
        """Bring the group into the WAL once, or raise what became of it."""
        timing, places = self._timing, transaction.places
        until = timing.clock() + timing.recovery_s
        while True:
            try:
                producer, standing = self._fence.check_init_check(self.claim, until)
                self._producer = producer
                if producer is None or standing is not Standing.OWN:
                    break
                if self._resend_missing(producer, transaction, met):
                    return
            except DeadlineError as error:
                raise OutcomeUnknownError(f"group of {len(places)} frames: {error}") from error
        self._require_not_older(standing)
        self._tell_fate(transaction, until)

    def _resend_missing(self, producer: TransactionalProducer, transaction: _Transaction, met: OperatingError) -> bool:
        """Read the WAL back and send what is not there, with the numbers it had; False if that met an error too.

        Raises NotTakenInError instead of sending a group with consumed offsets again: what those met may well last.
        """
        timing, places = self._timing, transaction.places
        try:
            there = self._read_back(places)
            missing = [n for n, place in enumerate(places) if place not in there.own]
            once_only = transaction.consumed is not None and there.own.isdisjoint(places)
            if missing and not once_only:
                again = [transaction.records[n] for n in missing]
                producer.send([*again, *transaction.beside], timing.request_s)
                clean = transaction.consumed is None or producer.send_offsets(transaction.consumed, timing.request_s)
                if not (producer.commit_transaction(timing.request_s) and clean):
                    self.close()
        except OperatingError as error:
            log.warning("a group is not settled yet: %s", error)
            self.close()
            timing.pause(0.1)
            return False
        if once_only:
            # frames and offsets were one transaction, and the init has ended it: neither is there
            raise NotTakenInError(f"{len(places)} frames and the offsets of what was consumed for them: {met}") from met
        return True

    def _tell_fate(self, transaction: _Transaction, until: float) -> NoReturn:
        """This node is fenced: read what became of the group, and tell that if it is done. Raises in any case."""
        timing, places = self._timing, transaction.places
        touched = {place.shard for place in places}
        while timing.clock() < until:
            try:
                there = self._read_back(places)
            except OperatingError as error:
                log.warning("fenced; the group's fate cannot be read yet: %s", error)
                timing.pause(0.1)
                continue
            if there.own.issuperset(places):
                transaction.resolve()
                raise FencedError("another node took over; the last group is in the WAL", epoch=self.claim.epoch)
            if there.newer == touched and there.own.isdisjoint(places):
                raise FencedError("another node took over; the group is not in the WAL", epoch=self.claim.epoch)
            timing.pause(0.1)
        raise OutcomeUnknownError("another node took over, and whether the group was committed could not be read")

    def _read_back(self, places: Sequence[Place]) -> _ReadBack:
        """This epoch's frames in the committed WAL behind what was known, in each shard that a group touches: up to the
        last of its own, the first newer marker, or the end as of now."""
        config, timing = self._config, self._timing
        reader = WalReader(self._kafka, config.journal, config.uuid, config.shards, timing.clock)
        there = _ReadBack(set(), set())
        try:
            shards = sorted({place.shard for place in places})
            for shard, end in reader.high_watermarks(shards, timing.request_s).items():
                missing = {place for place in places if place.shard == shard}
                for _, frame in reader.frames(shard, self._ends[shard], end, timing.request_s):
                    if frame.epoch > self.claim.epoch and frame.operations and frame.operations[0].type == MARKER:
                        there.newer.add(shard)
                        break
                    if frame.epoch == self.claim.epoch:
                        there.own.add(Place(shard, frame.number))
                        missing.discard(Place(shard, frame.number))
                    if not missing:
                        break
        finally:
            reader.close()
        return there

    def _require_own(self, standing: Standing) -> None:
        self._require_not_older(standing)
        if standing is Standing.NEWER:
            raise FencedError("another node took over", epoch=self.claim.epoch)

    def _require_not_older(self, standing: Standing) -> None:
        if standing is Standing.OLDER:
            self.close()
            what = f"the epoch counter went back behind epoch {self.claim.epoch}"
            raise CorruptionError(what, topic=control_topic(self._config.journal), partition=0)


class _ReadBack(NamedTuple):
    own: set[Place]
    newer: set[int]
