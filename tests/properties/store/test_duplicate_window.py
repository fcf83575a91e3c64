"""A duplicate window forgets the same ids whether it lived on or was loaded from what the journal has of it."""

from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from journal.errors import FullError
from journal.store.duplicates import DuplicateWindow, Reservation

SIZE = 3
TRANSACTIONS = st.sampled_from([7, 8, 9])


def entered_one_by_one(window: DuplicateWindow) -> list[set[bytes] | None]:
    """What a copy of it remembers as more ids enter; None where it is full."""
    copy, said = deepcopy(window), list[set[bytes] | None]()
    for number in range(SIZE + 1):
        try:
            copy.enter(b"later %d" % number, copy.next_slot())
            said.append(copy.ids())
        except FullError:
            said.append(None)
    return said


class WindowMachine(RuleBasedStateMachine):
    """Ids are all different."""

    def __init__(self) -> None:
        super().__init__()
        self.window = DuplicateWindow(1, SIZE)
        self.number = 0
        self.rows: dict[int, bytes] = {}
        """What the journal has: ids by slot, by when they were written."""
        self.open: dict[int, list[Reservation]] = {}
        self.order: list[bytes] = []
        """Ids in the order in which they entered."""
        self.overtaken = False
        """Whether an id ever entered, or was reserved, while another transaction had a slot reserved: such a slot may
        turn out to be nobody's, and an id was forgotten for want of it."""

    def new_id(self) -> bytes:
        self.number += 1
        return b"%d" % self.number

    def write(self, slot: int, duplicate_id: bytes) -> None:
        self.rows.pop(slot, None)
        self.rows[slot] = duplicate_id
        self.order.append(duplicate_id)
        self.overtaken |= bool(self.open)

    @rule()
    def enter(self) -> None:
        try:
            slot = self.window.next_slot()
        except FullError:
            return
        duplicate_id = self.new_id()
        self.window.enter(duplicate_id, slot)
        self.write(slot, duplicate_id)

    @rule(tx=TRANSACTIONS)
    def reserve(self, tx: int) -> None:
        try:
            slot = self.window.next_slot(tx)
        except FullError:
            return
        self.overtaken |= bool(self.open.keys() - {tx})
        self.open.setdefault(tx, []).append(self.window.reserve(self.new_id(), slot, tx))

    @rule(count=st.integers(1, 2 * SIZE), tx=st.one_of(st.just(0), TRANSACTIONS))
    def take_many(self, count: int, tx: int) -> None:
        """The slots of many are those that they take one by one."""
        try:
            slots = self.window.next_slots(count, tx)
        except FullError:
            with pytest.raises(FullError):
                self.window.next_slot(tx)
            return
        for slot in slots:
            assert self.window.next_slot(tx) == slot
            if tx:
                self.reserve(tx)
            else:
                self.enter()

    @rule(tx=TRANSACTIONS)
    def commit(self, tx: int) -> None:
        reserved = self.open.pop(tx, [])
        self.window.settle(reserved, entered=True)
        for _, slot, duplicate_id in reserved:
            self.write(slot, duplicate_id)

    @rule(tx=TRANSACTIONS)
    def roll_back(self, tx: int) -> None:
        self.window.settle(self.open.pop(tx, []), entered=False)

    @invariant()
    def a_load_goes_on_as_it_does(self) -> None:
        loaded = DuplicateWindow(1, SIZE)
        reserved = [(slot, each, tx) for tx, ones in self.open.items() for _, slot, each in ones]
        loaded.load(list(self.rows.items()), reserved)
        assert loaded.ids() == self.window.ids() == set(self.rows.values())
        assert entered_one_by_one(loaded) == entered_one_by_one(self.window)

    @invariant()
    def it_remembers_the_last(self) -> None:
        assert self.overtaken or self.window.ids() == set(self.order[-SIZE:])


def test_a_duplicate_window_equals_one_that_was_loaded() -> None:
    run_state_machine_as_test(WindowMachine, settings=settings(max_examples=200, stateful_step_count=30))
