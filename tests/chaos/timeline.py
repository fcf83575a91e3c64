"""The picture of a run: operations acknowledged each second, what every node was, and the faults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from tests.chaos.report import Report

_ROLES = {
    "starting": "#d0d0d0",
    "standby": "#9ecae1",
    "activating": "#fdae6b",
    "active": "#31a354",
    "stopping": "#bcbddc",
    "fenced": "#de2d26",
}
_ELSEWHERE = "#444444"
_TARGETS = {"broker": "#7b3294", "node": "#b2182b", "worker": "#2166ac"}
_WIDTH_IN = 10.0
"""The width of a page, so that the labels have their size there."""
_DPI = 100
_RATES_IN = 2.6
_NODE_IN = 0.35
_FAULT_IN = 0.27
_MARGINS_IN = 1.6
_SMALL = 8
_KINDS_MAX = 16
"""More kinds of faults than this are drawn by family, and their targets only by colour."""
_LINES_MAX = 60
"""More faults than this are not drawn as lines through the rates and roles."""
_BINS_MAX = 360
_EPOCH_SHARE = 0.025
"""An epoch that lasts for less of the run than this has no number."""

_FAMILIES = (
    ("ends at", "ends at a chosen step"),
    ("kill", "killed"),
    ("stop", "stopped in order"),
    ("pause", "paused"),
    ("partition", "cut off"),
    ("isolate", "cut off"),
    ("loss", "slow or lossy network"),
    ("slow", "slow or lossy network"),
    ("delay", "slow or lossy network"),
    ("full disk", "disks and local copies"),
    ("copy", "disks and local copies"),
)
"""Words of kinds of faults, and the family that a kind with such a word belongs to; the first one counts."""


def draw(report: Report, file: Path) -> None:
    """Writes a PNG that is as wide as a page."""
    end = max(report.seconds, len(report.rates), 1.0)
    nodes = sorted({change.node for change in report.roles})
    kinds = sorted({injection.fault for injection in report.injections})
    by_family = len(kinds) > _KINDS_MAX
    rows = sorted({_family(kind) for kind in kinds}) if by_family else kinds
    heights = [_RATES_IN, _NODE_IN * (len(nodes) + 1), _FAULT_IN * (len(rows) + 1)]
    size = (_WIDTH_IN, sum(heights) + _MARGINS_IN)
    figure, (rates, roles, marks) = plt.subplots(
        3, 1, figsize=size, sharex=True, height_ratios=heights, layout="constrained"
    )
    _draw_rates(rates, report)
    _draw_roles(roles, report, nodes, end)
    _draw_faults(marks, report, rows, by_family=by_family)
    if len(report.injections) <= _LINES_MAX:
        for axes in (rates, roles):
            for injection in report.injections:
                axes.axvline(injection.at, color=_colour(injection.target), linewidth=0.8, alpha=0.6)
    rates.set_xlim(0, end)
    recovery = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in report.recovery_s().items())
    found = f"{len(report.wrong)} things found wrong" if report.wrong else "nothing found wrong"
    rates.set_title(
        f"{report.name}, seed {report.seed}: {report.acknowledged:,} operations acknowledged, "
        f"{len(report.injections)} faults, {report.activations} activations\nto recover: {recovery}; {found}",
        fontsize=10,
        loc="left",
    )
    figure.savefig(file, dpi=_DPI)
    plt.close(figure)


def _family(kind: str) -> str:
    return next((family for word, family in _FAMILIES if word in kind), kind)


def _draw_rates(axes: Axes, report: Report) -> None:
    width = -(-len(report.rates) // _BINS_MAX) or 1
    bins = [report.rates[begin : begin + width] for begin in range(0, len(report.rates), width)]
    means = [sum(each) / len(each) for each in bins]
    middles = [(place + 0.5) * width for place in range(len(bins))]
    axes.fill_between(middles, means, step="mid", color="#31a354", alpha=0.35)
    axes.step(middles, means, where="mid", color="#006d2c", linewidth=0.9)
    axes.set_ylabel("acknowledged a second" + (f",\nmean of {width} s" if width > 1 else ""))
    axes.set_ylim(bottom=0)


def _draw_roles(axes: Axes, report: Report, nodes: list[str], end: float) -> None:
    for row, node in enumerate(nodes):
        changes = [change for change in report.roles if change.node == node]
        ends = [change.t for change in changes[1:]] + [end]
        for change, until in zip(changes, ends, strict=True):
            if change.role in _ROLES and until > 0:
                start = max(change.t, 0.0)
                axes.broken_barh([(start, max(until - start, 0.0))], (row - 0.4, 0.8), color=_ROLES[change.role])
                if change.role == "active" and until - start > _EPOCH_SHARE * end:
                    axes.text(start, row, f" {change.epoch}", va="center", fontsize=_SMALL, clip_on=True)
    axes.set_yticks(range(len(nodes)), nodes)
    axes.set_ylim(-0.6, len(nodes) - 0.4)
    _legend(axes, _ROLES)


def _draw_faults(axes: Axes, report: Report, rows: list[str], *, by_family: bool) -> None:
    for injection in report.injections:
        row = rows.index(_family(injection.fault) if by_family else injection.fault)
        length = max(injection.healed_at - injection.at, 0.05)
        colour = _colour(injection.target)
        axes.broken_barh([(injection.at, length)], (row - 0.35, 0.7), color=colour, linewidth=1)
        if not by_family:
            end = injection.at + length
            axes.text(end, row, f" {injection.target}", va="center", fontsize=_SMALL, clip_on=True)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlabel("seconds")
    axes.set_ylim(-0.6, max(len(rows), 1) - 0.4)
    axes.invert_yaxis()
    if by_family:
        _legend(axes, {f"at a {target}": colour for target, colour in _TARGETS.items()} | {"elsewhere": _ELSEWHERE})


def _legend(axes: Axes, colours: Mapping[str, str]) -> None:
    """What the colours are, in one line above the axes."""
    handles = [Rectangle((0, 0), 1, 1, color=colour) for colour in colours.values()]
    place = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "borderaxespad": 0.2}
    axes.legend(handles, list(colours), ncols=len(colours), fontsize=_SMALL, frameon=False, **place)


def _colour(target: str) -> str:
    return _TARGETS.get(target.partition("-")[0], _ELSEWHERE)
