"""Headers and SASL: what may be sent ahead, and steps of mechanisms that take several."""

from __future__ import annotations

import pytest

from journal.amqp import Connection
from journal.amqp.events import ConnectionFailed, ConnectionOpened
from journal.amqp.frames import AMQP_HEADER, SASL_HEADER, frame
from journal.amqp.handshake import SASL_AUTH, SASL_OK
from journal.amqp.transport_types import (
    SaslChallengeFrame,
    SaslInitFrame,
    SaslMechanismsFrame,
    SaslOutcomeFrame,
    SaslResponseFrame,
)
from journal.errors import StateError
from tests.unit.amqp.raw import OPEN

INIT = frame(0, SaslInitFrame("ANONYMOUS").encoded(), kind=1)


@pytest.mark.parametrize("cut", [1, 9, 1000])
def test_a_client_may_send_its_login_and_its_open_ahead(cut: int) -> None:
    engine = Connection.server("broker", mechanisms=["ANONYMOUS"])
    data = SASL_HEADER + INIT + AMQP_HEADER + frame(0, OPEN.encoded())
    told = [event for at in range(0, len(data), cut) for event in engine.receive(data[at : at + cut])]
    assert told == [SaslInitFrame("ANONYMOUS")]
    assert engine.sasl_outcome(SASL_OK) == [ConnectionOpened(OPEN)]
    assert engine.bytes_to_send().endswith(AMQP_HEADER)


def test_a_login_of_several_steps_goes_through_both_engines() -> None:
    server, client = Connection.server("broker", mechanisms=["SCRAM-SHA-256"]), Connection.client("c", sasl=True)
    server.receive(client.bytes_to_send())
    assert client.receive(server.bytes_to_send()) == [SaslMechanismsFrame(("SCRAM-SHA-256",))]
    client.sasl_init("SCRAM-SHA-256", b"first", "host")
    assert server.receive(client.bytes_to_send()) == [SaslInitFrame("SCRAM-SHA-256", b"first", "host")]
    server.sasl_challenge(b"salt")
    assert client.receive(server.bytes_to_send()) == [SaslChallengeFrame(b"salt")]
    client.sasl_response(b"proof")
    assert server.receive(client.bytes_to_send()) == [SaslResponseFrame(b"proof")]
    assert server.sasl_outcome(SASL_OK, b"signature") == []
    assert client.receive(server.bytes_to_send()) == [SaslOutcomeFrame(SASL_OK, b"signature")]
    client.open()
    (opened,) = server.receive(client.bytes_to_send())
    assert isinstance(opened, ConnectionOpened)


def test_a_refused_login_ends_the_connection() -> None:
    engine = Connection.server("broker", mechanisms=["ANONYMOUS"])
    engine.receive(SASL_HEADER + INIT)
    assert engine.sasl_outcome(SASL_AUTH) == []
    assert engine.finished
    assert engine.receive(AMQP_HEADER) == []


@pytest.mark.parametrize("step", [SaslResponseFrame(b"x"), SaslOutcomeFrame(0), SaslMechanismsFrame(("PLAIN",))])
def test_a_step_out_of_turn_ends_the_connection(step: SaslResponseFrame) -> None:
    engine = Connection.server("broker", mechanisms=["PLAIN"])
    told = engine.receive(SASL_HEADER + frame(0, step.encoded(), kind=1))
    assert [type(event) for event in told] == [ConnectionFailed]


def test_commands_out_of_turn_are_refused() -> None:
    engine = Connection.server("broker", mechanisms=["PLAIN"])
    with pytest.raises(StateError, match="before SASL has ended"):
        engine.open()
    with pytest.raises(StateError, match="no step to answer"):
        engine.sasl_outcome(SASL_OK)
