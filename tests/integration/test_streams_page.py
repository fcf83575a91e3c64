"""The example of docs/STREAMS.md as it stands there, twice: one is killed, and both topics are exact."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from journal.journal import BlockingJournal
from journal.v1.journal_pb2 import ADD, DELETE
from tests.support.in_process import made_journal
from tests.support.pages import ROOT, blocks_of
from tests.support.processes.command import command_env
from tests.support.stream_apps import committed_records, free_port, new_topic
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

PAGE = ROOT / "docs" / "STREAMS.md"
SHARDS = 2
RECORDS = 40
KIND = 77
"""None of a message store's."""


def example(seen: str, changed: str) -> str:
    """The page's code, with topics that nobody else has."""
    (block,) = [block for block in blocks_of(PAGE) if block.language == "python"]
    return block.text.replace('"seen"', f'"{seen}"').replace('"changed"', f'"{changed}"')


@contextmanager
def running(code: str, bootstrap: str, journal: str, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    directory.mkdir()
    script = directory / "service.py"
    script.write_text(code)
    env = {"KAFKA_JOURNAL_SESSION_TIMEOUT_MS": "2000", "WEB_PORT": str(free_port())}
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(script)],
            stdout=log,
            stderr=log,
            env=command_env(bootstrap, journal, directory, env),
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_the_example_of_the_page_gives_everything_once_when_one_of_two_is_killed(
    bootstrap: str, tmp_path: Path
) -> None:
    settings = made_journal(bootstrap, tmp_path / "node", shards=SHARDS)
    seen, changed = new_topic(bootstrap), new_topic(bootstrap)
    code = example(seen, changed)

    def operations() -> Counter[tuple[int, int]]:
        """Record and type of all that was seen."""
        values = [(int(key or b""), json.loads(value or b"")) for key, value in committed_records(bootstrap, seen)]
        return Counter((record, told[-1]) for record, told in values)

    with ExitStack() as processes:
        one = processes.enter_context(running(code, bootstrap, settings.journal, tmp_path / "one"))
        two = processes.enter_context(running(code, bootstrap, settings.journal, tmp_path / "two"))
        journal = processes.enter_context(BlockingJournal(settings, copy_name="test-node"))
        journal.activate()
        ids = [journal.new_id(n % SHARDS) for n in range(RECORDS)]
        for record_id in ids[: RECORDS // 2]:
            journal.add(record_id, KIND, b"x").wait()
        wait_until(operations)
        for record_id in ids[RECORDS // 2 :]:
            journal.add(record_id, KIND, b"x").wait()
        two.kill()
        for record_id in ids:
            journal.delete(record_id).wait()
        wait_until(lambda: len(operations()) == 2 * RECORDS, lambda: (tmp_path / "one" / "log").read_text())
        wait_until(lambda: changes_end(bootstrap, changed) == set())
        text = (tmp_path / "one" / "log").read_text()
        assert "seen b" in text
        one.terminate()
        assert one.wait(60) == 0
    assert operations() == Counter({(record, kind): 1 for record in ids for kind in (ADD, DELETE)})
    counts = [json.loads(value or b"")[0] for _, value in committed_records(bootstrap, changed)]
    assert all(times <= SHARDS for times in Counter(counts).values())
    assert sum(1 for count in counts if count == 1) <= SHARDS


def changes_end(bootstrap: str, topic: str) -> set[bytes]:
    """Records that were told to be there and not yet to be gone."""
    there: set[bytes] = set()
    for key, value in committed_records(bootstrap, topic):
        _, is_new, is_gone = json.loads(value or b"")
        assert is_new != is_gone
        if is_new:
            assert key not in there
            there.add(key or b"")
        else:
            there.remove(key or b"")
    return there
