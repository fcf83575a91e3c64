"""Bad input of every kind ends its connection with the right condition, in bounded memory and time, and says why."""

from __future__ import annotations

import tracemalloc
from struct import pack

import pytest

from journal.amqp import Connection, EngineLimits
from journal.amqp.decoding import DEPTH_MAX, ITEMS_MAX, ValueReader
from journal.amqp.events import ConnectionFailed, LinkFailed, TransferReceived
from journal.amqp.frames import AMQP_HEADER, SASL_HEADER, TLS_HEADER, frame
from journal.amqp.message_types import SourceTerminus
from journal.amqp.transport_types import (
    RECEIVER,
    SENDER,
    AttachFrame,
    BeginFrame,
    CloseFrame,
    DetachFrame,
    DispositionFrame,
    EndFrame,
    FlowFrame,
    OpenFrame,
    SaslResponseFrame,
    TransferFrame,
)
from journal.errors import AmqpPeerError, ConfigError
from tests.unit.amqp.raw import ATTACH_RECEIVER, ATTACH_SENDER, BEGIN, OPEN, RawServer, closes_of, transfer

FRAMING, DECODE = "amqp:connection:framing-error", "amqp:decode-error"
NOT_ALLOWED, INVALID = "amqp:not-allowed", "amqp:invalid-field"


@pytest.mark.parametrize(
    ("header", "condition", "text"),
    [
        (TLS_HEADER, "amqp:not-implemented", "amqps"),
        (SASL_HEADER, FRAMING, "SASL"),
        (b"GET / HT", FRAMING, "port for AMQP 1.0"),
        (b"AMQP\x00\x00\x09\x01", FRAMING, "port for AMQP 1.0"),
    ],
)
def test_a_wrong_header_is_answered_with_the_right_one(header: bytes, condition: str, text: str) -> None:
    server = RawServer()
    server.give(header)
    assert server.failure()[0] == condition
    assert text in server.failure()[1]
    assert server.sent == AMQP_HEADER


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (pack(">IBBH", 7, 2, 0, 0), FRAMING),
        (pack(">IBBH", 0, 2, 0, 0), FRAMING),
        (pack(">IBBH", 2**32 - 1, 2, 0, 0), FRAMING),
        (pack(">IBBH", 65_537, 2, 0, 0), FRAMING),
        (pack(">IBBH", 20, 1, 0, 0) + bytes(12), FRAMING),
        (pack(">IBBH", 12, 4, 0, 0) + bytes(4), FRAMING),
        (pack(">IBBH", 8, 2, 1, 0), FRAMING),
        (pack(">IBBH", 9, 2, 0, 0) + b"\x40", DECODE),
        (pack(">IBBH", 9, 2, 0, 0) + b"\x00", DECODE),
        (frame(0, b"\x00\x53\x99\x45"), DECODE),
        (frame(0, b"\x00\x53\x10\x45"), INVALID),
        (frame(0, b"\x00\x53\x10\xc0\x03\x01\x43"), DECODE),
        (frame(0, b"\x00\x53\x10\xb0\x7f\xff\xff\xff"), DECODE),
        (frame(0, b"\x00\x53\x10\xc0\x06\x01\xb1\x7f\xff\xff\xff"), DECODE),
        (frame(0, b"\x00\x53\x10\xd0\x00\x00\x00\x04\x00\x98\x96\x80"), DECODE),
        (frame(0, b"\x00\x53\x10\xc0\x02\x00\x40"), DECODE),
        (frame(0, b"\x00" * 60), DECODE),
        (frame(0, b"\x00\xd0" * 60), DECODE),
        (frame(0, b"\x00\x53\x10\xc0\x10\x10" + b"\x40" * 15), DECODE),
        (frame(0, OpenFrame("x", max_frame_size=100).encoded()), NOT_ALLOWED),
        (frame(0, BEGIN.encoded()), NOT_ALLOWED),
        (frame(0, OPEN.encoded()) * 2, NOT_ALLOWED),
        (frame(0, CloseFrame().encoded()), NOT_ALLOWED),
    ],
    ids=lambda value: value.hex()[:40] if isinstance(value, bytes) else value,
)
@pytest.mark.parametrize("cut", [1, 1 << 20])
def test_a_bad_frame_closes_with_its_condition(data: bytes, condition: str, cut: int) -> None:
    server = RawServer()
    for at in range(0, len(AMQP_HEADER + data), cut):
        if not server.engine.finished:
            server.give((AMQP_HEADER + data)[at : at + cut])
    found, text = server.failure()
    assert found == condition
    (close,) = closes_of(server.sent)
    assert close.error is not None
    assert (close.error.condition, close.error.description) == (condition, text)


SESSION_FAULTS = [
    ([transfer(0, handle=7)], "amqp:session:unattached-handle"),
    ([FlowFrame(0, 1, 0, 1, handle=7)], "amqp:session:unattached-handle"),
    ([DetachFrame(7)], "amqp:session:unattached-handle"),
    ([ATTACH_SENDER], "amqp:session:handle-in-use"),
    ([AttachFrame("x", 5000, SENDER)], FRAMING),
    ([transfer(0, handle=1)], NOT_ALLOWED),
    ([transfer(None)], INVALID),
    ([transfer(0), transfer(2)], INVALID),
    ([transfer(0), transfer(0)], INVALID),
    ([transfer(0, more=True), transfer(1)], INVALID),
    ([TransferFrame(0, 0, b"x" * 33)], INVALID),
    ([DispositionFrame(RECEIVER, 5, 3)], INVALID),
    ([BEGIN], NOT_ALLOWED),
    ([EndFrame(), transfer(0)], NOT_ALLOWED),
    ([SaslResponseFrame(b"x")], NOT_ALLOWED),
]


@pytest.mark.parametrize(("frames", "condition"), SESSION_FAULTS, ids=lambda value: str(value)[:60])
def test_a_frame_that_does_not_fit_its_session_closes_the_connection(frames: list[object], condition: str) -> None:
    server = RawServer().attached()
    server.frames(*frames)  # type: ignore[arg-type]
    assert server.failure()[0] == condition


@pytest.mark.parametrize(("channel", "condition"), [(300, FRAMING), (3, NOT_ALLOWED)])
def test_a_channel_above_the_bound_or_without_a_session_is_refused(channel: int, condition: str) -> None:
    server = RawServer().attached()
    server.frames(BEGIN if channel == 300 else transfer(0), channel=channel)
    assert server.failure()[0] == condition


def test_a_begin_that_answers_nothing_is_refused() -> None:
    server = RawServer().attached()
    server.frames(BeginFrame(9, 0, 1, 1), channel=1)
    assert server.failure()[0] == NOT_ALLOWED


def test_a_transfer_without_credit_detaches_its_link() -> None:
    server = RawServer(credit=1).attached()
    told = server.frames(transfer(0), transfer(1))
    assert isinstance(told[0], TransferReceived)
    assert isinstance(told[1], LinkFailed)
    assert told[1].error.condition == "amqp:link:transfer-limit-exceeded"


def test_a_sender_that_goes_on_after_its_link_failed_ends_its_connection() -> None:
    server = RawServer(EngineLimits(incoming_window=8), credit=0).attached()
    for number in range(9):
        assert not server.engine.finished
        server.frames(transfer(number))
    assert not server.engine.finished
    server.frames(transfer(9))
    assert server.failure()[0] == "amqp:session:errant-link"


def test_a_transfer_before_the_answer_to_its_attach_ends_the_connection() -> None:
    server = RawServer()
    server.give(AMQP_HEADER)
    server.frames(OPEN)
    server.frames(BEGIN, ATTACH_SENDER, transfer(0))
    assert server.failure()[0] == "amqp:link:transfer-limit-exceeded"


def test_more_transfers_than_the_window_are_a_violation() -> None:
    server = RawServer().attached()
    assert server.receiver is not None
    server.receiver.session.incoming_window = 0
    server.frames(transfer(0))
    assert server.failure()[0] == "amqp:session:window-violation"


@pytest.mark.parametrize("frame_bytes", [100, 60_000])
def test_an_endless_delivery_fails_its_link_and_then_its_connection_in_bounded_memory(frame_bytes: int) -> None:
    server = RawServer(EngineLimits(message_bytes_max=1_000_000, incoming_window=64)).attached()
    part = frame(0, transfer(None, more=True).encoded(), bytes(frame_bytes))
    server.frames((transfer(0, more=True), b""))
    tracemalloc.start()
    for _ in range(20_000):
        server.give(part)
        server.told, server.sent = server.told[-1:], b""
        if server.engine.finished:
            break
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert server.failure()[0] == "amqp:session:errant-link"
    assert peak < 1_000_000


def test_a_resumed_delivery_is_refused_and_the_answer_names_none_as_unsettled() -> None:
    server = RawServer()
    server.give(AMQP_HEADER)
    server.frames(OPEN, BEGIN, AttachFrame("s", 0, SENDER, unsettled={b"tag": None}, initial_delivery_count=0))
    told = server.frames(transfer(0, resume=True))
    assert isinstance(told[0], LinkFailed)
    assert told[0].error.condition == "amqp:not-implemented"


def test_a_million_items_and_a_thousand_levels_are_refused_before_they_cost_anything() -> None:
    many = b"\xd0" + pack(">II", 1_000_004, 1_000_000) + b"\x40" * 1_000_000
    zero_width = b"\xf0" + pack(">II", 5, 2**31) + b"\x40"
    deep = b"\xd0\x00\x00\x10\x00\x00\x00\x00\x01" * 1000
    described = b"\x00" * 1000
    tracemalloc.start()
    for data in (many, zero_width, deep + bytes(5000), described):
        with pytest.raises(AmqpPeerError) as caught:
            ValueReader(data).value()
        assert caught.value.condition == DECODE
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500_000
    assert (ITEMS_MAX, DEPTH_MAX) == (16_384, 32)


@pytest.mark.parametrize(
    "data",
    [
        b"\xc1\x02\x01\x40",
        b"\xc1\x05\x04\x43\x40\x43\x40",
        b"\xc1\x03\x02\x45\x40",
        b"\xa1\x01\xff",
        b"\xa3\x01\xff",
        b"\x56\x02",
        b"\x73\x00\x11\x00\x00",
        b"\x00\x45\x40",
        b"\x3f",
        b"\xc0\x03\x01\x52",
        b"\xe0\x03\x02\x52\x01",
    ],
    ids=lambda data: data.hex(),
)
def test_a_value_that_is_none_is_a_decode_error(data: bytes) -> None:
    with pytest.raises(AmqpPeerError) as caught:
        ValueReader(data).value()
    assert caught.value.condition == DECODE


def test_a_field_of_another_type_is_named() -> None:
    server = RawServer().attached()
    server.give(frame(0, b"\x00\x53\x12\xc0\x06\x03\xa1\x01x\x43\x43"))
    assert server.failure() == (DECODE, "role of amqp:attach:list is not of type boolean")


def test_nothing_is_received_after_a_failure_and_the_end_of_the_socket_is_told_once() -> None:
    server = RawServer().attached()
    server.frames(transfer(0, handle=9))
    assert server.engine.receive(frame(0, OPEN.encoded())) == []
    assert server.engine.receive_end() == []
    other = RawServer().attached()
    (told,) = other.engine.receive_end()
    assert isinstance(told, ConnectionFailed)
    assert other.engine.receive_end() == []


def test_a_frame_that_never_ends_keeps_no_more_than_its_bound() -> None:
    server = RawServer().attached()
    server.give(pack(">IBBH", 65_536, 2, 0, 0))
    for _ in range(60):
        server.give(bytes(1000))
    assert not server.engine.finished
    server.give(bytes(10_000))
    assert server.failure()[0] == DECODE


def test_a_client_that_names_a_mechanism_that_is_not_offered_is_told_and_ended() -> None:
    engine = Connection.server("broker", mechanisms=["PLAIN"])
    told = engine.receive(SASL_HEADER + frame(0, b"\x00\x53\x41\xc0\x08\x01\xa3\x05MAGIC", kind=1))
    assert isinstance(told[-1], ConnectionFailed)
    assert engine.bytes_to_send().endswith(b"\x00\x53\x44\xc0\x03\x01\x50\x03")
    assert engine.finished


def test_a_client_that_sends_much_before_its_login_is_answered_is_ended() -> None:
    engine = Connection.server("broker", mechanisms=["PLAIN"])
    engine.receive(SASL_HEADER + frame(0, b"\x00\x53\x41\xc0\x08\x01\xa3\x05PLAIN", kind=1))
    told = []
    for _ in range(10):
        told += engine.receive(bytes(1000))
    assert [type(event) for event in told] == [ConnectionFailed]
    assert told[0].error.condition == "amqp:resource-limit-exceeded"


def test_sessions_and_links_have_a_bound() -> None:
    server = RawServer(EngineLimits(channel_max=1, handle_max=1))
    server.give(AMQP_HEADER)
    server.frames(OPEN)
    for channel in (0, 1):
        server.frames(BEGIN, channel=channel)
    assert not server.engine.finished
    for handle in (0, 1):
        server.frames(AttachFrame("x", handle, SENDER, source=SourceTerminus("q")), channel=1)
    assert not server.engine.finished
    server.frames(AttachFrame("x", 2, SENDER), channel=1)
    assert server.failure()[0] == FRAMING


@pytest.mark.parametrize("bounds", [{"frame_bytes_max": 511}, {"message_bytes_max": 1000}])
def test_bounds_that_do_not_fit_are_refused(bounds: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        EngineLimits(**bounds)


def test_answers_that_come_after_the_end_do_nothing() -> None:
    engine = Connection.server("broker")
    frames = (OPEN, BEGIN, ATTACH_SENDER, ATTACH_RECEIVER, EndFrame(), EndFrame())
    data = b"".join(frame(0, each.encoded()) for each in frames)
    opened, began, one, other, ended, failed = engine.receive(AMQP_HEADER + data)
    assert isinstance(failed, ConnectionFailed)
    written = engine.bytes_to_send()
    engine.open()
    began.session.begin()
    for link in (one.link, other.link):
        link.attach(None, None)
        link.settle([0])
    one.link.flow(10)
    other.link.drained()
    assert other.link.sendable == 0
    one.link.refuse(failed.error)
    ended.session.end()
    engine.close()
    assert engine.bytes_to_send() == b""
    assert len(closes_of(written)) == 1
    assert opened.frame == OPEN
