"""A store whose node is not active any more says so to every call: nobody polls it in silence."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from journal.errors import ClosedError, FencedError, FullError, JournalError, StateError, TransactionPreparedError
from journal.kafka.ports import Consumed
from journal.limits import Limits
from journal.store.address_settings import AddressSettings
from journal.store.model import Held, Message, QueueConfig
from journal.store.store import MessageStore
from tests.support.stores import StoreNode, refuse, send

ORDER = Message("orders", b"more")
VOLATILE = Message("orders", b"more", durable=False)

CALLS: dict[str, Callable[[MessageStore, int], object]] = {
    "acknowledge": lambda store, sent: store.acknowledge(sent, "q"),
    "acknowledge_all": lambda store, sent: store.acknowledge_all([Held("q", [sent])]),
    "acquire": lambda store, sent: store.acquire(sent, "q", "h"),
    "address_settings": lambda store, _: store.address_settings(),
    "addresses": lambda store, _: store.addresses(),
    "begin": lambda store, _: store.begin(),
    "bind": lambda store, _: store.bind("q"),
    "bindings": lambda store, _: store.bindings("q"),
    "bodies": lambda store, sent: store.bodies([sent]).wait(),
    "body_stream": lambda store, sent: store.body_stream(sent),
    "browse": lambda store, _: [*store.browse("q")],
    "change_queue": lambda store, _: store.change_queue(QueueConfig("q", "orders", filter="a = 1")),
    "commit": lambda store, _: store.commit(1),
    "counters": lambda store, _: store.counters("q"),
    "create_address": lambda store, _: store.create_address("more"),
    "create_queue": lambda store, _: store.create_queue(QueueConfig("more", "orders", durable=False)),
    "cursor": lambda store, _: store.cursor("q"),
    "dead": lambda store, _: store.dead(),
    "dead_letter": lambda store, sent: store.dead_letter(sent, "q"),
    "delete": lambda store, sent: store.delete(sent),
    "deliveries": lambda store, sent: store.deliveries(sent, "q", 1),
    "describe": lambda store, sent: store.describe(sent),
    "destroy_address": lambda store, _: store.destroy_address("orders"),
    "destroy_queue": lambda store, _: store.destroy_queue("q"),
    "expire": lambda store, sent: store.expire(sent, "q"),
    "expired": lambda store, _: store.expired(),
    "explain": lambda store, sent: store.explain(sent),
    "flush": lambda store, _: store.flush().wait(10),
    "holding": lambda store, _: store.holding("q"),
    "holders": lambda store, _: store.holders(),
    "in_doubt": lambda store, _: store.in_doubt(),
    "is_empty": lambda store, _: store.is_empty(1),
    "message": lambda store, sent: store.message(sent),
    "move": lambda store, sent: store.move(sent, "q", "orders", ["r"], "why"),
    "next_due": lambda store, _: store.next_due(),
    "pause": lambda store, _: store.pause("q"),
    "prepare": lambda store, _: store.prepare(1),
    "purge": lambda store, _: store.purge("q"),
    "purging": lambda store, _: store.purging("q"),
    "address": lambda store, _: store.address("orders"),
    "queue": lambda store, _: store.queue("q"),
    "queues": lambda store, _: store.queues(),
    "reattach": lambda store, _: store.reattach("h"),
    "reattaching": lambda store, _: store.reattaching("h"),
    "reject": lambda store, sent: store.reject([Held("q", [sent])]),
    "release": lambda store, sent: store.release(sent, "q"),
    "release_all": lambda store, sent: store.release_all([Held("q", [sent])]),
    "release_holder": lambda store, _: store.release_holder("h"),
    "releasing": lambda store, _: store.releasing("h"),
    "resume": lambda store, _: store.resume("q"),
    "rollback": lambda store, _: store.rollback(1),
    "room": lambda store, _: store.room(),
    "route": lambda store, sent: store.route(sent, "r"),
    "schedule": lambda store, sent: store.schedule(sent, "q", 1),
    "send": lambda store, _: store.send(VOLATILE, ["q"]),
    "send_all": lambda store, _: store.send_all([VOLATILE], ["q"]),
    "set_address_settings": lambda store, _: store.set_address_settings("#", AddressSettings()),
    "settings_of": lambda store, _: store.settings_of("orders"),
    "store": lambda store, _: store.store(VOLATILE),
    "store_stream": lambda store, _: store.store_stream(Message("orders"), [b"more"]),
    "take": lambda store, _: store.take("q", "h"),
    "take_all": lambda store, _: store.take_all("q", "h", 2),
    "take_in": lambda store, _: store.take_in([store.incoming(ORDER)], Consumed("group", {}), [], lambda *_: True),
    "tick": lambda store, _: store.tick(),
    "transaction": lambda store, _: store.transaction(1),
    "transactions": lambda store, _: store.transactions(),
    "unbind": lambda store, _: store.unbind(1),
    "unset_address_settings": lambda store, _: store.unset_address_settings("#"),
    "ways_in": lambda store, _: store.ways_in(["orders"]),
    "woken": lambda store, _: store.woken(),
}
ASK_NOTHING = {"close", "start", "incoming", "discard_leaving", "store_stream_async", "watch"}
"""Beginning and end; what only encodes; what ends an operation; and what is `store_stream` in an event loop."""


def test_the_table_of_calls_has_every_operation_of_a_store() -> None:
    public = {name for name, _ in inspect.getmembers(MessageStore, inspect.isfunction) if not name.startswith("_")}
    assert public - ASK_NOTHING == set(CALLS)


def fence(node: StoreNode) -> None:
    node.journal.require_core().step_down(FencedError("another node is active", epoch=2))


ENDS: dict[str, tuple[Callable[[StoreNode], object], type[JournalError]]] = {
    "fenced": (fence, FencedError),
    "closed": (lambda node: node.journal.close(), ClosedError),
}


@pytest.mark.parametrize("end", ENDS)
def test_every_call_of_a_store_whose_node_is_not_active_raises(node: StoreNode, end: str) -> None:
    sent = send(node.store, b"one")
    act, error = ENDS[end]
    act(node)
    silent = []
    for name, call in CALLS.items():
        try:
            call(node.store, sent)
        except error:
            continue
        silent.append(name)
    assert silent == []


ASKS_THE_JOURNAL = {"flush", "room"}
"""Calls that a store passes on: they are refused as its journal refuses them."""


def test_every_call_of_a_store_that_is_closed_or_was_not_started_raises(node: StoreNode) -> None:
    sent = send(node.store, b"one")
    unstarted = MessageStore(node.journal)
    node.store.close()
    for name, call in CALLS.items():
        for store, error in ((unstarted, StateError), (node.store, ClosedError)):
            with nullcontext() if name in ASKS_THE_JOURNAL else pytest.raises(error):
                call(store, sent)


def test_a_transaction_is_begun_as_long_as_not_too_many_are_open(tmp_path: Path) -> None:
    with StoreNode(tmp_path, limits=Limits(transactions_max=1)) as node:
        store, tx = node.store, node.store.begin()
        refuse(FullError, store.begin)
        store.prepare(tx).wait()
        refuse(TransactionPreparedError, lambda: store.begin(tx))
        store.commit(tx)
        store.begin()


def test_the_error_that_refuses_every_call_does_not_grow_with_each(node: StoreNode) -> None:
    """A consumer that polls would fill the memory with the frames of all its calls."""
    fence(node)
    for call in (lambda: node.store.take("q", "h"), lambda: node.journal.add(7, 1, b"more")):
        frames = []
        for _ in range(3):
            with pytest.raises(FencedError) as met:
                call()
            frames.append(len(met.traceback))
        assert frames == frames[:1] * 3
