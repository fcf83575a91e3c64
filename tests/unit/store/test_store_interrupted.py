"""Ctrl-C while an operation waits for room: nothing has changed, here and in the journal alike."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

from journal.errors import QueueFullError
from journal.limits import Limits
from journal.store.address_settings import AddressSettings
from journal.store.model import Held, Message, QueueConfig
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from journal.v1.journal_pb2 import ADD
from journal.xa.resource import XaResource
from journal.xa.session import Session
from tests.support.stores import StoreNode, declare, send

LIMITS = Limits(queue_operations_max=60, transaction_buffer_operations_max=8)
LARGE = b"more than is in line" * 10


@dataclass
class Scene:
    """A store with something for every operation, and what that is."""

    node: StoreNode
    ready: int
    held: int
    unrouted: int
    large: int
    dead: int
    binding: int

    @property
    def store(self) -> MessageStore:
        return self.node.store

    def after_grace(self) -> MessageStore:
        """The store once the time of holders that have not come back since the load is over."""
        self.node.clock.now_ms += self.node.settings.acquire_grace_ms
        return self.store


Call = Callable[[Scene, int], object]


async def _pieces() -> AsyncIterator[bytes]:
    yield LARGE


def _stream(scene: Scene, tx: int) -> object:
    return asyncio.run(_store_stream(scene.store, tx))


async def _store_stream(store: MessageStore, tx: int) -> object:
    return await store.store_stream_async(Message("orders"), _pieces(), ["q"], tx)


ORDER = Message("orders", b"more")
IN_TRANSACTIONS: dict[str, Call] = {
    "acknowledge": lambda s, tx: s.store.acknowledge(s.ready, "q", "", tx),
    "acknowledge_all": lambda s, tx: s.store.acknowledge_all([Held("q", [s.ready, s.held], "h")], tx),
    "acquire": lambda s, tx: s.store.acquire(s.ready, "q", "h", tx),
    "bind": lambda s, tx: s.store.bind("q", "key", "", tx),
    "create_address": lambda s, tx: s.store.create_address("more", 5, tx),
    "create_queue": lambda s, tx: s.store.create_queue(QueueConfig("more", "orders"), tx),
    "dead_letter": lambda s, tx: s.store.dead_letter(s.ready, "q", tx=tx),
    "deliveries": lambda s, tx: s.store.deliveries(s.ready, "q", 3, tx),
    "destroy_address": lambda s, tx: s.store.destroy_address("spare", tx),
    "destroy_queue": lambda s, tx: s.store.destroy_queue("r", tx),
    "expire": lambda s, tx: s.store.expire(s.ready, "q", tx=tx),
    "move": lambda s, tx: s.store.move(s.large, "q", "dead", ["dlq"], "why", tx=tx),
    "reject": lambda s, tx: s.store.reject([Held("dlq", [s.dead])], "why", tx),
    "release": lambda s, tx: s.store.release(s.held, "q", "h", tx),
    "release_all": lambda s, tx: s.store.release_all([Held("q", [s.held], "h")], tx),
    "route": lambda s, tx: s.store.route(s.ready, "r", 0, tx),
    "schedule": lambda s, tx: s.store.schedule(s.ready, "q", 2**40, tx),
    "send": lambda s, tx: s.store.send(Message("orders", LARGE), ["q"], tx),
    "send_all": lambda s, tx: s.store.send_all([ORDER, Message("orders", LARGE)], ["q", "r"], tx),
    "store": lambda s, tx: s.store.store(ORDER, tx),
    "store_stream": lambda s, tx: s.store.store_stream(Message("orders"), [LARGE], ["q"], tx),
    "store_stream_async": _stream,
    "unbind": lambda s, tx: s.store.unbind(s.binding, tx),
}
SETTLING: dict[str, Call] = {
    "commit": lambda s, tx: s.store.commit(tx),
    "prepare": lambda s, tx: s.store.prepare(tx, b"xid"),
    "rollback": lambda s, tx: s.store.rollback(tx),
}
ALONE: dict[str, Call] = {
    "delete": lambda s, _: s.store.delete(s.unrouted),
    "release_holder": lambda s, _: s.store.release_holder("h"),
    "take": lambda s, _: s.store.take("q", "h"),
    "change_queue": lambda s, _: s.store.change_queue(
        QueueConfig("q", "orders", filter="a = 1", journaled_acquisition=True)
    ),
    "pause": lambda s, _: s.store.pause("q"),
    "purge": lambda s, _: s.store.purge("q"),
    "set_address_settings": lambda s, _: s.store.set_address_settings("#", AddressSettings(deliveries_max=2)),
    "take_all": lambda s, _: s.store.take_all("q", "h", 2),
    "unset_address_settings": lambda s, _: s.store.unset_address_settings("orders"),
}
LETTING_GO: dict[str, Call] = {
    "reattach": lambda s, _: s.after_grace().reattach("other"),
    "tick": lambda s, _: s.after_grace().tick(),
}
NOTHING_WAITS = {"begin", "discard_leaving", "purging", "reattaching", "releasing", "resume", "take_in"}
"""Operations that append nothing, or are refused at once by a full queue."""
CHANGE_NOTHING = {
    "address", "address_settings", "addresses", "bindings", "bodies", "body_stream", "browse", "close", "counters",
    "cursor", "dead", "holding",
    "describe", "expired", "explain", "flush", "holders", "in_doubt", "incoming", "is_empty", "message", "next_due",
    "queue", "queues", "room", "settings_of", "start", "transaction", "transactions", "watch", "ways_in",
    "woken",
}  # fmt: skip


def test_the_tables_have_every_operation_of_a_store() -> None:
    public = {name for name, _ in inspect.getmembers(MessageStore, inspect.isfunction) if not name.startswith("_")}
    assert public == {*IN_TRANSACTIONS, *SETTLING, *ALONE, *LETTING_GO} | NOTHING_WAITS | CHANGE_NOTHING


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    settings = StoreSettings(inline_bytes_max=100, chunk_bytes=100, message_bytes_max=2560, expiry_agreement_ms=0)
    with StoreNode(tmp_path, settings, limits=LIMITS, room_timeout_ms=600_000) as node:
        store = node.store
        declare(store, "dlq", address="dead")
        declare(store, "q", "r", dead_letter_address="dead", expiry_address="dead")
        store.create_address("spare").wait()
        store.set_address_settings("orders", AddressSettings(deliveries_max=3)).wait()
        ready, held = send(store, b"ready"), send(store, b"held")
        large = send(store, LARGE)
        dead = send(store, b"dead", "dlq", address="dead")
        store.acquire(held, "q", "h").wait()
        binding = store.bind("q", "bound").wait()
        node.crash()
        unrouted = node.store.store(ORDER).wait()
        yield Scene(node, ready, held, unrouted, large, dead, binding)


@contextmanager
def interrupted_waits(node: StoreNode) -> Iterator[list[str]]:
    """The writer is busy, its queue is full, and this thread is interrupted whenever it waits; how often that was."""
    waits: list[str] = []

    def interrupt(*_: object) -> NoReturn:
        waits.append("room")
        raise KeyboardInterrupt

    with node.blocked_writer():
        with suppress(QueueFullError):
            while True:
                node.journal.append_all([(ADD, node.journal.new_id(), 0, b"", False, 0)], wait=False)
        wait = threading.Condition.wait

        def wait_elsewhere(condition: threading.Condition, timeout: float | None = None) -> bool:
            return interrupt() if threading.current_thread() is threading.main_thread() else wait(condition, timeout)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(threading.Condition, "wait", wait_elsewhere)
            yield waits


def seen(node: StoreNode) -> dict[str, Any]:
    """All that a load brings back too."""
    store = node.store
    store.flush().wait()
    queues = {each.config.name: each for each in store.queues()}
    return {
        "addresses": store.addresses(),
        "queues": queues,
        "references": {name: list(store.browse(name)) for name in queues},
        "bindings": {name: store.bindings(name) for name in queues},
        "in doubt": store.in_doubt(),
        "holders": store.holders(),
    }


def interrupt(scene: Scene, call: Call, tx: int = 0) -> None:
    with interrupted_waits(scene.node) as waits, pytest.raises(KeyboardInterrupt):
        call(scene, tx)
    assert waits


def test_an_operation_that_was_interrupted_has_changed_nothing(scene: Scene) -> None:
    before = seen(scene.node)
    for name, call in {**IN_TRANSACTIONS, **ALONE}.items():
        interrupt(scene, call)
        assert seen(scene.node) == before, name
    scene.node.crash()
    assert seen(scene.node) == before


def test_an_operation_in_a_transaction_that_was_interrupted_is_no_part_of_it(scene: Scene) -> None:
    store, before = scene.store, seen(scene.node)
    for name, call in IN_TRANSACTIONS.items():
        tx = store.begin()
        interrupt(scene, call, tx)
        assert store.is_empty(tx) or name in ("dead_letter", "expire", "move"), name
        store.rollback(tx).wait()
        assert seen(scene.node) == before, name


def test_an_operation_that_was_interrupted_can_be_called_again(scene: Scene) -> None:
    store = scene.store
    for name in ("create_address", "destroy_address", "unbind", "schedule", "release", "acknowledge", "take", "delete"):
        call = {**IN_TRANSACTIONS, **ALONE}[name]
        interrupt(scene, call)
        call(scene, 0)
    store.create_queue(QueueConfig("of more", "more"))
    after = seen(scene.node)
    scene.node.crash()
    assert seen(scene.node) == after


@pytest.mark.parametrize("name", LETTING_GO)
def test_what_the_absent_held_is_given_back_after_an_interruption(scene: Scene, name: str) -> None:
    interrupt(scene, LETTING_GO[name])
    scene.store.flush().wait()
    assert scene.store.holders() == []  # given back in passing
    after = seen(scene.node)
    scene.node.crash()
    assert seen(scene.node) == after


@pytest.mark.parametrize("prepared", [False, True], ids=["open", "prepared"])
def test_a_settlement_that_was_interrupted_leaves_the_transaction_as_it_was(scene: Scene, prepared: bool) -> None:
    store, tx = scene.store, scene.store.begin()
    store.acknowledge(scene.ready, "q", "", tx)
    store.send_all([ORDER] * 8, ["q"], tx)
    store.create_address("more", 0, tx)
    if prepared:
        store.prepare(tx, b"xid")
    before = seen(scene.node), store.transactions()
    for name in ("commit", "rollback") if prepared else sorted(SETTLING):
        interrupt(scene, SETTLING[name], tx)
        assert (seen(scene.node), store.transactions()) == before, name
    store.commit(tx)
    after = seen(scene.node)
    scene.node.crash()
    assert seen(scene.node) == after


def test_a_large_message_that_is_interrupted_again_while_it_is_cut_off_leaves_no_transaction(scene: Scene) -> None:
    store, before = scene.store, seen(scene.node)
    with ExitStack() as full:

        def body() -> Iterator[bytes]:
            yield b"x" * 100 * (LIMITS.transaction_buffer_operations_max + 2)
            waits.append(full.enter_context(interrupted_waits(scene.node)))
            yield b"y" * 100

        waits: list[list[str]] = []
        with pytest.raises(KeyboardInterrupt):
            store.store_stream(Message("orders"), body(), ["q"])
        assert waits == [["room", "room"]]
        assert store.transactions() != []
    send(store, b"more", "r")
    assert store.acknowledge(store.take("r", "h").message, "r", "h").wait()
    assert (seen(scene.node), store.transactions()) == (before, [])


def test_a_session_whose_call_was_interrupted_works_in_its_branch_as_before(scene: Scene) -> None:
    node = scene.node
    resource = XaResource(node.store, node.journal, node.loader.loaded, clock_ms=node.clock)
    session = Session(resource)
    session.tpc_begin(session.xid(1, "order", "store"))
    node.store.acknowledge(scene.ready, "q", tx=session.tx)
    before = seen(node)
    for call in (session.tpc_prepare, session.tpc_commit):
        with interrupted_waits(node), pytest.raises(KeyboardInterrupt):
            call()
        assert session.tx
        assert seen(node) == before
    session.tpc_prepare()
    for call in (session.tpc_commit, session.tpc_rollback):
        with interrupted_waits(node), pytest.raises(KeyboardInterrupt):
            call()
    session.tpc_commit()
    assert resource.in_doubt() == []
