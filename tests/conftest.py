"""Tests share a few processes, as some of them wait: a file's tests stay together, and so do those that share something
costly."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

_TOGETHER = ("tests/chaos/", "tests/integration/spark/")
"""Folders with one cluster, or one Spark, for all of their tests."""

_APART = "tests/simulation/"
"""Tests that share nothing, and some of which take long: any process may take the next one."""

_LONGEST = "tests/integration/spark/"
"""Begins first, so that the other processes have everything else to fill the time with."""

# A busy machine is not slow code: no example has a deadline, and none is refused for how long it took to draw.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("suite")


class _Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(_APART):
            return nodeid
        return next((folder for folder in _TOGETHER if nodeid.startswith(folder)), nodeid.split("::", 1)[0])


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background jobs ignore Ctrl-C, and so would the commands that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(_LONGEST))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return _Scheduling(config, log)
