"""The states of endpoints: every pair of a state and a step."""

from __future__ import annotations

import pytest

from journal.amqp.states import LOCALLY_OPEN, REMOTELY_OPEN, TRANSITIONS, Endpoint, EndpointState, Step
from journal.errors import AmqpPeerError, StateError

WAYS: dict[EndpointState, list[Step]] = {EndpointState.IDLE: []}
"""A way from idle to each state."""
for _ in range(4):
    for state, way in [*WAYS.items()]:
        for step, after in TRANSITIONS[state].items():
            WAYS.setdefault(after, [*way, step])


def test_every_state_can_be_reached() -> None:
    assert set(WAYS) == set(EndpointState) == set(TRANSITIONS)


@pytest.mark.parametrize("state", EndpointState)
@pytest.mark.parametrize("step", Step)
def test_a_step_is_taken_once_and_close_comes_after_open(state: EndpointState, step: Step) -> None:
    way = WAYS[state]
    endpoint = Endpoint("link")
    for each in way:
        endpoint.step(each)
    opened = {Step.SEND_CLOSE: Step.SEND_OPEN, Step.RECEIVE_CLOSE: Step.RECEIVE_OPEN}.get(step)
    if step not in way and (opened is None or opened in way):
        endpoint.step(step)
        taken = {*way, step}
        opened_by_us = taken & {Step.SEND_OPEN, Step.SEND_CLOSE} == {Step.SEND_OPEN}
        opened_by_peer = taken & {Step.RECEIVE_OPEN, Step.RECEIVE_CLOSE} == {Step.RECEIVE_OPEN}
        assert (endpoint.state in LOCALLY_OPEN) == opened_by_us
        assert (endpoint.state in REMOTELY_OPEN) == opened_by_peer
    else:
        with pytest.raises((AmqpPeerError, StateError)):
            endpoint.step(step)
        assert endpoint.state is state
