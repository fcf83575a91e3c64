"""Messages that are rejected together: dead letters in one group, as far as they are in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from journal.errors import MessageHeldError
from journal.store.address_settings import AddressSettings
from journal.store.model import Held, Message, Origin, QueueConfig
from journal.store.settings import StoreSettings
from journal.v1.store_pb2 import ACKNOWLEDGE, Acknowledgement
from tests.support.stores import StoreNode, bodies, declare, infos, send, updates_in_journal

LARGE = b"large " * 50


@pytest.fixture
def node(tmp_path: Path) -> Iterator[StoreNode]:
    with StoreNode(tmp_path / "node", StoreSettings(inline_bytes_max=100, chunk_bytes=100)) as running:
        declare(running.store, "dlq", address="dead")
        declare(running.store, "q", dead_letter_address="dead")
        running.store.create_queue(QueueConfig("plain", "orders")).wait()
        yield running


@pytest.mark.parametrize("transacted", [False, True], ids=["plain", "in-a-transaction"])
def test_what_is_in_memory_is_moved_with_the_reason_in_one_group(node: StoreNode, transacted: bool) -> None:
    store = node.store
    ids = [store.send(Message("orders", b"%d" % n, durable=False), ["q"]).id for n in range(3)]
    store.take_all("q", "h", 3)
    tx = store.begin() if transacted else 0
    rejected = store.reject([Held("q", ids, "h")], "bad: no number", tx)
    assert (rejected.ids, rejected.left) == (tuple(ids), [])
    if tx:
        assert bodies(store, "dlq") == []
        store.commit(tx).wait()
    assert (infos(store), bodies(store, "dlq")) == ([], [b"0", b"1", b"2"])
    assert [store.message(each).origin for each in rejected.copies] == [
        Origin(each, "orders", "q", "bad: no number") for each in ids
    ]


def test_what_is_rejected_is_deleted_only_if_the_settings_say_so(node: StoreNode) -> None:
    settings = AddressSettings(drop_dead_letters=True)
    node.store.set_address_settings("orders", settings).wait()
    ids = [send(node.store, b"one", "plain"), send(node.store, LARGE, "plain")]
    rejected = node.store.reject([Held("plain", ids)])
    assert (rejected.wait(), rejected.copies, rejected.left) == (tuple(ids), (), [])
    assert infos(node.store, "plain") == []
    written = [Acknowledgement.FromString(each).reason for each in updates_in_journal(node, ACKNOWLEDGE)]
    assert written in ([], [Acknowledgement.DEAD] * 2)


def test_what_is_rejected_goes_to_an_address_that_is_made_for_it_and_stays_there(node: StoreNode) -> None:
    store = node.store
    sent = store.send(Message("orders", b"one", durable=False), ["plain"]).id
    store.flush().wait()
    (copy,) = store.reject([Held("plain", [sent])]).copies
    store.flush().wait()
    assert bodies(store, "DLQ.orders") == [b"one"]
    assert store.reject([Held("DLQ.orders", [copy])]).left == [Held("DLQ.orders", [copy])]


def test_what_must_be_read_first_is_left_to_its_holder(node: StoreNode) -> None:
    store = node.store
    large = send(store, LARGE)
    in_memory = store.send(Message("orders", b"here", durable=False), ["q"]).id
    store.take_all("q", "h", 2)
    rejected = store.reject([Held("q", [large, in_memory], "h")], "why")
    assert (rejected.ids, rejected.left) == ((in_memory,), [Held("q", [large], "h")])
    store.dead_letter(large, "q", reason="why").wait()
    assert bodies(store, "dlq") == [b"here", LARGE]


def test_a_refused_rejection_changes_nothing(node: StoreNode) -> None:
    store = node.store
    ids = [store.send(Message("orders", b"%d" % n, durable=False), ["q"]).id for n in range(3)]
    store.acquire(ids[2], "q", "other").wait()
    before = infos(store), store.volatile_bytes
    with pytest.raises(MessageHeldError) as refused:
        store.reject([Held("q", ids, "h")])
    assert refused.value.message == ids[2]
    assert (infos(store), store.volatile_bytes) == before
