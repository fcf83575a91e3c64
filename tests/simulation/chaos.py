"""What goes wrong in one seed: how often each request meets a fault, and for how long processes freeze."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.simulation.faults import ABORTABLE_REQUESTS, Fault, Faults

_CRASHES = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.CRASH_LATE)
_NETWORK = (Fault.LOSE_REQUEST, Fault.LOSE_RESPONSE, Fault.LATE)
_LIBRARY = (Fault.RETRIED, Fault.REPEATED, Fault.REPEATED)
_IN_PROCESS = ("poll", "enqueue")
"""To a fetch that is lost, and asked again by the client, there is only time; no request follows a single record."""

_DISK = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
_REFUSALS = (Fault.LOSE_REQUEST, Fault.LOSE_RESPONSE)

_RATES = {
    "init": 0.05,
    "add_partitions": 0.008,
    "enqueue": 0.0005,
    "produce": 0.012,
    "commit_offsets": 0.03,
    "end_transaction": 0.045,
    "plain_produce": 0.01,
    "poll": 0.002,
    "start_and_end": 0.006,
    "admin": 0.005,
    "disk_open": 0.03,
    "disk_read": 0.0005,
    "disk_write": 0.01,
    "disk_flush": 0.05,
    "disk_clear": 0.1,
}
"""Most at the ends of transactions, where the outcome is decided."""

_OVER_THE_NETWORK = {request for request in _RATES if request not in _IN_PROCESS and not request.startswith("disk_")}
"""Requests that a node which is cut off from Kafka loses."""

WEATHERS = ("calm", "network", "library", "crashes", "freezes", "disks", "storm", "storm", "storm")


@dataclass(slots=True)
class Stall:
    """A process freezes at one of its next steps, and meanwhile something is done."""

    steps: int
    seconds: float
    then: Callable[[], None]


@dataclass(slots=True)
class Forced:
    """The nth next such request of a node meets `fault`; then the node may stall. `late_s` is for what comes late.

    `cut_off` is how many requests after it are lost, `meanwhile` is called when it is sent.
    """

    request: str
    nth: int
    fault: Fault
    stall: Stall | None = None
    late_s: float | None = None
    cut_off: int = 0
    meanwhile: Callable[[], None] | None = None


class Chaos(Faults):
    """Faults by chance. Off, it lets everything pass at once."""

    def __init__(self, chance: Random) -> None:
        self.on = True
        self.weather = chance.choice(WEATHERS)
        self._chance = chance
        scale = chance.choice((0.5, 1.0, 2.0))
        self._rates = {request: rate * scale for request, rate in _RATES.items()}
        self._crashes_left = chance.randrange(2, 8)
        self._left = chance.randrange(5, 30)
        self._freezes_left = chance.randrange(2, 9)
        self._forced: dict[str, list[Forced]] = {}
        self._cut_off: dict[str, int] = {}
        self._late_s: float | None = None
        self._stalls: dict[str, Stall] = {}
        self._slow_markers = chance.choice((0.0, 0.0, 0.1, 0.5))
        self._freezes = self.weather in ("freezes", "storm")

    # ---- arranged ----------------------------------------------------------------------------------------------

    def force(self, node: str, *forced: Forced) -> None:
        """One after the other."""
        self._forced[node] = list(forced)

    def stall(self, node: str, stall: Stall) -> None:
        """The node stalls, counted from now."""
        self._stalls[node] = stall

    def _forced_at(self, request: str, node: str) -> Fault | None:
        forced = self._forced[node][0]
        if forced.request != request:
            return None
        forced.nth -= 1
        if forced.nth > 0:
            return None
        del self._forced[node][0]
        if not self._forced[node]:
            del self._forced[node]
        if forced.cut_off:
            self._cut_off[node] = forced.cut_off
        if forced.stall is not None:
            self._stalls[node] = forced.stall
        self._late_s = forced.late_s
        if forced.meanwhile is not None:
            forced.meanwhile()
        return forced.fault

    # ---- by chance ---------------------------------------------------------------------------------------------

    def at(self, request: str, node: str) -> Fault:
        """Hot path: the simulation asks it at each request."""
        if self._forced and self.on and node in self._forced:
            forced = self._forced_at(request, node)
            if forced is not None:
                return forced
        if self._cut_off and self.on and self._cut_off.get(node) and request in _OVER_THE_NETWORK:
            self._cut_off[node] -= 1
            return Fault.LOSE_REQUEST
        if not self.on or self._left == 0 or node == "foreign":
            return Fault.NONE
        if self._chance.random() >= self._rates[request]:
            return Fault.NONE
        fault = self._pick(request)
        if fault in _CRASHES:
            if self._crashes_left == 0:
                return Fault.NONE
            self._crashes_left -= 1
        if fault is not Fault.NONE:
            self._left -= 1
        return fault

    def _pick(self, request: str) -> Fault:
        kinds: list[Fault] = []
        disk = request.startswith("disk_")
        if self.weather in ("crashes", "storm", "disks"):
            kinds += _CRASHES if not disk else () if request == "disk_read" else _DISK
        if self.weather in ("disks", "storm") and disk:
            kinds += _REFUSALS
        if self.weather in ("network", "storm") and not disk and request not in _IN_PROCESS:
            kinds += _NETWORK
        if self.weather in ("library", "storm") and not disk and request != "enqueue":
            kinds += _LIBRARY
            if request in ABORTABLE_REQUESTS:
                kinds.append(Fault.ABORTABLE)
        return self._chance.choice(kinds) if kinds else Fault.NONE

    def late_by_s(self) -> float:
        late_s, self._late_s = self._late_s, None
        if late_s is not None:
            return late_s
        return self._chance.choice((0.01, 0.02, 0.05, 0.3, 1.0, 3.0)) * (0.5 + self._chance.random())

    def marker_after_s(self, topic: str, partition: int) -> float:
        if not self.on or not self._slow_markers or self._chance.random() >= self._slow_markers:
            return 0.0
        return self._chance.choice((0.002, 0.01, 0.05, 0.3)) * (0.5 + self._chance.random())

    def freeze_for(self, process: str) -> float:
        """At any request a process may be stopped and continued later, sometimes after its successor is active."""
        if self._stalls and self.on:
            stall = self._stalls.get(process)
            if stall is not None:
                stall.steps -= 1
                if stall.steps <= 0:
                    del self._stalls[process]
                    stall.then()
                    return stall.seconds
        if not self._freezes or not self.on or self._freezes_left == 0:
            return 0.0
        if self._chance.random() >= 0.004:
            return 0.0
        self._freezes_left -= 1
        return self._chance.choice((0.05, 0.2, 0.5, 1.0, 2.0, 5.0)) * (0.5 + self._chance.random())
