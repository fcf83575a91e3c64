"""Tests share two processes: a file's tests stay together, and so do those that share something costly."""

from __future__ import annotations

from pathlib import Path

import pytest

_TOGETHER = ("chaos", "integration/spark")
"""Folders with one cluster, or one Spark, for all of their tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item.path)))


def _group(path: Path) -> str:
    inside = path.relative_to(Path(__file__).parent).as_posix()
    return next((folder for folder in _TOGETHER if inside.startswith(folder + "/")), inside)
