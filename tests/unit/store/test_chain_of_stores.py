"""A chain of real stores, each on a RocksDB of its own: both hold the same, also after both were restarted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from journal.errors import (
    DuplicateMessageError,
    MessageHeldError,
    MessageMissingError,
    MessageTooLargeError,
    StoreError,
)
from journal.local.journal import LocalJournal
from journal.store.address_settings import AddressSettings
from journal.store.chain.chain import MessageStoreChain
from journal.store.chain.lockstep import chained_id
from journal.store.model import Held, Message, QueueConfig, ReferenceState
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from journal.v1.store_pb2 import CHUNK, MESSAGE
from loaders.queues import QueueLoader
from tests.support.stores import START_MS, StoreNode, kinds_in_journal

QUEUE = QueueConfig(
    "orders/eu",
    "orders",
    deliveries_max=9,
    dead_letter_address="dead",
    expiry_address="late",
    journaled_acquisition=True,
)
SETTINGS = StoreSettings(inline_bytes_max=100, chunk_bytes=100, message_bytes_max=2560)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[StoreNode]]:
    with ExitStack() as open_nodes:
        found = [StoreNode(tmp_path / name, SETTINGS) for name in ("first", "second")]
        for node in found:
            open_nodes.callback(node.close)
        yield found


def chain_of(nodes: list[StoreNode]) -> MessageStoreChain:
    return MessageStoreChain([node.store for node in nodes], names=["first", "second"])


def bodies(node: StoreNode, queue: str = QUEUE.name) -> list[bytes]:
    return [node.store.message(info.message).body for info in node.store.browse(queue)]


def declared_chain_of(nodes: list[StoreNode]) -> MessageStoreChain:
    """With a queue, and another for what becomes of its messages."""
    chain = chain_of(nodes)
    for address in ("orders", "dead", "late"):
        chain.create_address(address, 10)
    for config in (QUEUE, QueueConfig("dead", "dead"), QueueConfig("late", "late")):
        chain.create_queue(config)
    chain.flush().wait(10)
    return chain


def test_both_stores_hold_what_the_chain_was_told_and_forget_what_it_settled(nodes: list[StoreNode]) -> None:
    chain = chain_of(nodes)
    chain.create_address("orders").wait(10)
    chain.create_queue(QUEUE).wait(10)
    sent = [chain.send(Message("orders", b"%d" % number), [QUEUE.name]) for number in range(5)]
    for pending in sent:
        pending.wait(10)
    chain.acknowledge(sent[0].id, QUEUE.name).wait(10)
    tx = chain.begin()
    chain.acknowledge(sent[1].id, QUEUE.name, tx=tx)
    chain.send(Message("orders", b"in a transaction"), [QUEUE.name], tx=tx)
    chain.commit(tx).wait(10)
    kept = [b"2", b"3", b"4", b"in a transaction"]
    assert [bodies(node) for node in nodes] == [kept, kept]
    for node in nodes:
        node.restart()
    assert [bodies(node) for node in nodes] == [kept, kept]
    chain = chain_of(nodes)
    delivery = chain.take(QUEUE.name, "holder")
    assert delivery is not None
    chain.acknowledge(delivery.message, QUEUE.name, "holder").wait(10)
    assert [bodies(node) for node in nodes] == [kept[1:], kept[1:]]


def test_both_stores_hold_what_was_sent_together_and_forget_what_was_acknowledged_together(
    nodes: list[StoreNode],
) -> None:
    chain = declared_chain_of(nodes)
    small, large = Message("orders", b"small", duplicate_id=b"d"), Message("orders", b"large" * 100)
    volatile = Message("orders", b"volatile", durable=False)
    one = chain.send_all([small, large, volatile, Message("orders", b"last")], [QUEUE.name])
    two = chain.send_all([Message("orders", b"%d" % number) for number in range(3)], [QUEUE.name])
    assert (one.wait(10), two.wait(10)) == (one.ids, two.ids)
    held = chain.take(QUEUE.name, "holder")
    assert held is not None
    with pytest.raises(DuplicateMessageError):
        chain.send_all([Message("orders"), small], [QUEUE.name])
    for wrong in ([two.ids[0], held.message], [one.ids[0], one.ids[1], 1 << 40]):
        with pytest.raises((MessageHeldError, MessageMissingError)):
            chain.acknowledge_all([Held(QUEUE.name, wrong)])
    assert chain.error is None
    chain.acknowledge_all([Held(QUEUE.name, [held.message, *two.ids[:2]], "holder")]).wait(10)
    tx = chain.begin()
    chain.send_all([Message("orders", b"4"), Message("orders", b"5")], [QUEUE.name], tx)
    chain.acknowledge_all([Held(QUEUE.name, [one.ids[0]] if one.ids[0] != held.message else [one.ids[1]])], tx)
    chain.commit(tx).wait(10)
    chain.flush().wait(10)
    found = [bodies(node) for node in nodes]
    assert found[0] == found[1]
    assert sorted(found[0])[:3] == [b"2", b"4", b"5"]
    for node in nodes:
        node.restart()
    assert [bodies(node) for node in nodes] == [[each for each in found[0] if each != b"volatile"]] * 2


def test_what_the_first_store_refuses_reaches_no_other(nodes: list[StoreNode]) -> None:
    chain = chain_of(nodes)
    chain.create_address("orders").wait(10)
    chain.create_queue(QUEUE).wait(10)
    sent = chain.send(Message("orders", b"one"), [QUEUE.name])
    sent.wait(10)
    chain.acknowledge(sent.id, QUEUE.name).wait(10)
    with pytest.raises(MessageMissingError):
        chain.acknowledge(sent.id, QUEUE.name)
    assert chain.error is None
    assert [bodies(node) for node in nodes] == [[], []]


def test_the_second_store_knows_a_message_by_an_id_derived_from_the_chains(nodes: list[StoreNode]) -> None:
    chain = chain_of(nodes)
    chain.create_address("orders").wait(10)
    chain.create_queue(QUEUE).wait(10)
    sent = chain.send(Message("orders", b"one"), [QUEUE.name])
    sent.wait(10)
    assert nodes[0].store.message(sent.id).body == nodes[1].store.message(chained_id(sent.id)).body == b"one"


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
def test_a_transaction_over_the_chain_changes_and_declares_in_both_stores_or_in_none(
    nodes: list[StoreNode], commit: bool
) -> None:
    chain = chain_of(nodes)
    chain.create_address("orders").wait(10)
    chain.create_queue(QUEUE).wait(10)
    held, ready = (chain.send(Message("orders", body), [QUEUE.name]).wait(10) for body in (b"held", b"ready"))
    chain.acquire(held, QUEUE.name, "h").wait(10)
    tx = chain.begin()
    chain.release(held, QUEUE.name, "h", tx)
    chain.acquire(ready, QUEUE.name, "i", tx)
    chain.deliveries(ready, QUEUE.name, 4, tx)
    chain.create_queue(QueueConfig("new", "orders"), tx)
    chain.bind("new", "key", tx=tx)
    chain.prepare(tx, b"xid").wait(10)
    for node in nodes:
        node.crash()
    chain = chain_of(nodes)
    (chain.commit if commit else chain.rollback)(tx).wait(10)
    for node in nodes:
        found = [(info.state.value, info.holder, info.deliveries) for info in node.store.browse(QUEUE.name)]
        if commit:
            assert found == [("ready", "", 1), ("held", "i", 4)]
            assert [binding.key for binding in node.store.bindings("new")] == ["key"]
        else:
            assert found == [("held", "h", 0), ("ready", "", 0)]
            assert len(node.store.queues()) == 1
    delivery = chain.take(QUEUE.name, "h")
    assert delivery is not None
    assert delivery.message == (held if commit else ready)


# ---- bodies that are streamed ------------------------------------------------------------------------------------


PIECES = [bytes([number]) * 77 for number in range(30)]
"""In all more than a record takes, and less than the largest message."""


@pytest.mark.parametrize("pieces", [PIECES, PIECES[:1], []], ids=["large", "small", "empty"])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "event-loop"])
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "not-durable"])
def test_a_body_that_comes_in_pieces_is_in_both_stores(
    nodes: list[StoreNode], pieces: Sequence[bytes], asynchronous: bool, durable: bool
) -> None:
    chain = declared_chain_of(nodes)
    message = Message("orders", durable=durable)
    if asynchronous:

        async def body() -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

        sent = asyncio.run(chain.store_stream_async(message, body(), [QUEUE.name]))
    else:
        sent = chain.store_stream(message, iter(pieces), [QUEUE.name])
    sent.wait(10)
    whole = b"".join(pieces)
    assert [bodies(node) for node in nodes] == [[whole], [whole]]
    assert b"".join(chain.body_stream(sent.id)) == whole
    assert nodes[1].store.message(chained_id(sent.id)).body == whole
    if durable:
        for node in nodes:
            node.crash()
        assert [bodies(node) for node in nodes] == [[whole], [whole]]


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
def test_a_body_in_a_transaction_is_in_both_stores_or_in_none(nodes: list[StoreNode], commit: bool) -> None:
    chain = declared_chain_of(nodes)
    tx = chain.begin()
    chain.store_stream(Message("orders"), iter(PIECES), [QUEUE.name], tx)
    assert [bodies(node) for node in nodes] == [[], []]
    (chain.commit if commit else chain.rollback)(tx).wait(10)
    kept = [b"".join(PIECES)] if commit else []
    assert [bodies(node) for node in nodes] == [kept, kept]


def test_other_operations_go_on_while_a_body_comes(nodes: list[StoreNode]) -> None:
    chain = declared_chain_of(nodes)

    def body() -> Iterator[bytes]:
        for piece in PIECES:
            yield piece
            chain.send(Message("orders", piece), [QUEUE.name])

    chain.store_stream(Message("orders"), body(), [QUEUE.name]).wait(10)
    kept = [*PIECES, b"".join(PIECES)]
    assert [bodies(node) for node in nodes] == [kept, kept]


def test_a_body_that_is_refused_or_cut_off_leaves_nothing_in_any_store(nodes: list[StoreNode]) -> None:
    chain = declared_chain_of(nodes)
    chain.send(Message("orders", duplicate_id=b"seen"), ["orders/eu"]).wait(10)

    def cut_off() -> Iterator[bytes]:
        yield from PIECES
        raise KeyError("the producer is gone")

    with pytest.raises(KeyError):
        chain.store_stream(Message("orders"), cut_off(), [QUEUE.name])
    with pytest.raises(MessageTooLargeError):
        chain.store_stream(Message("orders"), [bytes(2561)], [QUEUE.name])
    with pytest.raises(DuplicateMessageError):
        chain.store_stream(Message("orders", duplicate_id=b"seen"), PIECES, [QUEUE.name])
    tx = chain.begin()
    with pytest.raises(KeyError):
        chain.store_stream(Message("orders"), cut_off(), [QUEUE.name], tx)
    with pytest.raises(StoreError):
        chain.commit(tx)
    chain.rollback(tx)
    chain.store_stream(Message("orders"), [bytes(2560)], [QUEUE.name]).wait(10)
    chain.flush().wait(10)
    assert chain.error is None
    for node in nodes:
        assert bodies(node) == [b"", bytes(2560)]
        assert not node.store.transactions()
        # an inline message, and a large one with its chunks: nothing of the others
        assert kinds_in_journal(node)[CHUNK] == 26
        assert kinds_in_journal(node)[MESSAGE] == 2


# ---- what becomes of messages ------------------------------------------------------------------------------------


def test_the_dead_and_the_expired_go_to_their_addresses_in_both_stores(nodes: list[StoreNode]) -> None:
    chain = declared_chain_of(nodes)
    sent = [chain.send(Message("orders", b"%d" % number), [QUEUE.name]) for number in range(4)]
    chain.flush().wait(10)
    copies = [chain.dead_letter(sent[0].id, QUEUE.name), chain.expire(sent[1].id, QUEUE.name)]
    tx = chain.begin()
    copies += [chain.dead_letter(sent[2].id, QUEUE.name, tx), chain.expire(sent[3].id, QUEUE.name, tx=tx)]
    chain.commit(tx).wait(10)
    for node in nodes:
        assert (bodies(node), bodies(node, "dead"), bodies(node, "late")) == ([], [b"0", b"2"], [b"1", b"3"])
    assert [nodes[0].store.describe(copy.id) is not None for copy in copies] == [True] * 4
    assert [nodes[1].store.describe(chained_id(copy.id)) is not None for copy in copies] == [True] * 4


@pytest.mark.parametrize("body", [b"small", bytes(250)], ids=["small", "large"])
@pytest.mark.parametrize("transacted", [False, True], ids=["plain", "in-a-transaction"])
def test_the_first_store_chooses_the_queue_of_a_copy_for_all(
    nodes: list[StoreNode], transacted: bool, body: bytes
) -> None:
    """The anycast queue with the fewest messages is another one in each store."""
    chain = declared_chain_of(nodes)
    for address in ("dead", "late"):
        chain.create_queue(QueueConfig(f"{address}/2", address)).wait(10)
        nodes[0].store.send(Message(address, b"not in the other store yet"), [address]).wait(10)
    sent = [chain.send(Message("orders", body), [QUEUE.name]).wait(10) for _ in range(2)]
    tx = chain.begin() if transacted else 0
    moved = [chain.dead_letter(sent[0], QUEUE.name, tx), chain.expire(sent[1], QUEUE.name, tx)]
    assert [each.queues for each in moved] == [("dead/2",), ("late/2",)]
    if transacted:
        chain.commit(tx)
    chain.flush().wait(10)
    for node in nodes:
        assert [bodies(node, name) for name in ("dead/2", "late/2")] == [[body], [body]]


# ---- duplicates --------------------------------------------------------------------------------------------------


def is_seen(node: StoreNode, duplicate_id: bytes) -> bool:
    """In a transaction that is rolled back."""
    tx = node.store.begin()
    try:
        node.store.send(Message("orders", duplicate_id=duplicate_id), [QUEUE.name], tx)
    except DuplicateMessageError:
        return True
    finally:
        node.store.rollback(tx)
    return False


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "in-pieces"])
@pytest.mark.parametrize("size", [1, 250], ids=["small", "large"])
@pytest.mark.parametrize("transacted", [False, True], ids=["plain", "in-a-transaction"])
def test_a_duplicate_id_that_is_new_to_the_first_store_is_new_to_the_chain(
    nodes: list[StoreNode], transacted: bool, size: int, streamed: bool
) -> None:
    """What only the other store got before a crash is settled there, and its producer sends it again."""
    chain = declared_chain_of(nodes)
    lost = nodes[1].store.send(Message("orders", duplicate_id=b"again"), [QUEUE.name]).wait(10)
    nodes[1].store.acknowledge(lost, QUEUE.name).wait(10)
    tx = chain.begin() if transacted else 0
    if streamed:
        sent = chain.store_stream(Message("orders", duplicate_id=b"again"), [bytes(size)], [QUEUE.name], tx)
    else:
        sent = chain.send(Message("orders", bytes(size), duplicate_id=b"again"), [QUEUE.name], tx)
    if transacted:
        chain.commit(tx)
    sent.wait(10)
    assert [bodies(node) for node in nodes] == [[bytes(size)], [bytes(size)]]
    for number in range(9):
        chain.send(Message("orders", duplicate_id=b"%d" % number), [QUEUE.name]).wait(10)
    assert [is_seen(node, b"again") for node in nodes] == [True, True]
    for node in nodes:
        node.crash()
    assert [is_seen(node, b"again") for node in nodes] == [True, True]
    chain_of(nodes).send(Message("orders", duplicate_id=b"the eleventh"), [QUEUE.name]).wait(10)
    assert [is_seen(node, b"again") for node in nodes] == [False, False]


def test_an_id_that_a_rollback_freed_in_the_first_store_is_free_in_the_chain(nodes: list[StoreNode]) -> None:
    chain = declared_chain_of(nodes)
    tx = chain.begin()
    chain.send(Message("orders", b"first try", duplicate_id=b"id"), [QUEUE.name], tx)
    chain.prepare(tx, b"xid").wait(10)
    with nodes[1].blocked_writer():
        rolled_back = chain.rollback(tx)
        nodes[0].store.flush().wait(10)
        again = chain.send(Message("orders", b"second try", duplicate_id=b"id"), [QUEUE.name])
        assert not rolled_back.done
    again.wait(10)
    assert [bodies(node) for node in nodes] == [[b"second try"], [b"second try"]]
    assert [is_seen(node, b"id") for node in nodes] == [True, True]


def test_windows_that_filled_in_another_order_refuse_nothing_that_the_first_store_takes(
    nodes: list[StoreNode],
) -> None:
    """A streamed body is in the first store before what is sent meanwhile, and is cut off before the other one."""
    chain = chain_of(nodes)
    chain.create_address("orders", 2)
    chain.create_queue(QUEUE).wait(10)
    for known in (b"a", b"b"):
        chain.send(Message("orders", duplicate_id=known), [QUEUE.name]).wait(10)
    streaming, other = chain.begin(), chain.begin()
    nodes[0].store.store_stream(Message("orders", duplicate_id=b"x"), PIECES, [QUEUE.name], streaming)
    chain.send(Message("orders", duplicate_id=b"y"), [QUEUE.name], other)
    chain.commit(other).wait(10)
    chain.rollback(streaming).wait(10)
    kept = [known for known in (b"a", b"b") if is_seen(nodes[0], known)]
    (gone,) = {b"a", b"b"} - {*kept}
    chain.send(Message("orders", duplicate_id=gone), [QUEUE.name]).wait(10)
    assert chain.error is None
    assert [is_seen(node, gone) for node in nodes] == [True, True]


def test_what_time_brings_to_the_first_store_the_others_follow(nodes: list[StoreNode]) -> None:
    chain = declared_chain_of(nodes)
    held, due = (chain.send(Message("orders", body), [QUEUE.name]).wait(10) for body in (b"held", b"due"))
    chain.acquire(held, QUEUE.name, "gone").wait(10)
    chain.schedule(due, QUEUE.name, START_MS + 500).wait(10)
    for node in nodes:
        node.crash()
    chain = chain_of(nodes)
    assert chain.next_due() == START_MS + 500
    assert chain.tick() == 0
    assert chain.holders() == ["gone"]
    for node in nodes:
        node.clock.now_ms += SETTINGS.acquire_grace_ms
    assert chain.tick() == 1
    assert chain.holders() == []
    chain.schedule(held, QUEUE.name, START_MS).wait(10)
    taken = [chain.take(QUEUE.name, "new"), chain.take(QUEUE.name, "new")]
    assert {delivery.message for delivery in taken if delivery is not None} == {held, due}
    chain.release(held, QUEUE.name, "new").wait(10)
    chain.acknowledge(due, QUEUE.name, "new").wait(10)
    seen = [[(info.state, info.holder, info.deliveries) for info in node.store.browse(QUEUE.name)] for node in nodes]
    assert seen[0] == seen[1] == [(ReferenceState.READY, "", 1)]


class UnsureJournal(LocalJournal):
    """One whose node does not know that it is still the active one."""

    @property
    def current(self) -> bool:
        return False


def test_what_the_first_store_hands_out_the_others_follow_though_their_node_is_not_sure(tmp_path: Path) -> None:
    with StoreNode(tmp_path / "first") as node, UnsureJournal(tmp_path / "second") as journal:
        loader = QueueLoader()
        journal.activate(loader)
        second = MessageStore(journal)
        second.start(loader.loaded)
        chain = MessageStoreChain([node.store, second])
        chain.create_address("orders")
        chain.create_queue(QueueConfig("q", "orders"))
        for body in (b"one", b"two"):
            chain.send(Message("orders", body), ["q"]).wait(10)
        taken = chain.take("q", "h")
        assert taken is not None
        other = next(info.message for info in chain.browse("q") if info.message != taken.message)
        chain.acquire(other, "q", "h").wait(10)
        assert [info.holder for info in second.browse("q")] == ["h", "h"]


@pytest.mark.parametrize("transacted", [False, True], ids=["plain", "in-a-transaction"])
def test_what_a_store_that_began_earlier_has_given_back_already_its_holder_may_release(
    nodes: list[StoreNode], transacted: bool
) -> None:
    chain = declared_chain_of(nodes)
    sent = [chain.send(Message("orders", b"%d" % number), [QUEUE.name]).wait(10) for number in range(2)]
    for message, holder in zip(sent, "ab", strict=True):
        chain.acquire(message, QUEUE.name, holder).wait(10)
    for node in nodes:
        node.crash()
    chain = chain_of(nodes)
    nodes[1].clock.now_ms += SETTINGS.acquire_grace_ms
    chain.reattach("a")
    assert [sorted(node.store.holders()) for node in nodes] == [["a", "b"], []]
    tx = chain.begin() if transacted else 0
    for message, holder in zip(sent, "ab", strict=True):
        chain.release(message, QUEUE.name, holder, tx)
    if transacted:
        chain.commit(tx)
    chain.flush().wait(10)
    seen = [[(info.state, info.deliveries) for info in node.store.browse(QUEUE.name)] for node in nodes]
    assert seen[0] == seen[1] == [(ReferenceState.READY, 1)] * 2
    with pytest.raises(MessageHeldError):
        chain.release(sent[0], QUEUE.name)
    assert chain.error is None


def test_a_store_that_began_earlier_sets_nothing_aside_that_its_holder_comes_back_for(nodes: list[StoreNode]) -> None:
    chain = declared_chain_of(nodes)
    sent = chain.send(Message("orders", b"one"), [QUEUE.name]).wait(10)
    chain.deliveries(sent, QUEUE.name, QUEUE.deliveries_max).wait(10)
    chain.acquire(sent, QUEUE.name, "a").wait(10)
    for node in nodes:
        node.crash()
    chain = chain_of(nodes)
    nodes[1].clock.now_ms += SETTINGS.acquire_grace_ms
    nodes[1].store.tick()
    assert chain.reattach("a") == [(sent, QUEUE.name)]
    chain.acknowledge(sent, QUEUE.name, "a").wait(10)
    assert chain.error is None


def test_what_one_store_hands_out_again_no_other_keeps_as_dead(nodes: list[StoreNode]) -> None:
    chain = declared_chain_of(nodes)
    chain.create_address("other").wait(10)
    chain.create_queue(QueueConfig("other", "other")).wait(10)
    sent = chain.send(Message("other", b"one"), ["other"]).wait(10)
    for limit, waiting in ((1, [(sent, "other")]), (2, [])):
        chain.set_address_settings("other", AddressSettings(deliveries_max=limit)).wait(10)
        if waiting:
            chain.acquire(sent, "other", "a")
            chain.release(sent, "other", "a").wait(10)
        assert chain.dead() == waiting
    assert [each.message for each in chain.take_all("other", "a", 1)] == [sent]
    assert [node.store.holders() for node in nodes] == [["a"], ["a"]]


def test_what_a_holder_takes_again_between_two_steps_of_its_release_it_keeps_in_both_stores(
    nodes: list[StoreNode],
) -> None:
    chain = declared_chain_of(nodes)
    sent = chain.send_all([Message("orders") for _ in range(120)], [QUEUE.name]).wait(10)
    for _ in sent:
        chain.take(QUEUE.name, "h")
    first, second = (node.store.releasing("h") for node in nodes)
    again: list[int] = []
    while (released := first.step()) is not None:
        second.follow([(chained_id(message), queue) for message, queue in released])
        delivery = chain.take(QUEUE.name, "h")
        assert delivery is not None
        again.append(delivery.message)
    while second.step() is not None:
        pass
    for node in nodes:
        assert [info.deliveries for info in node.store.browse(QUEUE.name)] == [1] * len(sent)
        assert sum(info.holder == "h" for info in node.store.browse(QUEUE.name)) == len(again) == 3
    chain.acknowledge_all([Held(QUEUE.name, again, "h")]).wait(10)
    assert chain.error is None


def test_what_only_another_store_holds_is_released_there_too(nodes: list[StoreNode]) -> None:
    chain = declared_chain_of(nodes)
    sent = chain.send(Message("orders"), [QUEUE.name]).wait(10)
    nodes[1].store.acquire(chained_id(sent), QUEUE.name, "h").wait(10)
    chain.release_holder("h").wait(10)
    assert [node.store.holders() for node in nodes] == [[], []]


def test_a_prepare_says_what_is_not_durable_in_the_chains_ids(nodes: list[StoreNode]) -> None:
    chain = declared_chain_of(nodes)
    tx = chain.begin()
    lost = chain.send(Message("orders", b"lost", durable=False), [QUEUE.name], tx).id
    prepared = chain.prepare(tx, b"xid")
    assert prepared.not_durable.messages == (lost,)
    assert prepared.wait(10) == tx
    assert [info.tx for info in chain.in_doubt()] == [tx]


def test_all_stores_of_a_chain_give_a_message_the_same_time(nodes: list[StoreNode]) -> None:
    nodes[1].clock.stepped_ms = 60_000
    chain = declared_chain_of(nodes)
    sent = chain.send(Message("orders", b"one"), [QUEUE.name]).wait(10)
    assert [node.store.message(each).timestamp for node, each in zip(nodes, (sent, chained_id(sent)), strict=True)] == [
        nodes[0].clock()
    ] * 2
