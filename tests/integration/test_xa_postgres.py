"""A store and a real PostgreSQL in one distributed transaction, killed before and after each call of every branch, then
recovered: both agree, always, and nothing stays in doubt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg
import pytest

from journal.v1.store_pb2 import MESSAGE
from tests.support.in_process import Collected
from tests.support.postgres import Postgres, running_postgres
from tests.support.processes import WorkerProcess, command_env, new_journal
from tests.support.xa_node import TABLE, active_node

pytestmark = [pytest.mark.timeout(300)]

CHILD_S = 60.0
NEVER = -1
STEPS = [
    "before postgres begin",
    "after postgres begin",
    "before journal prepare",
    "after journal prepare",
    "journal prepare durable",
    "before postgres prepare",
    "after postgres prepare",
    "before journal commit",
    "after journal commit",
    "journal commit durable",
    "before postgres commit",
    "after postgres commit",
    "before journal delete",
    "after journal delete",
]
"""Of a transfer, in order; what waits for nobody has no `durable`."""

DECIDED = STEPS.index("journal commit durable")
PREPARED = STEPS.index("after postgres prepare")

RECOVERIES = {
    DECIDED: [
        "before postgres recover",
        "after postgres recover",
        "before postgres commit",
        "after postgres commit",
        "before journal delete",
        "after journal delete",
        "journal delete durable",
    ],
    PREPARED: [
        "before journal rollback",
        "after journal rollback",
        "journal rollback durable",
        "before postgres recover",
        "after postgres recover",
        "before journal proof",
        "after journal proof",
        "journal proof durable",
        "before postgres rollback",
        "after postgres rollback",
    ],
}
"""The steps of the recovery of a transfer that was killed there."""


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as running:
        yield running


class Site:
    """A journal and a database that should agree."""

    def __init__(self, journal: str, dsn: str, env: Mapping[str, str]) -> None:
        self.journal = journal
        self.dsn = dsn
        self._env = dict(env)
        self._may: set[str] = set()
        self._must: set[str] = set()
        with psycopg.connect(dsn) as connection:
            connection.execute(TABLE)

    def child(self, act: str, step: int, name: str = "-") -> list[str]:
        """The steps that a child process took, until it was killed at `step`."""
        command = [sys.executable, "-m", "tests.support.xa_node", self.journal, self.dsn, act, name, str(step)]
        ended = subprocess.run(command, env=self._env, capture_output=True, timeout=CHILD_S, check=False)
        told = ended.stdout.decode().split("\n")[:-1]
        assert ended.returncode == (0 if step == NEVER else -signal.SIGKILL), ended.stderr.decode()
        if act == "transfer":
            self._may.add(name)
            if told[-1] == "done":
                self._must.add(name)
        return told

    def transfer(self, step: int) -> list[str]:
        return self.child("transfer", step, f"transfer-{len(self._may)}")

    def check(self) -> None:
        """Recover in this process, and compare."""
        loaded = Collected()
        with active_node(self.journal, self.dsn, loaded) as node:
            node.recover()
            assert not node.resource.in_doubt()
            assert not node.resource.outcomes()
        loaded = Collected()
        with active_node(self.journal, self.dsn, loaded), psycopg.connect(self.dsn) as connection:
            rows = {name for (name,) in connection.execute("SELECT name FROM transfers")}
            prepared = connection.execute("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()")
            assert prepared.fetchall() == []
        messages = {data.decode() for kind, data in loaded.records.values() if kind == MESSAGE}
        assert messages == rows
        assert self._must <= rows <= self._may


@pytest.fixture
def local_site(postgres: Postgres, tmp_path: Path) -> Site:
    return Site(
        str(tmp_path / "journal"), postgres.new_database(f"local_{os.getpid()}_{tmp_path.name[-8:]}"), os.environ
    )


def test_both_agree_wherever_a_transfer_is_killed(local_site: Site) -> None:
    assert local_site.transfer(NEVER) == [*STEPS, "done"]
    for step, name in enumerate(STEPS):
        assert local_site.transfer(step)[-1] == name
        local_site.check()


@pytest.mark.parametrize("killed_at", list(RECOVERIES))
def test_both_agree_wherever_a_recovery_is_killed(local_site: Site, killed_at: int) -> None:
    steps = RECOVERIES[killed_at]
    for step, name in enumerate(steps):
        local_site.transfer(killed_at)
        assert local_site.child("recover", step) == steps[: step + 1]
        assert steps[step] == name
        local_site.check()
    local_site.transfer(killed_at)
    assert local_site.child("recover", NEVER) == [*steps, "done"]
    local_site.check()


@pytest.mark.kafka
def test_both_agree_over_kafka(
    postgres: Postgres, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = new_journal(bootstrap, 2, directory=tmp_path / "command")
    env = command_env(bootstrap, journal, tmp_path / "node")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    site = Site("kafka", postgres.new_database(f"kafka_{os.getpid()}"), env)
    with WorkerProcess(bootstrap, journal, tmp_path / "worker"):
        assert site.transfer(NEVER) == [*STEPS, "done"]
        for step, name in enumerate(STEPS):
            assert site.transfer(step)[-1] == name
        # what all of them left, in one recovery
        site.check()
