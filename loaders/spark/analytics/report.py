"""Queue analytics as a single HTML page without further files: tiles, plots, and a table of the busiest queues.

`report_data` reduces Spark's results to the content of a page: the deepest queues, and the sum of the rest. `render` is
pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from importlib.resources import files

from pyspark.sql import functions as F

from journal.errors import ConfigError
from journal.words import called, counted, counted_are
from loaders.spark.analytics.analytics import Analytics, Epoch, QueueSummary
from loaders.spark.analytics.queue_events import DeadLetters
from loaders.spark.analytics.queue_windows import BUCKETS_PER_DECADE
from loaders.spark.analytics.report_svg import Bar, Mark, Series, TimePlot, duration, histogram, number

SERIES_MAX = 7
"""The most queues in the plot of depths. There is a colour for each of them, and one for the rest."""
QUEUES_MAX = 25
"""The most queues that the page lists."""
REST = "all others"
_WINDOWS_MAX = 2_000


@dataclass(slots=True)
class WindowTotals:
    """All queues in one window."""

    end_ms: int
    came_in: int = 0
    went_out: int = 0
    redeliveries: int = 0
    in_doubt: int = 0
    oldest_age_s: float = 0.0
    depths: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """The depth of each series."""


@dataclass(frozen=True, slots=True)
class ReportData:
    """The content of a page; `series` are queues by name, and `REST` if those are not all."""

    journal: str
    from_ms: int
    until_ms: int
    width_ms: int
    total: QueueSummary
    queues: Sequence[QueueSummary]
    series: Sequence[str]
    moments: Sequence[WindowTotals]
    latencies: dict[int, int]
    epochs: Sequence[Epoch]
    dead_letters: DeadLetters
    skipped: int


def report_data(found: Analytics) -> ReportData:
    """Let Spark compute the content of a page. Raises ConfigError if there are too many windows to plot."""
    series = series_of(found.queues)
    first = found.from_ms // found.width_ms
    count = found.until_ms // found.width_ms - first + 1
    if count > _WINDOWS_MAX:
        raise ConfigError(f"{counted_are(count, 'window')} too many for a plot: take wider ones (--window-s)")
    moments = [WindowTotals((first + index + 1) * found.width_ms) for index in range(count)]
    of_series = F.when(F.col("queue").isin(series), F.col("queue")).otherwise(REST).alias("series")
    summed = ("came_in", "went_out", "redeliveries", "in_doubt", "depth")
    rows = found.windows.groupBy(F.expr("unix_millis(window_start)").alias("start_ms"), of_series).agg(
        *(F.sum(name).alias(name) for name in summed), F.max("oldest_age_s").alias("oldest_age_s")
    )
    for row in rows.collect():
        moment = moments[row["start_ms"] // found.width_ms - first]
        moment.came_in += row["came_in"]
        moment.went_out += row["went_out"]
        moment.redeliveries += row["redeliveries"]
        moment.in_doubt += row["in_doubt"]
        moment.oldest_age_s = max(moment.oldest_age_s, row["oldest_age_s"] or 0.0)
        moment.depths[row["series"]] += row["depth"]
    return ReportData(
        journal=found.journal,
        from_ms=found.from_ms,
        until_ms=found.until_ms,
        width_ms=found.width_ms,
        total=found.total,
        queues=found.queues,
        series=series,
        moments=moments,
        latencies=found.latencies,
        epochs=found.epochs,
        dead_letters=found.dead_letters,
        skipped=found.skipped,
    )


def series_of(queues: Sequence[QueueSummary]) -> list[str]:
    """The names in the plot of depths, the deepest queue first, and `REST` if those are not all. A queue that was
    destroyed and created again has the name of the one before it, and shares its series."""
    deepest = sorted(queues, key=lambda each: (-each.depth_max, each.queue))
    names = list(dict.fromkeys(each.queue for each in deepest))
    shown = names[:SERIES_MAX]
    return shown if len(names) == len(shown) else list(dict.fromkeys([*shown, REST]))


def render(data: ReportData) -> str:
    """The page as HTML. Everything that came from the journal is escaped."""
    page = files(__package__).joinpath("report.html").read_text(encoding="utf-8")
    parts = {
        "title": f"Queues of {escape(called(data.journal))}",
        "when": _when(data),
        "warning": _warning(data),
        "tiles": _tiles(data),
        "plots": _plots(data),
        "queues": _table(data),
        "epochs": _epochs(data),
    }
    for name, part in parts.items():
        page = page.replace(f"<!-- {name} -->", part)
    return page


# ---- words -------------------------------------------------------------------------------------------------


def _clock(at_ms: int, pattern: str = "%Y-%m-%d %H:%M:%S") -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(pattern)


def _when(data: ReportData) -> str:
    span = duration((data.until_ms - data.from_ms) / 1000)
    return (
        f"{_clock(data.from_ms)} to {_clock(data.until_ms)} UTC · {span} · windows of {duration(data.width_ms / 1000)}"
    )


def _warning(data: ReportData) -> str:
    bad, told = data.dead_letters, []
    if bad.count:
        count = counted(bad.count, "record")
        told.append(f"no frames of this journal, and counted nowhere: {count}; the first: {bad.first}")
    if data.skipped:
        told.append(f"skipped by operators, and counted nowhere: {counted(data.skipped, 'record')}")
    return "\n".join(f'<p class="warning">{escape(each)}</p>' for each in told)


def _tiles(data: ReportData) -> str:
    total, seconds = data.total, max(data.until_ms - data.from_ms, 1) / 1000
    tiles = [
        ("came in", number(total.came_in), f"{number(round(total.came_in / seconds, 1))} messages/s"),
        ("went out", number(total.went_out), f"{number(round(total.went_out / seconds, 1))} messages/s"),
        ("waiting", number(total.depth), f"at most {number(total.depth_max)}"),
        ("median stay", _age(total.p50_s), f"99% within {_age(total.p99_s)}"),
        ("oldest waiting", _age(total.oldest_age_s), f"in {counted(len(data.queues), 'queue')}"),
        ("redeliveries", number(total.redeliveries), f"{total.in_doubt:,} in doubt"),
        ("activations", number(len(data.epochs)), "of nodes, and of commands that append"),
    ]
    return "\n".join(
        f'<div class="tile"><span>{name}</span><b>{escape(value)}</b><span>{escape(more)}</span></div>'
        for name, value, more in tiles
    )


def _plots(data: ReportData) -> str:
    moments, times = data.moments, [moment.end_ms for moment in data.moments]
    marks = [
        Mark(each.at_ms, f"epoch {each.epoch}", f"{each.node} became active, {_clock(each.at_ms)} UTC")
        for each in data.epochs[1:]
    ]
    begin = times[0] - data.width_ms if times else 0
    per_s = 1000 / data.width_ms
    depths = [
        Series(name, [moment.depths.get(name, 0) for moment in moments], "rest" if name == REST else f"c{index}")
        for index, name in enumerate(data.series)
    ]
    flow = [
        Series("came in", [moment.came_in * per_s for moment in moments], "c0"),
        Series("went out", [moment.went_out * per_s for moment in moments], "c1"),
    ]
    if data.total.redeliveries:
        flow.append(Series("redelivered", [moment.redeliveries * per_s for moment in moments], "c3"))
    oldest = [Series("oldest message", [moment.oldest_age_s for moment in moments], "c4")]
    in_doubt = [Series("transactions in doubt, by queue", [moment.in_doubt for moment in moments], "c5")]
    drawn = [
        _card(
            "Depth",
            "messages in queues at the end of each window",
            depths,
            TimePlot("Depth", times, begin, marks).stacked(depths),
        ),
        _card("Throughput", "messages per second", flow, TimePlot("Throughput", times, begin, marks).lines(flow)),
        _card(
            "Time in queue", f"messages that left, by how long they stayed: {data.total.went_out:,}", (), _latency(data)
        ),
        _card(
            "Age of the oldest",
            "how long the oldest message of all queues has waited",
            (),
            TimePlot("Age of the oldest", times, begin, marks, duration).lines(oldest),
        ),
    ]
    if any(moment.in_doubt for moment in moments):
        plot = TimePlot("In doubt", times, begin, marks).lines(in_doubt)
        drawn.append(
            _card("In doubt", "prepared transactions that nobody has settled, in each queue they touch", (), plot)
        )
    return "\n".join(drawn)


def _latency(data: ReportData) -> str:
    if not data.latencies:
        return '<p class="nothing">Nothing has left a queue.</p>'
    first, last = min(data.latencies), max(data.latencies)
    bars = [
        Bar(_bucket_s(bucket), _bucket_s(bucket + 1), data.latencies.get(bucket, 0))
        for bucket in range(first, last + 1)
    ]
    lines = [
        (name, value) for name, value in (("p50", data.total.p50_s), ("p99", data.total.p99_s)) if value is not None
    ]
    return histogram("Time in queue", bars, lines)


def _bucket_s(bucket: int) -> float:
    return float(10 ** (bucket / BUCKETS_PER_DECADE) / 1000)


def _card(title: str, what: str, legend: Iterable[Series], plot: str) -> str:
    names = "".join(f'<li><i class="{each.colour}"></i>{escape(each.name)}</li>' for each in legend)
    return f"<section><h2>{title}<small>{escape(what)}</small></h2><ul>{names}</ul>{plot}</section>"


def _table(data: ReportData) -> str:
    rest = len(data.queues) - QUEUES_MAX
    rows = "\n".join(_row(each) for each in data.queues[:QUEUES_MAX])
    named = counted(rest, "more queue")
    more = f'<tr class="more"><td colspan="9">and {named}</td></tr>' if rest > 0 else ""
    return f"{rows}\n{more}\n{_row(data.total, 'total')}"


def _row(of: QueueSummary, kind: str = "queue") -> str:
    counts = (of.came_in, of.went_out, of.depth, of.depth_max)
    cells = [f"{value:,}" for value in counts] + [
        _age(of.oldest_age_s),
        f"{of.redeliveries:,}",
        _age(of.p50_s),
        _age(of.p99_s),
    ]
    return f'<tr class="{kind}"><th>{escape(of.queue)}</th>' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _epochs(data: ReportData) -> str:
    return "\n".join(
        f"<li><b>epoch {each.epoch}</b> {escape(each.node)}, {_clock(each.at_ms)} UTC</li>" for each in data.epochs
    )


def _age(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)
