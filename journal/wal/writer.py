"""The writer: group after group into the WAL, one Kafka transaction each, and the fate of those that met errors.

A group is told done only when it is known to be in the committed WAL, failed only when it is known not to be, and
otherwise unknown. Nothing is appended behind a newer epoch's marker: the broker fences this node's transactional id,
and after every error check-init-check (`journal.wal.fencing`) decides by the epoch counter, not by the error.

A group that takes in what was consumed has a transaction of its own, with the consumed offsets in it. It is sent once:
if an error met it and it is not in the WAL, neither are its offsets committed, and whoever consumes begins again there.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, NoReturn

from journal.append.group import FrameNumbers, FrameOrigin, Group
from journal.append.writing import Claim, Joining, Recoveries, nothing_joins
from journal.errors import (
    CorruptionError,
    DeadlineError,
    FatalProducerError,
    FencedError,
    GapError,
    JournalError,
    NotTakenInError,
    OperatingError,
    OutcomeUnknownError,
    StaleReadError,
)
from journal.kafka.ports import Consumed, Kafka, Sent, TransactionalProducer
from journal.process.clocks import Timing
from journal.topics.names import wal_topic
from journal.v1.journal_pb2 import Passed, Trim
from journal.wal.fencing import RETRY_PAUSE_S, Fence, RequireOpen, always_open
from journal.wal.pacing import Pace
from journal.wal.portion import Portion
from journal.wal.reading import Tail, WalReader, require_nothing_between, wal_lost
from journal.wire.frames import nonce_of

log = logging.getLogger(__name__)

READY_SHARD = 0
"""READY is written to one shard, whichever: what it proves the coordinator proves, when it ends the transaction."""

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
    """How long after its first groups a transaction waits for one more to join it."""
    transaction_bytes_max: int
    """Of operations in one transaction; one group may have more."""


def last_numbers(tails: Sequence[Tail]) -> FrameNumbers:
    """What the next group follows."""
    return FrameNumbers(tuple(tail.number for tail in tails), max(tail.group for tail in tails))


class FramePlace(NamedTuple):
    """Where a frame of a group is, or was to be."""

    shard: int
    number: int


class _Part(NamedTuple):
    """A sealed group, its WAL records, and the place of each."""

    group: Group
    records: list[Sent]
    places: list[FramePlace]


class _Transaction:
    """Groups that one Kafka transaction writes, or several one after the other where one is too large. Those whose fate
    is known leave it."""

    def __init__(self, origin: FrameOrigin, topic: str, last: FrameNumbers) -> None:
        self.parts: list[_Part] = []
        self.operations = 0
        self.bytes = 0
        self.numbers = last
        self._origin = origin
        self._topic = topic

    @property
    def consumed(self) -> Consumed | None:
        """Offsets to be committed with it: then it has one group."""
        return self.parts[0].group.consumed

    @property
    def beside(self) -> Sequence[Sent]:
        """Records of other topics, sent behind those of that group."""
        return self.parts[0].group.beside

    @property
    def places(self) -> list[FramePlace]:
        return [place for part in self.parts for place in part.places]

    def add(self, group: Group) -> list[Sent]:
        """Seal a group behind what is here; its records."""
        self.numbers = group.seal(self._origin, self.numbers)
        part = _Part(group, group.records(self._topic), [FramePlace(*key) for key in group.numbers()])
        self.parts.append(part)
        self.operations += group.operations
        self.bytes += group.bytes
        return part.records

    def delivered(self, offsets: Sequence[int]) -> None:
        """Tell the groups where their frames are."""
        remaining = iter(offsets)
        for group, _, places in self.parts:
            found: dict[int, tuple[int, int]] = {}
            for (shard, _), offset in zip(places, remaining, strict=False):
                found[shard] = (found.get(shard, (offset, offset))[0], offset)
            group.completion.offsets = found

    def first(self, bytes_max: int) -> list[_Part]:
        """The first groups of all: as many as have `bytes_max` together, but at least one."""
        ends = accumulate(part.group.bytes for part in self.parts)
        return self.parts[: max(1, sum(end <= bytes_max for end in ends))]

    def are_there(self, there: Collection[FramePlace]) -> None:
        """Tell groups that they are done, all of whose frames are in the WAL; they are no longer part of this.

        From the first on: where one shard cannot be read, a group of the others only is not told before those in front.
        """
        while self.parts and all(place in there for place in self.parts[0].places):
            self.parts.pop(0).group.completion.resolve()

    def resolve(self, error: JournalError | None = None) -> None:
        """Tell those that were not told yet."""
        for group, *_ in self.parts:
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
        self._recoveries = 0
        self._kafka = kafka
        self._config = config
        self._fence = fence
        self._producer: TransactionalProducer | None = producer
        self._ends = list(ends)
        self._read_to: dict[int, int] = {}
        """Where shards were read to after the producer's init, until something that is sent proves it: by shard, the
        offset of the frame that is next."""
        self._timing = timing
        self._topic = wal_topic(config.journal)
        self._origin = FrameOrigin(config.uuid, claim.epoch, claim.node)
        self._pace = Pace(config.pace_s, config.pace_max_s)
        self._portion = Portion(config.transaction_bytes_max)

    @property
    def recoveries(self) -> Recoveries:
        """As of now; may be asked for by any thread."""
        return Recoveries(self._recoveries, self._fence.checks, self._fence.inits)

    def write(self, group: Group, joining: Joining = nothing_joins) -> None:
        """Commit a group, and those that join it; tell their completions.

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
        numbers = group.seal(self._origin, self.numbers)
        began = self._timing.now()
        producer = self._producer
        assert producer is not None
        offsets = producer.send(group.records(self._topic), self._timing.fence_check_s)
        self._require_in_place([READY_SHARD], offsets)
        clean = producer.commit_transaction(self._timing.fence_check_s)
        took_s = self._timing.age_s(began)
        if took_s > self._timing.fence_check_s:
            raise DeadlineError(f"READY was answered after {took_s:.1f} s: another node may be active by now")
        if not clean:
            self.close()
        self.numbers = numbers
        self._ends[READY_SHARD] = offsets[0] + 1
        self.committed_at = began
        group.completion.resolve()

    def regain(self, until: float, require_open: RequireOpen) -> None:
        """After a claim, or a READY, that was not confirmed: check, init, check, and whether that READY is there.

        Whether it is says nothing of who is newest now; so the next one is a frame of its own.
        Raises FencedError, or an OperatingError behind `until`.
        """
        numbers = list(self.numbers.frames)
        numbers[READY_SHARD] += 1
        place = FramePlace(READY_SHARD, numbers[READY_SHARD])
        if place in self._renew([place], until, require_open).own:
            self.numbers = FrameNumbers(tuple(numbers), self.numbers.group + 1)

    def renew_if_disturbed(self, transaction: _Transaction) -> None:
        """After a commit that succeeded but may have been sent twice: check, init, check, before the next group.

        The copy of the first EndTxn could still arrive and commit half of the next group.
        """
        if self._producer is None:
            self._renew(transaction.places, self._timing.clock() + self._timing.recovery_s)

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    # ---- committing ------------------------------------------------------------------------------------------------

    def _commit(self, transaction: _Transaction, joining: Joining) -> None:
        self.renew_if_disturbed(transaction)
        producer, timing = self._producer, self._timing
        assert producer is not None
        self._keep_pace()
        try:
            offsets = self._send(producer, transaction, joining)[: len(transaction.places)]
            self._require_in_place([place.shard for place in transaction.places], offsets)
            clean = transaction.consumed is None or producer.send_offsets(transaction.consumed, timing.request_s)
            clean = producer.commit_transaction(timing.request_s) and clean
        except OperatingError as error:
            self._note_recovery(f"a group met an error: {error}")
            self._note_failure(transaction.bytes, error)
            self.close()
            self._recover(transaction, error)
            return
        except CorruptionError as error:
            raise _unknown(transaction, str(error)) from error
        self._pace.answered(timing.clock())
        self._portion.succeeded(transaction.bytes)
        transaction.delivered(offsets)
        for (shard, _), offset in zip(transaction.places, offsets, strict=True):
            self._ends[shard] = offset + 1
        if not clean:
            self._note_recovery("a commit may have been sent twice")
            self.close()

    def _require_in_place(self, shards: Sequence[int], offsets: Sequence[int]) -> None:
        """Before a transaction is committed, of which frames went to these shards and offsets.

        Raises StaleReadError if they are not where their shards were read to since the init, so that there may be what
        was not seen (a newer marker, or a frame that is sent again); CorruptionError if a shard lost what this node was
        told to be there. An init that was followed by one such frame has fenced no successor that is there: a claim has
        a marker in every shard.
        """
        for shard, offset in zip(shards, offsets, strict=True):
            if offset < self._ends[shard]:
                name, told = self._config.journal, self._ends[shard] - 1
                lost = f"offset {told} was acknowledged, and the WAL goes on at {offset}"
                raise wal_lost(name, shard, offset, lost, f"kafka-journal verify -j {name}` compares what is left")
        if self._read_to:
            require_nothing_between(self._config.journal, self._read_to, zip(shards, offsets, strict=True))
            self._read_to.clear()

    def _note_recovery(self, why: str) -> None:
        self._recoveries += 1
        log.warning("%s; check, init, check (recovery %d of epoch %d)", why, self._recoveries, self.claim.epoch)

    def _keep_pace(self) -> None:
        wait_s = self._pace.left_s(self._timing.clock())
        if wait_s > 0:
            self._timing.pause(wait_s)

    def _send(self, producer: TransactionalProducer, transaction: _Transaction, joining: Joining) -> list[int]:
        """Produce the frames. What this meets is left to recovery."""
        began = self._timing.clock()
        offsets = producer.send(self._joined(transaction, joining), self._timing.request_s)
        self._pace.sent(self._timing.clock() - began - self._config.join_s)
        return offsets

    def _joined(self, transaction: _Transaction, joining: Joining) -> Iterator[Sent]:
        """The records of a transaction's first group, and of those that are complete by now; then, after a while in
        which they set out, of one that has gathered meanwhile."""
        yield from (*transaction.parts[0].records, *transaction.beside)
        if transaction.consumed is not None:
            return
        while (more := joining(transaction.operations, self._left(transaction), complete=True)) is not None:
            yield from transaction.add(more)
        if transaction.operations > _JOINED_OPERATIONS_MAX:
            return
        self._timing.pause(self._config.join_s)
        last = joining(transaction.operations, self._left(transaction), complete=False)
        if last is not None:
            yield from transaction.add(last)

    def _left(self, transaction: _Transaction) -> int:
        return self._portion.bytes - transaction.bytes

    # ---- after an error --------------------------------------------------------------------------------------------

    def _recover(self, transaction: _Transaction, met: OperatingError) -> None:
        """Bring the groups into the WAL once, or raise what became of them: unknown, unless proven to be absent."""
        timing, left = self._timing, len(transaction.parts)
        until = timing.clock() + timing.recovery_s
        try:
            while not self._resend_missing(transaction, met, until):
                if len(transaction.parts) < left:
                    left, until = len(transaction.parts), timing.clock() + timing.recovery_s
                timing.pause(RETRY_PAUSE_S)
        except NotTakenInError:
            raise
        except FencedError:
            self._tell_fate(transaction, until)
        except (OperatingError, CorruptionError) as error:
            raise _unknown(transaction, f"{met}; and then: {error}") from error

    def _resend_missing(self, transaction: _Transaction, met: OperatingError, until: float) -> bool:
        """Read the WAL back and send what is not there, with the numbers it had, as much as may get through; whether
        all is there then.

        A group with consumed offsets is not sent again, as what those met may well last: its frames go out once more
        to prove that they were not there, and are not committed. Then it raises NotTakenInError; besides FencedError,
        CorruptionError, and an OperatingError behind `until`.
        """
        timing, places = self._timing, transaction.places
        there = self._renew(places, until).own
        producer = self._producer
        assert producer is not None
        consumed, beside = transaction.consumed, transaction.beside
        once_only = consumed is not None and there.isdisjoint(places)
        transaction.are_there(there)
        if not transaction.parts:
            self.close()  # nothing proves what was read but something that is sent
            return True
        parts = transaction.first(self._portion.bytes)
        missing, again = _without(parts, there)
        size = sum(part.group.bytes for part in parts)
        try:
            offsets = producer.send(again if once_only else [*again, *beside], timing.request_s)
            self._require_in_place([place.shard for place in missing], offsets[: len(missing)])
            if once_only:
                producer.abort_transaction(timing.request_s)
                clean = False
            else:
                clean = consumed is None or producer.send_offsets(consumed, timing.request_s)
                clean = producer.commit_transaction(timing.request_s) and clean
        except OperatingError as error:
            log.warning("a group is not settled yet: %s", error)
            self._note_failure(size, error)
            return False
        if not clean:
            self.close()
        if once_only:
            raise NotTakenInError(f"{len(places)} frames and the offsets of what was consumed for them: {met}") from met
        for place, offset in zip(missing, offsets, strict=False):
            self._ends[place.shard] = offset + 1
        self._portion.succeeded(size)
        transaction.are_there({place for part in parts for place in part.places})
        return not transaction.parts

    def _note_failure(self, size: int, error: OperatingError) -> None:
        """The next transaction has less, unless it is known that size is not what this one failed for."""
        explained = isinstance(error, FatalProducerError) and (error.fenced or error.refused_topic)
        if not explained:
            self._portion.failed(size)

    def _tell_fate(self, transaction: _Transaction, until: float) -> NoReturn:
        """This node is fenced: read what became of the groups, and tell that if it is known. Raises in any case."""
        timing = self._timing
        touched = {place.shard for place in transaction.places}
        there = _ReadBack(set(), {}, {})
        while timing.clock() < until:
            try:
                self._read_back(touched, there)
            except OperatingError as error:
                log.warning("fenced; the group's fate cannot be read yet: %s", error)
            except CorruptionError as error:
                raise OutcomeUnknownError(f"another node took over, and the WAL cannot be read: {error}") from error
            # numbers go on through all epochs: what has a lower one than the next marker was there before it
            there.own.update(place for place in transaction.places if place.number < there.newer.get(place.shard, 0))
            transaction.are_there(there.own)
            places = transaction.places
            if not places:
                raise FencedError("another node took over; the last group is in the WAL", epoch=self.claim.epoch)
            if there.newer.keys() >= {place.shard for place in places} and there.own.isdisjoint(places):
                raise FencedError("another node took over; the group is not in the WAL", epoch=self.claim.epoch)
            timing.pause(RETRY_PAUSE_S)
        raise OutcomeUnknownError("another node took over, and whether the group was committed could not be read")

    def _renew(self, places: Sequence[FramePlace], until: float, require_open: RequireOpen = always_open) -> _ReadBack:
        """Check, init, check; and what the WAL has of this epoch in the shards of these places, behind what is known.

        What is sent next has to go to where they were read to. Raises FencedError for a newer marker, wherever it is.
        """
        timing, shards = self._timing, {place.shard for place in places}
        while True:
            self.close()
            self._producer, _ = self._fence.check_init_check(self.claim, until, require_open, claimed=True)
            there = _ReadBack(set(), {}, {})
            try:
                self._read_back(shards, there)
            except OperatingError as error:
                if timing.clock() >= until:
                    raise
                log.warning("the WAL cannot be read yet: %s", error)
                timing.pause(RETRY_PAUSE_S)
                continue
            if there.newer:
                raise FencedError("another node took over: its marker is in the WAL", epoch=self.claim.epoch)
            self._read_to = there.ends
            return there

    def _read_back(self, shards: Collection[int], there: _ReadBack) -> None:
        """Add to `there` this epoch's frames in the committed WAL behind what was known: in each shard up to the first
        frame of a newer epoch, or the end as of now.

        Raises StaleReadError for an end that lies before what is known, and what reading raises: what was read until
        then counts.
        """
        config, timing = self._config, self._timing
        reader = WalReader(self._kafka, config.journal, config.uuid, config.shards, timing.clock)
        try:
            for shard, end in reader.high_watermarks(sorted(shards), timing.request_s).items():
                if end < self._ends[shard]:
                    what = f"{self._topic}[{shard}] ends at offset {end}, and {self._ends[shard] - 1} was acknowledged"
                    raise StaleReadError(what)
                self._read_shard_back(reader, shard, end, there)
        finally:
            reader.close()

    def _read_shard_back(self, reader: WalReader, shard: int, end: int, there: _ReadBack) -> None:
        claim, request_s, known = self.claim, self._timing.request_s, self._ends[shard]
        start = max(known, reader.bounds(shard, request_s)[0])
        deleted = self._passed(shard) if start > known else []
        if deleted and deleted[0].epoch == claim.epoch + 1:
            there.newer[shard] = deleted[0].number
            return
        for _, frame in reader.frames(shard, start, end, request_s):
            nonce = nonce_of(frame)
            if frame.epoch > claim.epoch or (nonce and frame.epoch == claim.epoch):
                is_next = nonce != b"" and frame.epoch == claim.epoch + 1
                if start > known and not is_next:
                    break  # what lay before that one's marker is gone, and nothing says what it was
                there.newer[shard] = frame.number if is_next else 0
                return
            if frame.epoch == claim.epoch:
                there.own.add(FramePlace(shard, frame.number))
        if start > known:
            raise GapError(
                "frames are gone, and no trim tells of them", topic=self._topic, partition=shard, offset=known
            )
        there.ends[shard] = end

    def _passed(self, shard: int) -> list[Passed]:
        """The markers of newer epochs that a trim of the shard has deleted."""
        trim = self._fence.rows().trims.get(shard, Trim())
        return [marker for marker in trim.passed if marker.epoch > self.claim.epoch]


def _without(parts: Sequence[_Part], there: Collection[FramePlace]) -> tuple[list[FramePlace], list[Sent]]:
    """Places and records of these groups that are not there."""
    found = [each for part in parts for each in zip(part.places, part.records, strict=True) if each[0] not in there]
    return [place for place, _ in found], [record for _, record in found]


def _unknown(transaction: _Transaction, met: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(f"group of {len(transaction.places)} frames: {met}")


class _ReadBack(NamedTuple):
    """What was read of some shards behind what was known."""

    own: set[FramePlace]
    newer: dict[int, int]
    """By shard with a marker of a newer activation, that frame's number: what follows it is not this one's. 0 if it is
    not of the very next epoch: the marker of that one is lost, and its frames may have had the same numbers."""
    ends: dict[int, int]
    """Where the others were read to."""
