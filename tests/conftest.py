"""Tests share a few processes, as some of them wait: a file's tests stay together, and so do those that share something
costly."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from journal.embedded.cluster import EmbeddedKafka
from journal.embedded.guard import Guard
from tests.support.brokers import SHARED_KAFKA

_CLUSTER = "tests/chaos/"
"""Has one cluster for all of its tests."""

_SPARK = "tests/integration/spark/test_"
_ONE_SPARK = ("a", "s")
"""How the files' names begin that share one Spark; the others share another one: one alone takes longer for all of them
than the other processes for everything else."""

_APART = ("tests/simulation/", "tests/chaos/test_containers.py", "tests/integration/test_pages.py")
"""Tests that share nothing, and some of which take long: any process may take the next one."""

# A busy machine is not slow code: no example has a deadline, and none is refused for how long it took to draw.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("suite")


class _Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(_APART):
            return nodeid
        if nodeid.startswith(_CLUSTER):
            return _CLUSTER
        if nodeid.startswith(_SPARK):
            return f"{_SPARK}{nodeid.removeprefix(_SPARK).startswith(_ONE_SPARK)}"
        return nodeid.split("::", 1)[0]


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background jobs ignore Ctrl-C, and so would the commands that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
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
    # what takes longest begins first: there is everything else to fill the time with then
    items.sort(key=lambda item: not item.nodeid.startswith(_SPARK))


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
