"""Agents that cannot be are refused where they are declared."""

from __future__ import annotations

import pytest

from journal.config import Settings
from journal.errors import ConfigError
from streams.apps.factory import make_app


@pytest.mark.parametrize("to", ["orders.wal", "orders.table", "orders.control", "orders.agent.other"])
def test_an_agent_may_not_give_to_the_journals_own_topics_nor_to_the_memory_of_one(to: str) -> None:
    app = make_app(Settings(journal="orders", node="node"))
    for declare in (app.on_operation, app.on_change):
        with pytest.raises(ConfigError, match=f"agent tell: {to} is the journal's own topic"):
            declare(to=to, name="tell")(lambda told: None)
