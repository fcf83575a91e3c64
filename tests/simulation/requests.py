"""Sends the requests of a simulated node to the simulated cluster, with whatever fault meets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from journal.errors import KafkaUnavailableError
from journal.kafka.settings import RETRY_BACKOFF_MS
from tests.simulation.broker import SimulatedBroker
from tests.simulation.faults import ABORTABLE_REQUESTS, Fault, SimulatedCrash
from tests.simulation.timeline import never

T = TypeVar("T")

BACKOFF_S = RETRY_BACKOFF_MS / 1000


class NoAnswer(Exception):  # it is no error before its client has said what it means
    """A request had no answer in time."""


class TransactionRefused(Exception):  # it is no error before its client has said what it means
    """A transaction must be aborted: the request had no effect."""


class Requests:
    """What a node's clients send through.

    Every request first lets other nodes run; one that changes something lets them run again before its client knows.
    """

    def __init__(self, broker: SimulatedBroker, node: str) -> None:
        self.broker = broker
        self.node = node
        self.now = broker.timeline.now

    def write(
        self,
        request: str,
        timeout_s: float,
        effect: Callable[[], T],
        *,
        to: tuple[str, int] | None = None,
        size: int = 0,
    ) -> T:
        """One request that changes the cluster, with whatever happens to it. Raises NoAnswer, TransactionRefused.

        `to` is the partition that it writes to: a leader that was deposed takes nothing, however often it is asked.
        `size` is how many bytes of records it has, which take their time.
        """
        timeline, faults = self.broker.timeline, self.broker.faults
        timeline.switch()
        fault = faults.at(request, self.node)
        if to is not None and not self.broker.is_led(self.node, *to):
            until = timeline.now() + timeout_s
            if not timeline.wait(timeout_s, lambda: self.broker.is_led(self.node, *to)):
                raise NoAnswer(f"{request}: the leader of {to[0]}[{to[1]}] was deposed")
            timeout_s = until - timeline.now()
        takes_s = size / self.broker.bytes_per_s
        if takes_s:
            if takes_s > timeout_s:
                self.pause(timeout_s)
                raise NoAnswer(f"{request}: {size} bytes take {takes_s:.1f} s")
            self.pause(takes_s)
            timeout_s -= takes_s
        if fault is Fault.NONE or (fault is Fault.ABORTABLE and request not in ABORTABLE_REQUESTS):
            answer = effect()
            timeline.switch()
            return answer
        if fault is Fault.CRASH_BEFORE:
            raise SimulatedCrash(self.node)
        if fault is Fault.ABORTABLE:
            raise TransactionRefused(request)
        if fault in (Fault.LATE, Fault.CRASH_LATE):
            timeline.call_at(timeline.now() + faults.late_by_s(), lambda: void(effect))
        elif fault is not Fault.LOSE_REQUEST:
            if fault is Fault.REPEATED:
                self.pause(BACKOFF_S)
            answer = effect()
            if fault is Fault.REPEATED:
                timeline.call_at(timeline.now() + faults.late_by_s(), lambda: void(effect))
                return answer
            if fault is Fault.RETRIED:
                self.pause(BACKOFF_S)
                return effect()
        if fault in (Fault.CRASH_AFTER, Fault.CRASH_LATE):
            raise SimulatedCrash(self.node)
        self.pause(timeout_s)
        raise NoAnswer(f"{request}: {fault.value}")

    def ask(self, request: str, timeout_s: float) -> None:
        """One request that changes nothing: the caller looks at the broker after this. Raises KafkaUnavailableError."""
        timeline, faults = self.broker.timeline, self.broker.faults
        timeline.switch()
        fault = faults.at(request, self.node)
        if fault is Fault.NONE:
            return
        if fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.CRASH_LATE):
            raise SimulatedCrash(self.node)
        if fault in (Fault.LOSE_REQUEST, Fault.LOSE_RESPONSE, Fault.LATE):
            self.pause(timeout_s)
            raise KafkaUnavailableError(f"{request}: {fault.value}")

    def step(self, name: str) -> None:
        """A moment between two things that a process hands to its client: it may crash there, and no time passes."""
        fault = self.broker.faults.at(name, self.node)
        if fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.CRASH_LATE):
            raise SimulatedCrash(self.node)

    def pause(self, seconds: float) -> None:
        self.broker.timeline.wait(seconds, never)


def void(effect: Callable[[], object]) -> None:
    effect()


def once(effect: Callable[[], T]) -> Callable[[], T]:
    """The effect of an idempotent producer's request: a repetition is recognised by its sequence number."""
    answers: list[T] = []

    def first() -> T:
        if not answers:
            answers.append(effect())
        return answers[0]

    return first
