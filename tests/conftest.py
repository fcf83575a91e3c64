"""Tests share two processes: a file's tests stay together, and so do those that share something costly."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

_TOGETHER = ("tests/chaos/", "tests/integration/spark/")
"""Folders with one cluster, or one Spark, for all of their tests."""

_LONGEST = "tests/integration/spark/"
"""Begins first, so that the other process has everything else to fill the time with."""


class _Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in _TOGETHER if nodeid.startswith(folder)), nodeid.split("::", 1)[0])


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background jobs ignore Ctrl-C, and so would the commands that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(_LONGEST))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return _Scheduling(config, log)
