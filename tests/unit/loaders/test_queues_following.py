"""QueueLoader as a FollowingLoader: what becomes of a state by each kind of change."""

from __future__ import annotations

import random

import pytest

from journal.errors import RowError, StateError
from journal.load.loading import FollowingLoader, LoadCounts, LoadedUpdate
from journal.store.address_settings import AddressSettings, KeptSettings
from journal.store.message_records import encode_message
from journal.store.model import Delivery, Message, QueueConfig, ReferenceState
from journal.store.queues.loaded import LoadedDuplicate, LoadedOutcome, LoadedStore
from journal.store.records import (
    encode_acknowledgement,
    encode_address,
    encode_address_settings,
    encode_binding,
    encode_duplicate,
    encode_queue,
)
from journal.v1.journal_pb2 import Operation
from journal.v1.store_pb2 import (
    ACKNOWLEDGE,
    ADDRESS,
    ADDRESS_SETTINGS,
    BINDING,
    CHUNK,
    DUPLICATE,
    MESSAGE,
    OUTCOME,
    QUEUE,
    QUEUE_CHANGED,
    ROUTE,
)
from loaders.queues import QueueLoader
from tests.support.build import add, update
from tests.support.queue_loads import Record, acknowledged, referred, routed
from tests.support.references import MemoryIndex

ADDRESS_ID, ORDERS, AUDIT, LATE = 1 << 10, 2 << 10, 3 << 10, 900 << 10
NOW = 1_700_000_000_000
TX = 7
AT = (0, 0, 0)


def message(id: int, *updates: LoadedUpdate, priority: int = 4, due: int = 0, chunks: tuple[int, ...] = ()) -> Record:
    out = Message("orders", b"" if chunks else b"body", priority=priority, due=due, timestamp=NOW)
    return id << 10, MESSAGE, encode_message(out, chunks=chunks, body_bytes=9 if chunks else 0), list(updates)


def queue(id: int, name: str, address: str = "orders") -> Record:
    return id, QUEUE, encode_queue(QueueConfig(name, address)), []


class Followed:
    """A loader that was told two queues, and messages 10 to 14 that are in the first one in that order."""

    def __init__(self, *, bounds: tuple[int, int] = (10**6, 10**6), index: MemoryIndex | None = None) -> None:
        node, in_queue = bounds
        self.loader = QueueLoader(references_in_memory_max=node, queue_references_in_memory_max=in_queue, index=index)
        self.state = self.loader.loaded.state
        self.loader.begin({})
        self.loader.record(ADDRESS_ID, ADDRESS, encode_address("orders", 3), (), AT)
        for each in (queue(ORDERS, "orders"), queue(AUDIT, "audit")):
            self.loader.record(*each, AT)
        for id in range(10, 15):
            self.loader.record(*message(id, routed(ORDERS, id)), AT)

    def changed(self, *records: Record) -> None:
        for each in records:
            self.loader.changed(*each, AT)

    def deleted(self, *ids: int) -> None:
        for id in ids:
            self.loader.deleted(id << 10)

    def completed(self, *in_doubt: Operation) -> LoadedStore:
        if in_doubt:
            self.loader.prepared(TX, b"xid", in_doubt)
        self.loader.complete(LoadCounts(0, 0, 0, 0))
        return self.loader.loaded

    def browse(self, queue_id: int = ORDERS) -> list[int]:
        return [info.message >> 10 for info in self.state.browse(queue_id)]


@pytest.fixture
def followed() -> Followed:
    return Followed()


def test_the_loader_of_queues_is_one_that_follows(followed: Followed) -> None:
    assert isinstance(followed.loader, FollowingLoader)


# ---- messages ----------------------------------------------------------------------------------------------------


def test_new_messages_are_in_order_at_once_whatever_the_order_of_telling(followed: Followed) -> None:
    places = list(range(100, 1000))
    random.Random(1).shuffle(places)
    for told in range(0, 900, 300):
        followed.changed(*(message(1000 + place, routed(ORDERS, place)) for place in sorted(places)[told : told + 300]))
    assert followed.browse() == [*range(10, 15), *range(1100, 2000)]
    backwards = Followed()
    backwards.changed(*(message(1000 + place, routed(ORDERS, place)) for place in places))
    assert backwards.browse() == [*range(10, 15), *range(1100, 2000)]
    taken = [backwards.state.take(ORDERS, "one", NOW) for _ in range(905)]
    assert [each and each.message >> 10 for each in taken] == [*range(10, 15), *range(1100, 2000)]


def test_what_says_nothing_new_changes_nothing(followed: Followed) -> None:
    told = message(11, routed(ORDERS, 11))
    followed.changed(told, told)
    entry = followed.state.queue("orders")
    assert followed.browse() == [10, 11, 12, 13, 14]
    assert (entry.ready, entry.bytes) == (5, 5 * len(told[2]))
    assert followed.state.message(11 << 10).references == 1


def test_a_deleted_message_leaves_nothing_wherever_it_stood(followed: Followed) -> None:
    followed.changed(message(13, routed(ORDERS, 13), referred(ORDERS, 20, "one", 1), routed(AUDIT, 21)))
    followed.changed(message(14, routed(ORDERS, 14), referred(ORDERS, 22, due=NOW + 5)))
    followed.deleted(10, 13, 14, 77)
    assert followed.browse() == [11, 12]
    assert followed.browse(AUDIT) == []
    assert (followed.state.holders(), followed.state.next_due()) == ([], 0)
    for entry in followed.state.queues():
        assert (entry.held, entry.scheduled, entry.bytes) == (0, 0, entry.ready * len(message(10)[2]))
    assert followed.state.messages_in_memory == 2


def test_rows_of_what_was_deleted_are_used_again_as_messages_come_and_go(followed: Followed) -> None:
    for id in range(15, 5000):
        followed.changed(message(id, routed(ORDERS, id)))
        followed.deleted(id - 5)
    assert followed.browse() == list(range(4995, 5000))
    assert followed.state.references_in_memory == 5


def test_holder_deliveries_and_due_time_are_those_of_the_last_update(followed: Followed) -> None:
    followed.changed(
        message(10, routed(ORDERS, 10), referred(ORDERS, 20, "one", 1)),
        message(11, routed(ORDERS, 11), referred(ORDERS, 21, "", 2)),
        message(12, routed(ORDERS, 12), referred(ORDERS, 22, "", 1, NOW)),
        message(13, routed(ORDERS, 13), referred(ORDERS, 23, "two", 3)),
    )
    stand = {info.message >> 10: (info.state, info.holder, info.deliveries) for info in followed.state.browse(ORDERS)}
    assert stand == {
        10: (ReferenceState.HELD, "one", 1),
        11: (ReferenceState.READY, "", 2),
        12: (ReferenceState.SCHEDULED, "", 1),
        13: (ReferenceState.HELD, "two", 3),
        14: (ReferenceState.READY, "", 0),
    }
    followed.changed(
        message(10, routed(ORDERS, 10), referred(ORDERS, 30, "two", 1)),
        message(12, routed(ORDERS, 12), referred(ORDERS, 31, "", 1, NOW + 9)),
        message(13, routed(ORDERS, 13), referred(ORDERS, 32, "", 4)),
    )
    assert followed.state.held_by("two") == [(10 << 10, ORDERS)]
    assert (followed.state.held_by("one"), followed.state.next_due()) == ([], NOW + 9)
    followed.changed(message(12, routed(ORDERS, 12), referred(ORDERS, 40, "", 2)))
    assert followed.completed().state.take(ORDERS, "three", NOW) == Delivery(11 << 10, 2, True)
    assert followed.browse() == [10, 11, 12, 13, 14]


def test_references_come_and_go_one_by_one(followed: Followed) -> None:
    followed.changed(message(10, routed(ORDERS, 10), routed(AUDIT, 20)))
    assert (followed.browse(AUDIT), followed.state.message(10 << 10).references) == ([10], 2)
    followed.changed(message(10, routed(ORDERS, 10), routed(AUDIT, 20), acknowledged(ORDERS, 21)))
    assert (followed.browse(), followed.browse(AUDIT)) == ([11, 12, 13, 14], [10])
    assert followed.state.message(10 << 10).references == 1


def test_a_reference_that_is_routed_again_after_an_acknowledge_is_at_its_new_place(followed: Followed) -> None:
    again = [routed(ORDERS, 11), referred(ORDERS, 20, "one", 3), acknowledged(ORDERS, 21), routed(ORDERS, 22)]
    followed.changed(message(11, *again))
    assert followed.browse() == [10, 12, 13, 14, 11]
    assert [(info.holder, info.deliveries) for info in followed.state.explain(11 << 10)] == [("", 0)]


def test_another_message_with_the_id_of_one_that_is_gone_is_another_message(followed: Followed) -> None:
    followed.changed(message(10, routed(ORDERS, 50), priority=9, due=NOW))
    followed.changed((11 << 10, OUTCOME, b"an outcome", []))
    assert followed.browse() == [10, 12, 13, 14]
    assert (followed.state.message(10 << 10).priority, followed.state.message(10 << 10).due) == (9, NOW)
    followed.changed(message(10, routed(ORDERS, 50), priority=9), message(11, routed(ORDERS, 51)))
    loaded = followed.completed()
    assert (followed.state.message(10 << 10).due, loaded.outcomes) == (0, [])
    assert followed.browse() == [10, 12, 13, 14, 11]


@pytest.mark.parametrize("index", [None, MemoryIndex()], ids=["in memory", "in the index"])
def test_a_message_that_differs_by_its_address_alone_is_another(index: MemoryIndex | None) -> None:
    followed = Followed(bounds=(1000, 1), index=index)
    others = encode_message(Message("others", b"body", timestamp=NOW))
    followed.changed((500 << 10, ADDRESS, encode_address("others", 0), []), (10 << 10, MESSAGE, others, [routed(9, 9)]))
    assert followed.state.message(10 << 10).address == "others"


def test_messages_that_nothing_refers_to_are_orphans_with_their_chunks_unless_they_come_back(
    followed: Followed,
) -> None:
    followed.changed(
        message(10),
        message(11, routed(ORDERS, 11), acknowledged(ORDERS, 20)),
        message(12, acknowledged(ORDERS, 21)),
        message(30, chunks=(31 << 10, 32 << 10)),
        (31 << 10, CHUNK, b"part", []),
        (32 << 10, CHUNK, b"part", []),
        message(40, chunks=(41 << 10,)),
    )
    followed.changed(message(12, acknowledged(ORDERS, 21), routed(ORDERS, 22)))
    followed.deleted(40, 41)
    loaded = followed.completed()
    assert sorted(loaded.orphans) == [(10 << 10,), (11 << 10,), (30 << 10, 31 << 10, 32 << 10)]
    assert loaded.orphaned_messages == 3
    assert followed.browse() == [13, 14, 12]


# ---- addresses, queues, bindings -----------------------------------------------------------------------------------


def test_what_is_told_before_what_it_needs_is_there_in_the_end(followed: Followed) -> None:
    new = encode_message(Message("new"))
    followed.changed(
        (20 << 10, MESSAGE, new, [routed(LATE, 40)]),
        (21 << 10, BINDING, encode_binding(LATE, "key", ""), []),
        queue(LATE, "late", "new"),
        (22 << 10, ADDRESS, encode_address("new", 0), []),
    )
    loaded = followed.completed()
    assert (loaded.orphans, followed.browse(LATE)) == ([], [20])
    assert loaded.state.message(20 << 10).address == "new"
    assert [each.record_id for each in loaded.state.bindings(LATE)] == [21 << 10]


def test_a_name_may_be_taken_before_who_had_it_is_told_to_be_gone(followed: Followed) -> None:
    followed.changed(
        (500 << 10, ADDRESS, encode_address("orders", 9), []),
        queue(501 << 10, "orders"),
        queue(504 << 10, "more"),
        (502 << 10, BINDING, encode_binding(501 << 10, "new", ""), []),
        (503 << 10, BINDING, encode_binding(ORDERS, "old", ""), []),
    )
    followed.deleted(1, 2, 3, *range(10, 15))
    loaded = followed.completed()
    assert [(each.record_id, each.duplicate_window) for each in loaded.state.addresses()] == [(500 << 10, 9)]
    assert [each.record_id for each in loaded.state.queues()] == [501 << 10, 504 << 10]
    assert [each.key for each in loaded.state.bindings(501 << 10)] == ["new"]
    assert loaded.orphans == [(503 << 10,)]


def test_what_never_fits_is_a_row_error(followed: Followed) -> None:
    followed.changed(queue(501 << 10, "elsewhere", "missing"))
    with pytest.raises(RowError):
        followed.completed()


def test_a_queue_is_another_by_its_record_and_keeps_its_messages(followed: Followed) -> None:
    followed.changed(queue(ORDERS, "renamed"))
    assert [entry.config.name for entry in followed.state.queues()] == ["audit", "renamed"]
    assert [info.queue for info in followed.state.browse(ORDERS)] == ["renamed"] * 5


def test_a_destroyed_queue_takes_its_references_with_it(followed: Followed) -> None:
    followed.changed(
        message(11, routed(ORDERS, 11), referred(ORDERS, 20, "one", 1)),
        message(12, routed(ORDERS, 12), routed(AUDIT, 21)),
        message(13, routed(ORDERS, 13), referred(ORDERS, 22, due=NOW)),
    )
    followed.deleted(2)
    assert (followed.state.holders(), followed.state.next_due()) == ([], 0)
    assert followed.state.message(12 << 10).references == 1
    followed.changed(message(12, routed(ORDERS, 12), routed(AUDIT, 21), referred(AUDIT, 30, "two", 1)))
    assert [info.queue for info in followed.state.explain(12 << 10)] == ["audit"]
    followed.deleted(14)
    loaded = followed.completed()
    assert sorted(loaded.orphans) == [(10 << 10,), (11 << 10,), (13 << 10,)]


def test_a_queue_that_is_back_after_it_was_destroyed_asks_for_a_new_load(followed: Followed) -> None:
    followed.deleted(2)
    with pytest.raises(StateError):
        followed.changed(queue(ORDERS, "orders"))


def test_windows_outcomes_and_bindings_are_as_last_told(followed: Followed) -> None:
    def address(*slots: int) -> Record:
        window = [LoadedUpdate(DUPLICATE, encode_duplicate(b"%d" % each), True, each, (each, 0, 0)) for each in slots]
        return ADDRESS_ID, ADDRESS, encode_address("orders", 3), window

    followed.changed(address(2, 0), (20 << 10, OUTCOME, b"one", []), (22 << 10, OUTCOME, b"two", []))
    followed.changed(*((each << 10, BINDING, encode_binding(ORDERS, f"key {each}", ""), []) for each in (31, 30, 32)))
    assert followed.loader.loaded.windows == {ADDRESS_ID: [LoadedDuplicate(2, b"2"), LoadedDuplicate(0, b"0")]}
    followed.changed(address(), (21 << 10, OUTCOME, b"three", []))
    followed.deleted(22, 31)
    loaded = followed.completed()
    assert loaded.windows == {}
    assert loaded.outcomes == [LoadedOutcome(20 << 10, b"one"), LoadedOutcome(21 << 10, b"three")]
    assert [each.key for each in loaded.state.bindings(ORDERS)] == ["key 30", "key 32"]


# ---- in doubt ------------------------------------------------------------------------------------------------------


def test_transactions_in_doubt_are_laid_over_what_was_followed(followed: Followed) -> None:
    followed.changed(message(20), message(10, routed(ORDERS, 10), referred(ORDERS, 30, "one", 1)))
    loaded = followed.completed(
        add(40 << 10, encode_message(Message("orders", due=NOW)), kind=MESSAGE, tx=TX),
        update(40 << 10, kind=ROUTE, subject=ORDERS, tx=TX),
        update(20 << 10, kind=ROUTE, subject=AUDIT, tx=TX),
        update(10 << 10, encode_acknowledgement(holder="one"), kind=ACKNOWLEDGE, subject=ORDERS, tx=TX),
    )
    assert (loaded.orphans, loaded.state.message(40 << 10).due) == ([], NOW)
    assert [info.state for info in loaded.state.explain(10 << 10)] == [ReferenceState.LOCKED]
    for message_id, queue_id in ((40, ORDERS), (20, AUDIT)):
        loaded.state.arrive(message_id << 10, queue_id)
    assert followed.browse(AUDIT) == [20]
    assert [(info.state, info.due) for info in loaded.state.explain(40 << 10)] == [(ReferenceState.SCHEDULED, NOW)]


# ---- paging --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [(1000, 10), (16, 1000), (2, 1)])
def test_what_follows_beyond_the_bounds_waits_in_the_index(bounds: tuple[int, int]) -> None:
    index = MemoryIndex()
    followed = Followed(bounds=bounds, index=index)
    places = list(range(100, 300))
    random.Random(2).shuffle(places)
    followed.changed(*(message(place, routed(ORDERS, place), routed(AUDIT, 1000 - place)) for place in places))
    assert 405 - len(index.rows) <= min(bounds[0], 2 * bounds[1])
    followed.changed(
        message(150, routed(ORDERS, 150), referred(ORDERS, 2000, "one", 1), routed(AUDIT, 850)),
        message(151, routed(ORDERS, 151), routed(AUDIT, 849), acknowledged(AUDIT, 2001)),
        message(152, routed(ORDERS, 152), acknowledged(ORDERS, 2002), routed(AUDIT, 848), acknowledged(AUDIT, 2003)),
        message(153, routed(ORDERS, 153), referred(ORDERS, 2004, "", 1), routed(AUDIT, 847)),
    )
    followed.deleted(*range(10, 15), *range(160, 300))
    assert followed.browse() == [*range(100, 152), *range(153, 160)]
    assert followed.browse(AUDIT) == [*range(159, 152, -1), *range(150, 99, -1)]
    followed.deleted(2)
    loaded = followed.completed()
    assert loaded.orphans == [(151 << 10,), (152 << 10,)] or loaded.orphans == [(152 << 10,), (151 << 10,)]
    taken = [loaded.state.take(AUDIT, "one", NOW) for _ in range(58)]
    assert [each and each.message >> 10 for each in taken] == [*range(159, 152, -1), *range(150, 99, -1)]
    assert not index.rows


def test_a_queue_that_was_in_the_index_and_is_empty_is_in_memory_again() -> None:
    index = MemoryIndex()
    followed = Followed(bounds=(1000, 2), index=index)
    followed.changed(message(15, routed(ORDERS, 15)))
    assert len(index.rows) == 6
    followed.deleted(*range(10, 16))
    followed.changed(message(20, routed(ORDERS, 20)))
    assert (index.rows, followed.browse()) == ({}, [20])


def test_a_message_stays_in_memory_only_for_a_reference_there() -> None:
    followed = Followed(bounds=(1000, 1), index=MemoryIndex())
    held = [routed(ORDERS, 10), referred(ORDERS, 20, "one", 1), routed(AUDIT, 21)]
    followed.changed(message(10, *held), message(11, routed(ORDERS, 11), routed(AUDIT, 22)))
    assert followed.state.messages_in_memory == 1
    followed.changed(message(10, *held, acknowledged(ORDERS, 30)))
    assert followed.state.messages_in_memory == 0
    assert followed.browse(AUDIT) == [10, 11]


def test_a_queue_that_changes_keeps_its_messages_and_the_last_change_holds() -> None:
    followed = Followed()
    record_id, kind, data, _ = queue(ORDERS, "orders")
    changed = QueueConfig("orders", "orders", filter="a = 1", paused=True)
    followed.changed((record_id, kind, data, [LoadedUpdate(QUEUE_CHANGED, encode_queue(changed), True, 0, AT)]))
    state = followed.completed().state
    assert state.queue("orders").config == changed
    assert [info.message >> 10 for info in state.browse(ORDERS)] == [10, 11, 12, 13, 14]


def test_settings_of_addresses_come_change_and_go() -> None:
    followed = Followed()
    twice, five = AddressSettings(deliveries_max=2), AddressSettings(deliveries_max=5)
    for number, pattern, settings in ((31, "a", twice), (32, "b", twice), (33, "a", five)):
        followed.changed((number << 10, ADDRESS_SETTINGS, encode_address_settings(pattern, settings), []))
    followed.deleted(31, 32)
    assert followed.completed().address_settings == [(33 << 10, KeptSettings("a", five))]
