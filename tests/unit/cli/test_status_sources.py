"""How `status` shows the sources."""

from __future__ import annotations

from journal.cli.status.sources import SOURCE_COLUMNS, source_notes, source_rows, sources_json
from journal.v1.journal_pb2 import SourceReport, SourcesReport

NOW_MS = 2_000_000.0

REPORT = SourcesReport(
    node="one",
    timestamp=int(NOW_MS) - 1500,
    state="running",
    sources=[
        SourceReport(
            source="fine",
            state="running",
            partitions=3,
            records=1200,
            messages=1190,
            lag=7,
            latency_ms=1234.5,
            latency_ms_max=6000,
        ),
        SourceReport(
            source="in",
            state="stopped",
            records=4,
            refused={"not-text": 2, "no-key": 1},
            dead_letters=3,
            error="t[0]@4: no text (not-text): on_error is fail",
        ),
    ],
)


def test_a_journal_whose_nodes_have_no_sources_says_nothing_of_them() -> None:
    assert sources_json(None, NOW_MS) is None


def test_json_has_everything_that_was_reported_in_numbers() -> None:
    found = sources_json(REPORT, NOW_MS)
    assert found is not None
    assert (found["node"], found["reported_seconds"], found["state"]) == ("one", 1.5, "running")
    assert found["sources"][0] == {
        "source": "fine",
        "state": "running",
        "partitions": 3,
        "records": 1200,
        "messages": 1190,
        "refused": {},
        "dead_letters": 0,
        "lag": 7,
        "error": "",
        "latency_ms": 1234.5,
        "latency_ms_max": 6000.0,
    }
    assert found["sources"][1]["refused"] == {"no-key": 1, "not-text": 2}


def test_the_table_shows_counts_and_what_is_stopped() -> None:
    found = sources_json(REPORT, NOW_MS)
    assert found is not None
    fine, stopped = source_rows(found)
    assert len(fine) == len(stopped) == len(SOURCE_COLUMNS)
    assert fine == ("fine", "running", 3, "1,200", "1,190", "0", "0", "7", "1,234", "6,000")
    assert stopped[1:] == ("STOPPED", 0, "4", "0", "no-key 1, not-text 2", "3", "0", "0", "0")


def test_notes_say_why_a_source_is_stopped_and_what_has_it_go_on() -> None:
    found = sources_json(REPORT, NOW_MS)
    assert found is not None
    assert source_notes("flights", found, "one") == [
        "source in is STOPPED: t[0]@4: no text (not-text): on_error is fail",
        "  once that is mended, on that node's machine: kafka-journal routes resume-source -j flights in --node=one",
        "  the same with --skip passes over the record that stopped it, if one did",
    ]
    missing = found["sources"][1] | {"state": "waiting", "error": "topic t is not there"}
    assert source_notes("flights", found | {"sources": [missing]}, "one") == [
        "source in is WAITING: topic t is not there",
        "  that is looked at every ten seconds: it goes on by itself once it is mended",
    ]
    assert source_notes("flights", found, "two")[0] == (
        "the sources are as one last reported, 1.5 s ago: it is not active now"
    )
