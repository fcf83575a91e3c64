"""A message store and a real PostgreSQL in one distributed transaction, killed before and after each call of every
branch, then recovered: both agree, always, and nothing stays in doubt."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import SystemRandom

import psycopg
import pytest

from journal.xa.coordinator import Recovery
from tests.support.children.xa import DONE, TABLE, TODO, active_node, run
from tests.support.long_form import LONG, seed
from tests.support.postgres import Postgres, running_postgres
from tests.support.processes.command import command_env, new_journal
from tests.support.processes.forked import call_forked
from tests.support.processes.worker import WorkerProcess

pytestmark = [pytest.mark.timeout(300)]

SEED = seed(SystemRandom().randrange(2))

CHILD_S = 60.0
NEVER = -1
STEPS = [
    "before postgres begin",
    "after postgres begin",
    "before store prepare",
    "after store prepare",
    "store prepare durable",
    "before postgres prepare",
    "after postgres prepare",
    "before store commit",
    "after store commit",
    "store commit durable",
    "before postgres commit",
    "after postgres commit",
    "before journal delete",
    "after journal delete",
]
"""The steps of a transfer, in order. A call that waits for nothing has no step `durable`."""

DECIDED = STEPS.index("store commit durable")
PREPARED = STEPS.index("after postgres prepare")

REFUSED = [
    *STEPS[: PREPARED + 1],
    "before store rollback",
    "after store rollback",
    "store rollback durable",
    "before postgres rollback",
    "after postgres rollback",
]
"""The steps of a transfer that a participant refuses once all have prepared."""

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
        "before store rollback",
        "after store rollback",
        "store rollback durable",
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
    """A store and a database that should agree."""

    def __init__(self, journal: str, dsn: str, env: Mapping[str, str]) -> None:
        self.journal = journal
        self.dsn = dsn
        self._env = dict(env)
        self._begun: set[str] = set()
        self._may: set[str] = set()
        self._must: set[str] = set()
        with psycopg.connect(dsn) as connection:
            connection.execute(TABLE)

    def child(self, act: str, step: int, name: str = "-") -> list[str]:
        """The steps that a child process took, until it was killed at `step`."""
        ended = call_forked(run, (self.journal, self.dsn, act, name, step), self._env, CHILD_S)
        told = ended.stdout.split("\n")[:-1]
        assert ended.returncode == (0 if step == NEVER else -signal.SIGKILL), ended.stderr
        return told

    def transfer(self, step: int, *, refused: bool = False) -> list[str]:
        name = f"transfer-{len(self._begun)}"
        self._begun.add(name)
        told = self.child("refuse" if refused else "transfer", step, name)
        if not refused:
            self._may.add(name)
            if told[-1] == "done":
                self._must.add(name)
        return told

    def check(self, *, nothing_left: bool = False) -> None:
        """Recover in this process, and compare. With `nothing_left` an earlier one has recovered all."""
        with active_node(self.journal, self.dsn) as node, psycopg.connect(self.dsn) as connection:
            recovery = node.recover()
            assert not nothing_left or recovery == Recovery()
            assert not node.resource.in_doubt()
            assert not node.resource.outcomes()
            assert not node.store.transactions()
            done, todo = node.names(DONE), node.names(TODO)
            assert node.store.queue(TODO).locked == node.store.queue(DONE).arriving == 0
            rows = {name for (name,) in connection.execute("SELECT name FROM transfers")}
            prepared = connection.execute("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()")
            assert prepared.fetchall() == []
        assert done == sorted(rows)
        assert todo == sorted(self._begun - rows)
        assert self._must <= rows <= self._may


def chosen(steps: Sequence[str]) -> list[tuple[int, str]]:
    """All steps in the long form; otherwise every second one, from the first or the second on as the seed decides."""
    print(f"KAFKA_JOURNAL_TEST_SEED={SEED}")
    return [(step, name) for step, name in enumerate(steps) if LONG or step % 2 == SEED % 2]


@pytest.fixture
def local_site(postgres: Postgres, tmp_path: Path) -> Site:
    return Site(
        str(tmp_path / "journal"), postgres.new_database(f"local_{os.getpid()}_{tmp_path.name[-8:]}"), os.environ
    )


def test_store_and_postgres_agree_wherever_a_transfer_is_killed(local_site: Site) -> None:
    assert local_site.transfer(NEVER) == [*STEPS, "done"]
    for step, name in chosen(STEPS):
        assert local_site.transfer(step)[-1] == name
        local_site.check()
    local_site.check(nothing_left=True)


def test_store_and_postgres_agree_wherever_an_abort_is_killed(local_site: Site) -> None:
    assert local_site.transfer(NEVER, refused=True) == [*REFUSED, "done"]
    local_site.check(nothing_left=True)
    for step in range(PREPARED + 1, len(REFUSED)):
        assert local_site.transfer(step, refused=True) == REFUSED[: step + 1]
        local_site.check()
    local_site.check(nothing_left=True)


@pytest.mark.parametrize("killed_at", list(RECOVERIES))
def test_store_and_postgres_agree_wherever_a_recovery_is_killed(local_site: Site, killed_at: int) -> None:
    steps = RECOVERIES[killed_at]
    for step, name in chosen(steps):
        local_site.transfer(killed_at)
        assert local_site.child("recover", step) == steps[: step + 1]
        assert steps[step] == name
        local_site.check()
    local_site.transfer(killed_at)
    assert local_site.child("recover", NEVER) == [*steps, "done"]
    local_site.check(nothing_left=True)


@pytest.mark.kafka
def test_store_and_postgres_agree_over_kafka(
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
            site.check()
        site.check(nothing_left=True)
