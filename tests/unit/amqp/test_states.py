"""The states of endpoints: every pair of a state and a step."""

from __future__ import annotations

import pytest

from journal.amqp.states import LOCALLY_OPEN, REMOTELY_OPEN, TRANSITIONS, Endpoint, EndpointState, EndpointStep
from journal.errors import AmqpPeerError, StateError

WAYS: dict[EndpointState, list[EndpointStep]] = {EndpointState.IDLE: []}
"""A way from idle to each state."""
for _ in range(4):
    for state, way in [*WAYS.items()]:
        for step, after in TRANSITIONS[state].items():
            WAYS.setdefault(after, [*way, step])


def test_every_state_can_be_reached() -> None:
    assert set(WAYS) == set(EndpointState) - {EndpointState.GONE}
    assert set(TRANSITIONS) == set(EndpointState)


@pytest.mark.parametrize("state", WAYS)
@pytest.mark.parametrize("step", EndpointStep)
def test_a_step_is_taken_once_and_close_comes_after_open(state: EndpointState, step: EndpointStep) -> None:
    way = WAYS[state]
    endpoint = Endpoint("link")
    for each in way:
        endpoint.step(each)
    opened = {
        EndpointStep.SEND_CLOSE: EndpointStep.SEND_OPEN,
        EndpointStep.RECEIVE_CLOSE: EndpointStep.RECEIVE_OPEN,
    }.get(step)
    if step not in way and (opened is None or opened in way):
        endpoint.step(step)
        taken = {*way, step}
        opened_by_us = taken & {EndpointStep.SEND_OPEN, EndpointStep.SEND_CLOSE} == {EndpointStep.SEND_OPEN}
        opened_by_peer = taken & {EndpointStep.RECEIVE_OPEN, EndpointStep.RECEIVE_CLOSE} == {EndpointStep.RECEIVE_OPEN}
        assert (endpoint.state in LOCALLY_OPEN) == opened_by_us
        assert (endpoint.state in REMOTELY_OPEN) == opened_by_peer
    else:
        with pytest.raises((AmqpPeerError, StateError)):
            endpoint.step(step)
        assert endpoint.state is state
