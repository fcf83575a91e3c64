"""Rounds of the journal and of the limit, in alternating order after a warm-up, and the median of their ratios."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Figures = dict[str, float | int | str]


@dataclass(frozen=True, slots=True)
class Series:
    """One measured quantity, with a value for each round. `unit` is the end of its key."""

    name: str
    unit: str
    values: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread_percent(self) -> float:
        """Difference of the largest and the smallest round, in percent of the median."""
        return 100 * (max(self.values) - min(self.values)) / self.median if self.median else 0.0

    def figures(self) -> Figures:
        return {
            f"{self.name}_{self.unit}": rounded(self.median),
            f"{self.name}_spread_percent": round(self.spread_percent, 1),
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """The journal against the limit, round by round. A larger ratio is better, so for times the ratio is the limit's
    time divided by the journal's."""

    name: str
    unit: str
    ours: Sequence[float]
    limit: Sequence[float]
    target: float
    less_is_better: bool = False

    @property
    def ratios(self) -> list[float]:
        pairs = zip(self.ours, self.limit, strict=True)
        return [limit / ours if self.less_is_better else ours / limit for ours, limit in pairs]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    def figures(self) -> Figures:
        ratios = Series(f"{self.name}_ratio", "", self.ratios)
        return {
            f"{self.name}_{self.unit}": rounded(statistics.median(self.ours)),
            f"{self.name}_limit_{self.unit}": rounded(statistics.median(self.limit)),
            f"{self.name}_ratio": round(self.ratio, 3),
            f"{self.name}_ratio_spread_percent": round(ratios.spread_percent, 1),
            f"{self.name}_ratio_target": self.target,
        }


def alternate(
    rounds: int, ours: Callable[[], float], limit: Callable[[], float], *, what: str, warm_up: int = 1
) -> tuple[list[float], list[float]]:
    """Returns the values of the journal and of the limit, by round. `warm_up` rounds before them are left out.

    Each of the two is first in every other round, so that neither always runs right after the other.
    """
    results: tuple[list[float], list[float]] = ([], [])
    for _ in range(warm_up):
        ours()
        limit()
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            results[which].append((ours, limit)[which]())
        say(f"{what}: round {number + 1} of {rounds}: {results[0][-1]:,.4g} against {results[1][-1]:,.4g}")
    return results


@dataclass(slots=True)
class Outcome:
    """The result of a bench: comparisons, and single figures."""

    comparisons: list[Comparison] = field(default_factory=list)
    figures: Figures = field(default_factory=dict)

    def as_figures(self) -> Figures:
        compared: Figures = {}
        for comparison in self.comparisons:
            compared |= comparison.figures()
        return compared | self.figures


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def rounded(value: float) -> float:
    """Rounds to four significant digits, and to whole numbers from a thousand on."""
    return round(value) if abs(value) >= 1000 else float(f"{value:.4g}")


def say(text: str) -> None:
    """Prints progress to standard error."""
    print(text, file=sys.stderr, flush=True)
