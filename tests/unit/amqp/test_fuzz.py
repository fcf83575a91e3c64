"""Mutated conversations: whatever comes, the engine ends or goes on, and never raises, hangs or grows.

    python -m tests.unit.amqp.test_fuzz SECONDS [SEED]

The corpus is what clients say in the other tests. The suite runs a short part of it with fixed seeds.
"""

from __future__ import annotations

import random
import sys
import time
from contextlib import suppress

import pytest

from journal.amqp import EngineLimits
from journal.amqp.encoding import encode_value
from journal.amqp.events import ConnectionFailed, TransferReceived
from journal.amqp.frames import AMQP_HEADER, frame
from journal.amqp.message_types import AcceptedState, MessageHeader, MessageProperties, TransactionalState
from journal.amqp.sections import MessageSections, encode_message
from journal.amqp.transport_types import (
    RECEIVER,
    SENDER,
    CloseFrame,
    DetachFrame,
    DispositionFrame,
    EndFrame,
    FlowFrame,
)
from journal.amqp.values import Array, Symbol
from journal.errors import AmqpPeerError
from tests.unit.amqp.raw import ATTACH_RECEIVER, ATTACH_SENDER, BEGIN, OPEN, RawServer, transfer

MESSAGE = encode_message(
    b"body", header=MessageHeader(True, 5), properties=MessageProperties("id"), application_properties={"a": 1}
)
CORPUS = [
    frame(0, each.encoded(), payload)
    for each, payload in (
        (OPEN, b""),
        (BEGIN, b""),
        (ATTACH_SENDER, b""),
        (ATTACH_RECEIVER, b""),
        (FlowFrame(0, 100, 0, 100, handle=1, delivery_count=0, link_credit=5, drain=True, echo=True), b""),
        (transfer(0), MESSAGE),
        (transfer(1, more=True), MESSAGE[:9]),
        (transfer(None), MESSAGE[9:]),
        (transfer(2, state=TransactionalState(b"t")), MESSAGE),
        (DispositionFrame(RECEIVER, 0, 3, True, AcceptedState()), b""),
        (DispositionFrame(SENDER, 0, 3, True), b""),
        (DetachFrame(1, True), b""),
        (EndFrame(), b""),
        (CloseFrame(), b""),
    )
]
TOKENS = [
    *(bytes((each,)) for each in (0x00, 0x40, 0x45, 0x53, 0x70, 0xA0, 0xB0, 0xC0, 0xD0, 0xE0, 0xF0, 0xFF)),
    b"\x7f\xff\xff\xff",
    encode_value(Array(0xA3, [Symbol("a"), Symbol("b")])),
    encode_value({Symbol("k"): [1, 2]}),
]


def mutated(source: random.Random) -> bytes:
    """A conversation with some frames left out, repeated or changed."""
    frames = [each for each in CORPUS if source.random() > 0.08]
    if source.random() < 0.3:
        frames.insert(source.randrange(len(frames) + 1), source.choice(CORPUS))
    data = bytearray(AMQP_HEADER + b"".join(frames))
    for _ in range(source.randrange(4)):
        at = source.randrange(len(data))
        token = source.choice(TOKENS)
        match source.randrange(4):
            case 0:
                data[at] = source.randrange(256)
            case 1:
                data[at : at + len(token)] = token
            case 2:
                data[at:at] = token
            case _:
                del data[at : at + source.randrange(8)]
    return bytes(data)


def run(seed: int) -> None:
    """One conversation. After a failure the engine is silent; each message is split or refused."""
    source = random.Random(seed)
    server = RawServer(EngineLimits(frame_bytes_max=4096, incoming_window=16))
    data = mutated(source)
    cut = source.choice((1, 5, 50, 1 << 20))
    for at in range(0, len(data), cut):
        server.give(data[at : at + cut])
        if server.sender is not None and server.sender.sendable:
            server.sender.send(MESSAGE)
    server.engine.bytes_to_send()
    failures = [event for event in server.told if isinstance(event, ConnectionFailed)]
    assert len(failures) <= 1
    assert not failures or (server.told[-1] is failures[0] and server.engine.finished)
    for event in server.told:
        if isinstance(event, TransferReceived):
            with suppress(AmqpPeerError):
                sections = MessageSections(event.payload)
                _ = sections.header, sections.properties, sections.application_properties, sections.body()


@pytest.mark.parametrize("first", range(0, 1200, 300))
def test_a_mutated_conversation_is_answered_or_ended(first: int) -> None:
    for seed in range(first, first + 300):
        run(seed)


if __name__ == "__main__":
    end, seed = time.monotonic() + float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    began = seed
    while time.monotonic() < end:
        try:
            run(seed)
        except BaseException:
            print(f"seed {seed}")
            raise
        seed += 1
    print(f"{seed - began} conversations")
