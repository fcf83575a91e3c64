"""What a run came to: how much was done to it, how soon it was back each time, and what the checker says."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.chaos.checker import Verdict
from tests.chaos.history import RoleChange


@dataclass
class Injection:
    """A fault as it was injected; times in seconds since the run began."""

    fault: str
    target: str
    at: float
    healed_at: float = 0.0
    ended: list[str] = field(default_factory=list)
    """Who did not run any more when it was injected."""
    silent_s: float = 0.0
    """The longest time without an acknowledgement from then on, until the next fault: the time to recover."""


@dataclass
class Report:
    """A run. Times in seconds since it began."""

    name: str
    seed: int
    seconds: float = 0.0
    submitted: int = 0
    acknowledged: int = 0
    activations: int = 0
    injections: list[Injection] = field(default_factory=list)
    planned: list[str] = field(default_factory=list)
    """Every kind of fault that the run may inject."""
    lacks: dict[str, str] = field(default_factory=dict)
    """What this machine has not, so that its faults are not planned, and the reason."""
    ended_by_themselves: list[str] = field(default_factory=list)
    """Processes that nobody had ended."""
    rates: list[int] = field(default_factory=list)
    """Operations acknowledged in each second."""
    roles: list[RoleChange] = field(default_factory=list)
    faults_found: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def take_verdict(self, verdict: Verdict) -> None:
        self.submitted, self.acknowledged = verdict.submitted, verdict.acknowledged
        self.activations = verdict.activations
        self.faults_found = [str(fault) for fault in verdict.faults]
        self.counts = {kind.name: count for kind, count in verdict.counts.items()}

    def take_times(self, began: float, acknowledged_at: Sequence[float], roles: Sequence[RoleChange]) -> None:
        """Times of acknowledgements and role changes, by the machine's clock."""
        times = sorted(t - began for t in acknowledged_at if t >= began)
        nodes = {change.node for change in roles}
        ended = [RoleChange(one.at, name, "stopped", 0) for one in self.injections for name in one.ended]
        of_nodes = [change for change in ended if change.node in nodes]
        self.roles = sorted([*(change._replace(t=change.t - began) for change in roles), *of_nodes])
        self.rates = [0] * (int(max(times, default=0.0)) + 1)
        for t in times:
            self.rates[int(t)] += 1
        ends = [*(injection.at for injection in self.injections), times[-1] if times else 0.0][1:]
        for injection, end in zip(self.injections, ends, strict=True):
            injection.silent_s = longest_gap(times, injection.at, end)

    @property
    def wrong(self) -> list[str]:
        """Everything that must not be: a run is good if there is nothing."""
        return [*self.faults_found, *(f"ended by itself: {ended}" for ended in self.ended_by_themselves)]

    @property
    def never_injected(self) -> list[str]:
        """Kinds of faults that were planned; there was no time for them."""
        injected = {injection.fault for injection in self.injections}
        return [name for name in self.planned if name not in injected]

    def recovery_s(self) -> dict[str, float]:
        """Median, 99th percentile and longest of the times to recover."""
        times = sorted(injection.silent_s for injection in self.injections)
        return {"p50": percentile(times, 0.5), "p99": percentile(times, 0.99), "max": percentile(times, 1.0)}

    def summary(self) -> str:
        """A few lines for people."""
        recovery = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.recovery_s().items())
        lines = [
            f"{self.name}: seed {self.seed}, {self.seconds:.0f} s, {len(self.injections)} faults, "
            f"{self.acknowledged} of {self.submitted} operations acknowledged, {self.activations} activations",
            f"time to recover: {recovery}",
        ]
        lines += [f"no faults of the {what} on this machine: {why}" for what, why in self.lacks.items()]
        if missing := self.never_injected:
            lines.append(f"no time for {len(missing)} of {len(self.planned)} kinds of faults: {', '.join(missing)}")
        lines += [f"FOUND {found}" for found in self.wrong] or ["nothing was found wrong"]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "never_injected": self.never_injected,
            "recovery_s": self.recovery_s(),
            "roles": [change._asdict() for change in self.roles],
        }

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")


def longest_gap(times: Sequence[float], start: float, end: float) -> float:
    """The longest time between `start` and `end` without one of the sorted `times`."""
    points = [start, *times[bisect_right(times, start) :]]
    return max((min(later, end) - earlier for earlier, later in pairwise(points) if earlier < end), default=0.0)


def percentile(times: Sequence[float], share: float) -> float:
    """The time below which this share of the sorted times lies; 0 if there are none."""
    return times[min(len(times) - 1, int(share * len(times)))] if times else 0.0
