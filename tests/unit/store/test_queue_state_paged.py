"""What of a QueueState waits in the index, within which bounds, and that nothing else is different."""

from __future__ import annotations

from itertools import chain

import pytest

from journal.errors import StoreError
from journal.store.model import Delivery, QueueConfig, ReferenceState
from journal.store.queues.messages import QueueMessages
from journal.store.queues.tables import PASSED_MAX, QueueTables
from tests.support.queue_states import ADDRESS, AUDIT, NOW, ORDERS, new_state, send, take_all
from tests.support.references import MemoryIndex


def test_beyond_its_bound_a_queue_waits_in_the_index_and_comes_in_order() -> None:
    index = MemoryIndex()
    state = new_state(queue=10, index=index)
    for message in range(1, 101):
        send(state, message, priority=9 if message % 10 == 0 else 4)
    assert len(index.rows) == 90
    assert state.queue("orders").ready == 100
    in_order = [*range(10, 101, 10), *(message for message in range(1, 101) if message % 10)]
    assert [info.message for info in state.browse(ORDERS)] == in_order
    assert take_all(state) == in_order
    assert not index.rows


def test_the_nodes_bound_holds_whatever_is_taken_and_given_back() -> None:
    index = MemoryIndex()
    state = new_state(node=16, queue=10**6, index=index)
    for message in range(1, 101):
        send(state, message, ORDERS, AUDIT)
    assert state.references_in_memory == 200 - len(index.rows) <= 16
    for _ in range(100):
        delivery = state.take(ORDERS, "one", NOW)
        assert delivery is not None
        state.acknowledge(delivery.message, ORDERS, "one")
        state.settled(delivery.message, ORDERS)
        assert state.references_in_memory <= 16
        assert state.messages_in_memory <= 16
    assert take_all(state, AUDIT) == list(range(1, 101))


def test_which_messages_are_there_is_asked_of_the_index_only_where_it_has_to_be_known_exactly() -> None:
    index = MemoryIndex()
    state = new_state(queue=2, index=index)
    for message in range(1, 11):
        send(state, message)
    asked = list(range(1, 21))
    assert state.stored_of(asked, exactly=True) == {*range(1, 11)}
    assert state.stored_of(asked, exactly=False) == {*asked}
    assert take_all(state) == list(range(1, 11))  # held, in memory
    assert state.stored_of(asked, exactly=False) == {*range(1, 11)}


def test_a_message_in_the_index_is_acquired_and_released_like_any_other() -> None:
    state = new_state(queue=2, index=MemoryIndex())
    for message in range(1, 11):
        send(state, message, expires=NOW + 5)
    assert state.message(8).expires == NOW + 5
    assert [info.state for info in state.explain(8)] == [ReferenceState.READY]
    assert state.acquire(8, ORDERS, "one", NOW) == Delivery(8, 0, False)
    state.release(8, ORDERS)
    assert take_all(state) == list(range(1, 11))


def test_references_in_the_index_expire_and_become_due() -> None:
    state = new_state(queue=2, index=MemoryIndex())
    for message in range(1, 11):
        send(state, message, expires=NOW + message)
    assert sorted(state.expired(NOW + 5, 100)) == [(message, ORDERS) for message in range(1, 6)]
    for message in range(11, 16):
        send(state, message, due=NOW + message)
    assert state.next_due() == NOW + 11
    assert state.due(NOW + 13) == 3
    assert take_all(state, now=NOW + 8) == [9, 10, 11, 12, 13]


def test_removing_a_queue_empties_its_part_of_the_index() -> None:
    index = MemoryIndex()
    state = new_state(queue=2, index=index)
    for message in range(1, 11):
        send(state, message, ORDERS)
    for message in range(11, 21):
        send(state, message, ORDERS, AUDIT)
    gone = sorted(chain.from_iterable(state.remove_queue("orders")))
    assert gone == list(range(1, 11))
    for message in gone:
        assert state.message(message).references == 0
        state.forget(message)
    assert {each.queue for each in index.rows.values()} == {AUDIT}
    assert take_all(state, AUDIT) == list(range(11, 21))


def test_a_message_stays_in_memory_only_for_a_reference_there() -> None:
    state = new_state(queue=2, index=MemoryIndex())
    for message in range(1, 11):
        send(state, message, AUDIT)
    for message in range(1, 11):
        state.route(message, ORDERS)
        state.arrive(message, ORDERS)
    assert state.messages_in_memory == 2
    for message in range(1, 11):
        assert not state.acknowledge(message, ORDERS)
        state.settled(message, ORDERS)
    assert state.messages_in_memory == 2
    assert take_all(state, AUDIT) == list(range(1, 11))


def test_a_reference_in_the_index_counts_when_another_is_settled_or_goes_with_its_queue() -> None:
    state = new_state(queue=1, index=MemoryIndex())
    send(state, 1, ORDERS)
    send(state, 2, ORDERS, AUDIT)
    assert [*chain.from_iterable(state.remove_queue("orders"))] == [1]
    assert state.message(2).references == 1
    assert state.acknowledge(2, AUDIT)


def test_a_message_that_is_all_in_the_index_is_routed_to_one_more_queue() -> None:
    state = new_state(queue=1, index=MemoryIndex())
    for message in (1, 2):
        send(state, message, ORDERS)
    for message in (1, 2):
        state.route(message, AUDIT)
        state.arrive(message, AUDIT)
    with pytest.raises(StoreError):
        state.route(2, ORDERS)
    assert take_all(state, ORDERS) == [1, 2]
    assert state.message(2).references == 2
    assert not state.acknowledge(2, ORDERS, "consumer")
    assert state.acknowledge(2, AUDIT)


def test_what_is_released_comes_before_what_is_in_memory_and_what_arrives_comes_behind_the_index() -> None:
    state = new_state(queue=4, index=MemoryIndex())
    for message in range(1, 11):
        send(state, message)
    assert state.take(ORDERS, "one", NOW) == Delivery(1, 0, False)
    assert state.take(ORDERS, "one", NOW) == Delivery(2, 0, False)
    state.acknowledge(2, ORDERS, "one")
    send(state, 11)
    state.release(1, ORDERS)
    assert take_all(state) == [1, *range(3, 12)]


def test_a_message_with_references_in_the_index_is_not_forgotten() -> None:
    state = new_state(queue=1, index=MemoryIndex())
    for message in (1, 2):
        send(state, message)
    with pytest.raises(StoreError):
        state.forget(2)


def test_what_expires_is_told_at_the_first_look_though_it_waits_in_the_index_and_arrives_elsewhere() -> None:
    state = new_state(queue=2, index=MemoryIndex())
    state.store(1, ADDRESS, priority=4, size=100, expires=NOW + 5, timestamp=0)
    for queue in (ORDERS, AUDIT):
        state.route(1, queue, due=0)
    for message in range(2, 5):
        send(state, message)
    state.arrive(1, ORDERS)
    assert state.expired(NOW + 6, 1) == [(1, ORDERS)]


def test_what_expired_before_it_is_taken_waits_in_the_index_as_what_is_ready_does() -> None:
    state = new_state(node=40, queue=10, index=MemoryIndex())
    for message in range(1, 251):
        send(state, message, expires=NOW + message % 2)
    send(state, 251)
    assert state.take(ORDERS, "one", NOW + 1) == Delivery(251, 0, False)
    assert (state.references_in_memory <= 12, state.messages_in_memory <= 12) == (True, True)
    assert [info.message for info in state.browse(ORDERS)] == list(range(1, 252))
    assert (state.queue("orders").ready, state.queue("orders").oldest) == (250, 0)
    for message in (249, 250):
        assert state.acquire(message, ORDERS, "one", NOW, checked=True) == Delivery(message, 0, False)
        state.release(message, ORDERS)
    told = []
    while found := state.expired(NOW + 1, 20):
        told += found
        assert state.references_in_memory <= 40
        for message, queue in found:
            state.acknowledge(message, queue)
            state.settled(message, queue)
    assert sorted(told) == [(message, ORDERS) for message in range(1, 251)]
    assert state.messages_in_memory == 1


def test_a_queue_that_goes_takes_what_expired_in_the_index_along() -> None:
    index = MemoryIndex()
    state = new_state(queue=2, index=index)
    for message in range(1, 11):
        send(state, message, expires=NOW)
    assert state.take(ORDERS, "one", NOW) is None
    assert index.rows
    assert sorted(chain.from_iterable(state.remove_queue("orders"))) == list(range(1, 11))
    for message in range(1, 11):
        state.forget(message)
    assert not index.rows


def test_a_take_passes_a_bounded_number_of_expired_ones_and_what_is_left_has_been_due() -> None:
    state = new_state(queue=200, index=MemoryIndex())
    for message in range(1, 2 * PASSED_MAX + 2):
        send(state, message, expires=NOW)
    send(state, 9999)
    assert (state.take(ORDERS, "one", NOW), state.next_due()) == (None, NOW)
    assert (state.due(NOW), state.next_due()) == (0, NOW)
    assert (state.due(NOW), state.next_due()) == (0, 0)
    assert state.take(ORDERS, "one", NOW) == Delivery(9999, 0, False)


def test_what_is_left_of_a_queue_that_goes_is_not_waited_for() -> None:
    state = new_state()
    for message in range(1, PASSED_MAX + 2):
        send(state, message, expires=NOW)
    assert (state.take(ORDERS, "one", NOW), state.next_due()) == (None, NOW)
    state.remove_queue("orders")
    assert (state.next_due(), state.due(NOW)) == (0, 0)


@pytest.mark.parametrize("later", [False, True], ids=["before", "behind"])
def test_what_becomes_due_stays_within_the_bounds_and_comes_in_its_place(later: bool) -> None:
    state = new_state(node=400, queue=10, index=MemoryIndex())
    ready = [1001 + number for number in range(40)]
    if later:
        for message in ready:
            send(state, message)
    scheduled = list(range(1, 101))
    for message in scheduled:
        send(state, message, due=NOW + message)
    if not later:
        for message in ready:
            send(state, message)
    for message in scheduled:
        assert state.due(NOW + message) == 1
        assert state.references_in_memory <= 10
    assert take_all(state, now=NOW + 200) == (ready + scheduled if later else scheduled + ready)


def test_what_is_given_back_stays_within_the_bounds() -> None:
    state = new_state(node=400, queue=10, index=MemoryIndex())
    for message in range(1, 41):
        send(state, message)
    assert take_all(state) == list(range(1, 41))
    for message in range(40, 0, -1):
        state.schedule(message, ORDERS, NOW + 1 if message % 4 == 0 else 0)
        state.release(message, ORDERS)
    assert state.references_in_memory <= 10
    assert take_all(state) == [message for message in range(1, 41) if message % 4]
    assert take_all(state, now=NOW + 1) == list(range(4, 41, 4))


def test_what_expired_in_a_queue_that_is_not_listed_is_not_told_and_keeps_nobody_waiting() -> None:
    for queue_bound in (10**6, 2):
        state = new_state(queue=queue_bound, index=MemoryIndex())
        for message in range(1, 11):
            send(state, message, ORDERS, expires=NOW)
        for message in range(11, 16):
            send(state, message, AUDIT, expires=NOW)
        send(state, 16, ORDERS, AUDIT, expires=NOW)
        config = state.queue("orders").config
        state.unlist_queue(state.queue("orders"))
        before = state.references_in_memory
        for _ in range(2):
            assert sorted(state.expired(NOW, 10)) == [(message, AUDIT) for message in range(11, 17)]
            assert state.references_in_memory <= before + 7
        state.add_queue(ORDERS, config)
        assert len(state.expired(NOW, 100)) == 17


def test_what_a_message_says_of_when_it_is_due_waits_in_the_index_with_it() -> None:
    tables = QueueTables(40, 10, MemoryIndex())
    messages = QueueMessages(tables)
    messages.add_address(ADDRESS, "orders")
    for queue, name in ((ORDERS, "orders"), (AUDIT, "audit")):
        messages.add_queue(queue, QueueConfig(name=name, address="orders"))
    for message in range(1, 101):
        messages.store(message, ADDRESS, priority=4, size=100, due=NOW + message)
        messages.route(message, ORDERS, due=NOW + message)
        messages.arrive(message, ORDERS)
        assert len(tables.references.due) <= 10
    assert [messages.message(message).due for message in range(1, 101)] == [NOW + message for message in range(1, 101)]
    messages.route(100, AUDIT)
    messages.arrive(100, AUDIT)
    assert messages.message(100).due == NOW + 100
