"""The writer makes groups durable: it writes them into the WAL, in order, in Kafka transactions, and finds out the fate
of groups that met errors.

A group is told that it is done only when it is known to be in the committed WAL, that it failed only when it is known
not to be there, and otherwise that its outcome is unknown. Nothing is appended behind a newer epoch's marker: the
broker fences this node's transactional id, and after every error check-init-check (`journal.wal.fencing`) decides by
the epoch counter, not by the error.

A group of consumed records has a transaction of its own, with the consumed offsets in it. It is sent only once: if it
meets an error and is not in the WAL, its offsets are not committed either, and the consumer reads those records again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from typing import NoReturn

from journal.append.group import FrameNumbers, FrameOrigin, Group
from journal.append.writing import Claim, Joining, Recoveries, nothing_joins
from journal.errors import (
    CorruptionError,
    DeadlineError,
    FatalProducerError,
    FencedError,
    JournalError,
    NotTakenInError,
    OperatingError,
    OutcomeUnknownError,
)
from journal.kafka.ports import Kafka, Sent, TransactionalProducer
from journal.process.clocks import Timing
from journal.process.commands import command
from journal.process.waits import LongWait
from journal.topics.names import wal_topic
from journal.wal.config import WriterConfig
from journal.wal.fencing import RETRY_PAUSE_S, Fence, RequireOpen, always_open
from journal.wal.pacing import Pace
from journal.wal.portion import Portion
from journal.wal.read_back import BackReader, ReadBack
from journal.wal.reading import Tail, require_nothing_between, wal_lost
from journal.wal.transaction import FramePlace, WalTransaction, without
from journal.words import counted

log = logging.getLogger(__name__)

_ENDS = "the brokers must answer; recovery_timeout_ms bounds this"

READY_SHARD = 0
"""The shard that READY is written to. Any shard would do, because the proof is that the coordinator commits the
transaction."""

_JOINED_OPERATIONS_MAX = 200
"""A transaction with more operations than this does not wait for one more group. The callers of so many operations keep
Python's interpreter busy, so that the pause would take much longer than intended."""


def last_numbers(tails: Sequence[Tail]) -> FrameNumbers:
    """The numbers that the next group follows."""
    return FrameNumbers(tuple(tail.number for tail in tails), max(tail.group for tail in tails))


class Writer:
    """The active node's producer. One thread uses it.

    It has more than a dozen attributes because a commit and the recovery after it work on the same ones: the producer,
    what is known of the WAL's ends, and the numbers of the last frames.
    """

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
        """`numbers` are those of the last frames; the next frames will be at the WAL offsets `ends` or behind them."""
        self.claim = claim
        self.numbers = numbers
        self.committed_at = timing.now()
        """When the last successful commit began."""
        self._recoveries = 0
        self._config = config
        self._fence = fence
        self._producer: TransactionalProducer | None = producer
        self._ends = list(ends)
        self._read_to: dict[int, int] = {}
        """The offset of each shard to which it was read after the producer's init; the next frame must lie there. Empty
        once a sent frame has proven that."""
        self._timing = timing
        self._topic = wal_topic(config.journal)
        self._origin = FrameOrigin(config.uuid, claim.epoch, claim.node)
        self._pace = Pace(config.pace_s, config.pace_max_s)
        self._portion = Portion(config.transaction_bytes_max)
        self._back_reader = BackReader(kafka, config, claim, fence, timing)

    @property
    def recoveries(self) -> Recoveries:
        """The number of recoveries so far. Any thread may ask."""
        return Recoveries(self._recoveries, self._fence.checks, self._fence.inits)

    def write(self, group: Group, joining: Joining = nothing_joins) -> None:
        """Commit a group, and the groups that join its transaction, and tell their completions the outcome.

        Raises FencedError or OutcomeUnknownError after the completions were told. The completion of a group with
        consumed offsets may be told NotTakenInError, which is not raised here.
        """
        transaction = WalTransaction(self._origin, self._topic, self.numbers)
        transaction.add(group)
        began = self._timing.now()
        try:
            self._commit(transaction, joining)
        except NotTakenInError as error:
            log.warning("a group of consumed records is not in the journal: %s", error)
            transaction.resolve(error)
            return
        # any error is raised again, after it was told to the groups, so that nobody waits for ever
        except Exception as error:
            self.close()
            told = error if isinstance(error, JournalError) else OutcomeUnknownError(f"the writer failed: {error!r}")
            transaction.resolve(told)
            raise
        self.numbers = transaction.numbers
        self.committed_at = began
        transaction.resolve()

    def write_ready(self, group: Group) -> None:
        """Commit READY. Raises the error that it meets. The fate of that READY then does not matter, but `regain` has
        to be called before the next one.

        A READY that may have been sent twice counts as committed; check, init, check follows before the next group.
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
        """Check, init, check after a claim or a READY that was not confirmed. If the READY is in the WAL, later frames
        are numbered behind it.

        A READY in the WAL does not prove that this node is still the newest, so the next READY is a frame of its own.
        Raises FencedError, or an OperatingError after `until`.
        """
        numbers = list(self.numbers.frames)
        numbers[READY_SHARD] += 1
        place = FramePlace(READY_SHARD, numbers[READY_SHARD])
        if place in self._renew([place], until, require_open).own:
            self.numbers = FrameNumbers(tuple(numbers), self.numbers.group + 1)

    def renew_if_disturbed(self, transaction: WalTransaction) -> None:
        """Check, init, check before the next group, after a commit that succeeded but may have been sent twice.

        The second EndTxn could still arrive, and commit half of the next group.
        """
        if self._producer is None:
            self._renew(transaction.places, self._timing.clock() + self._timing.recovery_s)

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    # ---- committing ------------------------------------------------------------------------------------------------

    def _commit(self, transaction: WalTransaction, joining: Joining) -> None:
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
        """Require, before a transaction is committed, that its frames lie in these shards at the expected offsets.

        Raises StaleReadError if a frame does not lie where the reading of its shard ended after the init: something
        unread may lie between (a newer marker, or a frame that was sent twice). Raises CorruptionError if a shard has
        lost frames that were acknowledged to this node. A frame in its place proves that the init has fenced no
        successor, because a successor's claim would have put a marker into every shard.
        """
        for shard, offset in zip(shards, offsets, strict=True):
            if offset < self._ends[shard]:
                name, told = self._config.journal, self._ends[shard] - 1
                lost = f"offset {told} was acknowledged, and the WAL goes on at {offset}"
                raise wal_lost(name, shard, offset, lost, f"{command('verify', journal=name)}` compares what is left")
        if self._read_to:
            require_nothing_between(self._config.journal, self._read_to, zip(shards, offsets, strict=True))
            self._read_to.clear()

    def _note_recovery(self, why: str) -> None:
        self._recoveries += 1
        log.warning("%s; check, init, check (recovery %d of epoch %d)", why, self._recoveries, self.claim.epoch)

    def _keep_pace(self) -> None:
        wait_s = self._pace.next_at - self._timing.clock()
        if wait_s > 0:
            self._timing.pause(wait_s)

    def _send(self, producer: TransactionalProducer, transaction: WalTransaction, joining: Joining) -> list[int]:
        """Produce the frames; returns their offsets. Recovery deals with the errors that this raises."""
        began = self._timing.clock()
        offsets = producer.send(self._joined(transaction, joining), self._timing.request_s)
        self._pace.sent(self._timing.clock() - began - self._config.join_s)
        return offsets

    def _joined(self, transaction: WalTransaction, joining: Joining) -> Iterator[Sent]:
        """Yield the records of a transaction's first group, then of the groups that are complete by now. While these
        are being sent it waits a little, and then adds one group that has gathered meanwhile."""
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

    def _left(self, transaction: WalTransaction) -> int:
        return self._portion.bytes - transaction.bytes

    # ---- after an error --------------------------------------------------------------------------------------------

    def _recover(self, transaction: WalTransaction, met: OperatingError) -> None:
        """Bring the groups into the WAL exactly once, or raise their fate: unknown, unless they are proven to be
        absent."""
        timing, left = self._timing, len(transaction.parts)
        wait = LongWait(timing.clock)
        until = wait.began + timing.recovery_s
        try:
            while not self._resend_missing(transaction, met, until):
                wait.look(f"the fate of a group that met an error ({met})", _ENDS)
                if len(transaction.parts) < left:
                    left, until = len(transaction.parts), timing.clock() + timing.recovery_s
                timing.pause(RETRY_PAUSE_S)
        except NotTakenInError:
            raise
        except FencedError:
            self._tell_fate(transaction, until)
        except (OperatingError, CorruptionError) as error:
            raise _unknown(transaction, f"{met}; then {error}") from error

    def _resend_missing(self, transaction: WalTransaction, met: OperatingError, until: float) -> bool:
        """Read the WAL back, and send the missing frames again with their old numbers, as many as one transaction
        takes. True if all frames are in the WAL then.

        A group with consumed offsets is not sent again, because the error that its offsets met may last. Its frames are
        sent once more without a commit, which proves that they were not there; then this raises NotTakenInError. It
        also raises FencedError, CorruptionError, and an OperatingError after `until`.
        """
        timing, places = self._timing, transaction.places
        there = self._renew(places, until).own
        producer = self._producer
        assert producer is not None
        consumed, beside = transaction.consumed, transaction.beside
        once_only = consumed is not None and there.isdisjoint(places)
        transaction.are_there(there)
        if not transaction.parts:
            self.close()  # only a sent frame proves that the read was complete
            return True
        parts = transaction.first(self._portion.bytes)
        missing, again = without(parts, there)
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
            raise NotTakenInError(
                f"{counted(len(places), 'frame')} and the offsets of what was consumed for them: {met}"
            ) from met
        for place, offset in zip(missing, offsets, strict=False):
            self._ends[place.shard] = offset + 1
        self._portion.succeeded(size)
        transaction.are_there({place for part in parts for place in part.places})
        return not transaction.parts

    def _note_failure(self, size: int, error: OperatingError) -> None:
        """Make the next transaction smaller, unless another reason for the failure is known."""
        explained = isinstance(error, FatalProducerError) and (error.fenced or error.refused_topic)
        if not explained:
            self._portion.failed(size)

    def _tell_fate(self, transaction: WalTransaction, until: float) -> NoReturn:
        """Read the fate of the groups of a fenced node, and raise FencedError with it, or OutcomeUnknownError if it
        cannot be read."""
        timing = self._timing
        touched = {place.shard for place in transaction.places}
        there = ReadBack(set(), {}, {})
        while timing.clock() < until:
            try:
                self._read_back(touched, there)
            except OperatingError as error:
                log.warning("fenced; the group's fate cannot be read yet: %s", error)
            except CorruptionError as error:
                raise OutcomeUnknownError(f"another node took over, and the WAL cannot be read: {error}") from error
            # frame numbers continue through all epochs, so a frame with a lower number than the next marker was in the
            # WAL before the marker
            there.own.update(place for place in transaction.places if place.number < there.newer.get(place.shard, 0))
            transaction.are_there(there.own)
            places = transaction.places
            if not places:
                raise FencedError("another node took over; the last group is in the WAL", epoch=self.claim.epoch)
            if there.newer.keys() >= {place.shard for place in places} and there.own.isdisjoint(places):
                raise FencedError("another node took over; the group is not in the WAL", epoch=self.claim.epoch)
            timing.pause(RETRY_PAUSE_S)
        raise OutcomeUnknownError("another node took over, and whether the group was committed could not be read")

    def _renew(self, places: Sequence[FramePlace], until: float, require_open: RequireOpen = always_open) -> ReadBack:
        """Check, init, check, and read back the frames of this epoch in the shards of these places.

        The next frames have to lie where this reading ended. Raises FencedError for a newer marker in any shard.
        """
        timing, shards = self._timing, {place.shard for place in places}
        while True:
            self.close()
            self._producer, _ = self._fence.check_init_check(self.claim, until, require_open, claimed=True)
            there = ReadBack(set(), {}, {})
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

    def _read_back(self, shards: Collection[int], there: ReadBack) -> None:
        """Add to `there` the frames of this epoch behind the offsets that this node knows."""
        self._back_reader.read(shards, self._ends, there)


def _unknown(transaction: WalTransaction, met: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(f"group of {counted(len(transaction.places), 'frame')}: {met}")
