"""Mutations of the active node: acceptance, writer, fencing, activation."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import journal.activate.claiming
import journal.activate.gate
import journal.wal.fencing
import journal.wal.read_back
import journal.wal.writer
from journal.activate.activation import Activation
from journal.activate.claiming import Claiming
from journal.activate.gate import Gate
from journal.append.completion import Completion
from journal.append.core import Core
from journal.append.group import FrameOrigin
from journal.append.transaction_acceptance import OpenTransaction, TransactionAcceptance
from journal.errors import DeadlineError, FatalProducerError, FencedError, OperatingError, OutcomeUnknownError
from journal.kafka.ports import Kafka, Reader
from journal.process.clocks import Moment
from journal.topics.control_reading import read_control
from journal.v1.journal_pb2 import COMMIT
from journal.wal.fencing import Fence, Standing
from journal.wal.read_back import ReadBack
from journal.wal.reading import Tail, WalReader
from journal.wal.transaction import WalTransaction
from journal.wal.writer import Writer
from journal.wire.ids import home_shard_of
from tests.simulation.mutations import Patch, applied, mutation

# ---- the writer --------------------------------------------------------------------------------------------------


@mutation
def no_read_back() -> list[Patch]:
    """After check, init, check the whole group is sent again without looking for it in the WAL."""

    def resend(self: Any, transaction: Any, met: Any, until: float) -> bool:
        request_s = self._timing.request_s
        producer, _ = self._fence.check_init_check(self.claim, until, claimed=True)
        try:
            producer.send([record for part in transaction.parts for record in part.records], request_s)
            producer.commit_transaction(request_s)
        except OperatingError:
            return False
        self._producer = producer
        return True

    return [(Writer, "_resend_missing", resend)]


@mutation
def taken_in_is_sent_again() -> list[Patch]:
    """Frames of consumed records that are not in the WAL are sent again, without the offsets."""
    resend = Writer._resend_missing

    def resending(self: Any, transaction: Any, met: Any, until: float) -> bool:
        transaction.parts[0].group.consumed = None
        return resend(self, transaction, met, until)

    return [(Writer, "_resend_missing", resending)]


@mutation
def a_portion_counts_for_all() -> list[Patch]:
    """What is sent again in several transactions is told done with the first of them."""
    are_there = WalTransaction.are_there

    def all_there(self: Any, there: Any) -> None:
        are_there(self, self.places if not there.isdisjoint(self.places) else there)

    return [(WalTransaction, "are_there", all_there)]


@mutation
def portions_out_of_order() -> list[Patch]:
    """What is sent again in several transactions begins with the last group."""
    return [(WalTransaction, "first", lambda self, bytes_max: self.parts[-1:])]


@mutation
def offsets_are_lost() -> list[Patch]:
    """What was consumed is not in the transaction of its frames."""

    def send(self: Any, group: Any) -> Any:
        group.consumed = None
        return add(self, group)

    add = WalTransaction.add
    return [(WalTransaction, "add", send)]


@mutation
def read_back_before_init() -> list[Patch]:
    """The WAL is read back before the init has settled what was under way."""
    recover, read_back = Writer._recover, Writer._read_back

    def recovering(self: Any, transaction: Any, met: Any) -> None:
        self.read_before = ReadBack(set(), {}, {})
        try:
            with applied("read_back_ends_at_the_last_stable_offset"):  # else it waits for what the init would settle
                read_back(self, {place.shard for place in transaction.places}, self.read_before)
        except OperatingError:
            self.read_before = None
        recover(self, transaction, met)

    def reading(self: Any, shards: Any, there: Any) -> None:
        found, self.read_before = getattr(self, "read_before", None), None
        if found is None:
            read_back(self, shards, there)
            return
        there.own.update(found.own)
        there.newer.update(found.newer)

    return [(Writer, "_recover", recovering), (Writer, "_read_back", reading)]


def _committing(judge: Any, *, trust: bool = False) -> list[Patch]:
    """A writer that asks `judge` what an error says about the group, before any check."""

    def commit(self: Any, transaction: Any, joining: Any) -> None:
        self.renew_if_disturbed(transaction)
        producer, timing = self._producer, self._timing
        self._keep_pace()
        try:
            offsets = self._send(producer, transaction, joining)
            clean = transaction.consumed is None or producer.send_offsets(transaction.consumed, timing.request_s)
            clean = producer.commit_transaction(timing.request_s) and clean
        except OperatingError as error:
            self.close()
            fate = judge(error)
            if fate is not None:
                raise fate from error
            self._recover(transaction, error)
            return
        self._answered_at = timing.clock()
        for (shard, _), offset in zip(transaction.places, offsets, strict=True):
            self._ends[shard] = offset + 1
        if not clean and not trust:
            self.close()

    return [(Writer, "_commit", commit)]


@mutation
def fenced_is_failed() -> list[Patch]:
    """A group whose EndTxn was answered "fenced" is called failed."""

    def judge(error: OperatingError) -> Exception | None:
        fenced = isinstance(error, FatalProducerError) and error.fenced
        return FencedError("fenced, says the broker") if fenced else None

    return _committing(judge)


@mutation
def unknown_is_failed() -> list[Patch]:
    """A group whose EndTxn was not answered is called failed."""

    def judge(error: OperatingError) -> Exception | None:
        fenced = isinstance(error, FatalProducerError) and error.fenced
        return None if fenced else DeadlineError("no answer")

    return _committing(judge)


@mutation
def deadline_is_failed() -> list[Patch]:
    """A group whose fate could not be learned in time is called failed."""
    recover = Writer._recover

    def recovering(self: Any, transaction: Any, met: Any) -> None:
        try:
            recover(self, transaction, met)
        except OutcomeUnknownError as error:
            raise DeadlineError("no time left") from error

    return [(Writer, "_recover", recovering)]


@mutation
def repeated_commit_is_trusted() -> list[Patch]:
    """After a commit that may have been sent twice the same producer goes on."""
    return _committing(lambda error: None, trust=True)


@mutation
def a_transaction_for_each_shard() -> list[Patch]:
    """A group is written in one Kafka transaction a shard."""

    def sending(self: Any, producer: Any, transaction: Any, joining: Any) -> list[int]:
        records = [record for part in transaction.parts for record in part.records]
        shards = sorted({record.partition for record in records})
        offsets: list[int] = []
        for shard in shards:
            mine = [record for record in records if record.partition == shard]
            offsets += producer.send(mine, self._timing.request_s)
            if shard != shards[-1]:
                producer.commit_transaction(self._timing.request_s)
        return offsets

    return [(Writer, "_send", sending)]


@mutation
def group_in_flight_is_told_failed() -> list[Patch]:
    """A node that steps down calls the group that is being written failed too."""
    take = Core._take_pending

    def taking(self: Any) -> tuple[list[Completion], dict[int, Completion]]:
        pending, in_doubt = take(self)
        return pending + ([self._in_flight] if self._in_flight is not None else []), in_doubt

    return [(Core, "_take_pending", taking)]


# ---- fencing -----------------------------------------------------------------------------------------------------


def _newer_markers_are_ignored() -> Patch:
    """What the WAL shows decides nothing about who may write: the counter alone does."""
    read_back = Writer._read_back

    def reading_back(self: Any, shards: Any, there: Any) -> None:
        read_back(self, shards, there)
        there.newer.clear()

    return Writer, "_read_back", reading_back


@mutation
def newer_markers_are_ignored() -> list[Patch]:
    """What a deposed leader of the counter says is believed, against a newer marker that was read back."""
    return [_newer_markers_are_ignored()]


@mutation
def no_check_after_init() -> list[Patch]:
    """Whoever has checked before its init takes the journal for its own after it, whatever the WAL shows."""

    def checking(self: Any, claim: Any, until: float, *arguments: Any, claimed: bool) -> Any:
        if journal.wal.fencing.standing_of(claim, self.counter()) is Standing.NEWER:
            raise FencedError("another node took over")
        return self.initialise(until), Standing.OWN

    return [(Fence, "check_init_check", checking), _newer_markers_are_ignored()]


@mutation
def nonce_is_ignored() -> list[Patch]:
    """A counter, a mark or a marker with the own epoch is taken for the own, whoever wrote it."""

    def standing(claim: Any, counter: Any) -> Standing:
        if counter.epoch == claim.epoch:
            return Standing.OWN
        return Standing.OLDER if counter.epoch < claim.epoch else Standing.NEWER

    class WithoutNonces(WalReader):
        def frames(self, *where: Any) -> Iterator[Any]:
            for offset, frame in super().frames(*where):
                yield offset, SimpleNamespace(epoch=frame.epoch, number=frame.number, nonce=b"")

    return [
        (journal.wal.fencing, "standing_of", standing),
        (journal.activate.gate, "standing_of", standing),
        (journal.wal.read_back, "WalReader", WithoutNonces),
    ]


@mutation
def control_is_read_to_the_last_stable_offset() -> list[Patch]:
    """The epoch counter is read only so far as an open transaction allows, and what else says more is ignored."""

    class Proxy:
        def __init__(self, kafka: Kafka) -> None:
            self._kafka = kafka

        def reader(self, topic: str, *, committed: bool = True, wait_ms: int = 0) -> Reader:
            return self._kafka.reader(topic)

    def reading(kafka: Any, *arguments: Any) -> Any:
        return read_control(Proxy(kafka), *arguments)  # type: ignore[arg-type]

    return [
        (journal.wal.fencing, "read_control", reading),
        (Claiming, "_newest", lambda self, rows, tails, marks: rows.epoch),
        _newer_markers_are_ignored(),
    ]


# ---- activation --------------------------------------------------------------------------------------------------


@mutation
def counter_is_claimed_blindly() -> list[Patch]:
    """The epoch behind the counter's is taken, whatever the WAL and the tables say."""
    return [(Claiming, "_newest", lambda self, rows, tails, marks: rows.epoch)]


@mutation
def tails_before_init() -> list[Patch]:
    """The counter and each shard's last frame are read before the init that fences their writer, wherever the markers
    then lie."""
    run, read = Activation.run, Claiming._read

    class Nobody:
        def close(self) -> None: ...

    def running(self: Any, loader: Any) -> Any:
        claiming = self._claiming
        claiming.read_before = read(claiming, Nobody())  # type: ignore[arg-type]
        return run(self, loader)

    def reading(self: Any, producer: Any) -> Any:
        found, self.read_before = self.read_before, None
        return found or read(self, producer)

    return [
        (Activation, "run", running),
        (Claiming, "_read", reading),
        (journal.activate.claiming, "require_nothing_between", lambda *_: None),
    ]


@mutation
def gate_at_least() -> list[Patch]:
    """A shard passes the gate at an epoch beyond the own one too."""

    def offer(self: Any, marks: Any) -> bool:
        self._passed = frozenset(shard for shard, mark in marks.items() if mark.epoch >= self._claim.epoch)
        return bool(len(self._passed) == self._shards)

    return [(Gate, "offer", offer)]


@mutation
def gate_skips_a_shard() -> list[Patch]:
    """The gate opens while the last shard is still waiting."""
    offer = Gate.offer

    def offering(self: Any, marks: Any) -> bool:
        return bool(offer(self, marks) or (self._shards > 1 and len(self._passed) == self._shards - 1))

    return [(Gate, "offer", offering)]


@mutation
def no_ready() -> list[Patch]:
    """A node is active as soon as it has loaded."""
    return [(Activation, "_write_ready", lambda self, writer: None)]


@mutation
def late_ready_is_accepted() -> list[Patch]:
    """READY counts however late its answer comes."""

    def write_ready(self: Any, group: Any) -> None:
        self.numbers = group.seal(FrameOrigin(self._config.uuid, self.claim.epoch, self.claim.node), self.numbers)
        began = self._timing.now()
        self._producer.send(group.records(self._topic), self._timing.request_s)
        self._producer.commit_transaction(self._timing.request_s)
        self.committed_at = began
        group.completion.resolve()

    return [(Writer, "write_ready", write_ready)]


@mutation
def ready_is_numbered_without_looking() -> list[Patch]:
    """Another READY follows the one of unknown outcome by number, whether that is in the WAL or not."""
    regain = Writer.regain

    def regaining(self: Any, until: float, require_open: Any) -> None:
        numbers = self.numbers
        regain(self, until, require_open)
        self.numbers = numbers

    return [(Writer, "regain", regaining)]


@mutation
def doubtful_ready_is_trusted() -> list[Patch]:
    """The first group follows a READY that may have been sent twice, with the same producer."""

    def write_ready(self: Any, group: Any) -> None:
        self.numbers = group.seal(FrameOrigin(self._config.uuid, self.claim.epoch, self.claim.node), self.numbers)
        began = self._timing.now()
        self._producer.send(group.records(self._topic), self._timing.fence_check_s)
        self._producer.commit_transaction(self._timing.fence_check_s)
        if self._timing.age_s(began) > self._timing.fence_check_s:
            raise DeadlineError("too late")
        self.committed_at = began
        group.completion.resolve()

    return [(Writer, "write_ready", write_ready)]


@mutation
def issued_is_forgotten() -> list[Patch]:
    """A new epoch issues ids from the first again."""
    run = Activation.run

    def running(self: Any, loader: Any) -> Any:
        return dataclasses.replace(run(self, loader), issued=0)

    return [(Activation, "run", running)]


# ---- acceptance --------------------------------------------------------------------------------------------------


@mutation
def locks_are_not_rebuilt() -> list[Patch]:
    """A load leaves the locks of prepared transactions open."""

    def load_prepared(self: Any, tx: int, operations: Any, covers: Any) -> None:
        opened = OpenTransaction(tx, staged=True, prepared=True, covers=dict(covers))
        for op in operations:
            self._take(op, opened)
        self._locks.release(tx)
        self._open[tx] = opened

    return [(TransactionAcceptance, "load_prepared", load_prepared)]


@mutation
def commit_in_the_home_shard_only() -> list[Patch]:
    """A commit settles a staged transaction in its home shard, and nowhere else."""
    commit = TransactionAcceptance.commit

    def committing(self: Any, tx: int, *settled: Any) -> Any:
        home = home_shard_of(tx, self._shards)
        return [op for op in commit(self, tx, *settled) if op.type != COMMIT or op.shard == home]

    return [(TransactionAcceptance, "commit", committing)]


@mutation
def no_frames_are_no_wal() -> list[Patch]:
    """A shard of which the last records are no frames counts as empty."""
    return [(WalReader, "tail_until", lambda self, shard, end, timeout_s: Tail(0, 0, 0, end))]


# ---- clocks ------------------------------------------------------------------------------------------------------


@mutation
def sleep_is_no_time() -> list[Patch]:
    """How long a machine was suspended is no part of an age."""
    return [(Moment, "age_at", lambda self, now: now.monotonic_s - self.monotonic_s)]
