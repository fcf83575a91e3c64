"""Many messages sent, or acknowledged, by one call: what as many calls do, but all or none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from journal.append.completion import Completion
from journal.errors import (
    AddressMissingError,
    DuplicateMessageError,
    FullError,
    InvalidOperationError,
    JournalError,
    MessageHeldError,
    MessageMissingError,
    MessageTooLargeError,
    QueueMissingError,
    RolledBackError,
    StoreError,
    TransactionUnknownError,
)
from journal.limits import Limits
from journal.local.journal import LocalJournal
from journal.store.model import Delivery, Held, Message, QueueConfig, ReferenceState
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from journal.v1.store_pb2 import CHUNK, MESSAGE
from tests.support.stores import START_MS, StoreNode, bodies, declare, infos, kinds_in_journal, refuse, send, taken

LARGE = b"large " * 50
QUEUES = [("q",), ("q", "r"), ("volatile",), ("q", "volatile"), ()]


@pytest.fixture
def node(small_node: StoreNode) -> StoreNode:
    """100 bytes are a large message. With an address that has a window, and a queue that is not durable."""
    small_node.store.create_queue(QueueConfig("volatile", "orders", durable=False))
    declare(small_node.store, "w", address="windowed", window=3)
    return small_node


def plain(count: int = 5, **fields: Any) -> list[Message]:
    return [Message("orders", b"%d" % number, timestamp=number, **fields) for number in range(count)]


def of_all_kinds(*, durable: bool = True) -> list[Message]:
    """Small and durable ones, and with `durable` False others too."""
    later, soon = START_MS + 1000, START_MS + 500
    fields: list[dict[str, Any]] = [{}, {"priority": 9}, {"due": soon}, {"expires": later}, {"priority": 0}, {}]
    if not durable:
        fields += [{"durable": False}, {"body": LARGE}, {"body": LARGE, "durable": False, "due": later}, {}]
    return [Message("orders", **{"body": b"%d" % number, **each}) for number, each in enumerate(fields)]


def seen(node: StoreNode) -> tuple[Any, ...]:
    """All of the store that can be seen, without ids."""
    store = node.store
    return (
        [
            [
                (store.message(info.message), info._replace(message=0, queue=0))
                for info in store.browse(each.config.name)
            ]
            for each in store.queues()
        ],
        [info._replace(oldest=0) for info in store.queues()],
        kinds_in_journal(node),
        store.next_due(),
        store.volatile_bytes,
    )


# ---- sending ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transacted", [False, True], ids=["plain", "in-a-transaction"])
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "of-all-kinds"])
@pytest.mark.parametrize("queues", QUEUES, ids=str)
def test_messages_sent_together_are_messages_sent_one_by_one(
    tmp_path: Path, queues: Sequence[str], durable: bool, transacted: bool
) -> None:
    found = []
    settings = StoreSettings(inline_bytes_max=100, chunk_bytes=100)
    for together in (True, False):
        with StoreNode(tmp_path / str(together), settings) as node:
            store = node.store
            declare(store, "q", "r")
            store.create_queue(QueueConfig("volatile", "orders", durable=False)).wait()
            tx = store.begin() if transacted else 0
            messages = of_all_kinds(durable=durable)
            with node.blocked_writer():
                if together:
                    ids = store.send_all(messages, queues, tx).ids
                else:
                    ids = tuple(store.send(message, queues, tx).id for message in messages)
                before = [len(infos(store, queue)) for queue in ("q", "r")]
            if tx:
                assert store.transaction(tx).messages == ids
                store.commit(tx)
            store.flush().wait()
            told = [[store.message(each) for each in ids if store.describe(each).durable or queues], before, seen(node)]
            node.clock.now_ms += 700
            told.append(taken(store))
            store.flush().wait()
            store = node.crash()
            told += [seen(node), store.orphaned_messages]
            found.append(told)
    assert found[0] == found[1]


def test_what_is_sent_together_can_be_awaited_waited_for_and_called_back(store: MessageStore) -> None:
    told: Queue[JournalError | None] = Queue()

    async def work() -> None:
        pending = store.send_all(plain(3), ["q"])
        assert await pending == pending.ids
        assert (pending.done, pending.error) == (True, None)
        settled = store.acknowledge_all([Held("q", pending.ids)])
        settled.add_callback(told.put)
        assert await settled == settled.ids == pending.ids

    asyncio.run(work())
    assert told.get(timeout=30) is None
    pending = store.send_all(plain(2), ["q"])
    assert pending.wait(30) == pending.ids
    assert [info.message for info in infos(store)] == list(pending.ids)


def test_nothing_sent_or_acknowledged_is_done_at_once(node: StoreNode, store: MessageStore) -> None:
    before = seen(node)
    for pending in (store.send_all([], ["q"]), store.acknowledge_all([Held("q", [])])):
        assert pending.done
        assert pending.wait() == ()
    assert seen(node) == before
    refuse(QueueMissingError, partial(store.acknowledge_all, [Held("missing", [])]))
    refuse(TransactionUnknownError, partial(store.send_all, plain(), ["q"], 99))
    assert seen(node) == before


@pytest.mark.parametrize("messages", [plain(), of_all_kinds(durable=False)], ids=["plain", "of-all-kinds"])
def test_a_batch_is_all_there_or_not_at_all_after_a_crash(
    node: StoreNode, store: MessageStore, messages: list[Message]
) -> None:
    durable = [message for message in messages if message.durable]
    sent = store.send_all(messages, ["q", "r"])
    sent.wait()
    store = node.crash()
    assert sorted(bodies(store)) == sorted(bodies(store, "r")) == sorted(each.body for each in durable)
    with node.blocked_writer():
        pending = store.send_all(messages, ["q"])
        ready = [info.message for info in infos(store) if info.state is ReferenceState.READY]
        settling = store.acknowledge_all([Held("q", ready)])
        assert (pending.done, settling.done) == (False, False)
        store = node.crash()
    assert sorted(bodies(store)) == sorted(each.body for each in durable)
    assert store.orphaned_messages == 0


def test_messages_sent_together_are_delivered_only_once_they_are_durable(node: StoreNode, store: MessageStore) -> None:
    with node.blocked_writer():
        pending = store.send_all(plain(3), ["q"])
        assert [store.message(each).body for each in pending.ids] == [b"0", b"1", b"2"]
        assert (store.take("q", "h"), store.queue("q").arriving) == (None, 3)
        refuse(MessageMissingError, partial(store.acknowledge_all, [Held("q", pending.ids)]))
        store.route(pending.ids[1], "r")
    pending.wait()
    store.flush().wait()
    assert store.queue("q").arriving == 0
    assert (taken(store), taken(store, "r")) == ([b"0", b"1", b"2"], [b"1"])


def test_a_queue_that_is_destroyed_while_a_batch_is_on_its_way_takes_it_along(
    node: StoreNode, store: MessageStore
) -> None:
    kinds = kinds_in_journal(node)
    with node.blocked_writer():
        store.send_all(plain(3), ["r"])
        settling = store.send_all(plain(3), ["q"])
        store.destroy_queue("r")
    settling.wait()
    store.flush().wait()
    with node.blocked_writer():
        store.acknowledge_all([Held("q", settling.ids)])
        store.destroy_queue("q")
    store.flush().wait()
    assert not [each for each in store.queues() if each.config.name in ("q", "r")]
    store.flush().wait()
    assert kinds_in_journal(node)[MESSAGE] == kinds[MESSAGE] == 0
    refuse(MessageMissingError, *(partial(store.message, each) for each in settling.ids))


def test_ids_of_the_callers_are_taken_in_their_order(store: MessageStore) -> None:
    first = send(store, b"first")
    ids = [first + (1 << 40) + (each << 10) for each in (3, 1, 2)]
    messages = [*plain(2), Message("orders", LARGE)]
    assert store.send_all(messages, ["q"], ids=ids).wait() == tuple(ids)
    assert bodies(store) == [b"first", b"0", b"1", LARGE]
    before = infos(store)
    refuse(
        StoreError,
        partial(store.send_all, plain(3), ["q"], ids=ids),
        partial(store.send_all, plain(3), ["q"], ids=ids[:2]),
        partial(store.send_all, plain(2), ["q"], ids=[ids[0] + (9 << 10)] * 2),
        partial(store.send_all, plain(1), ["q"], ids=[ids[0] + (9 << 10) + 1]),
    )
    assert infos(store) == before


def test_duplicate_ids_of_a_batch_enter_the_window_one_by_one(store: MessageStore) -> None:
    def windowed(*ids: bytes) -> list[Message]:
        return [Message("windowed", each, duplicate_id=each) for each in ids]

    store.send_all(windowed(b"a", b"b", b"c", b"d", b""), ["w"]).wait()
    for twice in ([b"e", b"d"], [b"e", b"e"], [b"e", b"f", b"b"]):
        with pytest.raises(DuplicateMessageError) as refused:
            store.send_all(windowed(*twice), ["w"])
        assert refused.value.duplicate_id == twice[-1]
    assert bodies(store, "w") == [b"a", b"b", b"c", b"d", b""]
    store.send_all(windowed(b"e", b"a"), ["w"]).wait()
    refuse(DuplicateMessageError, *(partial(store.send, windowed(each)[0], ["w"]) for each in (b"d", b"e", b"a")))
    tx = store.begin()
    store.send_all(windowed(b"1", b"2", b"3", b"4"), ["w"], tx)
    refuse(FullError, partial(store.send_all, windowed(b"5"), ["w"]))
    store.rollback(tx).wait()
    store.send_all(windowed(b"5"), ["w"]).wait()


def test_a_duplicate_in_a_batch_refuses_its_whole_transaction(store: MessageStore) -> None:
    tx = store.begin()
    store.send_all([Message("windowed", b"1", duplicate_id=b"1")], ["w"], tx)
    again = [Message("windowed", b"2", duplicate_id=b"2"), Message("windowed", b"1", duplicate_id=b"1")]
    refuse(DuplicateMessageError, partial(store.send_all, again, ["w"], tx), partial(store.commit, tx))
    store.rollback(tx).wait()
    store.send_all(again, ["w"]).wait()
    assert bodies(store, "w") == [b"2", b"1"]


REFUSED: list[tuple[Any, ...]] = [
    ([*plain(), Message("nowhere")], ["q"], StoreError),
    ([Message("nowhere")], ["q"], AddressMissingError),
    (plain(), ["missing"], QueueMissingError),
    (plain(), ["w"], StoreError),
    (plain(), ["q", "q"], StoreError),
    ([*plain(), Message("orders", priority=10)], ["q"], InvalidOperationError),
    ([*plain(), Message("orders", expires=-1)], ["q"], InvalidOperationError),
    ([*plain(), Message("orders", properties={"n": 2**63})], ["q"], InvalidOperationError),
    ([*plain(), Message("orders", LARGE, headers={"h": "x" * 2**20})], ["q"], InvalidOperationError),
    ([*plain(), Message("orders", headers={"h": "x" * 2**20})], ["q"], InvalidOperationError),
    ([*plain(), Message("orders", b"x" * 2561)], ["q"], MessageTooLargeError),
    (
        [Message("orders", b"v", durable=False), Message("orders", b"x" * 2561, durable=False)],
        ["q"],
        MessageTooLargeError,
    ),
    (
        [Message("windowed", duplicate_id=b"new"), Message("windowed", duplicate_id=b"seen")],
        ["w"],
        DuplicateMessageError,
    ),
]


@pytest.mark.parametrize("transacted", [False, True], ids=["plain", "in-a-transaction"])
@pytest.mark.parametrize(("messages", "queues", "error"), REFUSED)
def test_a_batch_of_which_one_is_refused_changes_nothing(
    node: StoreNode,
    store: MessageStore,
    messages: list[Message],
    queues: list[str],
    error: type[JournalError],
    transacted: bool,
) -> None:
    send(store, b"there", "w", address="windowed", duplicate_id=b"seen")
    tx = store.begin() if transacted else 0
    before = seen(node), store.transactions()
    refuse(error, partial(store.send_all, messages, queues, tx))
    assert (seen(node), store.transactions()) == before
    if tx:
        store.rollback(tx)
    store.send_all([Message("windowed", duplicate_id=b"new")], ["w"]).wait()


def test_a_batch_that_fits_no_group_or_no_queue_now_changes_nothing(tmp_path: Path) -> None:
    limits = Limits(queue_operations_max=12, transaction_buffer_operations_max=12)
    settings = StoreSettings(inline_bytes_max=100, chunk_bytes=10, volatile_bytes_max=100)
    with StoreNode(tmp_path / "node", settings, limits=limits, room_timeout_ms=0) as node:
        store = node.store
        declare(store, "q")
        ids = [send(store, b"%d" % number) for number in range(7)]
        before = seen(node)
        for messages in (plain(7), [*plain(1), Message("orders", b"x" * 101)]):
            with pytest.raises(InvalidOperationError, match="queue_operations_max"):
                store.send_all(messages, ["q"])
        refuse(InvalidOperationError, partial(store.acknowledge_all, [Held("q", ids)]))
        too_much = [*plain(2), *plain(2, durable=False), Message("orders", b"x" * 99, durable=False)]
        refuse(FullError, partial(store.send_all, too_much, ["q"]))
        assert seen(node) == before
        with node.blocked_writer():
            store.send(Message("orders", b"on its way"), ["q"])
            looked = infos(store), store.queues(), store.volatile_bytes
            refuse(
                FullError,
                partial(store.send_all, plain(6), ["q"]),
                partial(store.send_all, [*plain(4), *plain(1, durable=False), *plain(2)], ["q"]),
                partial(store.acknowledge_all, [Held("q", ids[:6])]),
            )
            assert (infos(store), store.queues(), store.volatile_bytes) == looked
        store.flush().wait()
        store.send_all(plain(6), ["q"]).wait()
        store.acknowledge_all([Held("q", ids[:6])]).wait()
        assert bodies(store) == [b"6", b"on its way", *(each.body for each in plain(6))]


# ---- acknowledging ---------------------------------------------------------------------------------------------------


def held_and_ready(store: MessageStore) -> list[int]:
    """Messages of q that "h" may acknowledge: ready, held, scheduled, of two queues, large, not durable, expiring."""
    ids = [*store.send_all(of_all_kinds(durable=False), ["q"]).wait()]
    ids.append(send(store, b"two", "q", "r"))
    ids.append(send(store, b"volatile too", "q", "volatile"))
    for each in (ids[0], ids[7], ids[-1]):
        store.acquire(each, "q", "h").wait()
    store.schedule(ids[0], "q", START_MS + 5000).wait()
    return ids


@pytest.mark.parametrize("transacted", [False, True], ids=["plain", "in-a-transaction"])
@pytest.mark.parametrize("queue", ["q", "volatile"])
@pytest.mark.parametrize("kinds", ["plain", "of-all-kinds"])
def test_messages_acknowledged_together_are_acknowledged_one_by_one(
    tmp_path: Path, kinds: str, queue: str, transacted: bool
) -> None:
    found = []
    settings = StoreSettings(inline_bytes_max=100, chunk_bytes=100)
    for together in (True, False):
        with StoreNode(tmp_path / str(together), settings) as node:
            store = node.store
            declare(store, "q", "r")
            store.create_queue(QueueConfig("volatile", "orders", durable=False)).wait()
            if kinds == "plain":
                ids = [*store.send_all(of_all_kinds(), [queue]).wait()]
                store.take(queue, "h")
            elif queue == "q":
                ids = held_and_ready(store)
            else:
                ids = [*store.send_all(of_all_kinds(durable=False), [queue, "r"]).wait(), send(store, b"1", queue)]
            left = ids.pop(1)
            ids.reverse()
            told = []
            tx = store.begin() if transacted else 0
            if together:
                assert store.acknowledge_all([Held(queue, ids, "h")], tx).ids == tuple(ids)
            else:
                for each in ids:
                    store.acknowledge(each, queue, "h", tx)
            if tx:
                told += [[info.state for info in infos(store, queue)], store.transaction(tx).acknowledgements]
                store.commit(tx)
            store.flush().wait()
            assert [info.message for info in infos(store, queue)] == [left]
            told += [seen(node), store.cached_bytes]
            store.send_all(of_all_kinds(), ["q"]).wait()
            store.flush().wait()
            store = node.crash()
            told += [seen(node), store.orphaned_messages]
            found.append(told)
    assert found[0] == found[1]


def test_what_is_acknowledged_together_is_gone_at_once_and_its_rows_serve_again(
    node: StoreNode, store: MessageStore
) -> None:
    """In whichever order it comes and goes."""
    for priorities in ([4] * 60, [4, 9] * 30):
        ids: list[int] = []
        for some in (priorities[:40], priorities[40:]):
            ids += store.send_all([Message("orders", b"x", priority=each) for each in some], ["q"]).wait()
        for each in (*ids[1::7], *ids[3::7]):
            store.acquire(each, "q", "h")
        for part in (ids[::2], ids[1::2][::-1]):
            pending = store.acknowledge_all([Held("q", part, "h")])
            assert {info.state for info in infos(store) if info.message in part} <= {ReferenceState.SETTLING}
            refuse(MessageMissingError, partial(store.acknowledge_all, [Held("q", part, "h")]))
            pending.wait()
        store.flush().wait()
        queue = store.queue("q")
        assert (queue.ready, queue.held, queue.settling, queue.bytes) == (0, 0, 0, 0)
    assert store.holders() == []
    assert kinds_in_journal(node)[MESSAGE] == 0
    assert store.send_all(plain(), ["q"]).wait()
    assert taken(store) == [b"0", b"1", b"2", b"3", b"4"]


def test_messages_of_two_queues_are_there_until_both_have_acknowledged_them(
    node: StoreNode, store: MessageStore
) -> None:
    ids = store.send_all(plain(), ["q", "r"]).wait()
    store.acknowledge_all([Held("r", ids)]).wait()
    assert (bodies(store, "r"), len(bodies(store))) == ([], len(ids))
    assert kinds_in_journal(node)[MESSAGE] == len(ids)
    refuse(MessageMissingError, partial(store.acknowledge_all, [Held("r", ids)]))
    store = node.restart()
    store.acknowledge_all([Held("q", ids)]).wait()
    assert kinds_in_journal(node)[MESSAGE] == 0


def test_a_rollback_gives_back_what_was_acknowledged_and_takes_back_what_was_sent(
    node: StoreNode, store: MessageStore
) -> None:
    ids = held_and_ready(store)
    before = seen(node)
    tx = store.begin()
    settled = store.acknowledge_all([Held("q", ids, "h")], tx)
    assert {info.state for info in infos(store)} == {ReferenceState.LOCKED}
    sent = store.send_all(of_all_kinds(durable=False), ["q", "r"], tx)
    store.rollback(tx).wait()
    for pending in (settled, sent):
        with pytest.raises(RolledBackError):
            pending.wait()
    assert seen(node) == before


@pytest.mark.parametrize("transacted", [False, True], ids=["plain", "in-a-transaction"])
@pytest.mark.parametrize("kinds", [plain, partial(of_all_kinds, durable=False)], ids=["plain", "of-all-kinds"])
def test_acknowledging_many_of_which_one_is_refused_changes_nothing_and_names_that_one(
    node: StoreNode, store: MessageStore, kinds: Callable[[], list[Message]], transacted: bool
) -> None:
    ids = [*store.send_all(kinds(), ["q"]).wait()]
    held, locked, elsewhere = send(store, b"held"), send(store, b"locked"), send(store, b"elsewhere", "r")
    store.acquire(held, "q", "me").wait()
    other = store.begin()
    store.acknowledge(locked, "q", tx=other)
    tx = store.begin() if transacted else 0
    before = seen(node), store.transactions()
    for wrong, error in [
        (ids[0] + (1 << 40), MessageMissingError),
        (elsewhere, MessageMissingError),
        (held, MessageHeldError),
        (locked, MessageHeldError),
    ]:
        for holder in ("", "you"):
            with pytest.raises(error) as refused:
                store.acknowledge_all([Held("q", [*ids, wrong], holder)], tx)
            assert isinstance(refused.value, MessageMissingError | MessageHeldError)
            assert refused.value.message == wrong
    with pytest.raises(StoreError, match=f"message {ids[1]} is given twice"):
        store.acknowledge_all([Held("q", [*ids, ids[1]])], tx)
    refuse(QueueMissingError, partial(store.acknowledge_all, [Held("missing", ids)], tx))
    refuse(InvalidOperationError, partial(store.acknowledge_all, [Held("q", ids, "\ud800")], tx))
    refuse(TransactionUnknownError, partial(store.acknowledge_all, [Held("q", ids)], 99))
    assert (seen(node), store.transactions()) == before
    store.acknowledge_all([Held("q", [*ids, held], "me")], tx)


@pytest.mark.parametrize("taken_in", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kinds", [plain, partial(of_all_kinds, durable=False)], ids=["plain", "of-all-kinds"])
def test_messages_whose_joint_acknowledgement_was_interrupted_are_delivered_to_nobody(
    node: StoreNode,
    store: MessageStore,
    monkeypatch: pytest.MonkeyPatch,
    kinds: Callable[[], list[Message]],
    taken_in: bool,
) -> None:
    """Ctrl-C, before or after the journal took them: nobody can tell."""
    ids, other = store.send_all(kinds(), ["q"]).wait(), send(store, b"other")
    store.acquire(ids[1], "q", "me").wait()
    with monkeypatch.context() as patched:

        def interrupted(*arguments: Any, **named: Any) -> Completion:
            if taken_in:
                LocalJournal.append_all(node.journal, *arguments, **named)
            raise KeyboardInterrupt

        patched.setattr(node.journal, "append_all", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.acknowledge_all([Held("q", ids, "me")])
    for message in ids:
        refuse(MessageHeldError, partial(store.acknowledge, message, "q", "me"))
    assert store.take("q", "h") == Delivery(other, 0)
    assert store.take("q", "h") is None
    store.release_holder("me").wait()
    store.flush().wait()
    durable = {each for each in ids if store.describe(each).durable}
    store = node.crash()
    assert {info.message for info in infos(store)} == ({other} if taken_in else {*durable, other})


def test_large_messages_of_a_batch_go_with_all_that_they_have(node: StoreNode, store: MessageStore) -> None:
    ids = store.send_all([Message("orders", each) for each in (LARGE, LARGE * 2, b"small")], ["q"]).wait()
    assert kinds_in_journal(node)[CHUNK] == 9
    assert [store.message(each).body for each in ids] == [LARGE, LARGE * 2, b"small"]
    store = node.crash()
    assert b"".join(store.body_stream(ids[1])) == LARGE * 2
    store.acknowledge_all([Held("q", ids)]).wait()
    kinds = kinds_in_journal(node)
    assert (kinds[CHUNK], kinds[MESSAGE]) == (0, 0)
