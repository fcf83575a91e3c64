"""What `kafka-journal node` makes of an activation: a store as its settings say, and `on_in_doubt`."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from journal.cli.node.store import StoreOwner
from journal.config import load_settings
from journal.errors import ConfigError, FullError, LocalStorageError, MessageTooLargeError
from journal.journal import BlockingJournal
from journal.limits import Limits
from journal.local.journal import LocalJournal
from journal.store.model import Message, QueueConfig
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from journal.xa.resource import XaResource
from journal.xa.xid import encode_xid, make_xid
from loaders.node.standing import ActiveNode
from loaders.queues import QueueLoader

WAIT_S = 10.0


@pytest.fixture(autouse=True)
def _directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class Active(NamedTuple):
    """A node that is active."""

    store: MessageStore
    resource: XaResource
    loader: QueueLoader


@contextmanager
def active(directory: Path, **settings: Any) -> Iterator[Active]:
    """A node's owner while it is active, on a local journal."""
    with StoreOwner(load_settings(None, **settings)) as owner, LocalJournal(directory / "journal") as journal:
        loader = owner.loader()
        report = journal.activate(loader)
        # the owner asks no more of a journal than any kind of one has
        owner.on_active(ActiveNode(cast(BlockingJournal, journal), loader, report))
        served = owner.served
        assert served is not None
        assert served.resource is not None
        try:
            yield Active(served.store, served.resource, loader)
        finally:
            owner.on_standby()


def declare(store: MessageStore) -> None:
    store.create_address("orders")
    store.create_queue(QueueConfig("q", "orders", journaled_acquisition=True)).wait(WAIT_S)


def wait_until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("store", "names"),
    [
        ({"inline_bytes_max": 2000, "chunk_bytes": 2000}, r"store\.inline_bytes_max \(2000\)"),
        ({"inline_bytes_max": 1999, "chunk_bytes": 2001}, r"store\.chunk_bytes \(2001\)"),
        ({}, r"store\.inline_bytes_max \(262144\)"),
    ],
)
def test_a_store_whose_records_the_journal_would_refuse_is_refused_before_the_node_starts(
    tmp_path: Path, store: dict[str, Any], names: str
) -> None:
    settings = load_settings(None, store=store, limits={"data_bytes_max": 2000})
    with pytest.raises(ConfigError, match=rf"^{names} .* limits\.data_bytes_max \(2000\)"):
        StoreOwner(settings)
    with (
        LocalJournal(tmp_path / "journal", limits=settings.limits) as journal,
        pytest.raises(ConfigError, match=rf"^{names} .* limits\.data_bytes_max \(2000\)"),
    ):
        MessageStore(journal, settings.store)


def test_bodies_of_the_largest_records_that_the_journal_takes_are_stored(tmp_path: Path) -> None:
    settings = StoreSettings(inline_bytes_max=1900, chunk_bytes=2000, message_bytes_max=10_000)
    with LocalJournal(tmp_path / "journal", limits=Limits(data_bytes_max=2000)) as journal:
        loader = QueueLoader(references_in_memory_max=10, queue_references_in_memory_max=10)
        journal.activate(loader)
        with MessageStore(journal, settings) as store:
            store.start(loader.loaded)
            declare(store)
            for size in (1900, 1901, 10_000):
                sent = store.send(Message("orders", bytes(size)), ["q"]).wait(WAIT_S)
                assert store.message(sent).body == bytes(size)


def test_what_is_not_durable_swaps_where_the_settings_say(tmp_path: Path) -> None:
    swap = tmp_path / "swap"
    body = Message("orders", bytes(1000), durable=False)
    with active(tmp_path, store={"volatile_bytes_max": 1500}) as (store, *_):
        declare(store)
        store.send(body, ["q"])
        with pytest.raises(FullError):
            store.send(body, ["q"])
    with active(tmp_path, store={"volatile_bytes_max": 1500, "swap_directory": swap}) as (store, *_):
        ids = [store.send(body, ["q"]).id for _ in range(3)]
        in_memory, swapped = store.volatile_bytes
        assert 1000 < in_memory < 1500 < 2000 < swapped
        assert len(list(swap.glob("*/*.swap"))) == 1
        assert [store.message(each).body for each in ids] == [body.body] * 3
    assert not list(swap.glob("*/*.swap"))


def test_a_place_to_swap_that_cannot_be_is_found_out_before_the_node_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = load_settings(None, store={"swap_directory": tmp_path / "file" / "swap"})
    with pytest.raises(LocalStorageError, match="file/swap"), StoreOwner(settings):
        pass


def test_what_a_node_keeps_while_it_runs_is_not_in_the_cache_that_may_be_deleted(tmp_path: Path) -> None:
    with active(tmp_path, journal="orders"):
        assert (tmp_path / "state" / "kafka-journal" / "orders" / "references-0" / "CURRENT").exists()
        assert not (tmp_path / "cache").exists()


def test_a_body_and_an_absent_holder_have_the_bounds_of_the_settings(tmp_path: Path) -> None:
    with active(tmp_path, store={"message_bytes_max": 2000, "chunk_bytes": 1000}) as (store, *_):
        declare(store)
        store.send(Message("orders", bytes(2000)), ["q"]).wait(WAIT_S)
        with pytest.raises(MessageTooLargeError):
            store.store_stream(Message("orders"), [bytes(2001)], ["q"])
        assert store.take("q", "gone") is not None
        store.flush().wait(WAIT_S)
    with active(tmp_path) as (store, *_):
        assert store.take("q", "new") is None
    with active(tmp_path, store={"acquire_grace_ms": 0}) as (store, *_):
        assert store.take("q", "new") is not None


def test_a_queue_keeps_no_more_references_in_memory_than_its_bound(tmp_path: Path) -> None:
    with active(tmp_path) as (store, *_):
        declare(store)
        store.create_queue(QueueConfig("r", "orders"))
        for _ in range(100):
            store.send(Message("orders"), ["q"])
        store.send(Message("orders"), ["r"]).wait(WAIT_S)
    with active(tmp_path, queue_references_in_memory_max=10) as (store, _, loader):
        state = loader.loaded.state
        assert store.queue("q").ready == 100
        assert state.queue("q").paged >= 90
        assert state.queue("r").paged == 0
    with active(tmp_path) as (_, _, loader):
        assert loader.loaded.state.queue("q").paged == 0


@pytest.mark.parametrize(("action", "left"), [("commit", 1), ("rollback", 0)])
@pytest.mark.parametrize("data", [encode_xid(make_xid(1, "global", "branch"), 1.0), b"no xid"], ids=["xid", "unnamed"])
def test_what_is_in_doubt_for_too_long_is_settled_while_the_node_is_active(
    tmp_path: Path, action: str, left: int, data: bytes
) -> None:
    with active(tmp_path) as (store, *_):
        declare(store)
        tx = store.begin()
        store.send(Message("orders", b"in doubt"), ["q"], tx)
        store.prepare(tx, data).wait(WAIT_S)
    with active(tmp_path) as (store, *_):
        assert [info.tx for info in store.in_doubt()] == [tx]
    with active(tmp_path, on_in_doubt=action, on_in_doubt_after_ms=200) as (store, resource, _):
        wait_until(lambda: not store.in_doubt())
        store.flush().wait(WAIT_S)
        assert store.queue("q").ready == left
        wait_until(lambda: not resource.in_doubt() and not resource.unnamed)


def test_the_start_says_how_many_are_in_doubt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with active(tmp_path) as (store, *_):
        for _ in range(3):
            store.prepare(store.begin(), b"somebody's own").wait(WAIT_S)
    caplog.clear()
    with active(tmp_path):
        assert re.search(r"3 transactions are in doubt \(kafka-journal tx list.*\); on_in_doubt is keep", caplog.text)


def test_an_activation_that_fails_leaves_nothing_at_work(tmp_path: Path) -> None:
    settings = load_settings(
        None, on_in_doubt="commit", on_in_doubt_after_ms=10**9, client_properties={"group.id": "the journal's own"}
    )
    before = set(threading.enumerate())
    with LocalJournal(tmp_path / "journal") as journal, StoreOwner(settings) as owner:
        loader = owner.loader()
        report = journal.activate(loader)
        at_work = set(threading.enumerate())
        with pytest.raises(ConfigError, match=r"group\.id"):
            owner.on_active(ActiveNode(cast(BlockingJournal, journal), loader, report))
        assert owner.served is None
        wait_until(lambda: set(threading.enumerate()) <= at_work)
    wait_until(lambda: set(threading.enumerate()) <= before)
