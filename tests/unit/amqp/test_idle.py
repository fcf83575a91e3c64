"""Idle time-outs by the caller's clock."""

from __future__ import annotations

import pytest

from journal.amqp import Connection, EngineLimits
from journal.amqp.events import ConnectionFailed
from journal.amqp.frames import AMQP_HEADER, EMPTY_FRAME
from journal.amqp.transport_types import OpenFrame
from tests.unit.amqp.raw import OPEN, RawServer


def opened(*, ours_ms: int, theirs_ms: int | None) -> RawServer:
    server = RawServer(EngineLimits(idle_timeout_ms=ours_ms))
    server.give(AMQP_HEADER)
    server.frames(OpenFrame("raw", idle_time_out=theirs_ms))
    return server


def test_an_empty_frame_is_sent_at_half_of_the_peers_time_out() -> None:
    server = opened(ours_ms=0, theirs_ms=10_000)
    assert server.engine.tick(100.0) == (105.0, [])
    assert server.engine.bytes_to_send() == b""
    assert server.engine.tick(105.0) == (110.0, [])
    assert server.engine.bytes_to_send() == EMPTY_FRAME
    assert server.engine.tick(106.0) == (111.0, [])


def test_nothing_is_sent_where_something_was() -> None:
    server = opened(ours_ms=0, theirs_ms=10_000)
    server.engine.tick(100.0)
    session = server.engine.session()
    session.begin()
    assert server.engine.bytes_to_send()
    assert server.engine.tick(105.0) == (110.0, [])
    assert server.engine.bytes_to_send() == b""


def test_a_peer_that_is_silent_for_twice_our_time_out_is_told_and_ended() -> None:
    server = opened(ours_ms=10_000, theirs_ms=None)
    assert server.engine.tick(100.0) == (120.0, [])
    server.give(EMPTY_FRAME)
    assert server.engine.tick(110.0) == (130.0, [])
    again, (failed,) = server.engine.tick(130.0)
    assert again is None
    assert isinstance(failed, ConnectionFailed)
    assert failed.error.condition == "amqp:resource-limit-exceeded"
    assert b"nothing came" in server.engine.bytes_to_send()


@pytest.mark.parametrize("data", [b"", AMQP_HEADER])
def test_no_time_out_is_kept_before_the_open(data: bytes) -> None:
    engine = Connection.server("broker", limits=EngineLimits(idle_timeout_ms=0))
    engine.receive(data)
    assert engine.tick(1.0) == (None, [])


def test_a_connection_without_time_outs_needs_no_clock() -> None:
    server = RawServer(EngineLimits(idle_timeout_ms=0))
    server.give(AMQP_HEADER)
    server.frames(OPEN)
    assert server.engine.tick(1.0) == (None, [])
