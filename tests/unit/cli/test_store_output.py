"""What the message store's commands print of a state: queues, messages, and why a record is still there."""

from __future__ import annotations

from typing import Any

import pytest

from journal.cli.operations.acting import routed_to
from journal.cli.operations.explaining import Explaining, Explanation
from journal.cli.operations.in_doubt import in_doubt, summary
from journal.cli.operations.queue_lines import message_line
from journal.cli.operations.views import LoadedQueues, queue_lines
from journal.errors import QueueMissingError
from journal.fold.engine import Fold
from journal.load.loading import load
from journal.process.commands import command
from journal.process.progress import no_progress
from journal.store.address_settings import AddressSettings
from journal.store.message_records import decode_message, encode_message
from journal.store.model import Message, QueueConfig, Routing
from journal.store.operations.look import QueueInfo
from journal.store.queues.loaded import LoadedStore
from journal.store.records import (
    encode_address,
    encode_address_settings,
    encode_binding,
    encode_queue,
    encode_reference,
)
from journal.v1.journal_pb2 import Mark, Operation, Record
from journal.v1.store_pb2 import (
    ACKNOWLEDGE,
    ADDRESS,
    ADDRESS_SETTINGS,
    BINDING,
    CHUNK,
    MESSAGE,
    OUTCOME,
    QUEUE,
    REFERENCE,
    ROUTE,
    Reference,
)
from journal.wire.keys import record_key
from journal.xa.xid import encode_xid, make_xid
from loaders.queues import QueueLoader
from tests.support.build import START_MS, DictBase, add, delete, marker, prepare, replace, update, wal

ORDERS, EU, US = 1024, 2048, 3072
"""An address and its queues."""
NOW_MS = START_MS + 60_000.0
DECLARED = [
    add(ORDERS, encode_address("orders", 0), kind=ADDRESS),
    add(EU, encode_queue(QueueConfig("eu", "orders")), kind=QUEUE),
    add(US, encode_queue(QueueConfig("us", "orders", routing=Routing.MULTICAST)), kind=QUEUE),
]


def message(id: int, *queues: int, tx: int = 0, chunks: tuple[int, ...] = (), **fields: Any) -> list[Operation]:
    """Stored and routed."""
    stored = Message("orders", b"body", timestamp=START_MS, **fields)
    data = encode_message(stored, chunks=chunks, body_bytes=len(chunks))
    routes = [update(id, kind=ROUTE, subject=queue, tx=tx) for queue in queues]
    return [add(id, data, kind=MESSAGE, tx=tx), *routes]


def acknowledged(id: int, queue: int, tx: int = 0) -> Operation:
    return update(id, kind=ACKNOWLEDGE, subject=queue, tx=tx)


def held(id: int, queue: int, holder: str) -> Operation:
    return replace(id, encode_reference(Reference.ACQUIRED, holder, 2), kind=REFERENCE, subject=queue)


def loaded(*operations: Operation) -> tuple[LoadedStore, DictBase]:
    """The state after the declarations and these operations."""
    base = DictBase()
    fold = Fold(Mark(offset=-1), base, updates_row_bytes_max=4096)
    for offset, timestamp, each in wal([marker()], [*DECLARED, *operations]):
        fold.apply(offset, timestamp, each)
    base.write(fold.changes())
    loader = QueueLoader(references_in_memory_max=100, queue_references_in_memory_max=100)
    load(base, {0: fold.mark}, loader)
    return loader.loaded, base


def explained(id: int, *operations: Operation) -> Explanation:
    store, base = loaded(*operations)
    found = Explaining(id, LoadedQueues(store, base), base, 1, NOW_MS, no_progress).explanation()
    assert found is not None
    return found


# ---- queues and messages -------------------------------------------------------------------------------------


def test_a_queue_is_told_with_what_is_in_it_and_who_holds_it() -> None:
    prepared = [acknowledged(4096, EU, tx=7), *message(8192, EU, tx=7), prepare(7, 3)]
    state = loaded(
        *message(4096, EU),
        *message(5120, EU),
        *message(6144, EU, due=int(NOW_MS) + 1),
        *message(7168, EU),
        held(5120, EU, "c1"),
        *prepared,
    )[0].state
    eu, us = queue_lines(state, NOW_MS)
    names = ("depth", "ready", "held", "locked", "scheduled", "in_doubt")
    assert [eu[name] for name in names] == [4, 1, 1, 1, 1, 1]
    assert (eu["holders"], eu["oldest_age_seconds"], eu["routing"]) == ({"c1": 1}, 60.0, "anycast")
    assert (us["depth"], us["bytes"], us["holders"], us["oldest_age_seconds"]) == (0, 0, {}, None)


@pytest.mark.parametrize("away", [{"due": int(NOW_MS) + 1}, {}])
def test_the_oldest_of_a_queue_may_be_scheduled_or_locked(away: dict[str, int]) -> None:
    locked = [] if away else [acknowledged(4096, EU, tx=7), prepare(7, 1)]
    eu, _ = queue_lines(loaded(*message(4096, EU, **away), *locked)[0].state, NOW_MS)
    assert (eu["depth"], eu["ready"], eu["oldest_age_seconds"]) == (1, 0, 60.0)


def test_a_message_is_told_with_its_place_and_its_body() -> None:
    store, base = loaded(*message(4096, EU, priority=7), held(4096, EU, "c1"))
    (info,) = store.state.browse(EU)
    stored = decode_message(Record.FromString(base.rows[record_key(4096)]).data)
    line = message_line(info, store.state.message(4096), stored, NOW_MS)
    facts = ("id", "state", "priority", "holder", "deliveries", "age_seconds", "body", "text", "tx", "due")
    assert [line[name] for name in facts] == [4096, "held", 7, "c1", 2, 60.0, "Ym9keQ==", "body", 0, 0]


def test_a_message_that_nobody_will_get_is_told_as_expired() -> None:
    expiring = message(4096, EU, US, expires=START_MS + 5)
    store, _ = loaded(*expiring, held(4096, US, "c1"))
    for queue, expected in (("eu", ("ready", "expired")), ("us", ("held", "held"))):
        (info,) = store.state.browse(store.state.queue(queue).record_id)
        entry = store.state.message(4096)
        stored = decode_message(expiring[0].data)
        states = tuple(message_line(info, entry, stored, START_MS + passed)["state"] for passed in (4, 5))
        assert states == expected


# ---- explain -------------------------------------------------------------------------------------------------


def test_a_message_is_explained_by_every_queue_that_has_it_and_those_that_are_done() -> None:
    found = explained(4096, *message(4096, EU, US), acknowledged(4096, US), held(4096, EU, "c1"))
    assert found.facts["acknowledged"] == ["us"]
    assert [reference["queue"] for reference in found.references] == ["eu"]
    assert found.why == [
        "queue eu: held by c1, handed out 2 times before, until that acknowledges or releases it, "
        "or its broker lets it go"
    ]


def test_a_message_that_no_queue_refers_to_waits_for_the_next_activation() -> None:
    found = explained(4096, *message(4096, EU), acknowledged(4096, EU))
    assert (found.what, found.references) == ("message", [])
    assert found.why == ["no queue refers to it any more: the next activation deletes it"]


def test_a_message_that_has_expired_is_explained_so() -> None:
    (why,) = explained(4096, *message(4096, EU, expires=START_MS)).why
    assert why == "queue eu: ready, and nobody has taken it; it expired 1 min ago, and its broker has not moved it"


def test_what_a_transaction_in_doubt_does_to_a_record_is_told_with_its_name() -> None:
    xid = encode_xid(make_xid(1, b"g", b"b"))
    operations = [*message(4096, EU, US), acknowledged(4096, EU, tx=7), prepare(7, 1, xid)]
    found = explained(4096, *operations)
    assert found.transactions == [{"tx": 7, "text": "1:g:b", "does": ["updates"]}]
    named = "transaction 7 (1:g:b), in doubt,"
    assert f"queue eu: {named} will acknowledge it, or not: {command('tx show', 7)}" in found.why
    routed = explained(4096, *message(4096, EU), update(4096, kind=ROUTE, subject=US, tx=7), prepare(7, 1, xid))
    assert f"queue us: {named} will add it there, or not: {command('tx show', 7)}" in routed.why
    coming = explained(4096, *message(4096, EU, tx=7), prepare(7, 2, xid))
    assert coming.why == [
        "it is not there yet",
        f"{named} adds and updates it: {command('tx show', 7)}",
    ]
    assert "cannot be destroyed" in explained(EU, *operations).why[-1]
    assert explained(7, *operations).what == "transaction"


def test_a_chunk_names_its_message_and_a_binding_its_queue() -> None:
    large = [add(4096, b"x", kind=CHUNK), *message(5120, EU, chunks=(4096,))]
    assert explained(4096, *large).facts["message"] == 5120
    assert explained(4096, add(4096, b"x", kind=CHUNK)).facts["message"] == 0
    bound = add(6144, encode_binding(EU, "key", ""), kind=BINDING)
    assert explained(6144, bound).facts["queue"] == "eu"
    orphan = add(6144, encode_binding(9216, "key", ""), kind=BINDING)
    assert explained(6144, orphan).why == ["its queue is gone: the next activation deletes it"]


def test_settings_of_addresses_are_told_with_what_they_set() -> None:
    data = encode_address_settings("orders.#", AddressSettings(deliveries_max=3))
    found = explained(4096, add(4096, data, kind=ADDRESS_SETTINGS))
    assert (found.what, found.facts["pattern"], found.facts["deliveries_max"]) == ("address settings", "orders.#", 3)


def test_a_record_of_another_kind_is_told_as_it_is_and_none_as_none() -> None:
    found = explained(4096, add(4096, b"x", kind=200), update(4096, b"y", kind=201))
    assert (found.what, found.facts["kind"], found.facts["updates"]) == ("record", 200, 1)
    assert explained(4096, add(4096, b"somebody's own kind", kind=OUTCOME)).what == "record"
    store, base = loaded()
    assert Explaining(4096, LoadedQueues(store, base), base, 1, NOW_MS, no_progress).explanation() is None


# ---- transactions --------------------------------------------------------------------------------------------


def test_a_transaction_in_doubt_is_summed_up_with_its_xid_and_queues() -> None:
    xid = encode_xid(make_xid(1, b"g", b"\x00"))
    adds = message(5120, EU, US, tx=7)
    _, base = loaded(*message(4096, EU), acknowledged(4096, EU, tx=7), *adds, prepare(7, 4, xid))
    (found,) = in_doubt(base)
    line = summary(found, NOW_MS)
    assert line["xid"] == {"format_id": 1, "gtrid": "Zw==", "bqual": "AA=="}
    assert line["text"] == "1:g:\\x00"
    assert line["queues"] == {
        "eu": {"adds": 1, "acknowledges": 1, "changes": 0},
        "us": {"adds": 1, "acknowledges": 0, "changes": 0},
    }
    assert (line["messages"], line["operations"], line["destroys"]) == (2, 4, [])


def changed(id: int, queue: int, tx: int = 0) -> Operation:
    data = encode_reference(Reference.ACQUIRED, "c1", 0)
    return replace(id, data, kind=REFERENCE, subject=queue, tx=tx)


def test_what_a_transaction_in_doubt_changes_and_destroys_is_summed_up() -> None:
    operations = [
        *message(4096, EU, US),
        *message(5120, EU),
        changed(4096, EU, tx=7),
        changed(5120, EU, tx=7),
        acknowledged(5120, EU, tx=7),
        delete(US, tx=7),
        prepare(7, 4),
    ]
    _, base = loaded(*operations)
    (found,) = in_doubt(base)
    line = summary(found, NOW_MS)
    assert line["queues"] == {"eu": {"adds": 0, "acknowledges": 1, "changes": 1}}
    assert (line["messages"], line["destroys"]) == (2, ["us"])
    assert [reference.does for reference in found.references] == ["changes", "acknowledges"]


def test_a_load_shows_what_a_transaction_in_doubt_changes_and_destroys_as_a_store_does() -> None:
    operations = [*message(4096, EU, US), changed(4096, EU, tx=7), delete(US, tx=7), prepare(7, 2, b"t")]
    store, base = loaded(*operations)
    queues = LoadedQueues(store, base)
    (eu,) = queues.lines(NOW_MS)
    assert [eu[name] for name in ("queue", "depth", "ready", "locked")] == ["eu", 1, 0, 1]
    with pytest.raises(QueueMissingError):
        queues.browse("us", 0)
    named, look = "transaction 7 (t), in doubt,", command("tx show", 7)
    assert explained(4096, *operations).why == [
        f"queue eu: {named} will acquire, release, count or schedule it, or not: {look}",
        f"queue us: ready, and nobody has taken it; {named} destroys the queue, or not: {look}",
    ]
    assert explained(US, *operations).why == ["nobody can use it", f"{named} deletes it: {look}"]


@pytest.mark.parametrize("damaged", [changed(4096, US, tx=7), delete(ORDERS, tx=7)], ids=["reference", "address"])
def test_queues_are_shown_though_a_transaction_in_doubt_does_not_fit_them(
    damaged: Operation, caplog: pytest.LogCaptureFixture
) -> None:
    fits = [changed(5120, EU, tx=8), prepare(8, 1, b"u")]
    operations = [*message(4096, EU), *message(5120, EU), damaged, prepare(7, 1, b"t"), *fits]
    eu, _ = LoadedQueues(*loaded(*operations)).lines(NOW_MS)
    assert [eu[name] for name in ("depth", "ready", "locked")] == [2, 1, 1]
    assert "transaction 7 in doubt is not shown in the queues as it is" in caplog.text


# ---- send ----------------------------------------------------------------------------------------------------


def queue(name: str, routing: Routing, ready: int = 0) -> QueueInfo:
    return QueueInfo(1, QueueConfig(name, "orders", routing=routing), ready, 0, 0, 0, 0, 0, 0, 0)


def test_a_message_goes_to_every_multicast_queue_and_the_shortest_anycast_one() -> None:
    any_, multi = Routing.ANYCAST, Routing.MULTICAST
    infos = [queue("a", any_, 3), queue("m1", multi, 9), queue("b", any_, 1), queue("m2", multi)]
    assert routed_to(infos) == ["m1", "m2", "b"]
    assert routed_to([]) == []
