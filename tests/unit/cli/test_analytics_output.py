"""What the commands of queue analytics say, and where a stream without a place of its own keeps its state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from journal.cli.spark.analytics import show, state_at, to_json
from journal.errors import ConfigError
from loaders.spark.analytics.analytics import Analytics, Epoch, QueueSummary
from loaders.spark.analytics.queue_events import DeadLetters
from tests.support.build import START_MS

TOTAL = QueueSummary("all queues", 10, 7, 3, 5, 61.5, 2, 1, 4.0, 0.25, None)
WINDOWS: Any = None
FOUND = Analytics(
    journal="orders",
    from_ms=START_MS,
    until_ms=START_MS + 60_000,
    width_ms=500,
    windows=WINDOWS,
    queues=[replace(TOTAL, queue="orders/eu")],
    total=TOTAL,
    latencies={},
    epochs=[Epoch(1, "node-1", START_MS)],
    dead_letters=DeadLetters(0, ""),
    skipped=None,
)
BAD = DeadLetters(1234, "orders.wal[2]@17: an empty record")


def test_records_that_are_no_frames_are_in_what_is_told() -> None:
    whole, some = to_json(FOUND), to_json(replace(FOUND, dead_letters=BAD))
    assert (whole["dead_letters"], whole["first_dead_letter"]) == (0, None)
    assert (some["dead_letters"], some["first_dead_letter"]) == (1234, "orders.wal[2]@17: an empty record")


def test_what_operators_had_skipped_is_told_and_shown_if_there_is_any(capsys: pytest.CaptureFixture[str]) -> None:
    assert [to_json(replace(FOUND, skipped=count))["skipped"] for count in (None, 0, 2)] == [None, 0, 2]
    show(to_json(replace(FOUND, skipped=0)))
    assert "skipped" not in capsys.readouterr().out
    show(to_json(replace(FOUND, skipped=1234)))
    assert "skipped by operators 1,234" in " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_records_that_are_no_frames_are_shown_if_there_are_any(capsys: pytest.CaptureFixture[str]) -> None:
    show(to_json(FOUND))
    assert "no frames" not in capsys.readouterr().out
    show(to_json(replace(FOUND, dead_letters=BAD)))
    shown = " ".join(capsys.readouterr().out.split())
    assert "no frames of this journal" in shown
    assert "1,234; the first: orders.wal[2]@17: an empty record" in shown


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "local-cluster[2,1,1024]", "k8s://https://host", None])
def test_a_stream_s_state_is_in_no_directory_of_the_driver_s_where_executors_have_another(master: str | None) -> None:
    with pytest.raises(ConfigError, match="--state"), state_at(None, master):
        pass
    with state_at("hdfs:///state", master) as place:
        assert place == "hdfs:///state"


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_a_stream_s_state_on_one_machine_is_in_a_directory_of_the_run_s_own(master: str) -> None:
    with state_at(None, master) as place:
        assert urlsplit(place).scheme == "file"
        directory = Path(urlsplit(place).path)
        assert directory.is_dir()
    assert not directory.exists()
