"""Messages that are rejected together: dead letters in one group, as far as they are in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from journal.errors import MessageHeldError, QueueMissingError
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


def test_a_queue_without_a_dead_letter_address_drops_what_is_rejected(node: StoreNode) -> None:
    ids = [send(node.store, b"one", "plain"), send(node.store, LARGE, "plain")]
    rejected = node.store.reject([Held("plain", ids)])
    assert (rejected.wait(), rejected.copies, rejected.left) == (tuple(ids), (), [])
    assert infos(node.store, "plain") == []
    written = [Acknowledgement.FromString(each).reason for each in updates_in_journal(node, ACKNOWLEDGE)]
    assert written in ([], [Acknowledgement.DEAD] * 2)


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
    store.destroy_queue("dlq").wait()
    with pytest.raises(QueueMissingError):
        store.reject([Held("q", ids[:2], "h")])
    assert (infos(store), store.volatile_bytes) == before
