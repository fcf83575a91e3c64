"""A worker that trims by itself, on a real Kafka: it deletes what `trim` would, and everything goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from journal.journal import BlockingJournal
from tests.support.in_process import Collected, made_journal
from tests.support.processes.command import command_env, run_command
from tests.support.processes.worker import WorkerProcess

pytestmark = pytest.mark.kafka

SCHEDULE = {"KAFKA_JOURNAL_TRIM_EVERY_MS": "200"}
MEANT = SCHEDULE | {"KAFKA_JOURNAL_TRIM_WITHOUT_ARCHIVE": "true"}


def test_a_worker_trims_by_itself_and_everything_goes_on(bootstrap: str, tmp_path: Path) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=2)

    def epoch(*ids: int) -> set[int]:
        loaded = Collected()
        with BlockingJournal(settings) as journal:
            journal.activate(loaded)
            for record_id in ids:
                journal.add(record_id, 1, b"%d" % record_id)
            journal.flush().wait()
        return set(loaded.records)

    refused = run_command("worker", env=command_env(bootstrap, settings.journal, tmp_path, SCHEDULE))
    assert (refused.returncode, "has no archive" in " ".join(refused.stderr.split())) == (2, True), refused.stderr
    with WorkerProcess(bootstrap, settings.journal, tmp_path / "worker", MEANT) as worker:
        assert epoch(1, 2, 3) == set()
        assert epoch(4) == {1, 2, 3}
        worker.wait_for_log("the WAL was trimmed by ")
        before = len(worker.log())
        assert epoch(5) == {1, 2, 3, 4}
        worker.wait_for_log("the WAL was trimmed by ", after=before)
        assert worker.terminate() == 0
        assert "ERROR" not in worker.log()
    verified = run_command("verify", "--json", env=command_env(bootstrap, settings.journal, tmp_path / "commands"))
    report = json.loads(verified.stdout)
    assert (report["agrees"], report["complete"]) == (True, True), report
    assert all("by worker " in shard["base"] for shard in report["shards"])
