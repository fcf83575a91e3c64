"""What can go wrong with a request of a simulated client, and who decides that it does.

request   --> broker takes effect --> response --> client
   |                 |                   |
   lost, late        (node crashes       lost, or answered
                      before, after)     only when asked again
"""

from __future__ import annotations

from enum import Enum


class SimulatedCrash(BaseException):
    """The node is gone at this instant. Not an Exception: no code under test may catch it."""


class Fault(Enum):
    NONE = "none"
    CRASH_BEFORE = "the node crashes before its request is sent"
    CRASH_AFTER = "the node crashes after its request took effect"
    CRASH_LATE = "the node crashes and its request, still on its way, takes effect later"
    LOSE_REQUEST = "the request is lost: no effect, and the client sees a time-out"
    LOSE_RESPONSE = "the response is lost: the effect is there, and the client sees a time-out"
    LATE = "the request is delayed: the client sees a time-out, and the effect comes later"
    RETRIED = "the response is lost, and the client's library asks again after its backoff"
    ABORTABLE = "the request is refused, and with it the transaction that it belongs to"
    REPEATED = "the library asked twice: it has its answer, and the first request takes effect once more, later"


ABORTABLE_REQUESTS = ("add_partitions", "produce", "end_transaction")
"""What a broker may refuse so that the transaction must be aborted. `ABORTABLE` is nothing to any other request."""


class Faults:
    """Decides. This one decides that nothing goes wrong; a simulation overrides what it wants."""

    def at(self, request: str, node: str) -> Fault:
        """Asked once for each request: init, add_partitions, produce, commit_offsets, end_transaction, plain_produce,
        poll, start_and_end, admin. Requests that change nothing know crashes and lost requests only. Also asked before
        each record of a transaction that the client takes (enqueue): there, only crashes mean something; and before
        each use of a disk (disk_open, disk_read, disk_write, disk_flush, disk_clear), which refuses it (a lost request)
        or finds itself damaged (a lost response)."""
        return Fault.NONE

    def late_by_s(self) -> float:
        """How long a late or repeated request is on its way."""
        return 1.0

    def marker_after_s(self, topic: str, partition: int) -> float:
        """How long after a transaction's end this partition gets its marker. At 0 it has it before the client knows."""
        return 0.0


class CrashAt(Faults):
    """One process crashes at one of its requests; without a fault, its requests are counted."""

    def __init__(self, node: str, fault: Fault = Fault.NONE, at: int = 0) -> None:
        self.step = 0
        self._node, self._fault, self._at = node, fault, at

    def at(self, request: str, node: str) -> Fault:
        self.step += node == self._node
        return self._fault if node == self._node and self.step == self._at else Fault.NONE
