"""Routes: each message that took effect is sent once and in order, whatever happens."""

from __future__ import annotations

import pytest

from journal.routing.selector.tokens import SELECTOR_CHARACTERS_MAX
from tests.simulation.faults import Fault
from tests.support.build import commit, delete, wal
from tests.support.fault_at import FaultAt
from tests.support.routes import OUT, RoutesWorld, chunk, large, message, one_route
from tests.unit.streams.routes_scene import FAULTS, GROUPS, OTHER, ROUTE, SENT, stopped, world


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_each_message_that_took_effect_is_sent_once_and_in_wal_order(at_once: int) -> None:
    scene = RoutesWorld(wal(*GROUPS), ROUTE, OTHER)
    scene.run(at_once)
    assert scene.sent() == SENT


@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_at_any_step_changes_nothing_of_what_is_sent(fault: Fault) -> None:
    counting = FaultAt()
    RoutesWorld(wal(*GROUPS), ROUTE, faults=counting).run(2)
    for step in range(1, counting.step + 1):
        scene = RoutesWorld(wal(*GROUPS), ROUTE, faults=FaultAt(fault, step))
        scene.run(2)
        assert scene.sent() == SENT, f"{fault} at {step}"


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_a_message_added_and_deleted_inside_one_checkpoint_is_sent_exactly_once(at_once: int) -> None:
    scene = world([message(1, b"gone")], [delete(1)])
    scene.run(at_once)
    assert scene.sent() == [b"gone"]


def test_a_message_added_and_deleted_inside_one_frame_is_sent_exactly_once() -> None:
    scene = world([message(1, b"gone"), delete(1), message(1, b"again"), delete(1)])
    scene.run(100)
    assert scene.sent() == [b"gone", b"again"]


def test_a_message_added_and_deleted_inside_one_transaction_is_not_sent() -> None:
    scene = world([message(1, b"never", tx=7), delete(1, tx=7), message(2, b"kept", tx=7), commit(7, 3)])
    scene.run(100)
    assert scene.sent() == [b"kept"]


def test_a_route_whose_filter_has_as_many_terms_as_fit_sends_like_any() -> None:
    terms = " OR ".join(["n=9"] * 1400)
    assert len(terms) < SELECTOR_CHARACTERS_MAX
    scene = world([message(1, b"no"), message(2, b"yes", headers={"n": 9})], routes=(one_route(filter=terms),))
    scene.run(100)
    assert scene.sent() == [b"yes"]


# ---- large messages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_a_large_body_comes_from_chunks_of_the_same_checkpoint_or_of_the_local_copy(at_once: int) -> None:
    scene = world(
        [chunk(11, b"abc"), chunk(12, b"de")],
        [large(1, [11, 12], 5)],
        [chunk(13, b"fg", tx=7), large(2, [13], 2, tx=7)],
        [commit(7, 2), delete(2), delete(13), delete(1), delete(11), delete(12)],
    )
    scene.run(at_once)
    assert scene.sent() == [b"abcde", b"fg"]


def test_a_large_body_over_the_topics_limit_is_refused_before_it_is_sent() -> None:
    topics = {OUT: {"max.message.bytes": "2000"}}
    scene = world([chunk(11, b"x" * 3000), large(1, [11], 3000)], [message(2, b"fits")], topics=topics)
    _, error = stopped(scene)
    assert "too-large" in str(error)
    scene = world(
        [chunk(11, b"x" * 3000), large(1, [11], 3000)],
        [message(2, b"fits")],
        topics=topics,
        routes=[one_route(on_error="skip")],
    )
    scene.run(100)
    assert scene.sent() == [b"fits"]
