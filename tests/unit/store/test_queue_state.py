"""QueueState, case by case; the property test has all the ways they combine."""

from __future__ import annotations

from itertools import chain

import pytest

from journal.errors import (
    AddressExistsError,
    AddressInUseError,
    AddressMissingError,
    MessageHeldError,
    MessageMissingError,
    QueueExistsError,
    QueueInDoubtError,
    QueueMissingError,
    StoreError,
)
from journal.store.model import Delivery, QueueConfig
from journal.store.queues.runs import Run
from journal.store.queues.state import QueueState
from tests.support.queue_states import ADDRESS, AUDIT, NOW, ORDERS, new_state, send, take_all


@pytest.fixture
def state() -> QueueState:
    return new_state()


# ---- order -------------------------------------------------------------------------------------------------------


def test_higher_priorities_come_first_and_equal_ones_as_they_arrived(state: QueueState) -> None:
    for message, priority in ((1, 4), (2, 0), (3, 9), (4, 4), (5, 9)):
        send(state, message, priority=priority)
    assert take_all(state) == [3, 5, 1, 4, 2]


def test_the_order_is_that_of_arrival_not_of_ids_or_routing(state: QueueState) -> None:
    for message in (1, 2, 3):
        state.store(message, ADDRESS, priority=4, size=1)
        state.route(message, ORDERS)
    for message in (2, 3, 1):
        state.arrive(message, ORDERS)
    assert take_all(state) == [2, 3, 1]


def test_what_is_not_durable_yet_is_not_delivered(state: QueueState) -> None:
    state.store(1, ADDRESS, priority=4, size=1)
    state.route(1, ORDERS)
    assert state.take(ORDERS, "consumer", NOW) is None
    assert state.queue("orders").arriving == 1
    state.arrive(1, ORDERS)
    assert take_all(state) == [1]


def test_a_released_message_is_in_its_place_again_and_counts_a_delivery(state: QueueState) -> None:
    for message in (1, 2, 3):
        send(state, message)
    assert take_all(state) == [1, 2, 3]
    for message in (3, 1, 2):
        assert state.release(message, ORDERS, "consumer") == 1
    first = state.take(ORDERS, "consumer", NOW)
    assert first is not None
    assert first == Delivery(1, 1, True)


@pytest.mark.parametrize("leave", [1, 40, 99])
def test_the_order_holds_however_many_leave_from_its_middle(state: QueueState, leave: int) -> None:
    for message in range(1, 101):
        send(state, message)
    for message in range(2, 2 + leave):
        state.acknowledge(message, ORDERS)
        state.settled(message, ORDERS)
    for message in range(101, 150):
        send(state, message)
    assert take_all(state) == [1, *range(2 + leave, 150)]


# ---- acknowledging -----------------------------------------------------------------------------------------------


def test_the_last_acknowledgement_says_so_and_its_settlement_forgets_the_message(state: QueueState) -> None:
    send(state, 1, ORDERS, AUDIT)
    assert not state.acknowledge(1, ORDERS)
    assert state.acknowledge(1, AUDIT)
    assert state.message(1).references == 0
    state.settled(1, ORDERS)
    state.settled(1, AUDIT)
    with pytest.raises(MessageMissingError):
        state.message(1)


def test_references_that_arrive_or_are_locked_count_as_references(state: QueueState) -> None:
    send(state, 1, ORDERS)
    state.route(1, AUDIT)
    assert not state.acknowledge(1, ORDERS)
    state.arrive(1, AUDIT)
    send(state, 2, ORDERS, AUDIT)
    state.lock(2, AUDIT, 7)
    assert not state.acknowledge(2, ORDERS)
    assert state.acknowledge(2, AUDIT, tx=7)


def test_acknowledging_twice_is_refused_before_and_after_it_is_durable(state: QueueState) -> None:
    send(state, 1, ORDERS, AUDIT)
    state.acknowledge(1, ORDERS)
    for _ in range(2):
        with pytest.raises(MessageMissingError):
            state.acknowledge(1, ORDERS)
        if state.queue("orders").settling:
            state.settled(1, ORDERS)


def test_what_another_holds_is_not_acknowledged_locked_acquired_or_released(state: QueueState) -> None:
    send(state, 1)
    state.take(ORDERS, "one", NOW)
    for refused in (
        lambda: state.acknowledge(1, ORDERS, "two"),
        lambda: state.acknowledge(1, ORDERS),
        lambda: state.lock(1, ORDERS, 7, "two"),
        lambda: state.acquire(1, ORDERS, "two", NOW),
        lambda: state.release(1, ORDERS, "two"),
    ):
        with pytest.raises(MessageHeldError):
            refused()
    assert state.held_by("one") == [(1, ORDERS)]
    assert state.acknowledge(1, ORDERS, "one")


def test_an_operation_on_a_message_that_is_not_there_raises_message_missing(state: QueueState) -> None:
    send(state, 1)
    for refused in (
        lambda: state.acknowledge(2, ORDERS),
        lambda: state.acknowledge(1, AUDIT),
        lambda: state.acquire(1, AUDIT, "one", NOW),
        lambda: state.release(2, ORDERS),
        lambda: state.settled(1, ORDERS),
        lambda: state.arrive(1, ORDERS),
        lambda: state.unlock(1, ORDERS),
        lambda: state.route(2, ORDERS),
        lambda: state.message(2),
        lambda: state.forget(2),
    ):
        with pytest.raises(MessageMissingError):
            refused()
    with pytest.raises(QueueMissingError):
        state.acknowledge(1, 99)
    with pytest.raises(QueueMissingError):
        state.take(99, "one", NOW)
    with pytest.raises(QueueMissingError):
        state.route(1, 99)


def test_a_message_is_stored_once_and_routed_to_a_queue_once(state: QueueState) -> None:
    send(state, 1)
    with pytest.raises(StoreError):
        state.store(1, ADDRESS, priority=4, size=1)
    with pytest.raises(StoreError):
        state.route(1, ORDERS)


def test_a_message_that_is_about_to_be_deleted_is_not_routed_again(state: QueueState) -> None:
    send(state, 1)
    assert state.acknowledge(1, ORDERS)
    with pytest.raises(MessageMissingError):
        state.route(1, AUDIT)


# ---- transactions ------------------------------------------------------------------------------------------------


def test_a_locked_reference_is_neither_delivered_nor_acknowledged_until_unlocked(state: QueueState) -> None:
    for message in (1, 2):
        send(state, message)
    state.lock(1, ORDERS, 7)
    for refused in (
        lambda: state.acknowledge(1, ORDERS),
        lambda: state.acknowledge(1, ORDERS, tx=8),
        lambda: state.lock(1, ORDERS, 7),
        lambda: state.acquire(1, ORDERS, "one", NOW),
        lambda: state.release(1, ORDERS),
        lambda: state.schedule(1, ORDERS, NOW),
    ):
        with pytest.raises(MessageHeldError):
            refused()
    assert [info.tx for info in state.explain(1)] == [7]
    state.unlock(1, ORDERS)
    assert take_all(state) == [1, 2]


def test_an_unlocked_message_is_held_by_its_holder_again(state: QueueState) -> None:
    send(state, 1)
    state.take(ORDERS, "one", NOW)
    state.lock(1, ORDERS, 7, "one")
    assert state.held_by("one") == []
    state.unlock(1, ORDERS)
    assert state.held_by("one") == [(1, ORDERS)]


def test_a_withdrawn_route_leaves_nothing_and_says_when_it_was_the_last(state: QueueState) -> None:
    send(state, 1, ORDERS)
    state.route(1, AUDIT, tx=7)
    assert [(info.queue, info.tx) for info in state.explain(1)] == [("orders", 0), ("audit", 7)]
    assert not state.withdraw(1, AUDIT)
    state.store(2, ADDRESS, priority=4, size=100)
    state.route(2, AUDIT, tx=7)
    assert state.withdraw(2, AUDIT)
    state.forget(2)
    assert (state.queue("audit").arriving, state.queue("audit").bytes) == (0, 0)


def test_a_message_with_references_is_not_forgotten(state: QueueState) -> None:
    send(state, 1)
    with pytest.raises(StoreError):
        state.forget(1)


# ---- times -------------------------------------------------------------------------------------------------------


def test_a_scheduled_message_comes_when_it_is_due_in_the_place_of_its_arrival(state: QueueState) -> None:
    send(state, 1, due=NOW + 10)
    send(state, 2)
    assert (state.queue("orders").scheduled, state.next_due()) == (1, NOW + 10)
    assert state.due(NOW + 9) == 0
    assert state.due(NOW + 10) == 1
    assert take_all(state) == [1, 2]


def test_take_looks_at_the_clock_itself(state: QueueState) -> None:
    send(state, 1, due=NOW + 10)
    assert take_all(state, now=NOW + 9) == []
    assert take_all(state, now=NOW + 10) == [1]


def test_a_held_message_is_scheduled_by_its_release(state: QueueState) -> None:
    send(state, 1)
    state.take(ORDERS, "one", NOW)
    state.schedule(1, ORDERS, NOW + 10)
    assert state.queue("orders").held == 1
    state.release(1, ORDERS, "one")
    assert take_all(state) == []
    assert take_all(state, now=NOW + 10) == [1]


def test_a_message_that_is_scheduled_for_later_is_not_acquired(state: QueueState) -> None:
    send(state, 1, due=NOW + 10)
    with pytest.raises(MessageHeldError):
        state.acquire(1, ORDERS, "one", NOW)
    assert state.acquire(1, ORDERS, "one", NOW + 10) == Delivery(1, 0, False)


def test_what_has_expired_is_not_handed_out_and_told_until_it_is_settled(state: QueueState) -> None:
    send(state, 1, ORDERS, AUDIT, expires=NOW)
    send(state, 2, expires=NOW + 1)
    assert take_all(state) == [2]
    for _ in range(2):
        assert sorted(state.expired(NOW, 10)) == [(1, ORDERS), (1, AUDIT)]
    assert len(state.expired(NOW, 1)) == 1
    state.acknowledge(1, ORDERS)
    assert state.expired(NOW, 10) == [(1, AUDIT)]


def test_a_held_message_expires_once_it_is_released(state: QueueState) -> None:
    send(state, 1, expires=NOW + 5)
    state.take(ORDERS, "one", NOW)
    assert state.expired(NOW + 5, 10) == []
    state.release(1, ORDERS)
    assert state.expired(NOW + 5, 10) == [(1, ORDERS)]


# ---- queues ------------------------------------------------------------------------------------------------------


def test_counts_bytes_and_the_oldest_are_those_of_the_references(state: QueueState) -> None:
    for message in range(1, 7):
        send(state, message, timestamp=NOW + message)
    send(state, 7, due=NOW + 10)
    state.store(8, ADDRESS, priority=4, size=100)
    state.route(8, ORDERS)
    state.take(ORDERS, "one", NOW)
    state.lock(2, ORDERS, 7)
    state.acknowledge(3, ORDERS)
    queue = state.queue("orders")
    assert (queue.ready, queue.held, queue.locked, queue.settling) == (3, 1, 1, 1)
    assert (queue.scheduled, queue.arriving, queue.bytes, queue.oldest) == (1, 1, 700, NOW + 4)


def test_removing_a_queue_names_the_messages_that_were_only_there(state: QueueState) -> None:
    send(state, 1, ORDERS)
    send(state, 2, ORDERS, AUDIT)
    send(state, 3, ORDERS)
    state.take(ORDERS, "one", NOW)
    state.add_binding(9 << 10, ORDERS, "key")
    assert [*chain.from_iterable(state.remove_queue("orders"))] == [1, 3]
    assert state.message(1).references == 0
    for message in (1, 3):
        state.forget(message)
    assert take_all(state, AUDIT) == [2]
    assert state.holders() == ["consumer"]
    with pytest.raises(QueueMissingError):
        state.bindings(ORDERS)
    with pytest.raises(StoreError):
        state.remove_binding(9 << 10)


def test_what_was_on_its_way_when_its_queue_went_does_nothing(state: QueueState) -> None:
    send(state, 1)
    state.acknowledge(1, ORDERS)
    state.store(2, ADDRESS, priority=4, size=1)
    state.route(2, ORDERS)
    assert [*chain.from_iterable(state.remove_queue("orders"))] == [2]
    state.settled(1, ORDERS)
    state.arrive(2, ORDERS)
    state.withdraw(2, ORDERS)
    state.unlock(1, ORDERS)
    with pytest.raises(MessageMissingError):
        state.message(1)


def test_a_queue_is_not_removed_under_a_transaction(state: QueueState) -> None:
    send(state, 1)
    state.lock(1, ORDERS, 7)
    send(state, 2)
    state.route(2, AUDIT, tx=7)
    for name in ("orders", "audit"):
        with pytest.raises(QueueInDoubtError):
            state.remove_queue(name)
    state.unlock(1, ORDERS)
    state.withdraw(2, AUDIT)
    assert [*chain.from_iterable(state.remove_queue("orders"))] == [1, 2]


def test_names_are_unique_and_an_address_outlives_its_queues(state: QueueState) -> None:
    with pytest.raises(AddressExistsError):
        state.add_address(8 << 10, "orders")
    with pytest.raises(QueueExistsError):
        state.add_queue(8 << 10, QueueConfig(name="orders", address="orders"))
    with pytest.raises(AddressMissingError):
        state.add_queue(8 << 10, QueueConfig(name="new", address="elsewhere"))
    with pytest.raises(AddressInUseError):
        state.remove_address("orders")
    for name in ("orders", "audit"):
        assert not [*chain.from_iterable(state.remove_queue(name))]
    assert state.remove_address("orders").record_id == ADDRESS
    assert state.addresses() == []


def test_a_durable_subscription_is_its_clients_only_one_of_that_name(state: QueueState) -> None:
    news = QueueConfig(name="a", address="orders", client_id="client", subscription="news")
    state.add_queue(8 << 10, news)
    same = QueueConfig(name="b", address="audit", client_id="client", subscription="news")
    with pytest.raises(QueueExistsError):
        state.require_new_subscription(same)
    state.remove_queue("a")
    state.require_new_subscription(same)


def test_bindings_are_a_queues(state: QueueState) -> None:
    state.add_binding(8 << 10, ORDERS, "key", "filter")
    state.add_binding(9 << 10, AUDIT)
    assert [(each.record_id, each.key, each.filter) for each in state.bindings(ORDERS)] == [(8 << 10, "key", "filter")]
    assert state.remove_binding(8 << 10).queue_id == ORDERS
    assert state.bindings(ORDERS) == []


def test_what_a_holder_has_in_a_queue_that_is_not_listed_is_its_own_and_not_named(state: QueueState) -> None:
    send(state, 1)
    state.take(ORDERS, "one", NOW)
    state.hold_all_over()
    config = state.queue("orders").config
    state.unlist_queue(state.queue("orders"))
    assert state.held_of("one", state.reattach("one")) == []
    state.add_queue(ORDERS, config)
    assert state.held_of("one", state.reattach("one")) == [(1, ORDERS)]
    assert state.held_over_counts(1, ORDERS) is None


# ---- runs --------------------------------------------------------------------------------------------------------


def store_run(state: QueueState, messages: range) -> Run:
    return state.store_routed(
        messages,
        ADDRESS,
        ORDERS,
        sizes=[1] * len(messages),
        timestamps=[0] * len(messages),
        priorities=[4] * len(messages),
    )


def settle_run(state: QueueState, messages: list[int]) -> None:
    run = state.to_acknowledge_run(messages, ORDERS, "")
    assert run is not None
    state.acknowledge_run(state.queue("orders"), run)
    state.settled_run(run, ORDERS)


@pytest.mark.parametrize("step", [1, 2, 7], ids=["as-they-came", "every-other-one", "scattered"])
def test_rows_of_runs_serve_again_once_they_are_settled(state: QueueState, step: int) -> None:
    for life in range(4):
        messages = range(1 + 100 * life, 71 + 100 * life)
        runs = [store_run(state, messages[:30]), store_run(state, messages[30:])]
        for run in runs:
            assert state.arrive_run(run, ORDERS)
        assert (state.references_in_memory, state.messages_in_memory) == (70, 70)
        for first in range(step):
            settle_run(state, list(messages[first::step]))
        assert take_all(state) == []
        assert (state.references_in_memory, state.messages_in_memory) == (0, 0)
        assert max(max(run.references) for run in runs) < 70
        assert max(max(run.messages) for run in runs) < 70


def test_what_is_left_of_a_message_in_one_queue_goes_in_a_run_if_none_of_it_is_elsewhere(state: QueueState) -> None:
    run = store_run(state, range(1, 4))
    state.route(2, AUDIT)
    assert state.arrive_run(run, ORDERS)
    assert state.to_acknowledge_run([1, 2, 3], ORDERS, "") is None
    state.withdraw(2, AUDIT)
    settle_run(state, [3, 2, 1])
    assert take_all(state) == []
    assert (state.references_in_memory, state.messages_in_memory) == (0, 0)
