"""What a user may set on Kafka clients, and what is the journal's own."""

from __future__ import annotations

import logging

import pytest

from journal.errors import ConfigError
from journal.kafka.clients import KafkaClients
from journal.kafka.settings import (
    LINGER_MS,
    RETRY_BACKOFF_MS,
    SPREAD_LINGER_MS,
    ClientEvents,
    ClientSettings,
    repeated_after_s,
)

NOWHERE = "127.0.0.1:1"


def test_a_users_property_replaces_a_default_and_reaches_every_client() -> None:
    settings = ClientSettings(NOWHERE, {"compression.type": "zstd", "security.protocol": "ssl"})
    for config in (settings.transactional("id"), settings.plain(), settings.admin()):
        assert config["security.protocol"] == "ssl"
    assert settings.transactional("id")["compression.type"] == "zstd"
    assert settings.reader("group", committed=True, wait_ms=10)["security.protocol"] == "ssl"


@pytest.mark.parametrize(("properties", "linger"), [({}, SPREAD_LINGER_MS), ({"linger.ms": "7"}, "7")])
def test_producers_for_many_partitions_wait_longer_for_their_batches(
    properties: dict[str, str], linger: object
) -> None:
    clients = KafkaClients(NOWHERE, properties)
    spread = clients.sized(record_bytes_max=2000, batch_bytes_max=1000).settings.transactional("id")
    assert (spread["linger.ms"], spread["message.max.bytes"], spread["batch.size"]) == (linger, 2000, 1000)
    assert clients.settings.transactional("id")["linger.ms"] == properties.get("linger.ms", LINGER_MS)


@pytest.mark.parametrize(
    "name",
    [
        "acks",
        "enable.idempotence",
        "transactional.id",
        "transaction.timeout.ms",
        "message.timeout.ms",
        "isolation.level",
        "enable.auto.commit",
        "auto.offset.reset",
        "group.id",
        "bootstrap.servers",
        "retry.backoff.ms",
        "message.max.bytes",
        "test.mock.num.brokers",
    ],
)
def test_properties_that_safety_needs_cannot_be_set(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        KafkaClients(NOWHERE, {name: "1"})


def test_missing_bootstrap_servers_are_refused() -> None:
    with pytest.raises(ConfigError, match="bootstrap"):
        KafkaClients(" ")


def test_a_property_that_librdkafka_does_not_know_is_refused_when_a_client_is_made() -> None:
    kafka = KafkaClients(NOWHERE, {"no.such.property": "1"})
    makers = (kafka.plain_producer, kafka.cluster, lambda: kafka.reader("t"), lambda: kafka.transactional_producer("i"))
    for make in makers:
        with pytest.raises(ConfigError, match=r"no\.such\.property"):
            make()


def test_a_records_delivery_timeout_is_below_its_transactions_timeout() -> None:
    settings = ClientSettings(NOWHERE, transaction_timeout_ms=5000)
    config = settings.transactional("id")
    assert config["message.timeout.ms"] == 4000 < 5000 == config["transaction.timeout.ms"]


@pytest.mark.parametrize("chosen_ms", [RETRY_BACKOFF_MS, 840, 4000])
def test_a_repeated_request_takes_longer_than_one_that_was_not(chosen_ms: int) -> None:
    config = ClientSettings(NOWHERE).transactional("id", chosen_ms)
    backoff_ms, backoff_max_ms = config["retry.backoff.ms"], config["retry.backoff.max.ms"]
    assert isinstance(backoff_ms, int)
    assert isinstance(backoff_max_ms, int)
    # librdkafka's jitter takes up to 20 % off.
    assert repeated_after_s(chosen_ms) * 1000 <= 0.8 * backoff_ms <= backoff_max_ms


@pytest.mark.parametrize("session_ms", [1000, 6000, 30_000])
def test_a_member_that_is_not_answered_asks_another_broker_soon(session_ms: int) -> None:
    config = ClientSettings(NOWHERE).member("group", "name", session_timeout_ms=session_ms, heartbeat_ms=300)
    assert config["socket.timeout.ms"] == max(2000, session_ms // 2)


def test_a_clients_log_goes_to_the_given_logger_and_is_never_above_info(caplog: pytest.LogCaptureFixture) -> None:
    events = ClientEvents(ClientSettings(NOWHERE, logger=logging.getLogger("given")))
    with caplog.at_level(logging.DEBUG, logger="given"):
        events.log(logging.CRITICAL, "%s is %s", "a", "b")
        events.log(logging.DEBUG, "c")
    assert [(r.name, r.levelno, r.getMessage()) for r in caplog.records] == [
        ("given", logging.INFO, "a is b"),
        ("given", logging.DEBUG, "c"),
    ]
