"""The whole store against plain dictionaries: any operations in any order, activations among them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from journal.errors import JournalError, MessageMissingError, QueueMissingError
from journal.store.address_settings import AddressSettings
from journal.store.model import Held, Message, Origin
from journal.store.operations.cursor import StoreCursor
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from journal.v1.store_pb2 import MESSAGE
from tests.properties.store.plain_store import PlainStore, Refusal, Transaction
from tests.properties.store.store_operations import (
    ARGUMENTS,
    DISPOSING,
    GRACE_MS,
    INLINE,
    JOURNALED,
    LIMITS,
    OWN,
    QUEUES,
    config_of,
    operations,
)
from tests.support.references import MemoryIndex
from tests.support.stores import StoreNode, kinds_in_journal

SELDOM = 16
"""Every so often a pick is of nothing."""
WINDOW = 2
"""Duplicate-detection ids of an address that are remembered: fewer than are drawn."""
IN_MEMORY = Path("/dev/shm")
"""Thousands of groups are synced, and no disk fails here."""


def is_wanted(message: Message) -> bool:
    """What cursors select."""
    return message.priority != 4


class StoreMachine(RuleBasedStateMachine):
    """Picks are taken modulo what there is to pick from; now and then something is picked that there is not."""

    in_memory = (10**6, 10**6)

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="store-model-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None))
        self.node = StoreNode(
            self.directory / "node",
            StoreSettings(
                inline_bytes_max=INLINE,
                chunk_bytes=INLINE,
                acquire_grace_ms=GRACE_MS,
                address_settings={"#": AddressSettings(drop_dead_letters=True)},
                volatile_bytes_max=300,
                swap_directory=self.directory / "swap",
                swap_file_bytes_max=300,
            ),
            in_memory=self.in_memory,
            index=MemoryIndex,
        )
        self.plain = PlainStore({}, GRACE_MS, WINDOW)
        self.sent = 0
        self.cursors: dict[str, tuple[MessageStore, StoreCursor]] = {}
        self.in_flight = False
        """Whether nothing gets durable any more, until the crash."""
        self.looks = True
        """Whether the store is looked at behind the next step: who does may learn of time that has passed."""

    @initialize()
    def declare(self) -> None:
        for address in ("a", "b"):
            self.node.store.create_address(address, WINDOW)
        for name in QUEUES:
            self.node.store.create_queue(config_of(name)).wait()
        self.plain = PlainStore(QUEUES, GRACE_MS, WINDOW, JOURNALED, LIMITS)
        for to in ("q", "qr", "qrt", "q", "m", ""):
            self.send(
                to=to, size=10, priority=4, durable=True, due=0, expires=0, duplicate=b"", transacted=False, pick=1
            )
        self.take(queue="q", holder="h")
        self.take(queue="r", holder="i")

    def teardown(self) -> None:
        durable = {each for each, message in self.plain.messages.items() if message.durable}
        try:
            assert kinds_in_journal(self.node)[MESSAGE] == len(durable - self.plain.stored_in.keys())
        finally:
            self.node.close()
            shutil.rmtree(self.directory)

    # ---- picking ---------------------------------------------------------------------------------------------------

    def message(self, pick: int) -> int:
        known = sorted(self.plain.messages)
        return known[pick % len(known)] if known and pick % SELDOM else 1 << 50

    def reference(self, pick: int, queue: str) -> tuple[int, str]:
        known = sorted(self.plain.references)
        return known[pick % len(known)] if known and pick % SELDOM else (self.message(pick + 1), queue)

    def holder(self, key: tuple[int, str], holder: str) -> str:
        """A holder, or the one that has it."""
        if holder == OWN:
            return self.plain.references[key].holder if key in self.plain.references else ""
        return holder

    def tx(self, pick: int, wanted: bool) -> int:
        if not wanted:
            return 0
        if not self.plain.transactions or (len(self.plain.transactions) < 4 and not pick % 4):
            self.begin()
        known = sorted(self.plain.transactions)
        return known[pick % len(known)] if pick % SELDOM else 99

    def pick_of(self, tx: int) -> int:
        """What `tx` picks this one by."""
        known = sorted(self.plain.transactions)
        picks = count(known.index(tx), len(known))
        return next(pick for pick in picks if pick % SELDOM and (pick % 4 or len(known) >= 4))

    def both(
        self, plain: Callable[[], Any], store: Callable[[], Any], *, durable: bool = False, lets_go: bool = True
    ) -> Any:
        """Do it in both: the same refusal, or the store's result once it is durable.

        In flight the store may refuse more: what is not durable yet is not there, or not settled; and nothing that is
        to be `durable` is told complete. `lets_go`: whose time is over loses what it holds over first.
        """
        if lets_go:
            self.plain.let_go_of_absent(self.node.clock())
        if self.in_flight:
            try:
                result = store()
            except JournalError:
                return None
            assert not (durable and result.done)
            plain()
            return result
        try:
            plain()
        except Refusal as refusal:
            with pytest.raises(refusal.error):
                store()
            return None
        result = store()
        self.node.store.flush().wait()
        return result

    # ---- operations ------------------------------------------------------------------------------------------------

    @rule(**ARGUMENTS["send"])
    def send(
        self,
        to: str,
        size: int,
        priority: int,
        durable: bool,
        due: int,
        expires: int,
        duplicate: bytes,
        transacted: bool,
        pick: int,
    ) -> None:
        targets = tuple(to)
        message = self.message_of("b" if "m" in to else "a", size, priority, durable, due, expires, duplicate)
        tx = self.tx(pick, transacted)
        pending = self.both(
            lambda: self.plain.check_send([message], targets, tx, in_flight=self.in_flight),
            lambda: self.node.store.send(message, targets, tx),
            durable=durable,
        )
        if pending is not None:
            self.plain.send(pending.id, message, targets, tx)

    def message_of(
        self, address: str, size: int, priority: int, durable: bool, due: int, expires: int, duplicate: bytes
    ) -> Message:
        self.sent += 1
        return Message(
            address,
            (b"%06d" % self.sent * 40)[:size],
            priority=priority,
            due=due and self.node.clock() + due,
            expires=expires and self.node.clock() + expires,
            durable=durable,
            duplicate_id=duplicate and duplicate + address.encode(),
        )

    @rule(**ARGUMENTS["send_all"])
    def send_all(self, to: str, kinds: list[dict[str, Any]], transacted: bool, pick: int) -> None:
        messages, targets = [self.message_of("b" if "m" in to else "a", **kind) for kind in kinds], tuple(to)
        tx = self.tx(pick, transacted)
        pending = self.both(
            lambda: self.plain.check_send(messages, targets, tx, in_flight=self.in_flight),
            lambda: self.node.store.send_all(messages, targets, tx),
            durable=any(message.durable for message in messages),
        )
        if pending is not None:
            self.plain.send_all(pending.ids, messages, targets, tx)

    @rule(**ARGUMENTS["route"])
    def route(self, pick: int, queue: str, due: int, transacted: bool) -> None:
        message, tx = self.message(pick), self.tx(pick, transacted)
        due = due and self.node.clock() + due
        self.both(
            lambda: self.plain.route(message, queue, due, tx), lambda: self.node.store.route(message, queue, due, tx)
        )

    @rule(**ARGUMENTS["take"])
    def take(self, queue: str, holder: str) -> None:
        now_ms = self.node.clock()
        if self.in_flight:
            delivery = self.both(lambda: None, lambda: self.node.store.take(queue, holder))
            if delivery is not None:
                self.plain.acquire(delivery.message, queue, holder, now_ms, 0)
            return
        expected: list[Any] = []
        found = self.both(
            lambda: expected.append(self.plain.take(queue, holder, now_ms)),
            lambda: self.node.store.take(queue, holder),
        )
        if expected:
            assert (found and found[:3]) == expected[0]

    @rule(**ARGUMENTS["take_by_cursor"])
    def take_by_cursor(self, queue: str, holder: str) -> None:
        """One cursor for each queue, as long as the activation and the queue last. It may have to read bodies, and in
        flight it would wait for these."""
        if self.in_flight:
            return
        now_ms = self.node.clock()
        expected: list[Any] = []
        found = self.both(
            lambda: expected.append(self.plain.take(queue, holder, now_ms, is_wanted)),
            lambda: self.taken_by_cursor(queue, holder),
        )
        if expected:
            assert (found and found[:3]) == expected[0]

    def taken_by_cursor(self, queue: str, holder: str) -> Any:
        self.node.store.queue(queue)
        kept = self.cursors.get(queue)
        if kept is None or kept[0] is not self.node.store:
            kept = self.cursors[queue] = (self.node.store, self.node.store.cursor(queue, is_wanted))
        cursor = kept[1]
        try:
            while not (taken := cursor.take_all(holder, 1)) and cursor.more:
                if cursor.unread:
                    cursor.read().wait()
        except QueueMissingError:  # it is the cursor of a queue that was destroyed
            del self.cursors[queue]
            return self.taken_by_cursor(queue, holder)
        return taken[0] if taken else None

    @rule(**ARGUMENTS["acquire"])
    def acquire(self, pick: int, queue: str, holder: str, transacted: bool, tx_pick: int) -> None:
        message, queue = self.reference(pick, queue)
        tx = self.tx(tx_pick, transacted)
        self.both(
            lambda: self.plain.acquire(message, queue, holder, self.node.clock(), tx),
            lambda: self.node.store.acquire(message, queue, holder, tx),
        )

    @rule(**ARGUMENTS["release"])
    def release(self, pick: int, queue: str, holder: str, transacted: bool, tx_pick: int, counts: bool = True) -> None:
        message, queue = key = self.reference(pick, queue)
        holder, tx = self.holder(key, holder), self.tx(tx_pick, transacted)
        self.both(
            lambda: self.plain.release_all([message], queue, holder, tx, counts=counts),
            lambda: self.node.store.release(message, queue, holder, tx, counts=counts),
            lets_go=False,
        )

    @rule(**ARGUMENTS["acknowledge"])
    def acknowledge(self, pick: int, queue: str, holder: str, transacted: bool, tx_pick: int) -> None:
        message, queue = key = self.reference(pick, queue)
        holder, tx = self.holder(key, holder), self.tx(tx_pick, transacted)
        self.both(
            lambda: self.plain.acknowledge(message, queue, holder, tx),
            lambda: self.node.store.acknowledge(message, queue, holder, tx),
            durable=key in self.plain.references and self.plain.references[key].durable,
        )

    @rule(**ARGUMENTS["acknowledge_all"])
    def acknowledge_all(self, picks: list[int], queue: str, holder: str, transacted: bool, tx_pick: int) -> None:
        messages, keys = self.messages_of(picks, queue)
        holder, tx = self.holder(keys[0], holder), self.tx(tx_pick, transacted)
        self.both(
            lambda: self.plain.acknowledge_all(messages, queue, holder, tx),
            lambda: self.node.store.acknowledge_all([Held(queue, messages, holder)], tx),
            durable=any(key in self.plain.references and self.plain.references[key].durable for key in keys),
        )

    @rule(**ARGUMENTS["release_all"])
    def release_all(
        self, picks: list[int], queue: str, holder: str, transacted: bool, tx_pick: int, counts: bool
    ) -> None:
        messages, keys = self.messages_of(picks, queue, held=True)
        holder, tx = self.holder(keys[0], holder), self.tx(tx_pick, transacted)
        self.both(
            lambda: self.plain.release_all(messages, queue, holder, tx, counts=counts),
            lambda: self.node.store.release_all([Held(queue, messages, holder)], tx, counts=counts),
            lets_go=False,
        )

    def messages_of(
        self, picks: list[int], queue: str, *, held: bool = False
    ) -> tuple[list[int], list[tuple[int, str]]]:
        """Picks of one queue, mostly of what is `held` there: among all messages few picks would meet one twice, or one
        in another queue."""
        references = self.plain.references.items()
        there = sorted(key[0] for key, each in references if key[1] == queue and (each.holder or not held))
        messages = [there[pick % len(there)] if there and pick % SELDOM else self.message(pick) for pick in picks]
        if picks[0] % 4:
            messages = list(dict.fromkeys(messages))
        return messages, [(message, queue) for message in messages]

    @rule(**ARGUMENTS["hand_on"])
    def hand_on(self, pick: int, queue: str, to: str, moves: bool, tx_pick: int) -> None:
        """Given back, acquired by another or nobody, and settled, in one transaction."""
        tx = self.tx(tx_pick, True)
        if tx not in self.plain.transactions:
            return
        same: dict[str, Any] = {"pick": pick, "queue": queue, "transacted": True, "tx_pick": self.pick_of(tx)}
        self.release(holder=OWN, **same)
        if to:
            self.acquire(holder=to, **same)
        if moves and "m" in self.plain.queues:
            self.move(**same)
        else:
            self.acknowledge(holder=to, **same)

    @rule(**ARGUMENTS["deliveries"])
    def deliveries(self, pick: int, queue: str, count: int, transacted: bool, tx_pick: int) -> None:
        message, queue = self.reference(pick, queue)
        tx = self.tx(tx_pick, transacted)
        self.both(
            lambda: self.plain.deliveries(message, queue, count, tx),
            lambda: self.node.store.deliveries(message, queue, count, tx),
        )

    @rule(**ARGUMENTS["schedule"])
    def schedule(self, pick: int, queue: str, due: int, transacted: bool, tx_pick: int) -> None:
        message, queue = self.reference(pick, queue)
        due, tx = due and self.node.clock() + due, self.tx(tx_pick, transacted)
        self.both(
            lambda: self.plain.schedule(message, queue, due, tx),
            lambda: self.node.store.schedule(message, queue, due, tx),
        )

    @rule(**ARGUMENTS["move"])
    @precondition(lambda self: "m" in self.plain.queues)
    def move(self, pick: int, queue: str, transacted: bool, tx_pick: int) -> None:
        message, queue = self.reference(pick, queue)
        tx = self.tx(tx_pick, transacted)
        pending = self.both(
            lambda: self.plain.check_move(message, queue, ("m",), tx),
            lambda: self.node.store.move(message, queue, "b", ["m"], "moved", tx=tx),
        )
        if pending is not None:
            self.copied(message, queue, pending.id, "moved", tx)

    @rule(**ARGUMENTS["dispose"])
    def dispose(self, pick: int, queue: str, expires: bool, transacted: bool, tx_pick: int) -> None:
        message, queue = self.reference(pick, queue)
        tx = self.tx(tx_pick, transacted)
        queues = tuple(DISPOSING[queue]) if queue in DISPOSING else ()
        if queues and "m" not in self.plain.queues:
            return  # the store would make a queue of another name
        dispose = self.node.store.expire if expires else self.node.store.dead_letter
        pending = self.both(
            lambda: self.plain.check_move(message, queue, queues, tx), lambda: dispose(message, queue, tx=tx)
        )
        if pending is not None and queues:
            self.copied(message, queue, pending.id, "expired" if expires else "dead", tx)
        elif pending is not None:
            assert pending.id == 0
            self.plain.settle_for_its_holder(message, queue, tx)

    @rule(**ARGUMENTS["reject"])
    def reject(self, picks: list[int], queue: str, holder: str, transacted: bool, tx_pick: int) -> None:
        """What must be read first stays."""
        messages, keys = self.messages_of(picks, queue)
        holder, tx = self.holder(keys[0], holder), self.tx(tx_pick, transacted)
        queues = tuple(DISPOSING.get(queue, ""))
        if queues and "m" not in self.plain.queues:
            return  # the store would make a queue of another name
        rejected = self.both(
            lambda: self.plain.check_reject(messages, queue, queues, holder, tx),
            lambda: self.node.store.reject([Held(queue, messages, holder)], "poison", tx),
        )
        if rejected is None:
            return
        left = [each for held in rejected.left for each in held.messages]
        assert sorted([*rejected.ids, *left]) == sorted(messages)
        if queues:
            for message, copy_id in zip(rejected.ids, rejected.copies, strict=True):
                self.copied(message, queue, copy_id, "poison", tx)
        else:
            self.plain.acknowledge_all(rejected.ids, queue, holder, tx)

    def copied(self, message: int, queue: str, copy_id: int, reason: str, tx: int) -> None:
        old = self.plain.messages[message]
        known = old.origin.expires if old.origin is not None else 0
        origin = Origin(message, old.address, queue, reason, old.expires or known)
        expires = old.expires if reason == "moved" else 0
        copy = replace(old, address="b", due=0, expires=expires, duplicate_id=b"", origin=origin)
        self.plain.send(copy_id, copy, ("m",), tx)
        self.plain.settle_for_its_holder(message, queue, tx)

    @rule()
    def tell_expired(self) -> None:
        self.plain.let_go_of_absent(self.node.clock())
        assert set(self.node.store.expired(agreed=False)) == self.plain.expired(self.node.clock())
        assert set(self.node.store.dead()) == self.plain.dead()

    @rule(**ARGUMENTS["release_holder"])
    def release_holder(self, holder: str, counts: bool) -> None:
        self.both(
            lambda: self.plain.release_holder(holder, counts=counts),
            lambda: self.node.store.release_holder(holder, counts=counts),
        )

    @rule(**ARGUMENTS["reattach"])
    def reattach(self, holder: str) -> None:
        found, expected = self.node.store.reattach(holder), self.plain.reattach(holder, self.node.clock())
        assert set(found) == expected or self.in_flight

    # ---- transactions, queues, time, activations -------------------------------------------------------------------

    def begin(self) -> None:
        self.plain.let_go_of_absent(self.node.clock())
        self.plain.transactions[self.node.store.begin()] = Transaction()

    @rule(**ARGUMENTS["prepare"])
    def prepare(self, pick: int) -> None:
        tx = self.tx(pick, True)
        self.both(lambda: self.plain.prepare(tx), lambda: self.node.store.prepare(tx, b"%d" % tx))

    @rule(**ARGUMENTS["commit"])
    def commit(self, pick: int) -> None:
        tx = self.tx(pick, True)
        self.both(lambda: self.plain.commit(tx), lambda: self.node.store.commit(tx))

    @rule(**ARGUMENTS["rollback"])
    def rollback(self, pick: int, releases: bool) -> None:
        tx = self.tx(pick, True)
        self.both(
            lambda: self.plain.rollback(tx, release=releases), lambda: self.node.store.rollback(tx, release=releases)
        )

    @rule(**ARGUMENTS["destroy_or_create_queue"])
    def destroy_or_create_queue(self, queue: str, transacted: bool, pick: int) -> None:
        tx = self.tx(pick, transacted)
        if queue in self.plain.queues:
            self.both(lambda: self.plain.destroy_queue(queue, tx), lambda: self.node.store.destroy_queue(queue, tx))
        else:
            self.both(
                lambda: self.plain.create_queue(queue, QUEUES[queue], tx),
                lambda: self.node.store.create_queue(config_of(queue), tx),
            )

    @rule(**ARGUMENTS["change_queue"])
    def change_queue(self, queue: str, filter: str) -> None:
        config = replace(config_of(queue), filter=filter, paused=self.plain.changed[queue][1])
        self.both(lambda: self.plain.change_queue(queue, filter, None), lambda: self.node.store.change_queue(config))

    @rule(**ARGUMENTS["pause_or_resume"])
    def pause_or_resume(self, queue: str, paused: bool) -> None:
        do = self.node.store.pause if paused else self.node.store.resume
        self.both(lambda: self.plain.change_queue(queue, None, paused), lambda: do(queue))

    @rule(**ARGUMENTS["purge"])
    def purge(self, queue: str) -> None:
        expected: list[int] = []
        purging = self.both(lambda: expected.append(self.plain.purge(queue)), lambda: self.node.store.purge(queue))
        if expected and not self.in_flight:
            assert purging.purged == expected[0]

    @rule(**ARGUMENTS["bind"])
    def bind(self, queue: str, transacted: bool, pick: int) -> None:
        tx = self.tx(pick, transacted)
        pending = self.both(lambda: self.plain.check_bind(queue, tx), lambda: self.node.store.bind(queue, tx=tx))
        if pending is not None:
            self.plain.bind(pending.id, queue, tx)

    @rule(**ARGUMENTS["unbind"])
    def unbind(self, pick: int, transacted: bool, tx_pick: int) -> None:
        known, tx = sorted(self.plain.bindings), self.tx(tx_pick, transacted)
        binding = known[pick % len(known)] if known and pick % SELDOM else 1 << 50
        self.both(lambda: self.plain.unbind(binding, tx), lambda: self.node.store.unbind(binding, tx))

    @rule(**ARGUMENTS["destroy_or_create_address"])
    def destroy_or_create_address(self, transacted: bool, pick: int) -> None:
        """One without queues."""
        tx = self.tx(pick, transacted)
        if self.plain.address:
            self.both(lambda: self.plain.destroy_address(tx), lambda: self.node.store.destroy_address("c", tx))
        else:
            self.both(lambda: self.plain.create_address(tx), lambda: self.node.store.create_address("c", 5, tx))

    @rule(**ARGUMENTS["pass_time"])
    def pass_time(self, passed_ms: int, ticks: bool) -> None:
        self.node.clock.now_ms += passed_ms
        self.looks = ticks
        if ticks:
            self.plain.let_go_of_absent(self.node.clock())
            self.plain.find_due(self.node.clock())
            self.node.store.tick()

    @rule()
    def restart(self) -> None:
        self.node.restart()
        assert self.node.store.orphaned_messages == self.plain.activate(self.node.clock())

    @rule(lost=st.lists(operations, max_size=8))
    def crash(self, lost: list[tuple[str, dict[str, Any]]]) -> None:
        """While operations are in flight, of which nothing gets durable; what was before them is."""
        self.node.store.flush().wait()  # what a load found and deletes
        durable = deepcopy(self.plain)
        with self.node.blocked_writer():
            self.in_flight = True
            for name, arguments in lost:
                getattr(self, name)(**arguments)
            self.node.crash()
            self.in_flight, self.looks = False, True
        self.plain = durable
        assert self.node.store.orphaned_messages == self.plain.activate(self.node.clock())

    # ---- what must hold --------------------------------------------------------------------------------------------

    @invariant()
    def everything_is_the_same(self) -> None:
        if not self.looks:
            self.looks = True
            return
        self.plain.let_go_of_absent(self.node.clock())
        self.queues_are_the_same()
        self.messages_are_the_same()
        self.transactions_are_the_same()
        self.nothing_volatile_is_left_over()

    def queues_are_the_same(self) -> None:
        store, plain = self.node.store, self.plain
        found = {info.config.name: (info.config.filter, info.config.paused) for info in store.queues()}
        assert found == {queue: plain.changed[queue] for queue in plain.queues}
        assert {entry.name for entry in store.addresses()} == {"a", "b", *(["c"] if plain.address else [])}
        for queue in plain.queues:
            rows = [(info.message, info.state.value, info.deliveries, info.holder) for info in store.browse(queue)]
            assert rows == plain.browse(queue)
            bindings = {binding.record_id for binding in store.bindings(queue)}
            assert bindings == {each for each, name in plain.bindings.items() if name == queue}

    def messages_are_the_same(self) -> None:
        store, plain = self.node.store, self.plain
        for message_id, message in plain.messages.items():
            if message_id in plain.stored_in and message.durable and len(message.body) > INLINE:
                with pytest.raises(MessageMissingError):
                    store.message(message_id)
            else:
                assert store.message(message_id) == message
        with pytest.raises(MessageMissingError):
            store.message(1 << 50)

    def transactions_are_the_same(self) -> None:
        found = {info.tx: info for info in self.node.store.transactions()}
        assert set(found) == set(self.plain.transactions)
        for tx, txn in self.plain.transactions.items():
            assert found[tx].prepared is txn.prepared
            assert set(found[tx].messages) == set(txn.stored)
            assert set(found[tx].references) == {key for key, _, _ in txn.routed}
            taken = {key for key, _ in txn.taken}
            assert set(found[tx].acknowledgements) == taken
            assert set(found[tx].changes) == txn.changed.keys() - taken
            assert len(found[tx].declarations) == txn.declarations

    def nothing_volatile_is_left_over(self) -> None:
        in_memory, swapped = self.node.store.volatile_bytes
        if all(message.durable for message in self.plain.messages.values()):
            assert (in_memory, swapped) == (0, 0)


class PagedStoreMachine(StoreMachine):
    """The same where memory has room for few references: most wait in the index."""

    in_memory = (8, 2)


TestStoreModel = StoreMachine.TestCase
TestPagedStoreModel = PagedStoreMachine.TestCase
TestStoreModel.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestPagedStoreModel.settings = settings(TestStoreModel.settings, max_examples=20)
