"""Settings of nodes, and what of them contradicts each other."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from journal.config import Settings, load_settings
from journal.errors import ConfigError
from journal.kafka.clients import KafkaClients
from journal.load.loading import NullLoader
from journal.store.settings import QUEUE_REFERENCES_IN_MEMORY_MAX, REFERENCES_IN_MEMORY_MAX, StoreSettings
from loaders.node.node import Node


def test_a_lost_heartbeat_costs_no_session() -> None:
    with pytest.raises(ConfigError, match="node_heartbeat_ms must be below half"):
        load_settings(None, node_session_timeout_ms=1000, node_heartbeat_ms=500)
    assert load_settings(None, node_session_timeout_ms=1000, node_heartbeat_ms=499).node_heartbeat_ms == 499


def test_only_a_preferred_node_asks_for_the_journal_back() -> None:
    def node(**settings: bool) -> Node:
        return Node(load_settings(None, **settings), loader=NullLoader, on_active=lambda _: None)

    with pytest.raises(ConfigError, match="fail_back is for a preferred node"):
        node(fail_back=True)
    node(preferred=True, fail_back=True).close()
    assert load_settings(None, fail_back=True), "a worker may have the file of a node that is --preferred"


def test_a_directory_that_is_empty_is_not_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_JOURNAL_DIRECTORY", "")
    with pytest.raises(ConfigError, match="KAFKA_JOURNAL_DIRECTORY in the environment: must not be empty"):
        load_settings(None)


def test_a_session_is_no_longer_than_a_client_can_keep_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="node_session_timeout_ms"):
        load_settings(None, node_session_timeout_ms=600_001)
    settings = load_settings(None, node_session_timeout_ms=600_000, bootstrap_servers="127.0.0.1:1")
    kafka = KafkaClients(settings.bootstrap_servers)
    kafka.membership(
        *("group", "topic", "name"), session_timeout_ms=settings.node_session_timeout_ms, heartbeat_ms=500
    ).leave()


@pytest.mark.parametrize("role", ["active", "standby", "fenced"])
def test_a_command_whose_quotes_are_open_is_no_setting(role: str) -> None:
    with pytest.raises(ConfigError, match=f"on_{role}_command: .*No closing quotation"):
        load_settings(None, **{f"on_{role}_command": "move-address '10.0.0.7"})


@pytest.mark.parametrize("pause", ["commit_pause_ms", "commit_pause_max_ms", "group_join_ms"])
def test_a_writer_does_not_pause_for_as_long_as_a_node_may_be_silent(pause: str) -> None:
    for long_ms in (3000, math.inf):
        with pytest.raises(ConfigError, match="must be below fence_check_ms"):
            load_settings(None, **{pause: long_ms})
    assert load_settings(None, **{pause: 2000})


def test_by_default_the_session_is_as_long_as_the_silence_that_a_standby_waits_for() -> None:
    settings = Settings()
    assert settings.node_session_timeout_ms == 2 * settings.fence_check_ms
    assert not settings.preferred
    assert not settings.fail_back


def test_what_is_in_doubt_is_kept_unless_both_settings_say_otherwise() -> None:
    assert Settings().on_in_doubt == "keep"
    with pytest.raises(ConfigError, match="on_in_doubt = rollback needs on_in_doubt_after_ms"):
        load_settings(None, on_in_doubt="rollback")
    with pytest.raises(ConfigError, match="on_in_doubt_after_ms is for on_in_doubt"):
        load_settings(None, on_in_doubt_after_ms=1000)
    with pytest.raises(ConfigError, match="on_in_doubt"):
        load_settings(None, on_in_doubt="forget", on_in_doubt_after_ms=1000)
    assert load_settings(None, on_in_doubt="commit", on_in_doubt_after_ms=1000).on_in_doubt_after_ms == 1000


def test_a_nodes_store_has_the_stores_own_defaults_and_takes_its_settings_like_the_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings()
    assert settings.store == StoreSettings()
    assert settings.references_in_memory_max == REFERENCES_IN_MEMORY_MAX
    assert settings.queue_references_in_memory_max == QUEUE_REFERENCES_IN_MEMORY_MAX < REFERENCES_IN_MEMORY_MAX
    file = tmp_path / "settings.toml"
    file.write_text('queue_references_in_memory_max = 7\n[store]\nswap_directory = "swap"\nacquire_grace_ms = 5\n')
    monkeypatch.setenv("KAFKA_JOURNAL_STORE__ACQUIRE_GRACE_MS", "6")
    settings = load_settings(file)
    assert settings.queue_references_in_memory_max == 7
    assert settings.store == StoreSettings(swap_directory=Path("swap"), acquire_grace_ms=6)


MIB = 1024 * 1024


def test_a_large_message_fits_the_transaction_that_takes_it() -> None:
    needed = 100 * MIB + 400 * 64 + 512 * 1024
    with pytest.raises(ConfigError, match=f"staged_bytes_max .* is under the {needed} bytes"):
        load_settings(None, store={"message_bytes_max": 100 * MIB}, limits={"staged_bytes_max": needed - 1})
    assert load_settings(None, store={"message_bytes_max": 100 * MIB}, limits={"staged_bytes_max": needed})


def test_the_chunks_of_a_large_message_fit_a_transaction_the_group_that_deletes_them_and_its_record() -> None:
    store = {"message_bytes_max": 64 * MIB, "chunk_bytes": 2048, "inline_bytes_max": 2048}
    for limits in (
        {"staged_operations_max": 32_769},
        {"queue_operations_max": 32_769, "transaction_buffer_operations_max": 1},
        {"data_bytes_max": 8 * 32_768 + 1023},
    ):
        with pytest.raises(ConfigError, match=r"over 67106816: more chunks of store.chunk_bytes \(2048\)"):
            load_settings(None, store=store, limits=limits)
    limits = {"staged_operations_max": 32_770, "queue_operations_max": 32_770, "data_bytes_max": 8 * 32_768 + 1024}
    assert load_settings(None, store=store, limits=limits)
