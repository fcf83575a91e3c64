"""A QueueState with two queues, filled and emptied in few words."""

from __future__ import annotations

from journal.store.model import QueueConfig
from journal.store.queues.index import ReferenceIndex
from journal.store.queues.state import QueueState

ADDRESS, ORDERS, AUDIT = 1 << 10, 2 << 10, 3 << 10
NOW = 1_700_000_000_000


def new_state(node: int = 10**6, queue: int = 10**6, index: ReferenceIndex | None = None) -> QueueState:
    state = QueueState(references_in_memory_max=node, queue_references_in_memory_max=queue, index=index)
    state.add_address(ADDRESS, "orders")
    state.add_queue(ORDERS, QueueConfig(name="orders", address="orders"))
    state.add_queue(AUDIT, QueueConfig(name="audit", address="orders"))
    return state


def send(
    state: QueueState, message: int, *queues: int, priority: int = 4, due: int = 0, expires: int = 0, timestamp: int = 0
) -> int:
    """A message that is durable, in the queues (ORDERS if none is named)."""
    state.store(message, ADDRESS, priority=priority, size=100, expires=expires, timestamp=timestamp)
    for queue in queues or (ORDERS,):
        state.route(message, queue, due=due)
        state.arrive(message, queue)
    return message


def take_all(state: QueueState, queue: int = ORDERS, now: int = NOW) -> list[int]:
    taken: list[int] = []
    while (delivery := state.take(queue, "consumer", now)) is not None:
        taken.append(delivery.message)
    return taken
