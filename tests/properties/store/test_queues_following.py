"""A state that was followed, in whatever steps and order, is the state that a load gives, and behaves as that does."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from journal.errors import JournalError, StateError
from journal.load.loading import LoadCounts
from journal.store.queues.loaded import LoadedStore
from journal.store.queues.state import QueueState
from journal.v1.journal_pb2 import Operation
from loaders.queues import QueueLoader
from tests.support.record_table import NOW, STEPS, RecordTable
from tests.support.references import MemoryIndex

BOUNDS = {"in memory": (10**6, 10**6), "a queue's bound": (10**6, 3), "the node's bound": (8, 6), "tiny": (2, 1)}
BORDER = "border"
OFTEN = ["send", "send", "send_many", "route", *["acknowledge"] * 3, "refer", "refer", "late_queue", *[BORDER] * 4]
ACTIONS = st.tuples(st.sampled_from([*STEPS, *OFTEN]), st.integers(0, 200), st.integers(0, 200))
BEGINNING = [
    ("add_address", 0, 1),
    ("add_address", 1, 0),
    *(("add_queue", each, each) for each in (0, 1, 2, 3)),
    ("late_queue", 0, 2),
]


def new_loader(bounds: tuple[int, int]) -> QueueLoader:
    node, queue = bounds
    index = None if bounds == BOUNDS["in memory"] else MemoryIndex()
    return QueueLoader(references_in_memory_max=node, queue_references_in_memory_max=queue, index=index)


def completed(loader: QueueLoader, in_doubt: list[tuple[int, bytes, list[Operation]]]) -> LoadedStore:
    for tx, data, operations in in_doubt:
        loader.prepared(tx, data, operations)
    loader.complete(LoadCounts(0, 0, 0, 0))
    return loader.loaded


def looks(state: QueueState, messages: list[int]) -> dict[str, Any]:
    """All that a state says of itself."""
    said: dict[str, Any] = {
        "addresses": sorted(
            (each.record_id, each.name, each.duplicate_window, each.queues) for each in state.addresses()
        ),
        "messages": {each: said_of(state, each) for each in messages},
        "holders": {each: sorted(state.held_by(each)) for each in sorted(state.holders())},
        "next due": state.next_due(),
        "expired": sorted(state.expired(NOW + 10, 1000)),
    }
    for entry in sorted(state.queues(), key=lambda each: each.record_id):
        counts = entry.ready, entry.scheduled, entry.held, entry.locked, entry.settling, entry.arriving, entry.bytes
        order = list(state.browse(entry.record_id))
        said[f"queue {entry.record_id}"] = entry.config, counts, order, state.bindings(entry.record_id), entry.oldest
    return said


def said_of(state: QueueState, message_id: int) -> Any:
    try:
        return state.message(message_id), sorted(state.explain(message_id), key=lambda each: each.queue)
    except JournalError as error:
        return str(error)


def beside(loaded: LoadedStore) -> Any:
    """What a load gives beside the state."""
    return loaded.windows, loaded.prepared, loaded.outcomes, sorted(loaded.orphans), loaded.orphaned_messages


def act(state: QueueState, chance: random.Random, messages: list[int]) -> list[object]:
    """What becomes of operations of all kinds, and what they answer."""
    answers: list[object] = []
    queues = sorted(each.record_id for each in state.queues())
    for number in range(60 if queues else 0):
        queue, message = chance.choice(queues), chance.choice([*messages, 1])
        tried = chance.randrange(9)
        try:
            if tried < 3:
                answers.append(state.take(queue, "taker", NOW + number // 4))
            elif tried == 3:
                answers.append(state.release(message, queue))
            elif tried == 4:
                answers.append(state.acknowledge(message, queue, chance.choice(["", "one", "taker"])))
                state.settled(message, queue)
            elif tried == 5:
                state.route(message, queue, due=chance.choice([0, NOW + 9]))
                state.arrive(message, queue)
            elif tried == 6:
                answers.append(state.due(NOW + number // 4))
            elif tried == 7:
                state.unlock(message, queue)
            else:
                state.schedule(message, queue, chance.choice([0, NOW + 5]))
        except JournalError as error:
            answers.append(str(error))
    for queue in queues:
        while (taken := state.take(queue, "last", NOW + 1000)) is not None:
            answers.append(taken)
    return answers


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
@settings(max_examples=250)
@given(
    actions=st.lists(ACTIONS, min_size=20, max_size=80),
    in_doubt=st.lists(st.integers(0, 300), max_size=6),
    seed=st.integers(0, 2**32),
)
def test_what_was_followed_is_what_a_load_gives(
    bounds: tuple[int, int], actions: list[tuple[str, int, int]], in_doubt: list[int], seed: int
) -> None:
    chance = random.Random(seed)
    table = RecordTable()
    for name, n, m in BEGINNING:
        table.step(name, n, m)
    followed = new_loader(bounds)
    table.load(followed)
    for name, n, m in [*actions, (BORDER, 0, 0)]:
        if name != BORDER:
            table.step(name, n, m)
            continue
        changed = table.changes()
        chance.shuffle(changed)
        try:
            for record_id in [*changed, *changed[: n % 5]]:
                table.tell(followed, record_id)
        except StateError:
            event("a destroyed queue was there again: loaded anew")
            followed = new_loader(bounds)
            table.load(followed)
    transactions = table.in_doubt(in_doubt)
    fresh = new_loader(bounds)
    table.load(fresh)
    messages = sorted({*table.rows, *(op.id for _, _, operations in transactions for op in operations)})
    one, other = completed(followed, transactions), completed(fresh, transactions)
    assert beside(one) == beside(other)
    assert looks(one.state, messages) == looks(other.state, messages)
    assert act(one.state, random.Random(seed), messages) == act(other.state, random.Random(seed), messages)
    assert looks(one.state, messages) == looks(other.state, messages)
