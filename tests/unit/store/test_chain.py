"""Several stores as one: the same operations in the same order, complete when all are, and an error that says whose."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import pytest

from journal.append.completion import Completion
from journal.append.operations import PlainOperation
from journal.errors import (
    ChainError,
    ConfigError,
    DeadlineError,
    FencedError,
    FullError,
    JournalError,
    MessageHeldError,
    OutcomeUnknownError,
    QueueMissingError,
    RolledBackError,
)
from journal.store.address_settings import AddressSettings
from journal.store.chain.chain import MessageStoreChain
from journal.store.chain.lockstep import chained_id
from journal.store.model import Delivery, Held, Message, QueueConfig
from journal.store.pending import Pending
from journal.store.store import MessageStore
from journal.store.transactions import NotDurable
from journal.v1.journal_pb2 import ADD
from tests.unit.store.chain_fakes import MESSAGE, as_chained, chain_of, commit_all

# ---- order, ids, completion --------------------------------------------------------------------------------------


@pytest.mark.parametrize("transacted", [False, True], ids=["plain", "in-a-transaction"])
def test_every_store_is_asked_the_same_in_the_same_order_by_the_ids_that_the_first_one_issued(transacted: bool) -> None:
    chain, (first, *others) = chain_of(3)
    tx = chain.begin() if transacted else 0
    config = QueueConfig("q", "orders")
    chain.create_address("orders", 10, tx)
    chain.create_queue(config, tx)
    binding = chain.bind("q", "key", "filter", tx).id
    stored, sent = chain.store(MESSAGE, tx).id, chain.send(MESSAGE, ["q"], tx).id
    several = chain.send_all([MESSAGE, MESSAGE], ["q"], tx).ids
    chain.route(stored, "q", 7, tx)
    commit_all([first, *others])
    chain.acquire(stored, "q", "h", tx)
    chain.deliveries(stored, "q", 3, tx)
    chain.release(stored, "q", "h", tx)
    chain.schedule(stored, "q", 9, tx)
    copy = chain.move(stored, "q", "other", ["o"], "why", tx).id
    expiry, dead_letter = chain.expire(sent, "q", tx), chain.dead_letter(sent, "q", tx, queues=["d"])
    expired, dead = expiry.id, dead_letter.id
    commit_all([first, *others])
    chain.acknowledge(copy, "o", "h", tx)
    assert chain.acknowledge_all([Held("q", several, "h")], tx).ids == several
    chain.reattach("h")
    chain.release_holder("h")
    chain.delete(stored)
    chain.change_queue(config)
    chain.pause("q")
    chain.resume("q")
    chain.set_address_settings("orders.#", SETTINGS)
    chain.unset_address_settings("orders.#")
    chain.unbind(binding, tx)
    chain.destroy_queue("q", tx)
    chain.destroy_address("orders", tx)
    expected = [
        *([("begin", tx)] if tx else []),
        ("create_address", "orders", 10, tx),
        ("create_queue", config, tx),
        ("bind", "q", "key", "filter", tx, binding),
        ("store", MESSAGE, tx, False, stored),
        ("send", MESSAGE, ("q",), tx, False, sent),
        ("send_all", (MESSAGE, MESSAGE), ("q",), tx, False, *several),
        ("route", stored, "q", 7, tx),
        ("acquire", stored, "q", "h", tx, False),
        ("deliveries", stored, "q", 3, tx),
        ("release", stored, "q", "h", tx, True),
        ("schedule", stored, "q", 9, tx),
        ("move", stored, "q", "other", ("o",), "why", tx, copy),
        ("expire", sent, "q", tx, expiry.queues, expired),
        ("dead_letter", sent, "q", tx, ("d",), dead),
        ("acknowledge_all", "o", "h", tx, copy),
        ("acknowledge_all", "q", "h", tx, *several),
        ("reattaching", "h"),
        ("releasing", "h", True),
        ("delete", stored),
        ("change_queue", config),
        ("pause", "q"),
        ("resume", "q"),
        ("set_address_settings", "orders.#", SETTINGS),
        ("unset_address_settings", "orders.#"),
        ("unbind", binding, tx),
        ("destroy_queue", "q", tx),
        ("destroy_address", "orders", tx),
    ]
    issued = [binding, stored, sent, *several, copy, expired, dead, *([tx] if tx else [])]
    assert len(set(issued)) == len(issued)
    assert first.calls == expected
    for other in others:
        assert other.calls == as_chained(expected, issued)


SETTINGS = AddressSettings(deliveries_max=3)


def test_an_id_of_the_chain_keeps_its_virtual_shard_and_is_none_that_a_journal_issues() -> None:
    for issued in (1 << 10 | 7, (2**52 - 1) << 10 | 1023):
        assert chained_id(issued) % 1024 == issued % 1024
        assert issued < chained_id(issued) < 2**63
        assert chained_id(chained_id(issued)) == chained_id(issued)
    assert chained_id(0) == 0


def test_threads_that_share_a_chain_leave_the_same_order_in_every_store() -> None:
    chain, (first, second) = chain_of()

    def send_many(name: str) -> None:
        for number in range(200):
            chain.send(Message(f"{name}-{number}"), ["q"])

    threads = [threading.Thread(target=send_many, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(first.calls) == 600
    assert [call[1] for call in first.calls] == [call[1] for call in second.calls]


@pytest.mark.parametrize("last", [0, 1, 2])
def test_an_operation_is_complete_when_the_last_store_has_completed_it(last: int) -> None:
    chain, stores = chain_of(3)
    pending, same_group = chain.store(MESSAGE), chain.store(MESSAGE)
    told: list[object] = []
    pending.add_callback(told.append)
    for place, store in enumerate(stores):
        if place != last:
            store.commit_group()
    assert not pending.done
    with pytest.raises(DeadlineError):
        pending.wait(0)
    stores[last].commit_group()
    assert told == [None]
    assert pending.wait(0) == pending.id
    assert same_group.wait(0) == same_group.id

    async def awaited() -> int:
        return await pending

    assert asyncio.run(awaited()) == pending.id


def _note(told: list[int], number: int, _: JournalError | None) -> None:
    told.append(number)


def test_completions_come_in_order_however_far_one_store_is_ahead() -> None:
    chain, (first, second) = chain_of()
    told: list[int] = []
    for number in range(5):
        chain.store(MESSAGE).add_callback(partial(_note, told, number))
        first.commit_group()
        if number == 1:
            second.commit_group()
    assert told == [0, 1]
    second.commit_group()
    assert told == [0, 1, 2, 3, 4]


# ---- transactions ------------------------------------------------------------------------------------------------


def test_a_transaction_has_one_number_in_the_chain_and_a_derived_one_in_the_other_stores() -> None:
    chain, (first, second) = chain_of()
    tx = chain.begin()
    message = chain.send(MESSAGE, ["q"], tx).id
    chain.prepare(tx, b"xid")
    committed = chain.commit(tx)
    commit_all([first, second])
    assert committed.wait(0) == tx
    expected = [("begin", tx), ("send", MESSAGE, ("q",), tx, False, message), ("prepare", tx, b"xid"), ("commit", tx)]
    assert first.calls == expected
    assert second.calls == as_chained(expected, [tx, message])


def test_a_commit_puts_records_of_the_first_stores_journal_there_alone() -> None:
    chain, (first, second) = chain_of()
    tx = chain.begin()
    then: list[PlainOperation] = [(ADD, 7 << 10, 6, b"outcome", False, 0)]
    chain.commit(tx, then=then)
    assert first.calls[-1] == ("commit", tx, tuple(then))
    assert second.calls[-1] == ("commit", chained_id(tx))


def test_a_prepare_says_what_of_the_transaction_would_not_survive() -> None:
    chain, (first, second) = chain_of()
    first.not_durable = NotDurable(messages=(5 << 10,))
    second.not_durable = NotDurable(messages=(chained_id(5 << 10),))
    assert chain.prepare(chain.begin()).not_durable == first.not_durable


def test_a_rollback_is_no_stores_fault() -> None:
    chain, (first, second) = chain_of()
    tx = chain.begin()
    stored = chain.store(MESSAGE, tx)
    chain.rollback(tx)
    error = RolledBackError("rolled back")
    first.commit_group(error)
    second.commit_group(error)
    with pytest.raises(RolledBackError):
        stored.wait(0)
    assert chain.error is None
    chain.store(MESSAGE)


@pytest.mark.parametrize("settle", [MessageStoreChain.commit, MessageStoreChain.rollback], ids=["commit", "rollback"])
def test_what_a_transaction_had_locked_is_waited_for_until_all_stores_have_settled_it(
    settle: Callable[[MessageStoreChain, int], Pending],
) -> None:
    operations: list[Callable[[MessageStoreChain, int], Pending]] = [
        lambda chain, tx: chain.acknowledge(5 << 10, "q", "", tx),
        lambda chain, tx: chain.release(5 << 10, "q", "", tx),
        lambda chain, tx: chain.move(5 << 10, "q", "other", ["o"], "why", tx),
        lambda chain, tx: chain.destroy_queue("q", tx),
    ]
    for operate in operations:
        chain, (first, _) = chain_of(lag_timeout_s=0)
        tx = chain.begin()
        operate(chain, tx)
        settle(chain, tx)
        first.commit_group()
        with pytest.raises(ChainError, match=r"^store 2 of 2: DeadlineError"):
            chain.acquire(5 << 10, "q", "h")


# ---- refusals and failures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "refusal", [QueueMissingError("no queue q"), FullError("full"), DeadlineError("no body in the local copy")]
)
def test_what_the_first_store_refuses_no_store_is_asked_and_the_chain_goes_on(refusal: JournalError) -> None:
    chain, (first, second) = chain_of()
    first.refusals.append(refusal)
    with pytest.raises(type(refusal)):
        chain.send(MESSAGE, ["q"])
    assert second.calls == []
    chain.send(MESSAGE, ["q"])
    assert len(second.calls) == 1


def test_what_only_another_store_refuses_names_it_and_ends_the_chain() -> None:
    chain, (first, second) = chain_of(names=["kafka", "local"])
    refusal = QueueMissingError("no queue q")
    second.refusals.append(refusal)
    with pytest.raises(ChainError, match=r"^local: QueueMissingError: no queue q") as raised:
        chain.send(MESSAGE, ["q"])
    assert raised.value.store == "local"
    assert raised.value.__cause__ is refusal
    before = len(first.calls)
    with pytest.raises(ChainError, match=r"^local: "):
        chain.store(MESSAGE)
    assert len(first.calls) == before
    chain.message(5 << 10)


@pytest.mark.parametrize(("failing", "name"), [(0, "store 1 of 2"), (1, "store 2 of 2")])
def test_a_store_that_fails_is_named_to_everyone_who_waits_and_ends_the_chain(failing: int, name: str) -> None:
    chain, stores = chain_of()
    before = chain.store(MESSAGE)
    commit_all(stores)
    pending = chain.store(MESSAGE)
    stores[failing].commit_group(FencedError("another node"))
    stores[1 - failing].commit_group()
    before.wait(0)
    with pytest.raises(ChainError, match=rf"^{name}: FencedError") as raised:
        pending.wait(0)
    assert isinstance(raised.value, OutcomeUnknownError)
    assert isinstance(raised.value.__cause__, FencedError)
    assert chain.error is raised.value
    with pytest.raises(ChainError):
        chain.begin()


def test_a_first_store_that_is_fenced_when_it_is_called_is_named_by_the_error() -> None:
    chain, (first, second) = chain_of()
    first.refusals.append(FencedError("another node"))
    with pytest.raises(ChainError, match=r"^store 1 of 2: FencedError"):
        chain.store(MESSAGE)
    assert second.calls == []


# ---- stores that lag ---------------------------------------------------------------------------------------------


def test_what_the_first_store_delivers_is_acquired_in_the_others_once_they_have_it() -> None:
    chain, (first, second) = chain_of()
    pending = chain.send(MESSAGE, ["q"])
    message = pending.id
    first.commit_group()
    first.deliveries_to_come.append(Delivery(message, 0))
    arrived: list[bool] = []
    second.before_call = lambda: arrived.append(pending.done)
    taken: list[Delivery | None] = []
    taking = threading.Thread(target=lambda: taken.append(chain.take("q", "h")))
    taking.start()
    second.commit_group()
    taking.join()
    assert arrived == [True]
    assert taken == [Delivery(message, 0)]
    assert second.calls[1:] == [("acquire", chained_id(message), "q", "h", 0, True)]
    assert chain.take("q", "h") is None
    assert second.calls[2:] == []


@pytest.mark.parametrize("known", [True, False])
def test_what_a_commit_makes_visible_is_waited_for_in_the_other_stores(known: bool) -> None:
    chain, (first, second) = chain_of(lag_timeout_s=0)
    if known:
        tx = chain.begin()
        message = chain.send(MESSAGE, ["q"], tx).id
    else:
        tx, message = 9 << 10, 8 << 10  # prepared in an earlier life
    chain.commit(tx)
    first.commit_group()
    with pytest.raises(ChainError, match=r"^store 2 of 2: DeadlineError"):
        chain.acknowledge(message, "q")
    assert second.calls[-1] == ("commit", chained_id(tx))


def test_a_holder_that_only_another_store_still_knows_lets_go() -> None:
    chain, (_, second) = chain_of()
    theirs = chained_id(5 << 10)
    second.refusals.append(MessageHeldError("held by someone", theirs))
    chain.acquire(5 << 10, "q", "h")
    assert second.calls == [("release", theirs, "q", "", 0, False), ("acquire", theirs, "q", "h", 0, True)]
    assert chain.error is None


def test_holders_that_only_another_store_still_knows_let_go_of_many_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    chain, (_, second) = chain_of()
    ids = [5 << 10, 6 << 10]
    theirs = [chained_id(each) for each in ids]
    second.refusals += [MessageHeldError("held by someone", each) for each in reversed(theirs)]
    released: list[int] = []

    def release(message_id: int, queue: str, *, counts: bool) -> Pending:
        released.append(message_id)
        return Pending(message_id)

    monkeypatch.setattr(second, "release", release)
    chain.acknowledge_all([Held("q", ids, "h")])
    assert released == theirs[::-1]
    assert second.calls == [("acknowledge_all", "q", "h", 0, *theirs)]
    assert chain.error is None


def test_messages_that_were_sent_together_are_waited_for_before_any_is_used() -> None:
    chain, (first, second) = chain_of(lag_timeout_s=0)
    arrived = chain.send(MESSAGE, ["q"]).id
    commit_all([first, second])
    ids = chain.send_all([MESSAGE, MESSAGE], ["q"]).ids
    first.commit_group()
    with pytest.raises(ChainError, match=r"^store 2 of 2: DeadlineError"):
        chain.acknowledge_all([Held("q", [arrived, ids[1]])])
    assert [call[0] for call in second.calls] == ["send", "send_all"]


# ---- the rest ----------------------------------------------------------------------------------------------------


OF_ONE_STORE = {
    "watch",
    "woken",
    "current",
    "counters",
    "cursor",
    "holding",
    "purge",
    "purging",
    "reattaching",
    "reject",
    "release_all",
    "releasing",
    "start",
    "discard_leaving",
    "take_in",
    "incoming",
    "ways_in",
    "cached_bytes",
    "collected",
    "volatile_bytes",
    "inline_bytes_max",
}
"""What a chain has not: its stores are started already, taking in is of one journal, gauges and the steps
of a release are each store's."""


def public(of: type) -> dict[str, Any]:
    return {name: getattr(of, name) for name in dir(of) if not name.startswith("_")}


def test_a_chain_has_every_operation_of_a_store_and_asks_for_no_more() -> None:
    operations, own = public(MessageStore), public(MessageStoreChain)
    assert operations.keys() - own.keys() == OF_ONE_STORE
    for name in operations.keys() - OF_ONE_STORE:
        takes, given = (signature(found[name]).parameters for found in (own, operations))
        # ids are given and checked by a chain, not for it; and nobody begins a transaction of a number of its own in it
        left_out = {"id", "ids", "checked", "discard"} | ({"tx"} if name == "begin" else set())
        assert takes.keys() == given.keys() - left_out, name
        assert all(takes[each].default == given[each].default for each in takes), name


def test_reads_come_from_the_first_store_alone() -> None:
    chain, (first, second) = chain_of()
    reads: list[Callable[[], Any]] = [
        lambda: chain.message(5 << 10, body=False),
        lambda: chain.body_stream(5 << 10),
        lambda: chain.explain(5 << 10),
        lambda: chain.describe(5 << 10),
        lambda: chain.browse("q", 2),
        chain.queues,
        lambda: chain.queue("q"),
        lambda: chain.address("orders"),
        chain.addresses,
        chain.address_settings,
        lambda: chain.settings_of("orders"),
        lambda: chain.bindings("q"),
        chain.holders,
        chain.transactions,
        lambda: chain.transaction(7),
        chain.in_doubt,
        chain.next_due,
        lambda: chain.dead(8),
        lambda: chain.expired(9, agreed=False),
    ]
    answers = [read() for read in reads]
    assert answers == first.calls
    assert [call[1:] for call in first.calls if len(call) > 1] == [
        (5 << 10, False),
        (5 << 10,),
        (5 << 10,),
        (5 << 10,),
        ("q", 2),
        ("q",),
        ("orders",),
        ("orders",),
        ("q",),
        (7,),
        (8,),
        (9, False),
    ]
    assert second.calls == []


def test_time_goes_on_in_the_first_store_alone() -> None:
    chain, (first, second) = chain_of()
    assert chain.tick() == 3
    assert first.calls == [("tick",)]
    assert second.calls == []


@pytest.mark.parametrize("wait_for", [MessageStoreChain.flush, MessageStoreChain.room], ids=["flush", "room"])
def test_what_is_waited_for_is_waited_for_in_all_stores(wait_for: Callable[[MessageStoreChain], Completion]) -> None:
    chain, (first, second) = chain_of()
    done = wait_for(chain)
    first.commit_group()
    assert not done.done
    second.commit_group()
    done.wait(0)


def test_close_closes_every_store_also_behind_one_that_raises() -> None:
    chain, stores = chain_of(3)
    stores[0].refusals.append(DeadlineError("slow"))
    with pytest.raises(DeadlineError):
        chain.close()
    assert [store.closed for store in stores] == [True, True, True]


def test_a_chain_needs_a_store_and_a_name_for_each() -> None:
    with pytest.raises(ConfigError):
        MessageStoreChain([])
    with pytest.raises(ConfigError):
        chain_of(names=["one"])


@pytest.mark.parametrize("streamed", [False, True], ids=["sent", "streamed"])
def test_an_interruption_behind_the_first_store_breaks_the_chain(streamed: bool) -> None:
    """Ctrl-C while the second store makes room: only the first one has the message."""
    chain, (first, second) = chain_of(2)
    tx = chain.begin()

    def send() -> Pending:
        return chain.store_stream(MESSAGE, [b"body"], ["q"], tx) if streamed else chain.send(MESSAGE, ["q"], tx)

    send()

    def interrupt() -> None:
        raise KeyboardInterrupt

    first.before_call = interrupt
    with pytest.raises(KeyboardInterrupt):
        send()
    first.before_call = lambda: None
    send()  # no store had it
    second.before_call = interrupt
    with pytest.raises(KeyboardInterrupt):
        send()
    second.before_call = lambda: None
    with pytest.raises(ChainError, match="store 2 of 2: StateError: a call was interrupted by KeyboardInterrupt"):
        chain.commit(tx)


def test_a_large_message_that_is_interrupted_again_while_it_is_cut_off_leaves_no_transaction_in_a_chain() -> None:
    chain, (first, _) = chain_of(2)
    interruptions = [False, True, True]  # begin, the body, rollback

    def interrupt() -> None:
        if interruptions and interruptions.pop(0):
            raise KeyboardInterrupt

    first.before_call = interrupt
    with pytest.raises(KeyboardInterrupt):
        chain.store_stream(MESSAGE, [b"body"], ["q"])
    assert [call[0] for call in first.calls] == ["begin"]
    chain.begin()
    assert [call[0] for call in first.calls] == ["begin", "rollback", "begin"]
