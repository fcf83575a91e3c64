"""Unit tests share a process, but nothing that one of them leaves in it."""

from __future__ import annotations

import pytest

from journal.process import commands


@pytest.fixture(autouse=True)
def _no_journal_known() -> None:
    """Printed commands name the brokers of the journals that this process knows: each test begins with none."""
    commands.forget()
