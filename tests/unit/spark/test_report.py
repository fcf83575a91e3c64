"""The page of the report: whole by itself, well-formed, and what it shows is what it was given."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from journal.errors import ConfigError
from loaders.spark.analytics.analytics import DAY_MS, WINDOWS_SHOWN, Epoch, QueueSummary, width_of
from loaders.spark.analytics.queue_events import DeadLetters
from loaders.spark.analytics.report import QUEUES_MAX, REST, SERIES_MAX, ReportData, WindowTotals, render, series_of
from loaders.spark.analytics.report_svg import WIDTH, Bar, Mark, Series, TimePlot, duration, histogram, number

START_MS = 1_700_000_000_000
NONE = DeadLetters(0, "")


def summary(queue: str, count: int = 10) -> QueueSummary:
    return QueueSummary(queue, count, count - 3, 3, 5, 61.5, 2, 1, 4.0, 0.25, 2.5)


def data(
    queues: int = 3, windows: int = 30, epochs: int = 2, dead_letters: DeadLetters = NONE, skipped: int = 0
) -> ReportData:
    names = [f"queue {index}" for index in range(queues)]
    series = [*names[:7], REST] if queues > 7 else names
    moments = [
        WindowTotals(START_MS + 1000 * (index + 1), 5, 4, 1, index % 2, index, dict.fromkeys(series, index))
        for index in range(windows)
    ]
    return ReportData(
        journal="demo",
        from_ms=START_MS,
        until_ms=START_MS + 1000 * windows,
        width_ms=1000,
        total=summary("all queues", 100),
        queues=[summary(name) for name in names],
        series=series,
        moments=moments,
        latencies={6: 3, 9: 40, 12: 5} if windows else {},
        epochs=[Epoch(epoch, f"node-{epoch}", START_MS + 500 * epoch) for epoch in range(1, epochs + 1)],
        dead_letters=dead_letters,
        skipped=skipped,
    )


class Tags(HTMLParser):
    """The tags that are open at the end, and what the page would load."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "br", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None: ...

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def plots(page: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(found) for found in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def test_a_page_needs_nothing_else_and_is_well_formed() -> None:
    page = render(data())
    tags = Tags(page)
    assert (tags.open, tags.loads) == ([], [])
    assert "<script" not in page
    assert "url(" not in page
    assert "<!-- " not in page
    assert "prefers-color-scheme: dark" in page
    assert [plot.get("aria-label") for plot in plots(page)] == [
        "Depth",
        "Throughput",
        "Time in queue",
        "Age of the oldest",
        "In doubt",
    ]


def test_names_are_shown_as_they_are() -> None:
    given = data()
    name = '<b>"a" & b</b>'
    given.queues[0:1] = [summary(name)]  # type: ignore[index]
    page = render(given)
    assert name not in page
    assert "&lt;b&gt;&quot;a&quot; &amp; b&lt;/b&gt;" in page


def test_records_that_are_no_frames_are_warned_of() -> None:
    assert '<p class="warning">' not in render(data())
    page = render(data(dead_letters=DeadLetters(1234, "demo.wal[1]@17: of journal <x>")))
    assert Tags(page).open == []
    (warning,) = re.findall(r'<p class="warning">(.*?)</p>', page)
    assert warning.startswith("no frames of this journal, and counted nowhere: 1,234 records")
    assert warning.endswith("the first: demo.wal[1]@17: of journal &lt;x&gt;")


def test_records_that_operators_had_skipped_are_told() -> None:
    page = render(data(skipped=1234))
    (warning,) = re.findall(r'<p class="warning">(.*?)</p>', page)
    assert warning == "skipped by operators, and counted nowhere: 1,234 records"


def test_a_report_of_many_queues_sums_the_rest() -> None:
    page = render(data(queues=QUEUES_MAX + 10))
    assert "and 10 more queues" in page
    assert page.count('class="area ') == 8
    assert page.count(f"</i>{REST}</li>") == 1
    assert "and " not in re.sub(r"(?s).*<tbody>(.*)</tbody>.*", r"\1", render(data(queues=3)))


def test_a_queue_that_was_made_anew_is_drawn_once() -> None:
    """Its depths are those of both: drawn twice they would be twice as high."""
    assert series_of([summary("a"), summary("b"), summary("a")]) == ["a", "b"]
    many = [summary(f"queue {index}") for index in range(SERIES_MAX)]
    assert series_of([*many, many[0]]) == [each.queue for each in many]
    assert series_of([*many, summary("z")]) == [*(each.queue for each in many), REST]
    assert series_of([summary(REST), *many]) == [REST, *(each.queue for each in many[:-1])]


def test_activations_are_counted_and_none_is_called_a_failover() -> None:
    """Commands that append begin epochs too, and the WAL does not say who gave the journal up in order."""
    page = render(data(epochs=31))
    assert "<span>activations</span><b>31</b><span>of nodes, and of commands that append</span>" in page
    assert "failover" not in page


def test_activations_are_marks_but_the_first() -> None:
    depth, throughput, latency, *_ = plots(render(data(epochs=3)))
    for plot in (depth, throughput):
        titles = [mark[0].text for mark in plot.findall("g[@class='mark']")]
        assert titles == [f"node-{epoch} became active, 2023-11-14 22:13:2{epoch // 2} UTC" for epoch in (2, 3)]
    assert len(latency.findall("g[@class='mark']")) == 2  # the percentiles


@pytest.mark.parametrize("windows", [0, 1, 2000])
def test_a_page_of_nothing_and_of_much_is_a_page(windows: int) -> None:
    page = render(data(windows=windows))
    assert Tags(page).open == []
    assert ("Nothing has left a queue." in page) == (windows == 0)


def test_labels_do_not_overlap() -> None:
    marks = [Mark(START_MS + 100 * index, f"epoch {index}", "") for index in range(40)]
    plot = ElementTree.fromstring(TimePlot("t", [START_MS, START_MS + 4000], START_MS, marks).lines([]))
    rows: dict[str, list[float]] = {}
    for text in plot.findall("g/text"):
        rows.setdefault(text.get("y") or "", []).append(float(text.get("x") or ""))
    assert len(rows) == 2
    for places in rows.values():
        assert all(after - before > 80 for before, after in itertools.pairwise(places))
    times = [float(text.get("x") or "") for text in plot.findall("text") if text.get("text-anchor") != "end"]
    assert all(after - before > 60 for before, after in itertools.pairwise(times))


def test_a_line_goes_where_its_values_are() -> None:
    times = [START_MS + 1000, START_MS + 2000, START_MS + 3000]
    plot = ElementTree.fromstring(TimePlot("t", times, START_MS, []).lines([Series("s", [0, 50, 100], "c0")]))
    line = plot.find("polyline")
    assert line is not None
    points = [tuple(map(float, point.split(","))) for point in (line.get("points") or "").split()]
    (_, low), (_, middle), (last, high) = points
    assert last == WIDTH - 16
    assert middle == (low + high) / 2
    shown = {
        text.text: float(text.get("y") or "") - 4 for text in plot.findall("text") if text.get("text-anchor") == "end"
    }
    assert (shown["0"], shown["100"]) == (low, high)


def test_bars_are_as_high_as_their_counts() -> None:
    plot = ElementTree.fromstring(histogram("t", [Bar(0.001, 0.01, 10), Bar(0.01, 0.1, 40)], [("p50", 0.02)]))
    heights = [float(bar.get("height") or "") for bar in plot.findall("rect")]
    assert heights[1] == pytest.approx(4 * heights[0])
    assert [text.text for text in plot.findall("g/text")] == ["p50 20 ms"]


def test_numbers_and_durations_are_short() -> None:
    assert [number(value) for value in (0, 3, 0.25, 9_999, 12_500, 3_000_000, 2.5e9)] == [
        "0",
        "3",
        "0.25",
        "9,999",
        "12.5 k",
        "3 M",
        "2.5 G",
    ]
    assert [duration(value) for value in (0.0042, 0.5, 4.25, 119, 180, 7200, 9000, 3e6)] == [
        "4.2 ms",
        "500 ms",
        "4.25 s",
        "119 s",
        "3 min",
        "2 h",
        "2.5 h",
        "34.7 d",
    ]


def test_windows_are_round_and_few_unless_asked_for() -> None:
    assert width_of(0, None) == 100
    assert width_of(95_000, None) == 1_000
    assert width_of(400 * DAY_MS, None) == 4 * DAY_MS
    for span in (1, 10**5, 10**7, 10**9, 10**11):
        assert span / width_of(span, None) <= WINDOWS_SHOWN
    assert width_of(10**9, 0.25) == 250
    with pytest.raises(ConfigError):
        width_of(1, 0)
