"""The picture of a run: operations acknowledged each second, what every node was, and the faults."""

from __future__ import annotations

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
_TARGETS = {"broker": "#7b3294", "node": "#b2182b", "worker": "#2166ac"}
_WIDTH_MAX = 24.0
_RATES_IN = 3.5
_NODE_IN = 0.35
_FAULT_IN = 0.17
_MARGINS_IN = 1.0


def draw(report: Report, file: Path) -> None:
    """Writes a PNG."""
    end = max(report.seconds, len(report.rates), 1.0)
    nodes = sorted({change.node for change in report.roles})
    faults = sorted({injection.fault for injection in report.injections})
    heights = [_RATES_IN, _NODE_IN * (len(nodes) + 1), _FAULT_IN * (len(faults) + 1)]
    size = (min(_WIDTH_MAX, max(10.0, end / 12)), sum(heights) + _MARGINS_IN)
    figure, (rates, roles, marks) = plt.subplots(
        3, 1, figsize=size, sharex=True, height_ratios=heights, layout="constrained"
    )
    _draw_rates(rates, report)
    _draw_roles(roles, report, nodes, end)
    _draw_faults(marks, report, faults)
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
    figure.savefig(file, dpi=90)
    plt.close(figure)


def _draw_rates(axes: Axes, report: Report) -> None:
    seconds = [place + 0.5 for place in range(len(report.rates))]
    axes.fill_between(seconds, report.rates, step="mid", color="#31a354", alpha=0.35)
    axes.step(seconds, report.rates, where="mid", color="#006d2c", linewidth=0.9)
    axes.set_ylabel("acknowledged a second")
    axes.set_ylim(bottom=0)


def _draw_roles(axes: Axes, report: Report, nodes: list[str], end: float) -> None:
    for row, node in enumerate(nodes):
        changes = [change for change in report.roles if change.node == node]
        ends = [change.t for change in changes[1:]] + [end]
        for change, until in zip(changes, ends, strict=True):
            if change.role in _ROLES and until > 0:
                start = max(change.t, 0.0)
                axes.broken_barh([(start, max(until - start, 0.0))], (row - 0.4, 0.8), color=_ROLES[change.role])
                if change.role == "active":
                    axes.text(start, row, f" {change.epoch}", va="center", fontsize=7, clip_on=True)
    axes.set_yticks(range(len(nodes)), nodes)
    axes.set_ylim(-0.6, len(nodes) - 0.4)
    handles = [Rectangle((0, 0), 1, 1, color=colour) for colour in _ROLES.values()]
    axes.legend(handles, list(_ROLES), loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7)


def _draw_faults(axes: Axes, report: Report, names: list[str]) -> None:
    for injection in report.injections:
        row, colour = names.index(injection.fault), _colour(injection.target)
        length = max(injection.healed_at - injection.at, 0.05)
        axes.broken_barh([(injection.at, length)], (row - 0.35, 0.7), color=colour)
        axes.text(injection.at + length, row, f" {injection.target}", va="center", fontsize=6, clip_on=True)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set_xlabel("seconds")
    axes.set_ylim(-0.6, max(len(names), 1) - 0.4)
    axes.invert_yaxis()


def _colour(target: str) -> str:
    return _TARGETS.get(target.partition("-")[0], "#444444")
