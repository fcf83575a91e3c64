"""Activation: how a node becomes the one that may write. Fence, claim, gate, load, READY, in this order.

    fence   initialise the journal's transactional id: the predecessor is fenced at the broker, its open group settled
    claim   after that (and after every later init) read the epoch counter and each shard's last frame, and write the
            counter's next epoch and a marker to every shard in one transaction
    gate    wait until every shard's mark stands at exactly this epoch
    load    tell the loader the state of one snapshot taken then, or what a warm one lacks
    READY   commit one more group with the same producer; only one that is confirmed, in time, proves anything. After
            any other: check, init, check, and another one; whoever is fenced then has told nobody and discards all

Beside load and READY it is asked whether the table is still the topic that the copy is one of. Asked any sooner it
would say nothing of what the gate read.

It lives beside the writer rather than among the loaders: steps, order and producer are the writer's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

from journal.acceptance import Acceptance
from journal.accepted_load import load_stored
from journal.beside import InBackground, at_once
from journal.errors import (
    CorruptionError,
    DeadlineError,
    FencedError,
    GateTimeoutError,
    OperatingError,
    OutcomeUnknownError,
    StateError,
)
from journal.fencing import Claim, Fence, RequireOpen, Standing, Timing, always_open
from journal.following import Following
from journal.gate import AtGate, Gate, wait_on
from journal.group import FrameNumbers, Group, Origin
from journal.kafka.control import EPOCH_KEY, control_row, wal_topic
from journal.kafka.ports import Kafka, Sent, TransactionalProducer
from journal.limits import Limits
from journal.loading import LoadCounts, Loader
from journal.local.ports import LocalStore
from journal.moments import Moment
from journal.replica import Replica
from journal.v1.journal_pb2 import MARKER, Epoch
from journal.wal import Tail, WalReader, read_tails
from journal.writer import Joining, Writer, WriterConfig, last_numbers

log = logging.getLogger(__name__)

_READY_SHARD = 0

FENCE_STEP = "fence"
"""The first step's name: told before anything is done, so that whoever is told may still prevent it."""

Progress = Callable[[str, int, int], None]
"""Called with a step's name, what is done of it, and how much there is (0: not known)."""


@dataclass(slots=True)
class ActivationReport:
    """What an activation did, times in seconds."""

    epoch: int = 0
    fence_s: float = 0.0
    claim_s: float = 0.0
    gate_s: float = 0.0
    load_s: float = 0.0
    ready_s: float = 0.0
    warm: bool = False
    """Whether the state had been followed, so that only what it lacked was loaded."""
    counts: LoadCounts | None = None
    in_doubt: list[int] = field(default_factory=list)


class GroupWriter(Protocol):
    """What appends need of an activation's writer."""

    claim: Claim
    numbers: FrameNumbers
    committed_at: Moment
    """When the last successful commit began."""

    def write(self, group: Group, joining: Joining) -> None:
        """Commit a group, and one that joins it; tell their completions. Raises after telling them."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Activated:
    """What an activation gives: all that appending needs."""

    writer: GroupWriter
    acceptance: Acceptance
    issued: int
    report: ActivationReport


class Activation:
    """One attempt of one node. Blocking; used by one thread, which owns `replica` and `store` meanwhile."""

    def __init__(
        self,
        kafka: Kafka,
        config: WriterConfig,
        limits: Limits,
        claim_as: Callable[[int], Claim],
        replica: Replica,
        store: LocalStore,
        timing: Timing,
        *,
        require_same_table: Callable[[], None],
        gate_s: float,
        wall_ms: Callable[[], float],
        progress: Progress,
        beside: InBackground = at_once,
        require_open: RequireOpen = always_open,
        at_gate: AtGate = wait_on,
    ) -> None:
        """`claim_as` makes the claim for an epoch, with a nonce of its own. `require_same_table` raises an
        OperatingError unless `replica` is known to be a copy of the table that is there now. `beside` runs what need
        not be waited for before the next thing is asked. What `require_open` raises ends the activation, and so
        does what `at_gate` raises, which is told of the shards that the gate waits for."""
        self._kafka = kafka
        self._config = config
        self._limits = limits
        self._claim_as = claim_as
        self._replica = replica
        self._store = store
        self._timing = timing
        self._require_same_table = require_same_table
        self._gate_s = gate_s
        self._wall_ms = wall_ms
        self._told = progress
        self._beside = beside
        self._require_open = require_open
        self._at_gate = at_gate
        self._fence = Fence(kafka, config.journal, timing)
        self.report = ActivationReport()

    def run(self, state: Loader | Following) -> Activated:
        """All steps. Raises FencedError if another node activates, and whatever a loader raises.

        `state` is a loader to be filled, or one that follows `replica`.
        """
        clock, report = self._timing.clock, self.report
        self._progress(FENCE_STEP, 0, 0)
        times = [clock()]
        producer = self._fence.initialise(clock() + self._timing.recovery_s, self._require_open)
        times.append(clock())
        writer = self._claim(producer)
        report.epoch = writer.claim.epoch
        times.append(clock())
        try:
            self._pass_gate(writer.claim.epoch, state if isinstance(state, Following) else None)
            times.append(clock())
            asked = self._beside(self._require_same_table)
            try:
                acceptance = self._load(state)
                times.append(clock())
                self._write_ready(writer)
            except CorruptionError:
                self._require_told(asked)  # rows of two tables need not fit together
                raise
            except BaseException:
                wait([asked], self._timing.request_s)  # it does not run on into the next try
                raise
            self._require_told(asked)
        except BaseException:
            writer.close()
            raise
        times.append(clock())
        parts = [later - earlier for earlier, later in pairwise(times)]
        report.fence_s, report.claim_s, report.gate_s, report.load_s, report.ready_s = parts
        issued = max(mark.issued for mark in self._replica.marks().values())
        return Activated(writer, acceptance, issued, report)

    def _progress(self, step: str, done: int, total: int) -> None:
        """Whoever closes the journal meanwhile waits for this: no step is begun, and none goes on."""
        self._require_open()
        self._told(step, done, total)

    # ---- claim -----------------------------------------------------------------------------------------------------

    def _claim(self, producer: TransactionalProducer) -> Writer:
        """Counter and markers in one transaction; of unknown outcome: check, init, check."""
        until = self._timing.clock() + self._timing.recovery_s
        while True:
            claim, tails = self._read_claim(producer)
            last, records = self._markers(claim, tails)
            standing = Standing.OWN
            try:
                producer.send(records, self._timing.request_s)
                clean = producer.commit_transaction(self._timing.request_s)
            except OperatingError as error:
                producer, standing = self._resolve(producer, claim, until, str(error))
            else:
                if not clean:
                    producer, standing = self._resolve(producer, claim, until, "the commit may have been sent twice")
            if standing is Standing.OWN:
                ends = [tail.end for tail in tails]
                return Writer(self._kafka, self._config, claim, self._fence, producer, last, ends, self._timing)

    def _read_claim(self, producer: TransactionalProducer) -> tuple[Claim, list[Tail]]:
        """The next epoch and each shard's last frame, both asked for after the init of `producer`, and together."""
        config, clock, request_s = self._config, self._timing.clock, self._timing.request_s
        tails_now = partial(read_tails, self._kafka, config.journal, config.uuid, config.shards, clock, request_s)
        try:
            reading = self._beside(self._fence.rows)
            tailing = self._beside(tails_now)
            try:
                rows = reading.result()
                # a standby's connections and its look at the topics may be older than the topics; in those made anew
                # every frame is a stranger's, and the search for this journal's last one goes back to the start
                if rows.identity is not None and rows.identity.journal != config.uuid:
                    raise StateError(f"journal {config.journal} was made anew: close this one, and start another")
                claim, tails = self._claim_as(rows.epoch.epoch + 1), tailing.result()
            except BaseException:
                both: list[Future[Any]] = [reading, tailing]
                wait(both, self._timing.request_s)  # neither runs on into the next try
                raise
            self._require_open()
        except BaseException:
            producer.close()
            raise
        return claim, tails

    def _markers(self, claim: Claim, tails: list[Tail]) -> tuple[FrameNumbers, list[Sent]]:
        config = self._config
        group = Group(config.shards, self._limits.frame_bytes_max)
        for shard in range(config.shards):
            group.put(shard, MARKER, 0, 0, claim.nonce)
        last = group.seal(Origin(config.uuid, claim.epoch, claim.node), last_numbers(tails))
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
        """Whose the counter is now, with a new producer. Raises FencedError if it is another activation's."""
        log.warning("epoch %d: markers of unknown outcome; check, init, check: %s", claim.epoch, reason)
        producer.close()
        renewed, standing = self._fence.check_init_check(claim, until, self._require_open)
        if renewed is None:
            raise FencedError("another node activated at the same time", epoch=claim.epoch)
        return renewed, standing

    # ---- gate ------------------------------------------------------------------------------------------------------

    def _pass_gate(self, epoch: int, following: Following | None) -> None:
        clock = self._timing.clock
        gate = Gate(epoch, self._config.shards)
        until = clock() + self._gate_s
        while not (self._replica.readable and gate.offer(self._replica.marks())):
            left = until - clock()
            if left <= 0:
                raise self._gate_timeout(gate, epoch)
            passed = self._config.shards - len(gate.waiting())
            self._progress("gate", passed, self._config.shards)
            if self._replica.readable:
                marks = self._replica.marks()
                self._at_gate({shard: marks[shard] for shard in gate.waiting()})
            self._replica.poll(min(left, 0.5))
            if following is not None:
                following.keep_up()
        self._progress("gate", self._config.shards, self._config.shards)

    def _gate_timeout(self, gate: Gate, epoch: int) -> GateTimeoutError:
        config, timing = self._config, self._timing
        waiting = gate.waiting()
        shard = waiting[0] if waiting else 0
        reader = WalReader(self._kafka, config.journal, config.uuid, config.shards, timing.clock)
        try:
            _, end = reader.bounds(shard, timing.request_s)
        finally:
            reader.close()
        if not self._replica.readable:
            return GateTimeoutError(
                f"the local copy of {config.journal}'s tables was not built in {self._gate_s:g} s, "
                f"{max(map(self._replica.lag, range(config.shards)))} offsets are left: raise gate_timeout_ms"
            )
        mark = self._replica.marks()[shard]
        return GateTimeoutError(
            f"{len(waiting)} of {config.shards} shards did not reach epoch {epoch} in {self._gate_s:g} s; "
            f"shard {shard} stands at epoch {mark.epoch}, WAL offset {mark.offset} of {end}: is a worker running? "
            f"(kafka-journal worker -j {config.journal}; kafka-journal status -j {config.journal} says what it met)"
        )

    # ---- load ------------------------------------------------------------------------------------------------------

    def _load(self, state: Loader | Following) -> Acceptance:
        """Tell the loader, and acceptance, the state of the marks."""
        report, marks, told = self.report, self._replica.marks(), partial(self._progress, "load")
        if isinstance(state, Following):
            report.warm = state.is_at(marks)
            acceptance, report.counts = state.finish(marks, told)
        else:
            acceptance, report.counts = load_stored(self._store, marks, state, self._limits, told)
        report.in_doubt = acceptance.prepared()
        return acceptance

    def _require_told(self, asked: Future[None]) -> None:
        """Raises what `require_same_table` did, or DeadlineError without an answer in time."""
        timeout_s = self._timing.request_s
        if not wait([asked], timeout_s).done:
            raise DeadlineError(f"whether the table is still the one of the local copy was not told in {timeout_s:g} s")
        asked.result()

    # ---- READY -----------------------------------------------------------------------------------------------------

    def _write_ready(self, writer: Writer) -> None:
        """In one shard, whichever: what it proves is proved by the coordinator, when it ends the transaction.

        The predecessor may have fenced it unknowingly: refused, it found the epoch its own still and initialised.
        """
        until = self._timing.clock() + self._timing.recovery_s
        self._require_open()
        going_on = partial(self._progress, "ready", 0, 0)
        while True:
            group = Group(self._config.shards, self._limits.frame_bytes_max)
            group.put_heartbeat(_READY_SHARD)
            try:
                writer.write_ready(group)
                return
            except OperatingError as error:
                met = error
            what = f"READY of epoch {writer.claim.epoch} was not confirmed"
            log.warning("%s; check, init, check: %s", what, met)
            try:
                writer.regain(until, going_on)
            except OperatingError as error:
                raise OutcomeUnknownError(f"{what}: {met}; and then: {error}") from error
