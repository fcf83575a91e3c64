"""Addresses of brokers: what is one, and what is said soon of those at which nobody listens."""

from __future__ import annotations

import socket
import time

import pytest

from journal.process.addresses import Address, parse_addresses, refusals


def test_addresses_are_hosts_and_ports_separated_by_commas() -> None:
    assert parse_addresses("a:1,b.example.com:65535") == [Address("a", 1), Address("b.example.com", 65535)]
    assert parse_addresses("SASL_SSL://a:1,[::1]:9092") == [Address("a", 1), Address("[::1]", 9092)]


@pytest.mark.parametrize("text", ["", "localhost", "a:1,", ",a:1", "a:1,,b:2", "a:1, b:2", "a b:1", ":1", "a:", "a:0"])
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an address: expected host:port\[,host:port\], such as"):
        parse_addresses(text)


@pytest.fixture
def refusing() -> int:
    """A port that nobody listens at."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def test_an_address_that_refuses_connections_is_named_in_the_time_given(refusing: int) -> None:
    began = time.monotonic()
    assert refusals([Address("127.0.0.1", refusing)], 0.3) == [f"127.0.0.1:{refusing}: connection refused"]
    assert time.monotonic() - began >= 0.2, "a broker may be starting there"


def test_a_name_that_cannot_be_resolved_is_named() -> None:
    (refusal,) = refusals([Address("no-such-host.invalid", 9092)], 3.0)
    assert refusal.startswith("no-such-host.invalid:9092: the name is not known")


def test_one_address_that_can_be_connected_is_enough(refusing: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        there = Address("127.0.0.1", listening.getsockname()[1])
        assert refusals([Address("127.0.0.1", refusing), there], 30.0) == []
