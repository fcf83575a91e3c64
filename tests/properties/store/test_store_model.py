"""The whole store against plain dictionaries: any operations in any order, activations among them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from journal.errors import MessageMissingError
from journal.store.model import Message, Origin, QueueConfig
from journal.store.settings import StoreSettings
from journal.v1.store_pb2 import MESSAGE
from tests.properties.store.plain_store import PlainStore, Refusal, Transaction
from tests.support.stores import StoreNode, kinds_in_journal

GRACE_MS = 1000
QUEUES = {"q": ("a", True), "r": ("a", True), "t": ("a", False), "m": ("b", True)}
INLINE = 64
SELDOM = 16
"""Every so often a pick is of nothing."""
OWN = "own"
IN_MEMORY = Path("/dev/shm")
"""Thousands of groups are synced, and no disk fails here."""

picks = st.integers(0, 10**6)
queue_names = st.sampled_from(["q", "r", "t", "m"])
holders = st.sampled_from(["h", "i"])
inside = st.booleans()


class StoreMachine(RuleBasedStateMachine):
    """Picks are taken modulo what there is to pick from; now and then something is picked that there is not."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="store-model-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None))
        self.node = StoreNode(
            self.directory / "node",
            StoreSettings(
                inline_bytes_max=INLINE,
                chunk_bytes=INLINE,
                acquire_grace_ms=GRACE_MS,
                volatile_bytes_max=300,
                swap_directory=self.directory / "swap",
                swap_file_bytes_max=300,
            ),
        )
        self.plain = PlainStore({}, GRACE_MS)
        self.sent = 0

    @initialize()
    def declare(self) -> None:
        for address in ("a", "b"):
            self.node.store.create_address(address, 1000)
        for name, (address, durable) in QUEUES.items():
            self.node.store.create_queue(QueueConfig(name, address, durable=durable)).wait()
        self.plain = PlainStore(QUEUES, GRACE_MS)
        for to in ("q", "qr", "qrt", "q", "m", ""):
            self.send(to=to, size=10, priority=4, durable=True, due=0, duplicate=b"", transacted=False, pick=1)
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

    def both(self, plain: Callable[[], Any], store: Callable[[], Any]) -> Any:
        """Do it in both: the same refusal, or the store's result once it is durable."""
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

    @rule(
        to=st.sampled_from(["q", "q", "qr", "r", "qt", "t", "qrt", "", "m", "mq"]),
        size=st.sampled_from([0, 10, INLINE, INLINE + 1, 200]),
        priority=st.sampled_from([3, 4, 4, 5]),
        durable=st.sampled_from([True, True, False]),
        due=st.sampled_from([0, 0, 0, 500, 5000]),
        duplicate=st.sampled_from([b"", b"", b"", b"x", b"y", b"z"]),
        transacted=inside,
        pick=picks,
    )
    def send(
        self,
        to: str,
        size: int,
        priority: int,
        durable: bool,
        due: int,
        duplicate: bytes,
        transacted: bool,
        pick: int,
    ) -> None:
        self.sent += 1
        address, targets = "b" if "m" in to else "a", tuple(to)
        message = Message(
            address,
            (b"%06d" % self.sent * 40)[:size],
            priority=priority,
            due=due and self.node.clock() + due,
            durable=durable,
            duplicate_id=duplicate and duplicate + address.encode(),
        )
        tx = self.tx(pick, transacted)
        pending = self.both(
            lambda: self.plain.check_send(message, targets, tx), lambda: self.node.store.send(message, targets, tx)
        )
        if pending is not None:
            self.plain.send(pending.id, message, targets, tx)

    @rule(pick=picks, queue=queue_names, due=st.sampled_from([0, 0, 700]), transacted=inside)
    def route(self, pick: int, queue: str, due: int, transacted: bool) -> None:
        message, tx = self.message(pick), self.tx(pick, transacted)
        due = due and self.node.clock() + due
        self.both(
            lambda: self.plain.route(message, queue, due, tx), lambda: self.node.store.route(message, queue, due, tx)
        )

    @rule(queue=queue_names, holder=holders)
    def take(self, queue: str, holder: str) -> None:
        expected: list[Any] = []
        now_ms = self.node.clock()
        found = self.both(
            lambda: expected.append(self.plain.take(queue, holder, now_ms)),
            lambda: self.node.store.take(queue, holder),
        )
        if expected:
            assert found == expected[0]

    @rule(pick=picks, queue=queue_names, holder=holders, transacted=inside, tx_pick=picks)
    def acquire(self, pick: int, queue: str, holder: str, transacted: bool, tx_pick: int) -> None:
        message, queue = self.reference(pick, queue)
        tx = self.tx(tx_pick, transacted)
        self.both(
            lambda: self.plain.acquire(message, queue, holder, self.node.clock(), tx),
            lambda: self.node.store.acquire(message, queue, holder, tx),
        )

    @rule(
        pick=picks,
        queue=queue_names,
        holder=st.sampled_from(["", "h", "i", OWN, OWN, OWN]),
        transacted=inside,
        tx_pick=picks,
    )
    def release(self, pick: int, queue: str, holder: str, transacted: bool, tx_pick: int) -> None:
        message, queue = key = self.reference(pick, queue)
        holder, tx = self.holder(key, holder), self.tx(tx_pick, transacted)
        self.both(
            lambda: self.plain.release(message, queue, holder, tx),
            lambda: self.node.store.release(message, queue, holder, tx),
        )

    @rule(
        pick=picks,
        queue=queue_names,
        holder=st.sampled_from(["", "h", "i", OWN, OWN, OWN]),
        transacted=inside,
        tx_pick=picks,
    )
    def acknowledge(self, pick: int, queue: str, holder: str, transacted: bool, tx_pick: int) -> None:
        message, queue = key = self.reference(pick, queue)
        holder, tx = self.holder(key, holder), self.tx(tx_pick, transacted)
        self.both(
            lambda: self.plain.acknowledge(message, queue, holder, tx),
            lambda: self.node.store.acknowledge(message, queue, holder, tx),
        )

    @rule(pick=picks, queue=queue_names, count=st.integers(0, 9), transacted=inside, tx_pick=picks)
    def deliveries(self, pick: int, queue: str, count: int, transacted: bool, tx_pick: int) -> None:
        message, queue = self.reference(pick, queue)
        tx = self.tx(tx_pick, transacted)
        self.both(
            lambda: self.plain.deliveries(message, queue, count, tx),
            lambda: self.node.store.deliveries(message, queue, count, tx),
        )

    @rule(pick=picks, queue=queue_names, due=st.sampled_from([0, 300, 3000]), transacted=inside, tx_pick=picks)
    def schedule(self, pick: int, queue: str, due: int, transacted: bool, tx_pick: int) -> None:
        message, queue = self.reference(pick, queue)
        due, tx = due and self.node.clock() + due, self.tx(tx_pick, transacted)
        self.both(
            lambda: self.plain.schedule(message, queue, due, tx),
            lambda: self.node.store.schedule(message, queue, due, tx),
        )

    @rule(pick=picks, queue=queue_names)
    @precondition(lambda self: "m" in self.plain.queues)
    def move(self, pick: int, queue: str) -> None:
        message, queue = self.reference(pick, queue)
        pending = self.both(
            lambda: self.plain.check_move(message, queue),
            lambda: self.node.store.move(message, queue, "b", ["m"], "moved"),
        )
        if pending is not None:
            old = self.plain.messages[message]
            origin = Origin(message, old.address, queue, "moved")
            copy = replace(old, address="b", due=0, duplicate_id=b"", origin=origin)
            self.plain.move(message, queue, pending.id, copy, ("m",))

    @rule(holder=holders)
    def release_holder(self, holder: str) -> None:
        self.both(lambda: self.plain.release_holder(holder), lambda: self.node.store.release_holder(holder))

    @rule(holder=holders)
    def reattach(self, holder: str) -> None:
        assert set(self.node.store.reattach(holder)) == self.plain.reattach(holder, self.node.clock())

    # ---- transactions, queues, time, activations -------------------------------------------------------------------

    def begin(self) -> None:
        self.plain.transactions[self.node.store.begin()] = Transaction()

    @rule(pick=picks)
    def prepare(self, pick: int) -> None:
        tx = self.tx(pick, True)
        self.both(lambda: self.plain.prepare(tx), lambda: self.node.store.prepare(tx, b"%d" % tx))

    @rule(pick=picks)
    def commit(self, pick: int) -> None:
        tx = self.tx(pick, True)
        self.both(lambda: self.plain.commit(tx), lambda: self.node.store.commit(tx))

    @rule(pick=picks)
    def rollback(self, pick: int) -> None:
        tx = self.tx(pick, True)
        self.both(lambda: self.plain.rollback(tx), lambda: self.node.store.rollback(tx))

    @rule(queue=queue_names, transacted=inside, pick=picks)
    def destroy_or_create_queue(self, queue: str, transacted: bool, pick: int) -> None:
        address, durable = QUEUES[queue]
        tx = self.tx(pick, transacted)
        if queue in self.plain.queues:
            self.both(lambda: self.plain.destroy_queue(queue, tx), lambda: self.node.store.destroy_queue(queue, tx))
        else:
            self.both(
                lambda: self.plain.create_queue(queue, QUEUES[queue], tx),
                lambda: self.node.store.create_queue(QueueConfig(queue, address, durable=durable), tx),
            )

    @rule(queue=queue_names, transacted=inside, pick=picks)
    def bind(self, queue: str, transacted: bool, pick: int) -> None:
        tx = self.tx(pick, transacted)
        pending = self.both(lambda: self.plain.check_bind(queue, tx), lambda: self.node.store.bind(queue, tx=tx))
        if pending is not None:
            self.plain.bind(pending.id, queue, tx)

    @rule(pick=picks, transacted=inside, tx_pick=picks)
    @precondition(lambda self: self.plain.bindings)
    def unbind(self, pick: int, transacted: bool, tx_pick: int) -> None:
        known, tx = sorted(self.plain.bindings), self.tx(tx_pick, transacted)
        binding = known[pick % len(known)] if pick % SELDOM else 1 << 50
        self.both(lambda: self.plain.unbind(binding, tx), lambda: self.node.store.unbind(binding, tx))

    @rule(transacted=inside, pick=picks)
    def destroy_or_create_address(self, transacted: bool, pick: int) -> None:
        """One without queues."""
        tx = self.tx(pick, transacted)
        if self.plain.address:
            self.both(lambda: self.plain.destroy_address(tx), lambda: self.node.store.destroy_address("c", tx))
        else:
            self.both(lambda: self.plain.create_address(tx), lambda: self.node.store.create_address("c", 5, tx))

    @rule(passed_ms=st.sampled_from([100, 400, GRACE_MS]))
    def pass_time(self, passed_ms: int) -> None:
        self.node.clock.now_ms += passed_ms
        self.plain.let_go_of_absent(self.node.clock())
        self.plain.find_due(self.node.clock())
        self.node.store.tick()

    @rule()
    def restart(self) -> None:
        self.node.restart()
        assert self.node.store.orphaned_messages == self.plain.activate(self.node.clock())

    @rule()
    def crash(self) -> None:
        self.node.store.flush().wait()  # what a load found and deletes
        self.node.crash()
        assert self.node.store.orphaned_messages == self.plain.activate(self.node.clock())

    # ---- what must hold --------------------------------------------------------------------------------------------

    @invariant()
    def everything_is_the_same(self) -> None:
        self.queues_are_the_same()
        self.messages_are_the_same()
        self.transactions_are_the_same()
        self.nothing_volatile_is_left_over()

    def queues_are_the_same(self) -> None:
        store, plain = self.node.store, self.plain
        assert {info.config.name for info in store.queues()} == set(plain.queues)
        assert {entry.name for entry in store.addresses()} == {"a", "b", *(["c"] if plain.address else [])}
        for queue in plain.queues:
            found = [(info.message, info.state.value, info.deliveries, info.holder) for info in store.browse(queue)]
            assert found == plain.browse(queue)
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


TestStoreModel = StoreMachine.TestCase
TestStoreModel.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
