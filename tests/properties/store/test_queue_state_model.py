"""QueueState equals a plain model after any operations, with and without paging, and again after a load."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from journal.errors import MessageExpiredError, MessageHeldError, MessageMissingError, QueueInDoubtError, StoreError
from journal.store.model import QueueConfig
from journal.store.queues.references import FREE
from journal.store.queues.runs import Run
from journal.store.queues.state import QueueState
from tests.support.queue_loads import load_of
from tests.support.queue_model import (
    ARRIVING,
    HELD,
    LOCKED,
    READY,
    SCHEDULED,
    SETTLING,
    WAITING,
    ModelMessage,
    ModelReference,
    QueueModel,
)
from tests.support.references import MemoryIndex

ADDRESS = 1 << 10
QUEUES = [number << 10 for number in (2, 3, 4)]
HOLDERS = st.sampled_from(["", "one", "two"])
ANY = st.integers(min_value=0, max_value=1000)
TX = 77
BOUNDS = {"in memory": (10**6, 10**6), "a queue's bound": (10**6, 3), "the node's bound": (8, 6), "tiny": (2, 1)}


class QueueStateMachine(RuleBasedStateMachine):
    """Rules pick what they touch by number: the n-th reference in some state, if there is one."""

    bounds = BOUNDS["in memory"]

    def __init__(self) -> None:
        super().__init__()
        self.model = QueueModel()
        self.state = self.new_state()
        self.now = 1000
        self.next_id = 100
        self.parked: set[tuple[int, int]] = set()
        self.coming: list[tuple[int, Run, list[ModelReference]]] = []
        """Runs that are on their way."""
        self.settling: list[tuple[int, Run, list[ModelReference]]] = []
        """Those that were acknowledged."""
        self.state.add_address(ADDRESS, "address")

    def new_state(self) -> QueueState:
        index = None if self.bounds == BOUNDS["in memory"] else MemoryIndex()
        node, queue = self.bounds
        return QueueState(references_in_memory_max=node, queue_references_in_memory_max=queue, index=index)

    def pick(self, n: int, *states: object) -> ModelReference | None:
        found = [each for each in self.model.references() if each.state in states]
        return found[n % len(found)] if found else None

    @initialize()
    def two_queues(self) -> None:
        self.add_queue(0)
        self.add_queue(1)

    # ---- queues ----------------------------------------------------------------------------------------------------

    @rule(n=st.integers(0, 2))
    def add_queue(self, n: int) -> None:
        queue = QUEUES[n]
        if queue not in self.model.queues:
            self.state.add_queue(queue, QueueConfig(name=f"queue-{n}", address="address"))
            self.model.queues[queue] = f"queue-{n}"

    @rule(n=ANY)
    def remove_queue(self, n: int) -> None:
        if n % 5 or not self.model.queues:
            return
        queue = list(self.model.queues)[n % len(self.model.queues)]
        name = self.model.queues[queue]
        if any(each.queue == queue and each.tx for each in self.model.references()):
            with pytest.raises(QueueInDoubtError):
                self.state.remove_queue(name)
            return
        left = self.model.remove_queue(queue)
        assert sorted(chain.from_iterable(self.state.remove_queue(name))) == sorted(left)
        self.parked = {each for each in self.parked if each[1] != queue}
        for message in left:
            assert self.state.message(message).references == 0
            self.state.forget(message)
            if not self.model.messages[message].references:
                del self.model.messages[message]

    # ---- coming ----------------------------------------------------------------------------------------------------

    @rule(
        priority=st.sampled_from([4, 4, 4, 0, 9]),
        expires=st.sampled_from([0, 0, 0, 5, 20]),
        queues=st.lists(st.integers(0, 2), unique=True),
        due=st.sampled_from([0, 0, 0, 3, 10]),
        arrives=st.booleans(),
        count=st.sampled_from([1, 1, 3, 8]),
    )
    def send(self, priority: int, expires: int, queues: list[int], due: int, arrives: bool, count: int) -> None:
        for _ in range(count):
            self.send_one(priority, expires, queues, due, arrives)

    def send_one(self, priority: int, expires: int, queues: list[int], due: int, arrives: bool) -> None:
        self.next_id += 1
        message = ModelMessage(
            self.next_id << 10, priority, 5000 + self.next_id, expires and self.now + expires, self.next_id * 7
        )
        self.model.messages[message.id] = message
        self.state.store(
            message.id, ADDRESS, priority=priority, size=message.size, expires=message.expires,
            timestamp=message.timestamp,
        )  # fmt: skip
        for n in queues:
            self.route(self.next_id, n, due, 0)
        if arrives:
            for each in list(message.references.values()):
                self.state.arrive(message.id, each.queue)
                self.model.arrive(each)

    @rule(
        n=st.integers(0, 2),
        count=st.sampled_from([1, 3, 8]),
        priorities=st.sampled_from([[4], [4], [4, 9, 0]]),
        expires=st.sampled_from([[0], [0], [0, 5, 20]]),
        dues=st.sampled_from([[0], [0], [3, 0, 10]]),
        more=st.booleans(),
        arrives=st.booleans(),
    )
    def send_run(
        self, n: int, count: int, priorities: list[int], expires: list[int], dues: list[int], more: bool, arrives: bool
    ) -> None:
        """Messages that are stored and routed to one queue together, and arrive together; one goes elsewhere too."""
        queue = QUEUES[n]
        if queue not in self.model.queues:
            return
        messages, due_of = [], []
        for place in range(count):
            self.next_id += 1
            expiry, due = expires[place % len(expires)], dues[place % len(dues)]
            message = ModelMessage(
                self.next_id << 10,
                priorities[place % len(priorities)],
                5000 + self.next_id,
                expiry and self.now + expiry,
                self.next_id * 7,
            )
            due_of.append(due and self.now + due)
            self.model.messages[message.id] = message
            message.references[queue] = ModelReference(message, queue, due=due_of[-1], tx=0)
            messages.append(message)
        run = self.state.store_routed(
            [message.id for message in messages],
            ADDRESS,
            queue,
            sizes=[each.size for each in messages],
            timestamps=[each.timestamp for each in messages],
            priorities=[each.priority for each in messages],
            expires=[each.expires for each in messages],
            dues=due_of,
        )
        if more:
            self.route(messages[-1].id >> 10, (n + 1) % 3, 0, 0)
        self.coming.append((queue, run, [message.references[queue] for message in messages]))
        if arrives:
            self.arrive_run(-1)

    @precondition(lambda self: self.coming)
    @rule(n=ANY)
    def arrive_run(self, n: int) -> None:
        queue, run, coming = self.coming.pop(n % len(self.coming))
        if queue not in self.model.queues:
            assert not self.state.arrive_run(run, queue)
        elif all(self.is_still(each, ARRIVING) for each in coming):
            assert self.state.arrive_run(run, queue)
            for each in coming:
                self.model.arrive(each)

    @rule(
        n=st.integers(0, 2),
        priority=st.sampled_from([4, 4, 0]),
        expires=st.sampled_from([0, 0, 5]),
        due=st.sampled_from([0, 0, 3]),
        arrives=st.booleans(),
    )
    def send_to_one(self, n: int, priority: int, expires: int, due: int, arrives: bool) -> None:
        """A message that is stored and routed to its queue in one step."""
        queue = QUEUES[n]
        if queue not in self.model.queues:
            return
        self.next_id += 1
        expires, due = expires and self.now + expires, due and self.now + due
        message = ModelMessage(self.next_id << 10, priority, 5000 + self.next_id, expires, self.next_id * 7)
        entry = self.state.queue_of(queue)
        arguments = message.id, ADDRESS, entry, priority, message.size, expires, message.timestamp, due
        self.state.store_and_route(*arguments)
        self.model.messages[message.id] = message
        each = message.references[queue] = ModelReference(message, queue, due=due, tx=0)
        with pytest.raises(StoreError):
            self.state.store_and_route(*arguments)
        if arrives:
            self.state.arrive_each([(message.id, queue)])
            self.model.arrive(each)

    @rule(n=ANY, to=st.integers(0, 2), due=st.sampled_from([0, 0, 5]), tx=st.sampled_from([0, TX]))
    def route_one_more(self, n: int, to: int, due: int, tx: int) -> None:
        if self.model.messages:
            self.route(list(self.model.messages)[n % len(self.model.messages)] >> 10, to, due, tx)

    def route(self, number: int, to: int, due: int, tx: int) -> None:
        message, queue = self.model.messages[number << 10], QUEUES[to]
        if queue not in self.model.queues:
            return
        if message.doomed or queue in message.references:
            with pytest.raises(StoreError):
                self.state.route(message.id, queue, tx=tx)
            return
        due = due and self.now + due
        self.state.route(message.id, queue, due=due, tx=tx)
        message.references[queue] = ModelReference(message, queue, due=due, tx=tx)

    @rule(n=ANY)
    def arrive(self, n: int) -> None:
        if each := self.pick(n, ARRIVING):
            self.state.arrive(each.message.id, each.queue)
            self.model.arrive(each)

    @rule(n=ANY, count=st.integers(1, 8))
    def arrive_each(self, n: int, count: int) -> None:
        found = self.model.references(ARRIVING)
        found = (found[n % len(found) :] if found else [])[:count]
        self.state.arrive_each([(each.message.id, each.queue) for each in found])
        for each in found:
            self.model.arrive(each)

    @rule(n=ANY)
    def withdraw(self, n: int) -> None:
        if each := self.pick(n, ARRIVING):
            none_left = self.state.withdraw(each.message.id, each.queue)
            self.model.drop(each)
            assert none_left == (not each.message.living)

    # ---- going -----------------------------------------------------------------------------------------------------

    @rule(n=ANY, holder=HOLDERS)
    def acknowledge_in_two_steps(self, n: int, holder: str) -> None:
        each = self.pick(n, *WAITING, HELD, LOCKED, SETTLING, ARRIVING)
        if each is None:
            return
        message, queue = each.message.id, each.queue
        if each.state in (SETTLING, ARRIVING):
            with pytest.raises(MessageMissingError):
                self.state.to_acknowledge(message, queue, holder)
        elif each.state is LOCKED or (each.holder and each.holder != holder):
            with pytest.raises(MessageHeldError):
                self.state.to_acknowledge(message, queue, holder)
        else:
            row, durable, references, chunks = self.state.to_acknowledge(message, queue, holder)
            assert (durable, references, chunks) == (True, each.message.living, ())
            last = self.model.acknowledge(each)
            assert self.state.acknowledge_row(self.state.queue_of(queue), row) == last
            self.parked.discard((message, queue))

    @rule(n=ANY, holder=HOLDERS)
    def acknowledge(self, n: int, holder: str) -> None:
        each = self.pick(n, *WAITING, HELD, LOCKED, SETTLING, ARRIVING)
        if each is None:
            return
        message, queue = each.message.id, each.queue
        if each.state in (SETTLING, ARRIVING):
            with pytest.raises(MessageMissingError):
                self.state.acknowledge(message, queue, holder)
        elif each.state is LOCKED:
            with pytest.raises(MessageHeldError):
                self.state.acknowledge(message, queue, each.holder)
            assert self.state.acknowledge(message, queue, tx=each.tx) == self.model.acknowledge(each)
        elif each.holder and each.holder != holder:
            with pytest.raises(MessageHeldError):
                self.state.acknowledge(message, queue, holder)
        else:
            assert self.state.acknowledge(message, queue, holder) == self.model.acknowledge(each)
            self.parked.discard((message, queue))

    @rule(n=ANY, picks=st.lists(ANY, min_size=1, max_size=8), holder=HOLDERS, all_of_them=st.booleans())
    def acknowledge_run(self, n: int, picks: list[int], holder: str, all_of_them: bool) -> None:
        """Some that go together, if each is in memory, the last reference of its message, ready or the holder's."""
        if not self.model.queues:
            return
        queue = list(self.model.queues)[n % len(self.model.queues)]
        there = [each for each in self.model.references() if each.queue == queue]
        if all_of_them:
            there = [each for each in there if self.goes_in_a_run(each, holder)]
        if not there:
            return
        chosen = list({pick % len(there): there[pick % len(there)] for pick in picks}.values())
        run = self.state.to_acknowledge_run([each.message.id for each in chosen], queue, holder)
        if run is None:
            # also for what waits in the index, was passed, or is settling elsewhere
            assert self.bounds != BOUNDS["in memory"] or not all(
                self.goes_in_a_run(each, holder)
                and len(each.message.references) == 1
                and (each.message.id, queue) not in self.parked
                for each in chosen
            )
            return
        assert all(self.goes_in_a_run(each, holder) for each in chosen)
        for each in chosen:
            assert self.model.acknowledge(each)
            self.parked.discard((each.message.id, queue))
        self.state.acknowledge_run(self.state.queue_of(queue), run)
        self.settling.append((queue, run, chosen))

    @staticmethod
    def goes_in_a_run(each: ModelReference, holder: str) -> bool:
        held = each.state is HELD and each.holder == holder
        return (each.state is READY or held) and each.message.living == 1

    @precondition(lambda self: self.settling)
    @rule(n=ANY)
    def settled_run(self, n: int) -> None:
        queue, run, settled = self.settling.pop(n % len(self.settling))
        if queue not in self.model.queues:
            self.state.settled_run(run, queue)
        elif all(self.is_still(each, SETTLING) for each in settled):
            self.state.settled_run(run, queue)
            for each in settled:
                self.model.drop(each)

    def is_still(self, each: ModelReference, state: object) -> bool:
        message = self.model.messages.get(each.message.id)
        return message is not None and message.references.get(each.queue) is each and each.state is state

    @rule(n=ANY)
    def settled(self, n: int) -> None:
        if each := self.pick(n, SETTLING):
            self.state.settled(each.message.id, each.queue)
            self.model.drop(each)

    @rule(n=ANY, count=st.integers(1, 8))
    def settled_each(self, n: int, count: int) -> None:
        found = self.model.references(SETTLING)
        found = (found[n % len(found) :] if found else [])[:count]
        self.state.settled_each([(each.message.id, each.queue) for each in found])
        for each in found:
            self.model.drop(each)

    @rule(n=ANY, holder=HOLDERS)
    def lock(self, n: int, holder: str) -> None:
        each = self.pick(n, *WAITING, HELD, LOCKED)
        if each is None:
            return
        if each.state is LOCKED or (each.holder and each.holder != holder):
            with pytest.raises(MessageHeldError):
                self.state.lock(each.message.id, each.queue, TX, holder)
            return
        self.state.lock(each.message.id, each.queue, TX, holder)
        each.state, each.tx = LOCKED, TX
        self.parked.discard((each.message.id, each.queue))

    @rule(n=ANY)
    def unlock(self, n: int) -> None:
        if each := self.pick(n, LOCKED):
            self.state.unlock(each.message.id, each.queue)
            each.tx = 0
            if each.holder:
                each.state = HELD
            else:
                self.model.come_back(each)

    # ---- holding ---------------------------------------------------------------------------------------------------

    @rule(n=ANY, holder=st.sampled_from(["one", "two"]), by=st.sampled_from([0, 0, 10, 30]))
    def take(self, n: int, holder: str, by: int) -> None:
        """Also while the clock is wrong by so much, and once more when it is right again."""
        if by:
            self.now += by
            self.take_one(n, holder)
            self.now -= by
        self.take_one(n, holder)

    def take_one(self, n: int, holder: str) -> None:
        if not self.model.queues:
            return
        queue = list(self.model.queues)[n % len(self.model.queues)]
        self.model.come_due(self.now)
        self.unpark()
        each, passed = self.model.first(queue, self.now)
        self.parked |= {(one.message.id, queue) for one in passed}
        taken = self.state.take(queue, holder, self.now)
        if each is None:
            assert taken is None
            return
        assert taken is not None
        assert taken[:2] == (each.message.id, each.deliveries)
        each.state, each.holder = HELD, holder

    @rule(n=ANY, holder=st.sampled_from(["one", "two"]))
    def acquire(self, n: int, holder: str) -> None:
        each = self.pick(n, *WAITING, HELD, LOCKED)
        if each is None:
            return
        message, queue = each.message.id, each.queue
        if each.state is LOCKED or each.holder not in ("", holder) or (each.due > self.now and each.state is SCHEDULED):
            with pytest.raises(MessageHeldError):
                self.state.acquire(message, queue, holder, self.now)
            return
        if (message, queue) in self.model.expired(self.now):
            with pytest.raises(MessageExpiredError):
                self.state.acquire(message, queue, holder, self.now)
            return
        assert self.state.acquire(message, queue, holder, self.now)[:2] == (message, each.deliveries)
        if each.state is not HELD:
            each.due = 0
        each.state, each.holder = HELD, holder
        self.parked.discard((message, queue))

    @rule(n=ANY, holder=HOLDERS)
    def release(self, n: int, holder: str) -> None:
        each = self.pick(n, READY, HELD, LOCKED)
        if each is None:
            return
        if each.state is not HELD or holder not in ("", each.holder):
            with pytest.raises(MessageHeldError):
                self.state.release(each.message.id, each.queue, holder)
            return
        each.deliveries += 1
        assert self.state.release(each.message.id, each.queue, holder) == each.deliveries
        self.model.come_back(each)

    @rule(n=ANY, count=st.integers(0, 5))
    def set_deliveries(self, n: int, count: int) -> None:
        if each := self.pick(n, *WAITING, HELD, LOCKED):
            self.state.deliveries(each.message.id, each.queue, count)
            each.deliveries = count

    # ---- times -----------------------------------------------------------------------------------------------------

    def unpark(self) -> None:
        """What a clock that was set back shows again, whoever asks for whatever is due."""
        self.parked = {each for each in self.parked if self.model.messages[each[0]].expires <= self.now}

    @rule(by=st.sampled_from([1, 3, 6, 10, -4, -12]), tells=st.booleans())
    def time_passes(self, by: int, tells: bool) -> None:
        """Or the clock is set back."""
        self.now += by
        if tells:
            self.unpark()
            assert self.state.due(self.now) == self.model.come_due(self.now)

    @rule(n=ANY, due=st.sampled_from([0, 4, 12]))
    def schedule(self, n: int, due: int) -> None:
        each = self.pick(n, *WAITING, HELD, LOCKED)
        if each is None:
            return
        if each.state is LOCKED:
            with pytest.raises(MessageHeldError):
                self.state.schedule(each.message.id, each.queue, due)
            return
        each.due = due and self.now + due
        self.state.schedule(each.message.id, each.queue, each.due)
        if each.state is SCHEDULED or (each.state is READY and due):
            each.state = SCHEDULED if due else READY
            self.parked.discard((each.message.id, each.queue))

    @rule()
    def expired(self) -> None:
        assert set(self.state.expired(self.now, 1000)) == self.model.expired(self.now)

    @rule(limit=st.integers(1, 3))
    def some_expired(self, limit: int) -> None:
        found = self.state.expired(self.now, limit)
        assert len(found) == min(limit, len(self.model.expired(self.now)))
        assert set(found) <= self.model.expired(self.now)

    # ---- a load ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.model.queues)
    @rule()
    def load(self) -> None:
        """What is on its way arrives or is settled; then all is read back."""
        for each in self.model.references(SETTLING):
            self.model.drop(each)
        for each in self.model.references(ARRIVING):
            if not each.tx:
                self.model.arrive(each)
        kept = {id: message for id, message in self.model.messages.items() if message.references}
        lost = sorted(self.model.messages.keys() - kept.keys())
        self.model.messages = kept
        loaded = load_of(self.model, self.new_state_arguments(), TX, lost)
        assert loaded.orphans == [(each,) for each in lost]
        assert loaded.orphaned_messages == len(lost)
        self.state = loaded.state
        self.parked.clear()
        self.coming.clear()
        self.settling.clear()

    def new_state_arguments(self) -> tuple[int, int, MemoryIndex | None]:
        return (*self.bounds, None if self.bounds == BOUNDS["in memory"] else MemoryIndex())

    # ---- what must hold --------------------------------------------------------------------------------------------

    @invariant()
    def queues_are_the_same(self) -> None:
        assert {each.record_id for each in self.state.queues()} == set(self.model.queues)
        for queue in self.model.queues:
            entry, count = self.state.queue_of(queue), self.model.count
            assert list(self.state.browse(queue)) == self.model.browse(queue)
            assert (entry.ready, entry.scheduled, entry.held) == (
                count(queue, READY), count(queue, SCHEDULED), count(queue, HELD)
            )  # fmt: skip
            assert (entry.locked, entry.settling, entry.arriving) == (
                count(queue, LOCKED), count(queue, SETTLING), count(queue, ARRIVING)
            )  # fmt: skip
            assert entry.bytes == self.model.bytes(queue)

    @invariant()
    def every_row_is_somebody_s_or_free(self) -> None:
        table = self.state._references
        assert table.references == len([flag for flag in table.flags if flag != FREE])
        for queue in self.model.queues:
            away = list(self.state.queue_of(queue).all_away())
            assert len(away) == len({*away})

    @invariant()
    def messages_are_the_same(self) -> None:
        for message in self.model.messages.values():
            entry = self.state.message(message.id)
            assert entry.references == message.living
            assert (entry.address, entry.priority, entry.size) == ("address", message.priority, message.size)
            assert (entry.expires, entry.timestamp) == (message.expires, message.timestamp)
            said = set(self.state.explain(message.id))
            known = [each for each in message.references.values() if each.state != ARRIVING]
            assert {self.model.info(each) for each in known} <= said
            assert {(info.queue, info.tx) for info in said} == {
                (self.model.queues[each.queue], each.tx)
                for each in message.references.values()
                if each.state != ARRIVING or each.tx
            }

    @invariant()
    def holders_and_times_are_the_same(self) -> None:
        for holder in ("one", "two"):
            assert set(self.state.held_by(holder)) == self.model.held(holder)
        due = [each.due for each in self.model.references(SCHEDULED)]
        assert self.state.next_due() == min(due, default=0)

    @precondition(lambda self: self.bounds == BOUNDS["in memory"] or self.next_id % 3 == 0)
    @invariant()
    def the_oldest_is_the_same(self) -> None:
        """Asked only now and then when it pages in, so that states that nobody looked at come up too."""
        for queue in self.model.queues:
            assert self.state.queue_of(queue).oldest == self.model.oldest(queue, self.parked)


@pytest.mark.parametrize("bounds", BOUNDS)
def test_a_queue_state_equals_the_plain_model(bounds: str) -> None:
    machine = type(bounds.replace(" ", "_"), (QueueStateMachine,), {"bounds": BOUNDS[bounds]})
    run_state_machine_as_test(machine, settings=settings(max_examples=150, stateful_step_count=50))
