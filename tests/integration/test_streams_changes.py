"""`on_change` agents on real Kafka: what they are told, and what of theirs is there exactly once."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from journal.config import Settings
from journal.errors import TopicError
from journal.journal import BlockingJournal
from streams.agents.changes import Changes
from streams.apps.factory import JournalApp, make_app
from tests.support.in_process import made_journal, running_worker
from tests.support.stream_apps import committed_records, free_port, new_topic, running
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

KIND = 7


def counting_app(settings: Settings, to: str, seen: list[tuple[str, bytes | None, bytes | None]]) -> JournalApp:
    """An app whose agent numbers the changes of records in each shard, by a count that it keeps in its state."""
    app = make_app(settings, web_port=free_port())

    @app.on_change(to=to)
    def count(changes: Changes) -> Iterator[tuple[bytes, str]]:
        for change in changes.records():
            old = None if change.old is None else change.old.data
            new = None if change.new is None else change.new.data
            updates = 0 if change.new is None else len(change.new.updates)
            number = int(changes.state.get(b"count") or b"0") + 1
            changes.state.put(b"count", b"%d" % number)
            seen.append(("first" if changes.first else "then", old, new))
            text = [b"" if each is None else each for each in (old, new)]
            yield b"%d" % change.id, json.dumps([number, text[0].decode(), text[1].decode(), updates])

    return app


def given(bootstrap: str, topic: str) -> list[list[object]]:
    return [json.loads(value or b"") for _, value in committed_records(bootstrap, topic)]


def test_an_agent_is_told_old_and_new_and_goes_on_exactly_there_on_another_machine(
    bootstrap: str, tmp_path: Path
) -> None:
    settings = made_journal(bootstrap, tmp_path / "one", shards=1)
    to = new_topic(bootstrap)
    seen: list[tuple[str, bytes | None, bytes | None]] = []
    with BlockingJournal(settings, copy_name="test-node") as journal:
        with running_worker(settings):
            journal.activate()
            kept, gone = journal.new_id(), journal.new_id()
            journal.add(kept, KIND, b"kept").wait()
            journal.add(gone, KIND, b"gone").wait()
            wait_until(lambda: journal.read(gone) is not None)
        with running(counting_app(settings, to, seen)):
            wait_until(lambda: len(given(bootstrap, to)) == 2)
            journal.update(kept, 1, b"update").wait()
            wait_until(lambda: len(given(bootstrap, to)) == 3)
        assert seen == [("first", None, b"kept"), ("first", None, b"gone"), ("then", b"kept", b"kept")]
        with running_worker(settings):
            journal.delete(gone).wait()
            wait_until(lambda: journal.read(gone) is None)
        elsewhere = settings.model_copy(update={"directory": tmp_path / "two"})
        with running(counting_app(elsewhere, to, seen)):
            wait_until(lambda: len(given(bootstrap, to)) == 4)
            journal.delete(kept).wait()
            wait_until(lambda: len(given(bootstrap, to)) == 5)
    assert seen[3:] == [("then", b"gone", None), ("then", b"kept", None)]
    assert given(bootstrap, to) == [
        [1, "", "kept", 0],
        [2, "", "gone", 0],
        [3, "kept", "kept", 1],
        [4, "gone", "", 0],
        [5, "kept", "", 0],
    ]


def test_what_an_agent_gave_before_it_raised_is_not_there_and_neither_is_its_state(
    bootstrap: str, tmp_path: Path
) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=1)
    to = new_topic(bootstrap)
    app = make_app(settings, web_port=free_port())
    raised = threading.Event()

    @app.on_change(to=to, every_s=0.1)
    async def once(changes: Changes) -> AsyncIterator[tuple[str, str]]:
        if changes.state.get(b"said") is None and list(changes.records()):
            changes.state.put(b"said", b"")
            yield "said", "once"
            if not raised.is_set():
                raised.set()
                raise ValueError("after it gave something")

    with running(app), BlockingJournal(settings, copy_name="test-node") as journal:
        journal.activate()
        journal.add(journal.new_id(), KIND, b"x").wait()
        wait_until(lambda: committed_records(bootstrap, to))
        journal.add(journal.new_id(), KIND, b"y").wait()
        wait_until(lambda: app.host.tellings()["once"] > 2 and not app.host.agent_troubles())
    assert raised.is_set()
    assert committed_records(bootstrap, to) == [(b"said", b"once")]


def test_a_memory_with_other_partitions_than_the_journal_is_refused(bootstrap: str, tmp_path: Path) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=2)
    other = new_topic(bootstrap, f"{settings.journal}.agent.count")
    with (
        pytest.raises(TopicError, match=f"topic {other} has 1 partitions.*needs 2"),
        running(counting_app(settings, new_topic(bootstrap), [])),
    ):
        pass
