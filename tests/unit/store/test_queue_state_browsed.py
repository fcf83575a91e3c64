"""A queue that changes while it is browsed: what is there all the time is told once, in its order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from journal.errors import StoreError
from journal.store.model import ReferenceState
from journal.store.queues.rocks_index import RocksReferenceIndex
from journal.store.queues.state import QueueState
from tests.support.queue_states import NOW, ORDERS, new_state, send

MESSAGES = 1000
Change = Callable[[QueueState], None]


def browse(state: QueueState, change: Change) -> list[int]:
    """What is told if something changes behind every turn."""

    @contextmanager
    def turn() -> Iterator[None]:
        yield
        change(state)

    return [info.message for info in state.browse(ORDERS, turn)]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[RocksReferenceIndex]:
    index = RocksReferenceIndex(tmp_path)
    yield index
    index.close()


def filled(index: RocksReferenceIndex, in_memory: int) -> QueueState:
    state = new_state(queue=in_memory, index=index)
    for message in range(1, MESSAGES + 1):
        send(state, message, priority=9 if message % 10 == 0 else 4)
    return state


def in_order() -> list[int]:
    return sorted(range(1, MESSAGES + 1), key=lambda message: (message % 10 != 0, message))


def of(state: QueueState, kind: ReferenceState) -> list[int]:
    return [info.message for info in state.browse(ORDERS) if info.state is kind]


def recall(state: QueueState) -> None:
    """Held, what was in the index is in memory."""
    for message in of(state, ReferenceState.READY)[-300:][:40]:
        state.acquire(message, ORDERS, "one", NOW)


def page_out(state: QueueState) -> None:
    """Those that come back push the last of memory out."""
    for message in of(state, ReferenceState.HELD)[:60]:
        state.release(message, ORDERS)


def recall_and_page_out(state: QueueState) -> None:
    """What is paged in gets rows that others had."""
    held = of(state, ReferenceState.HELD)
    for _ in range(150):
        state.take(ORDERS, "one", NOW)
    for message in reversed(held):
        state.release(message, ORDERS)


@pytest.mark.parametrize("change", [recall, page_out, recall_and_page_out])
@pytest.mark.parametrize("in_memory", [20, 900])
def test_what_is_there_all_the_time_is_told_once_whatever_is_paged_out_and_recalled(
    index: RocksReferenceIndex, change: Change, in_memory: int
) -> None:
    state = filled(index, in_memory)
    for _ in range(250):
        state.take(ORDERS, "one", NOW)
    assert browse(state, change) == in_order()


def test_rows_that_were_let_go_stand_for_what_is_recalled_there(index: RocksReferenceIndex) -> None:
    state = filled(index, 900)
    going, recalled = in_order()[150:850], in_order()[900:]

    def change(state: QueueState) -> None:
        while going:
            message = going.pop()
            state.acknowledge(message, ORDERS)
            state.settled(message, ORDERS)
        while recalled:
            state.acquire(recalled.pop(), ORDERS, "one", NOW)

    assert browse(state, change) == in_order()[:150] + in_order()[850:]


@pytest.mark.parametrize("seed", range(6))
def test_what_is_there_all_the_time_is_told_once_whatever_comes_and_goes(index: RocksReferenceIndex, seed: int) -> None:
    random = Random(seed)
    state = filled(index, random.choice((20, 300, 900)))
    sent, gone = MESSAGES, set[int]()

    def change(state: QueueState) -> None:
        nonlocal sent
        for _ in range(100):
            what, message = random.random(), random.randint(1, sent)
            try:
                if what < 0.2:
                    state.take(ORDERS, "one", NOW)
                elif what < 0.4:
                    state.acquire(message, ORDERS, "one", NOW)
                elif what < 0.6:
                    state.release(message, ORDERS)
                elif what < 0.8:
                    state.schedule(message, ORDERS, random.choice((0, NOW + message)))
                elif what < 0.9:
                    state.acknowledge(message, ORDERS)
                    gone.add(message)
                    state.settled(message, ORDERS)
                else:
                    sent += 1
                    send(state, sent, priority=random.choice((4, 9)))
            except StoreError:
                pass  # it is not there, or not in that state

    told = browse(state, change)
    assert [message for message in told if message not in gone] == [each for each in in_order() if each not in gone]
    assert len(told) == len({*told})
    assert max(told) <= MESSAGES  # nothing that came meanwhile
