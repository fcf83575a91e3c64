"""Settings of nodes, and what of them contradicts each other."""

from __future__ import annotations

import pytest

from journal.config import Settings, load_settings
from journal.errors import ConfigError


def test_a_lost_heartbeat_costs_no_session() -> None:
    with pytest.raises(ConfigError, match="node_heartbeat_ms must be below half"):
        load_settings(None, node_session_timeout_ms=1000, node_heartbeat_ms=500)
    assert load_settings(None, node_session_timeout_ms=1000, node_heartbeat_ms=499).node_heartbeat_ms == 499


def test_only_a_preferred_node_asks_for_the_journal_back() -> None:
    with pytest.raises(ConfigError, match="fail_back is for a preferred node"):
        load_settings(None, fail_back=True)
    assert load_settings(None, preferred=True, fail_back=True).fail_back


def test_by_default_the_session_is_as_long_as_the_silence_that_a_standby_waits_for() -> None:
    settings = Settings()
    assert settings.node_session_timeout_ms == 2 * settings.fence_check_ms
    assert not settings.preferred
    assert not settings.fail_back
