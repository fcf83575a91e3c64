"""Fencing: who may write. Check, init, check.

Initialising a transactional producer fences every older instance, so a zombie that initialises again could fence its
own successor. Whoever would initialise again therefore checks the epoch counter before (courtesy) and after (safety).
A check reads the counter to the control partition's high watermark, asked for after that init has returned; one that
cannot be made in time has not been made, and everything starts over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from journal.errors import DeadlineError, OperatingError
from journal.kafka.control import read_control, writer_id
from journal.kafka.ports import Clock, Kafka, TransactionalProducer
from journal.v1.journal_pb2 import Epoch

log = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.1


class Claim(NamedTuple):
    """One activation: its epoch, its node, and a nonce that no other activation has."""

    epoch: int
    node: str
    nonce: bytes


class Standing(Enum):
    """What the epoch counter says about a claim."""

    OWN = "own"
    NEWER = "newer"  # another activation took a newer epoch, or the same one: this one is fenced
    OLDER = "older"  # this activation wrote nothing (yet)


def standing_of(claim: Claim, counter: Epoch) -> Standing:
    """What a counter says about a claim."""
    if counter.epoch < claim.epoch:
        return Standing.OLDER
    if counter.epoch == claim.epoch and counter.nonce == claim.nonce:
        return Standing.OWN
    return Standing.NEWER


@dataclass(frozen=True, slots=True)
class Timing:
    """Limits in seconds, and time itself."""

    clock: Clock
    pause: Callable[[float], None]
    request_s: float
    recovery_s: float
    fence_check_s: float


class Fence:
    """Makes producers of the journal's transactional id for one node."""

    def __init__(self, kafka: Kafka, journal: str, timing: Timing) -> None:
        self._kafka = kafka
        self._journal = journal
        self._timing = timing

    def initialise(self, until: float) -> TransactionalProducer:
        """A new instance: fences every older one and settles what it left open. Raises OperatingError after `until`."""
        timing = self._timing
        while True:
            producer = self._kafka.transactional_producer(writer_id(self._journal))
            try:
                producer.init(timing.request_s)
                return producer
            except OperatingError as error:
                producer.close()
                if timing.clock() >= until:
                    raise
                log.warning("the producer cannot be initialised yet: %s", error)
                timing.pause(RETRY_PAUSE_S)

    def counter(self) -> Epoch:
        """The epoch counter. Raises DeadlineError: then the check has not been made."""
        timing = self._timing
        return read_control(self._kafka, self._journal, timing.clock, timing.request_s).epoch

    def check_init_check(self, claim: Claim, until: float) -> tuple[TransactionalProducer | None, Standing]:
        """A new producer and what the counter says after its init; None if a newer activation is there.

        Raises DeadlineError if the outcome could not be had by `until`.
        """
        timing = self._timing
        while True:
            if timing.clock() >= until:
                raise DeadlineError("Kafka did not let this node check who may write in time")
            try:
                if standing_of(claim, self.counter()) is Standing.NEWER:
                    return None, Standing.NEWER
                producer = self.initialise(timing.clock())
            except OperatingError as error:
                log.warning("check, init, check starts over: %s", error)
                timing.pause(RETRY_PAUSE_S)
                continue
            try:
                standing = standing_of(claim, self.counter())
            except OperatingError as error:
                log.warning("check, init, check starts over: %s", error)
                producer.close()
                timing.pause(RETRY_PAUSE_S)
                continue
            if standing is Standing.NEWER:
                producer.close()
                return None, standing
            return producer, standing
