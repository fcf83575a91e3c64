"""A message store on Kafka: what a killed node had acknowledged, the next one has, in the same order."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from journal.config import Settings
from journal.errors import DuplicateMessageError, FencedError, JournalError
from journal.journal import BlockingJournal
from journal.store.model import Message, QueueConfig, ReferenceState
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from tests.support.children.store import batch, start
from tests.support.children.telling import read_notes
from tests.support.in_process import made_journal, running_worker
from tests.support.processes.child import Child, program
from tests.support.processes.command import command_env

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

ACKNOWLEDGED = 400
START_S = 60.0


def kill_at_work(settings: Settings, history: Path) -> list[dict[str, Any]]:
    """Run a node until it was told of so many messages; SIGKILL it; what it wrote down."""
    env = command_env(settings.bootstrap_servers, settings.journal, settings.directory)
    with Child("the node", program("store", history), history.with_suffix(".log"), env).start() as child:
        child.wait_until(lambda: len(told(read_notes(history), "sent")) >= ACKNOWLEDGED, "news for the node")
    return read_notes(history)


def told(history: list[dict[str, Any]], word: str) -> list[Any]:
    return [line[word] for line in history if word in line]


def test_nothing_that_a_killed_node_acknowledged_is_lost(bootstrap: str, tmp_path: Path) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=2)
    with running_worker(settings):
        history = kill_at_work(settings, tmp_path / "history")
        with BlockingJournal(settings, copy_name="next") as journal:
            store = start(journal)
            assert store.orphaned_messages == 0
            check_queues(store, history)
            check_batches(store, history)
            check_in_doubt(store, history)
            check_large(store, told(history, "large")[0])
            assert store.take("orders/b", "next") is not None


def check_queues(store: MessageStore, history: list[dict[str, Any]]) -> None:
    """Queue b has all that was sent, in order; queue a the same without what was acknowledged."""
    sent, begun = told(history, "sent"), told(history, "sending")
    numbers = {info.message: int(store.message(info.message).body) for info in orders(store, "orders/b", history)}
    found = list(numbers.values())
    assert found == list(range(1, len(found) + 1))
    assert sent[-1] <= len(found) <= begun[-1]
    assert [numbers[line["id"]] for line in history if "sent" in line] == sent
    left = [info.message for info in orders(store, "orders/a", history)]
    assert left == [message for message in numbers if message in set(left)]
    gone = set(numbers) - set(left)
    assert set(told(history, "acknowledged")) <= gone <= set(told(history, "acknowledging"))
    held = [info.message for info in store.browse("orders/a") if info.state is ReferenceState.HELD]
    assert set(held) <= set(told(history, "acknowledging")) - set(told(history, "acknowledged"))
    assert [message for message, _ in store.reattach("consumer")] == held
    for number in (1, sent[-1], len(found)):
        with pytest.raises(DuplicateMessageError):
            store.send(Message("orders", duplicate_id=b"%d" % number), [])


def check_batches(store: MessageStore, history: list[dict[str, Any]]) -> None:
    """What went by one call is there whole, in its order, or not at all."""
    found: dict[int, list[bytes]] = {}
    for info in store.browse("batches"):
        body = store.message(info.message).body
        found.setdefault(int(body.partition(b"/")[0]), []).append(body)
    assert found == {number: [message.body for message in batch(number)] for number in found}
    assert list(found) == sorted(found)
    sent, acknowledged = set(told(history, "sent_batch")), set(told(history, "acknowledged_batch"))
    assert sent - set(told(history, "acknowledging_batch")) <= found.keys()
    assert found.keys() <= set(told(history, "sending_batch")) - acknowledged
    assert sent
    assert acknowledged
    there = {int(store.message(info.message).body) for info in orders(store, "orders/b", history)}
    assert {len(there & set(numbers)) for numbers in told(history, "together")} <= {0, 3}


def orders(store: MessageStore, queue: str, history: list[dict[str, Any]]) -> list[Any]:
    """A queue without what is there for other reasons."""
    others = {*told(history, "large"), *told(history, "locks")}
    return [info for info in store.browse(queue) if info.message not in others]


def check_in_doubt(store: MessageStore, history: list[dict[str, Any]]) -> None:
    """The transaction in doubt is listed, holds its message, and takes effect by its commit."""
    (prepared,) = [line for line in history if "prepared" in line]
    (info,) = store.in_doubt()
    assert (info.tx, info.data) == (prepared["prepared"], b"xid")
    assert info.acknowledgements == ((prepared["locks"], "orders/a"),)
    assert info.references == ((prepared["adds"], "orders/b"),)
    store.commit(info.tx).wait()
    assert [each.message for each in store.browse("orders/b")].count(prepared["adds"]) == 1
    assert store.message(prepared["adds"]).body == b"in doubt"
    assert prepared["locks"] not in [each.message for each in store.browse("orders/a")]


def check_large(store: MessageStore, message: int) -> None:
    pieces = list(store.body_stream(message))
    assert b"".join(pieces) == b"x" * 1_000_000
    assert len(pieces) > 1


def test_bodies_are_read_back_wherever_they_are(bootstrap: str, tmp_path: Path) -> None:
    """From the cache, from the WAL while no worker runs, from the local copy once one does."""
    settings = made_journal(bootstrap, tmp_path, shards=2)
    with BlockingJournal(settings) as journal:
        with running_worker(settings):
            store = start(journal, StoreSettings(cache_bytes_max=10_000))
        store.create_address("orders")
        store.create_queue(QueueConfig("q", "orders")).wait()
        bodies = [b"%04d" % number * 250 for number in range(40)]
        for body in bodies:
            store.send(Message("orders", body), ["q"]).wait()
        assert store.cached_bytes <= 10_000
        assert [store.message(info.message).body for info in store.browse("q")] == bodies
        large = store.store_stream(Message("orders"), [b"x" * 300_000], ["q"]).wait()
        with running_worker(settings):
            assert b"".join(store.body_stream(large)) == b"x" * 300_000
            until = time.monotonic() + START_S
            while store.cached_bytes:
                assert time.monotonic() < until, "the local copy does not get them"
                time.sleep(0.02)
            assert [store.message(info.message).body for info in store.browse("q", 40)] == bodies


def test_a_fenced_store_hands_out_nothing_more(bootstrap: str, tmp_path: Path) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=2)
    with running_worker(settings), BlockingJournal(settings, copy_name="a") as older:
        store = start(older)
        store.create_address("orders")
        store.create_queue(QueueConfig("q", "orders")).wait()
        store.send(Message("orders", b"one"), ["q"]).wait()
        with BlockingJournal(settings, copy_name="b") as newer:
            next_store = start(newer)
            failed: list[JournalError] = []
            for refused in (lambda: store.send(Message("orders"), ["q"]).wait(60), lambda: store.take("q", "h")):
                try:
                    assert refused() is None
                except JournalError as error:
                    failed.append(error)
            assert isinstance(failed[0], FencedError)
            delivery = next_store.take("q", "h")
            assert delivery is not None
            assert next_store.message(delivery.message).body == b"one"
