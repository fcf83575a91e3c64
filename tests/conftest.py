"""Tests share a few processes, as some of them wait: a file's tests stay together, and so do those that share something
costly."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from journal.embedded.cluster import EmbeddedKafka
from journal.embedded.guard import Guard
from tests.support.brokers import SHARED_KAFKA

_CLUSTER = "tests/chaos/"
"""Tests of this folder share one cluster."""

_SPARK = "tests/integration/spark/"
_SPARKS = ("gw0",)
"""Processes that run Spark's tests, each with a Spark of its own."""

_GIVEN_UP = 3
"""The niceness of all other processes. Spark's tests take longest, one after the other, so they get more of a machine
that has too few cores for all; and Spark gives a query up whose Python does not answer within ten seconds."""

_APART = ("tests/simulation/", "tests/chaos/test_containers.py", "tests/integration/test_pages.py")
"""Tests that share nothing, and some of which take long: any process may take the next one."""

_LONGEST_FIRST = (
    "tests/integration/spark/test_tables.py",
    "tests/integration/spark/test_analytics.py",
    "tests/integration/spark/test_chain.py",
    "tests/integration/spark/test_cluster.py",
    "tests/integration/spark/",
    "tests/integration/test_pages.py",
    "tests/chaos/",
    "tests/clients/",
    "tests/integration/test_cli.py",
    "tests/integration/test_sources_replies.py",
    "tests/integration/test_broker_restart.py",
    "tests/integration/test_bench_failover.py",
    "tests/integration/test_demo.py",
    "tests/integration/test_xa_postgres.py",
    "tests/integration/",
    "tests/simulation/",
)
"""Tests that begin first. All others are short, and fill the time until the last process ends."""

# A busy machine is not slow code: no example has a deadline, and none is refused for how long it took to draw.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("suite")


class _Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives Spark's files to the processes for them, which run these before all others."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(_APART):
            return nodeid
        if nodeid.startswith(_CLUSTER):
            return _CLUSTER
        return nodeid.split("::", 1)[0]

    def _fitting(self, node: WorkerController) -> Iterator[str]:
        """The waiting files that the process may run, in the order in which it should."""
        others = (scope for scope in self.workqueue if not scope.startswith(_SPARK))
        if node.gateway.id not in _SPARKS:
            return others
        return chain((scope for scope in self.workqueue if scope.startswith(_SPARK)), others)

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(next(self._fitting(node), next(iter(self.workqueue))), last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if next(self._fitting(node), None) is not None:
            super()._reschedule(node)
        elif not node.shutting_down:
            node.shutdown()


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background jobs ignore Ctrl-C, and so would the commands that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.get("PYTEST_XDIST_WORKER", _SPARKS[0]) not in _SPARKS:
        os.nice(_GIVEN_UP)
    if config.getoption("numprocesses", None):
        config.pluginmanager.register(_SharedKafka())


def pytest_sessionstart(session: pytest.Session) -> None:
    """Before all processes import all tests, each imports its part of them: pytest prepares a file's assertions when it
    is imported for the first time, and keeps them. Otherwise all would do all of it, at the same time."""
    number, of = (os.environ.get(f"PYTEST_XDIST_WORKER{each}") for each in ("", "_COUNT"))
    if number is None or of is None:
        return
    for argument in session.config.args:
        path = Path(argument.split("::")[0]).resolve()
        files = sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
        for file in files[int(number.removeprefix("gw")) :: int(of)]:
            # what is wrong with a file is said when it is collected
            with suppress(Exception, pytest.skip.Exception):
                import_module(".".join(file.relative_to(session.config.rootpath).with_suffix("").parts))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    longest = len(_LONGEST_FIRST)
    items.sort(key=lambda item: next((n for n in range(longest) if item.nodeid.startswith(_LONGEST_FIRST[n])), longest))


def pytest_collection_finish(session: pytest.Session) -> None:
    # what thousands of tests are made of stays until the end: to look through it for garbage is a twentieth of a seed
    gc.collect()
    gc.freeze()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return _Scheduling(config, log)


class _SharedKafka:
    """One broker for all test processes: the first that needs it starts it, and it ends with whoever started them."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="kafka-journal-tests-")
        self._guard = Guard(Path(self._directory.name))
        self._guard.ensure()

    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[SHARED_KAFKA] = self._directory.name

    def pytest_unconfigure(self) -> None:
        EmbeddedKafka(self._directory.name).stop()
        self._guard.end()
        self._directory.cleanup()
