"""Activation: how a node becomes the one that may write. Fence, claim, gate, load, READY, in this order.

    fence   initialise the journal's transactional id: the predecessor is fenced at the broker, its open group settled
    claim   after that (and after every later init) read the epoch counter, each shard's last frame and its newest mark,
            and write an epoch above all of them and a marker to every shard in one transaction, which is committed only
            if the markers lie where the shards were read to: then those reads have missed nothing
    gate    wait until every shard's mark stands at exactly this epoch and nonce
    load    tell the loader the state of one snapshot taken then, or what a warm one lacks
    READY   commit one more group with the same producer. Only a READY that is confirmed in time proves anything; after
            any other come check, init, check, and another READY. A node that is fenced then has told nobody that it is
            active, and discards all

During load and READY a request asks Kafka whether the table is still the topic that the local copy was made from. An
earlier answer would prove nothing about the marks that the gate read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from journal.activate.claiming import Claiming
from journal.activate.gate import AtGate, Gate, wait_on
from journal.activate.warm_state import Following
from journal.append.acceptance import Acceptance
from journal.append.group import Group
from journal.append.writing import Activated, Claim
from journal.disk.ports import LocalStore
from journal.errors import (
    CorruptionError,
    DeadlineError,
    FencedError,
    GateTimeoutError,
    OperatingError,
    OutcomeUnknownError,
)
from journal.kafka.ports import Kafka
from journal.limits import Limits
from journal.load.accepted_load import load_stored
from journal.load.loading import LoadCounts, Loader
from journal.process.background import InBackground, at_once
from journal.process.clocks import Timing
from journal.process.commands import command
from journal.process.progress import Progress
from journal.table.replica import Replica
from journal.topics.control_reading import control_lost
from journal.wal.config import WriterConfig
from journal.wal.fencing import Fence, RequireOpen, Standing, always_open, standing_of
from journal.wal.reading import WalReader
from journal.wal.writer import READY_SHARD, Writer

log = logging.getLogger(__name__)

FENCE_STEP = "fence"
"""The first step's name. Its progress is told before the step does anything, so that the listener may still prevent
it."""

GATE_STEP = "gate"
"""The name of the step at the gate."""


@dataclass(slots=True)
class ActivationReport:
    """The result of an activation. Times are seconds."""

    epoch: int = 0
    fence_s: float = 0.0
    claim_s: float = 0.0
    gate_s: float = 0.0
    load_s: float = 0.0
    ready_s: float = 0.0
    warm: bool = False
    """Whether a warm state existed, so that only the changes that it lacked were loaded."""
    counts: LoadCounts | None = None
    in_doubt: list[int] = field(default_factory=list)


class Activation:
    """One attempt of one node to activate. It blocks. One thread uses it, and owns `replica` and `store` meanwhile.

    It has more than a dozen attributes because it keeps all arguments that its five steps need.
    """

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
        OperatingError unless `replica` is known to be a copy of the table that is there now. `beside` runs requests
        that need not wait for each other. `at_gate` is told of the shards that the gate waits for. An error that
        `at_gate` or `require_open` raises ends the activation."""
        self._kafka = kafka
        self._config = config
        self._limits = limits
        self._replica = replica
        self._store = store
        self._timing = timing
        self._require_same_table = require_same_table
        self._gate_s = gate_s
        self._told = progress
        self._beside = beside
        self._require_open = require_open
        self._at_gate = at_gate
        self._fence = Fence(kafka, config.journal, timing)
        self._claiming = Claiming(
            kafka,
            config,
            limits,
            claim_as,
            self._fence,
            timing,
            wall_ms=wall_ms,
            beside=beside,
            require_open=require_open,
        )
        self.report = ActivationReport()

    def run(self, state: Loader | Following) -> Activated:
        """Take all steps. Raises FencedError if another node activates, and whatever a loader raises.

        `state` is a loader to be filled, or the warm state that follows `replica`.
        """
        clock, report = self._timing.clock, self.report
        self._progress(FENCE_STEP, 0, 0)
        times = [clock()]
        producer = self._fence.initialise(clock() + self._timing.recovery_s, self._require_open)
        times.append(clock())
        writer = self._claiming.claim(producer)
        report.epoch = writer.claim.epoch
        times.append(clock())
        try:
            self._pass_gate(writer.claim, state if isinstance(state, Following) else None)
            times.append(clock())
            asked = self._beside(self._require_same_table)
            try:
                acceptance = self._load(state)
                times.append(clock())
                self._write_ready(writer)
            except CorruptionError:
                # the rows of a topic that was deleted and created again need not fit the older rows, so the error may
                # come from that
                self._require_told(asked)
                raise
            except BaseException:
                wait([asked], self._timing.request_s)  # the request must have ended before the next try begins
                raise
            self._require_told(asked)
        except BaseException:
            writer.close()
            raise
        times.append(clock())
        parts = [later - earlier for earlier, later in pairwise(times)]
        report.fence_s, report.claim_s, report.gate_s, report.load_s, report.ready_s = parts
        issued = max(mark.issued for mark in self._replica.marks().values())
        return Activated(writer, acceptance, issued)

    def _progress(self, step: str, done: int, total: int) -> None:
        """Tell the progress of a step. Raises the error that ends the activation, for example because the journal is
        being closed."""
        self._require_open()
        self._told(step, done, total)

    # ---- gate ------------------------------------------------------------------------------------------------------

    def _pass_gate(self, claim: Claim, following: Following | None) -> None:
        clock = self._timing.clock
        gate = Gate(claim, self._config.shards)
        until = clock() + self._gate_s
        while not self._is_open(gate, claim):
            left = until - clock()
            if left <= 0:
                raise self._gate_timeout(gate, claim.epoch)
            passed = self._config.shards - len(gate.waiting())
            self._progress(GATE_STEP, passed, self._config.shards)
            if self._replica.readable:
                marks = self._replica.marks()
                self._at_gate({shard: marks[shard] for shard in gate.waiting()})
            self._replica.poll(min(left, 0.5))
            if following is not None:
                following.keep_up()
        self._progress(GATE_STEP, self._config.shards, self._config.shards)

    def _is_open(self, gate: Gate, claim: Claim) -> bool:
        """Whether all shards have passed. Raises FencedError if another activation has overtaken this one, and
        ControlLostError if the control rows do not have that activation's counter: it is lost, and every later
        activation would meet the same marks."""
        if not self._replica.readable:
            return False
        try:
            return gate.offer(self._replica.marks())
        except FencedError as error:
            counter = self._fence.proven_rows().epoch
            if standing_of(claim, counter) is not Standing.NEWER:
                what = f"{error}, and the epoch counter at {counter.epoch}"
                raise control_lost(self._config.journal, what) from error
            raise

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
            f"({command('worker', journal=config.journal)}; "
            f"{command('status', journal=config.journal)} says what it met)"
        )

    # ---- load ------------------------------------------------------------------------------------------------------

    def _load(self, state: Loader | Following) -> Acceptance:
        """Tell the loader the state of the marks; returns the acceptance, which decides about appends."""
        report, marks, told = self.report, self._replica.marks(), partial(self._progress, "load")
        with self._replica.counting():
            if isinstance(state, Following):
                report.warm = state.is_at(marks)
                acceptance, report.counts = state.finish(marks, told)
            else:
                acceptance, report.counts = load_stored(self._store, marks, state, self._limits, told)
        report.in_doubt = acceptance.transactions.prepared()
        return acceptance

    def _require_told(self, asked: Future[None]) -> None:
        """Raises the error of `require_same_table`, or DeadlineError if there was no answer in time."""
        timeout_s = self._timing.request_s
        if not wait([asked], timeout_s).done:
            raise DeadlineError(
                f"Kafka did not say in {timeout_s:g} s whether the local copy is still one of the table"
            )
        asked.result()

    # ---- READY -----------------------------------------------------------------------------------------------------

    def _write_ready(self, writer: Writer) -> None:
        """Commit READY, in one shard. One is enough, because the proof is that the coordinator commits the transaction.

        The predecessor may have fenced this producer without knowing of it: its request was refused, it found the epoch
        counter unchanged, and initialised again. So a READY that fails is followed by check, init, check and another
        READY.
        """
        until = self._timing.clock() + self._timing.recovery_s
        self._require_open()
        going_on = partial(self._progress, "ready", 0, 0)
        while True:
            group = Group(self._config.shards, self._limits.frame_bytes_max)
            group.put_heartbeat(READY_SHARD)
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
                raise OutcomeUnknownError(f"{what}: {met}; then {error}") from error
