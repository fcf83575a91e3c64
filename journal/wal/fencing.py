"""Fencing: who may write, found out by check, init, check.

Initialising a transactional producer fences every older instance, so a zombie that initialises again could fence its
own successor. A node that would initialise again therefore checks the epoch counter before it, as a courtesy, and after
it, for safety. A check reads the counter to the control partition's high watermark, which is asked for after the init
has returned. A check that cannot be made in time has not been made, and everything starts over.

A leader that was deposed may have answered a check. So the next frame that is sent has to prove it
(`journal.wal.writer`), and a counter that says less than is known is read again behind an acknowledged write before it
counts as lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import chain, repeat

from journal.append.writing import Claim
from journal.errors import DeadlineError, FencedError, OperatingError, RetriableProducerError
from journal.kafka.ports import Kafka, TransactionalProducer
from journal.process.clocks import Timing
from journal.topics.control_reading import control_lost, prove_control, read_control
from journal.topics.control_rows import ControlRows
from journal.topics.names import writer_id
from journal.v1.journal_pb2 import Epoch, Mark

log = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.1

FIRST_TRIES_S = (0.1, 0.2)
"""How long the first inits may take. A dead writer's open transaction is settled within milliseconds. Meanwhile the
broker answers "concurrent transactions", and librdkafka then waits half a second before it asks again, while a new
instance asks at once. An init that is given up may still take effect, as any init that times out may."""


RequireOpen = Callable[[], None]
"""Raises ClosedError once a journal is being closed. It is called before each step that other nodes would notice."""


def always_open() -> None:
    """The `RequireOpen` of callers that finish their work even while the journal is being closed."""


class Standing(Enum):
    """What the epoch counter or a mark says about a claim."""

    OWN = "own"
    NEWER = "newer"  # another activation took a newer epoch, or the same one: this one is fenced
    OLDER = "older"  # this activation wrote nothing (yet)


def standing_of(claim: Claim, found: Epoch | Mark) -> Standing:
    """How `claim` stands to a counter or mark that was found."""
    if found.epoch < claim.epoch:
        return Standing.OLDER
    if found.epoch == claim.epoch and found.nonce == claim.nonce:
        return Standing.OWN
    return Standing.NEWER


class Fence:
    """A fence makes producers with the journal's transactional id, for one node. Each new one fences the older ones."""

    def __init__(self, kafka: Kafka, journal: str, timing: Timing) -> None:
        self._kafka = kafka
        self._journal = journal
        self._timing = timing
        self.checks = 0
        """How often the epoch counter was read."""
        self.inits = 0
        """How many producers were initialised."""

    def initialise(self, until: float, require_open: RequireOpen = always_open) -> TransactionalProducer:
        """A new producer, which fences every older one and settles what it left open. Raises OperatingError after
        `until`."""
        for limit_s in self._limits():
            require_open()
            try:
                return self._initialised(limit_s)
            except OperatingError as error:
                if self._timing.clock() >= until:
                    raise
                self._rest(error, limit_s, "the producer cannot be initialised yet")
        raise AssertionError("there is always another try")

    def _limits(self) -> Iterator[float]:
        """The time limits of successive inits: short ones first."""
        request_s = self._timing.request_s
        return chain((limit_s for limit_s in FIRST_TRIES_S if limit_s < request_s), repeat(request_s))

    def _initialised(self, limit_s: float) -> TransactionalProducer:
        """A producer, initialised within `limit_s`. Connecting it may take the time of a request before that."""
        producer = self._kafka.transactional_producer(writer_id(self._journal))
        try:
            producer.connect((), self._timing.request_s)
            producer.init(limit_s)
        except BaseException:
            producer.close()
            raise
        self.inits += 1
        return producer

    def _rest(self, error: OperatingError, limit_s: float, what: str) -> None:
        """Pause before the next try. There is no pause after a short try that timed out."""
        if limit_s < self._timing.request_s and isinstance(error, RetriableProducerError):
            log.debug("%s: %s", what, error)
            return
        log.warning("%s: %s", what, error)
        self._timing.pause(RETRY_PAUSE_S)

    def rows(self) -> ControlRows:
        """Read the present control rows. A DeadlineError means that they have not been read."""
        timing = self._timing
        return read_control(self._kafka, self._journal, timing.clock, timing.request_s)

    def proven_rows(self) -> ControlRows:
        """The control rows, read behind an acknowledged write, so that no deposed leader has answered. Raises
        OperatingError."""
        timing = self._timing
        return prove_control(self._kafka, self._journal, timing.clock, timing.request_s)

    def counter(self) -> Epoch:
        """The epoch counter. A DeadlineError means that the check has not been made."""
        self.checks += 1
        return self.rows().epoch

    def check_init_check(
        self, claim: Claim, until: float, require_open: RequireOpen = always_open, *, claimed: bool
    ) -> tuple[TransactionalProducer, Standing]:
        """A new producer, and whether the counter says after its init that the claim is there (OWN) or not (OLDER).

        `claimed` says that the claim is known to have been there: OLDER is then no answer, and raises ControlLostError
        if an acknowledged write confirms it. Raises FencedError for a newer claim, and DeadlineError with the last
        error if the outcome is not known by `until`.
        """
        timing, last = self._timing, ""
        for limit_s in self._limits():
            if timing.clock() >= until:
                break
            require_open()
            try:
                _require_not_newer(claim, self.counter())
                producer = self._initialised(limit_s)
            except OperatingError as error:
                last = f": {error}"
                self._rest(error, limit_s, "check, init, check starts over")
                continue
            try:
                return producer, self._check(claim, claimed=claimed)
            except OperatingError as error:
                last = f": {error}"
                log.warning("check, init, check starts over: %s", error)
                producer.close()
                timing.pause(RETRY_PAUSE_S)
            except BaseException:
                producer.close()
                raise
        raise DeadlineError(f"Kafka did not let this node check who may write in time{last}")

    def _check(self, claim: Claim, *, claimed: bool) -> Standing:
        """The standing of the claim by the counter, read after an init."""
        standing = _require_not_newer(claim, self.counter())
        if claimed and standing is Standing.OLDER:
            standing = _require_not_newer(claim, self.proven_rows().epoch)
            if standing is Standing.OLDER:
                raise control_lost(self._journal, f"the epoch counter went back behind epoch {claim.epoch}")
        return standing


def _require_not_newer(claim: Claim, counter: Epoch) -> Standing:
    """The standing of the claim. Raises FencedError if a newer one is there."""
    standing = standing_of(claim, counter)
    if standing is Standing.NEWER:
        raise FencedError(f"another node took over, in epoch {counter.epoch}", epoch=counter.epoch)
    return standing
