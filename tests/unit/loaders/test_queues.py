"""QueueLoader: queues, messages and transactions in doubt as a journal's records tell them."""

from __future__ import annotations

import pytest

from journal.errors import RowError
from journal.load.loading import LoadedUpdate
from journal.store.message_records import encode_message
from journal.store.model import Message, QueueConfig, ReferenceState
from journal.store.queues.loaded import LoadedDuplicate, LoadedOutcome, LoadedStore
from journal.store.records import (
    encode_acknowledgement,
    encode_address,
    encode_binding,
    encode_duplicate,
    encode_queue,
    encode_reference,
)
from journal.v1.store_pb2 import (
    ACKNOWLEDGE,
    ADDRESS,
    BINDING,
    CHUNK,
    DUPLICATE,
    MESSAGE,
    OUTCOME,
    QUEUE,
    REFERENCE,
    ROUTE,
    Acknowledgement,
    Reference,
)
from tests.support.build import add, update
from tests.support.queue_loads import Record, acknowledged, referred, routed, tell
from tests.support.references import MemoryIndex

ORDERS_ADDRESS, ORDERS, AUDIT, GONE = 1 << 10, 2 << 10, 3 << 10, 4 << 10
NOW = 1_700_000_000_000
TX = 7
DECLARED: list[Record] = [
    (ORDERS_ADDRESS, ADDRESS, encode_address("orders", 3), []),
    (ORDERS, QUEUE, encode_queue(QueueConfig(name="orders", address="orders", deliveries_max=5)), []),
    (AUDIT, QUEUE, encode_queue(QueueConfig(name="audit", address="orders")), []),
]


def message(id: int, *updates: LoadedUpdate, priority: int = 4, due: int = 0, expires: int = 0) -> Record:
    data = encode_message(Message("orders", b"body", priority=priority, due=due, expires=expires, timestamp=NOW + id))
    return id << 10, MESSAGE, data, list(updates)


def browse(loaded: LoadedStore, queue: int = ORDERS) -> list[int]:
    return [info.message >> 10 for info in loaded.state.browse(queue)]


def test_messages_are_in_the_order_of_their_routes_whatever_their_ids() -> None:
    loaded = tell(
        [
            *DECLARED,
            message(10, routed(ORDERS, 30)),
            message(11, routed(ORDERS, 20, 1)),
            message(12, routed(ORDERS, 20, 0, 2)),
            message(13, routed(ORDERS, 20, 0, 1)),
            message(14, routed(ORDERS, 99), priority=9),
        ]
    )
    assert browse(loaded) == [14, 13, 12, 11, 10]
    entry = loaded.state.message(10 << 10)
    assert (entry.address, entry.references, entry.timestamp) == ("orders", 1, NOW + 10)
    assert entry.size == len(message(10)[2])
    assert loaded.state.queue("orders").config.deliveries_max == 5


def test_what_arrives_after_a_load_is_behind_what_was_loaded() -> None:
    state = tell([*DECLARED, message(10, routed(ORDERS, 2**40, 2**20, 2**17))]).state
    state.store(11 << 10, ORDERS_ADDRESS, priority=4, size=1)
    state.route(11 << 10, ORDERS)
    state.arrive(11 << 10, ORDERS)
    assert [info.message >> 10 for info in state.browse(ORDERS)] == [10, 11]


def test_a_reference_is_as_its_last_update_left_it() -> None:
    loaded = tell(
        [
            *DECLARED,
            message(10, routed(ORDERS, 1), referred(ORDERS, 2, "one", 3)),
            message(11, routed(ORDERS, 3), referred(ORDERS, 4, "", 1, NOW)),
            message(12, routed(ORDERS, 5), referred(ORDERS, 6), due=NOW),
            message(13, routed(ORDERS, 7), due=NOW + 5),
            message(14, routed(ORDERS, 8), acknowledged(ORDERS, 9), routed(AUDIT, 10)),
        ]
    )
    stand = {info.message >> 10: (info.state, info.holder, info.deliveries) for info in loaded.state.browse(ORDERS)}
    assert stand == {
        10: (ReferenceState.HELD, "one", 3),
        11: (ReferenceState.SCHEDULED, "", 1),
        12: (ReferenceState.READY, "", 0),
        13: (ReferenceState.SCHEDULED, "", 0),
    }
    assert browse(loaded, AUDIT) == [14]
    assert loaded.state.held_of("one", loaded.state.reattach("one")) == [(10 << 10, ORDERS)]
    assert [loaded.state.message(id << 10).due for id in (11, 12, 13)] == [0, NOW, NOW + 5]


def test_a_reference_that_was_settled_and_routed_again_is_a_new_one() -> None:
    again = [routed(ORDERS, 1), referred(ORDERS, 2, "one", 3), acknowledged(ORDERS, 3), routed(ORDERS, 9)]
    loaded = tell([*DECLARED, message(10, *again, routed(AUDIT, 10)), message(11, routed(ORDERS, 5))])
    assert [(info.message >> 10, info.deliveries, info.holder) for info in loaded.state.browse(ORDERS)] == [
        (11, 0, ""),
        (10, 0, ""),
    ]


def test_messages_without_a_living_reference_are_orphans_with_their_chunks() -> None:
    large = encode_message(Message("orders"), chunks=(50 << 10, 51 << 10), body_bytes=9)
    loaded = tell(
        [
            *DECLARED,
            message(10),
            message(11, routed(ORDERS, 1), acknowledged(ORDERS, 2)),
            message(12, routed(GONE, 3)),
            message(13, routed(GONE, 4), routed(ORDERS, 5)),
            (14 << 10, MESSAGE, large, [routed(GONE, 6)]),
            (50 << 10, CHUNK, b"part", []),
        ]
    )
    assert sorted(loaded.orphans) == [(10 << 10,), (11 << 10,), (12 << 10,), (14 << 10, 50 << 10, 51 << 10)]
    assert loaded.orphaned_messages == 4
    assert browse(loaded) == [13]
    assert loaded.state.message(13 << 10).references == 1
    assert {queue.config.name for queue in loaded.state.queues()} == {"orders", "audit"}


def test_a_queue_may_be_told_after_its_messages() -> None:
    late: Record = (90 << 10, QUEUE, encode_queue(QueueConfig(name="late", address="orders")), [])
    loaded = tell([*DECLARED, message(10, routed(90 << 10, 2)), message(11, routed(90 << 10, 1)), late])
    assert browse(loaded, 90 << 10) == [11, 10]
    assert loaded.orphans == []


def test_an_address_may_be_told_after_its_messages() -> None:
    loaded = tell(
        [
            (5 << 10, MESSAGE, encode_message(Message("late")), [routed(91 << 10, 1)]),
            (90 << 10, ADDRESS, encode_address("late", 0), []),
            (91 << 10, QUEUE, encode_queue(QueueConfig(name="late", address="late")), []),
        ]
    )
    assert loaded.state.message(5 << 10).address == "late"


def test_bindings_duplicates_and_outcomes_are_told() -> None:
    window = [LoadedUpdate(DUPLICATE, encode_duplicate(b"id-%d" % slot), True, slot, (slot, 0, 0)) for slot in (2, 0)]
    loaded = tell(
        [
            (ORDERS_ADDRESS, ADDRESS, encode_address("orders", 3), window),
            *DECLARED[1:],
            (20 << 10, BINDING, encode_binding(ORDERS, "key", "filter"), []),
            (21 << 10, BINDING, encode_binding(GONE, "key", ""), []),
            (22 << 10, OUTCOME, b"an outcome", []),
        ]
    )
    assert [binding[1:] for binding in loaded.state.bindings(ORDERS)] == [(ORDERS, "key", "filter")]
    assert loaded.orphans == [(21 << 10,)]
    assert loaded.windows == {ORDERS_ADDRESS: [LoadedDuplicate(2, b"id-2"), LoadedDuplicate(0, b"id-0")]}
    assert loaded.outcomes == [LoadedOutcome(22 << 10, b"an outcome")]
    assert loaded.state.address("orders").duplicate_window == 3


def test_prepared_adds_are_invisible_and_prepared_acknowledgements_lock_their_reference() -> None:
    data = encode_message(Message("orders", due=NOW))
    consumed = encode_acknowledgement(Acknowledgement.CONSUMED, "one")
    operations = [
        add(30 << 10, data, kind=MESSAGE, tx=TX),
        update(30 << 10, kind=ROUTE, subject=ORDERS, tx=TX),
        update(30 << 10, kind=ROUTE, subject=AUDIT, tx=TX),
        update(30 << 10, encode_reference(Reference.SCHEDULED, due=NOW + 9), kind=REFERENCE, subject=AUDIT, tx=TX),
        update(10 << 10, consumed, kind=ACKNOWLEDGE, subject=ORDERS, tx=TX),
        update(10 << 10, kind=ROUTE, subject=GONE, tx=TX),
    ]
    loaded = tell(
        [*DECLARED, message(10, routed(ORDERS, 1), referred(ORDERS, 2, "one", 1)), message(11, routed(ORDERS, 3))],
        prepared=[(TX, b"xid", operations)],
    )
    state = loaded.state
    assert [(info.message >> 10, info.state, info.tx) for info in state.browse(ORDERS)] == [
        (10, ReferenceState.LOCKED, TX),
        (11, ReferenceState.READY, 0),
    ]
    assert [(each.tx, each.data) for each in loaded.prepared] == [(TX, b"xid")]
    assert state.queue("orders").arriving == 1
    for queue in (ORDERS, AUDIT):
        state.arrive(30 << 10, queue)
    assert [(info.queue, info.due) for info in state.explain(30 << 10)] == [("orders", NOW), ("audit", NOW + 9)]
    state.unlock(10 << 10, ORDERS)
    assert state.held_by("one") == [(10 << 10, ORDERS)]


def test_a_message_whose_only_route_is_prepared_is_no_orphan() -> None:
    loaded = tell(
        [*DECLARED, message(10), message(11)],
        prepared=[(TX, b"", [update(10 << 10, kind=ROUTE, subject=ORDERS, tx=TX)])],
        bounds=(2, 1),
        index=MemoryIndex(),
    )
    assert loaded.orphans == [(11 << 10,)]
    loaded.state.arrive(10 << 10, ORDERS)
    assert browse(loaded) == [10]


def test_a_transaction_that_does_not_fit_the_queues_is_a_row_error() -> None:
    with pytest.raises(RowError):
        tell(DECLARED, prepared=[(TX, b"", [update(10 << 10, kind=ACKNOWLEDGE, subject=ORDERS, tx=TX)])])


@pytest.mark.parametrize("bounds", [(1000, 10), (16, 1000), (2, 1)])
def test_a_load_beyond_the_bounds_is_in_order_and_leaves_little_in_memory(bounds: tuple[int, int]) -> None:
    index = MemoryIndex()
    places = [(number * 37) % 101 for number in range(1, 101)]
    loaded = tell(
        [*DECLARED, *(message(100 + place, routed(ORDERS, place), routed(AUDIT, 200 - place)) for place in places)],
        bounds=bounds,
        index=index,
    )
    assert 200 - len(index.rows) <= min(bounds[0], 2 * bounds[1])
    assert browse(loaded) == [100 + place for place in sorted(places)]
    state = loaded.state
    taken = [state.take(AUDIT, "one", NOW) for _ in places]
    assert [each and each.message >> 10 for each in taken] == [100 + place for place in sorted(places, reverse=True)]
