"""Plots as SVG text, drawn by hand: axes with round numbers, lines, stacked areas, bars, and vertical lines at events.
This module is pure.

Colours are classes that the page's style sheet defines, for light and for dark. Labels that would overlap go to another
line, or only into the tooltip.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

from journal.words import counted

WIDTH, HEIGHT = 1000, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 16, 44, 34
_TICKS = 5
_LABEL_PX = 96
_LABEL_ROWS = 2
_TIME_STEPS_S = (
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    10800,
    21600,
    43200,
    86400,
)


class Series(NamedTuple):
    """A line or area: a value for each of the plot's times, and the class of its colour."""

    name: str
    values: Sequence[float]
    colour: str


class Mark(NamedTuple):
    """An event at one time, which a plot shows by a vertical line."""

    at_ms: int
    label: str
    told: str
    """The text of the tooltip."""


class Bar(NamedTuple):
    low: float
    high: float
    value: int


def number(value: float) -> str:
    """A number, short, for people: 1,234, 12.5 k, 3.2 M."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(value) >= size:
            return f"{value / (1000 if size == 1e4 else size):,.1f}".removesuffix(".0") + unit
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.2g}"


def duration(seconds: float) -> str:
    """A duration for people: 340 ms, 4.2 s, 3 min, 2.5 h, 4 d."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


# ---- plots over time ---------------------------------------------------------------------------------------


class TimePlot:
    """A plot over windows of time: `times_ms` are their ends."""

    def __init__(
        self,
        title: str,
        times_ms: Sequence[int],
        begin_ms: int,
        marks: Iterable[Mark],
        shown: Callable[[float], str] = number,
    ) -> None:
        self._title = title
        self._times = times_ms
        self._begin = begin_ms
        self._end = max([*times_ms, begin_ms + 1])
        self._marks = list(marks)
        self._shown = shown

    def lines(self, series: Sequence[Series]) -> str:
        scale = _Scale(max((max(each.values, default=0) for each in series), default=0))
        drawn = []
        for each in series:
            points = self._points(each.values, scale)
            drawn.append(
                f'<polyline class="line {each.colour}" points="{points}"><title>{escape(each.name)}</title></polyline>'
            )
        return self._plot(scale, drawn)

    def stacked(self, series: Sequence[Series]) -> str:
        """Draw areas on top of each other, the first one lowest."""
        floor = [0.0] * len(self._times)
        layers = []
        for each in series:
            top = [low + value for low, value in zip(floor, each.values, strict=True)]
            layers.append((each, floor, top))
            floor = top
        scale = _Scale(max(floor, default=0))
        drawn = []
        for each, low, top in layers:
            back = " ".join(reversed(self._points(low, scale).split(" ")))
            outline = f"{self._points(top, scale)} {back}"
            drawn.append(
                f'<polygon class="area {each.colour}" points="{outline}"><title>{escape(each.name)}</title></polygon>'
            )
        return self._plot(scale, drawn)

    def _points(self, values: Sequence[float], scale: _Scale) -> str:
        return " ".join(
            f"{self._x(at):.1f},{scale.y(value):.1f}" for at, value in zip(self._times, values, strict=True)
        )

    def _x(self, at_ms: float) -> float:
        share = (at_ms - self._begin) / (self._end - self._begin)
        return _LEFT + min(1.0, max(0.0, share)) * (WIDTH - _LEFT - _RIGHT)

    def _plot(self, scale: _Scale, drawn: Sequence[str]) -> str:
        return _svg(self._title, [*scale.grid(self._shown), *drawn, *self._time_axis(), *self._drawn_marks()])

    def _time_axis(self) -> Iterable[str]:
        span_s = (self._end - self._begin) / 1000
        step = next((each for each in _TIME_STEPS_S if span_s / each <= 8), 86400 * math.ceil(span_s / 86400 / 8))
        at = math.ceil(self._begin / 1000 / step) * step
        pattern = (
            "%b %d" if step >= 86400 else "%b %d %H:%M" if span_s > 86400 else "%H:%M:%S" if step < 60 else "%H:%M"
        )
        while at * 1000 <= self._end:
            x = self._x(at * 1000)
            shown = datetime.fromtimestamp(at, UTC).strftime(pattern) + (f"{at % 1:.1f}"[1:] if step < 1 else "")
            yield f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{HEIGHT - _BOTTOM}" y2="{HEIGHT - _BOTTOM + 5}"/>'
            anchor = "end" if x > WIDTH - _RIGHT - 30 else "middle"
            yield _text(x, HEIGHT - _BOTTOM + 20, shown, anchor)
            at += step

    def _drawn_marks(self) -> Iterable[str]:
        rows = [-math.inf] * _LABEL_ROWS
        for mark in self._marks:
            x = self._x(mark.at_ms)
            row = next((row for row in range(_LABEL_ROWS) if x >= rows[row]), None)
            yield f'<g class="mark"><title>{escape(mark.told)}</title>'
            top = _TOP - 4 if row is None else 16 + 15 * row
            yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{HEIGHT - _BOTTOM}"/>'
            if row is not None:
                rows[row] = x + _LABEL_PX
                left = x > WIDTH - _RIGHT - _LABEL_PX
                yield _text(x - 5 if left else x + 5, top + 5, mark.label, "end" if left else "start")
            yield "</g>"


# ---- a histogram -------------------------------------------------------------------------------------------


def histogram(title: str, bars: Sequence[Bar], lines: Sequence[tuple[str, float]]) -> str:
    """Draw bars over durations in seconds, on a logarithmic axis, and lines at some of the durations."""
    begin, end = (math.log10(bars[0].low), math.log10(bars[-1].high)) if bars else (0.0, 1.0)
    scale = _Scale(max((bar.value for bar in bars), default=0))

    def x(value: float) -> float:
        share = (math.log10(value) - begin) / (end - begin)
        return _LEFT + min(1.0, max(0.0, share)) * (WIDTH - _LEFT - _RIGHT)

    drawn = list(scale.grid(number))
    for bar in bars:
        told = f"{duration(bar.low)} to {duration(bar.high)}: {counted(bar.value, 'message')}"
        left, width, top = x(bar.low) + 1, max(1.0, x(bar.high) - x(bar.low) - 2), scale.y(bar.value)
        rect = f'x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{HEIGHT - _BOTTOM - top:.1f}"'
        drawn.append(f'<rect class="bar c0" {rect} rx="2"><title>{escape(told)}</title></rect>')
    taken = -math.inf
    for at, shown in _round_durations(10**begin, 10**end):
        if x(at) - taken >= 60:
            taken = x(at)
            drawn.append(_text(taken, HEIGHT - _BOTTOM + 20, shown, "middle"))
    for row, (label, value) in enumerate(lines):
        at = x(max(value, 10**begin))
        left = at > WIDTH - _RIGHT - 1.5 * _LABEL_PX
        y = 16 + 15 * row
        drawn.append(f'<g class="mark"><line x1="{at:.1f}" x2="{at:.1f}" y1="{y}" y2="{HEIGHT - _BOTTOM}"/>')
        drawn.append(_text(at - 5 if left else at + 5, y + 5, f"{label} {duration(value)}", "end" if left else "start"))
        drawn.append("</g>")
    return _svg(title, drawn)


def _round_durations(low: float, high: float) -> Iterable[tuple[float, str]]:
    """Round durations on a logarithmic axis of seconds, such as a minute or an hour."""
    for at in (0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 36000, 86400, 864000, 8640000):
        if low <= at * 1.0001 and at <= high * 1.0001:
            yield at, duration(at) if at != 60 else "1 min"


# ---- axes --------------------------------------------------------------------------------------------------


class _Scale:
    """The vertical axis: from 0 to a round number at or above the largest value."""

    def __init__(self, highest: float) -> None:
        rough = max(highest, 1e-9) / _TICKS
        size = 10.0 ** math.floor(math.log10(rough))
        self._step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough * 0.999999)
        if highest <= 0:
            self._step = 1.0
        self._top = self._step * max(1, math.ceil(highest / self._step - 1e-9))

    def y(self, value: float) -> float:
        return HEIGHT - _BOTTOM - value / self._top * (HEIGHT - _TOP - _BOTTOM)

    def grid(self, shown: Callable[[float], str]) -> Iterable[str]:
        for tick in range(round(self._top / self._step) + 1):
            y = self.y(tick * self._step)
            name = "axis" if tick == 0 else "grid"
            yield f'<line class="{name}" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield _text(_LEFT - 8, y + 4, shown(tick * self._step) if tick else "0", "end")


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(title: str, drawn: Iterable[str]) -> str:
    inner = "\n".join(drawn)
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">\n{inner}\n</svg>'
