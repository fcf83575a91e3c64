"""Queues as plain objects in dictionaries: what a QueueState is compared with. Slow, and short enough to trust."""

from __future__ import annotations

from dataclasses import dataclass, field

from journal.store.model import ReferenceInfo, ReferenceState

ARRIVING = "arriving"
READY, SCHEDULED, HELD = ReferenceState.READY, ReferenceState.SCHEDULED, ReferenceState.HELD
LOCKED, SETTLING = ReferenceState.LOCKED, ReferenceState.SETTLING
WAITING = (READY, SCHEDULED)


@dataclass
class ModelReference:
    """A message in a queue."""

    message: ModelMessage
    queue: int
    state: ReferenceState | str = ARRIVING
    place: int = 0
    due: int = 0
    tx: int = 0
    holder: str = ""
    deliveries: int = 0

    @property
    def order(self) -> tuple[int, int]:
        return -self.message.priority, self.place


@dataclass
class ModelMessage:
    """A message; `doomed`: nothing refers to it any more, it is deleted."""

    id: int
    priority: int
    size: int
    expires: int
    timestamp: int
    references: dict[int, ModelReference] = field(default_factory=dict)
    doomed: bool = False

    @property
    def living(self) -> int:
        return sum(reference.state is not SETTLING for reference in self.references.values())


class QueueModel:
    """Messages and queues (by id: name)."""

    def __init__(self) -> None:
        self.messages: dict[int, ModelMessage] = {}
        self.queues: dict[int, str] = {}
        self.arrived = 0

    # ---- looking ---------------------------------------------------------------------------------------------------

    def references(self, *states: ReferenceState | str) -> list[ModelReference]:
        every = (reference for message in self.messages.values() for reference in message.references.values())
        return [reference for reference in every if not states or reference.state in states]

    def in_order(self, queue: int) -> list[ModelReference]:
        there = [each for each in self.references() if each.queue == queue and each.state != ARRIVING]
        return sorted(there, key=lambda each: each.order)

    def browse(self, queue: int) -> list[ReferenceInfo]:
        return [self.info(each) for each in self.in_order(queue)]

    def info(self, each: ModelReference) -> ReferenceInfo:
        assert isinstance(each.state, ReferenceState)
        message = each.message
        return ReferenceInfo(
            message.id, self.queues[each.queue], each.state, message.priority, each.deliveries, each.holder, each.tx,
            each.due,
        )  # fmt: skip

    def count(self, queue: int, state: ReferenceState | str) -> int:
        return sum(each.queue == queue for each in self.references(state))

    def bytes(self, queue: int) -> int:
        return sum(each.message.size for each in self.references() if each.queue == queue and each.state != SETTLING)

    def oldest(self, queue: int, parked: set[tuple[int, int]]) -> int:
        """`parked`: (message, queue) that expired before they could be taken."""
        firsts: dict[int, int] = {}
        for each in self.in_order(queue):
            if each.state is READY and (each.message.id, queue) not in parked:
                firsts.setdefault(each.message.priority, each.message.timestamp)
        return min(firsts.values(), default=0)

    def expired(self, now: int) -> set[tuple[int, int]]:
        waiting = self.references(*WAITING)
        return {(each.message.id, each.queue) for each in waiting if 0 < each.message.expires <= now}

    def held(self, holder: str) -> set[tuple[int, int]]:
        return {(each.message.id, each.queue) for each in self.references(HELD) if each.holder == holder}

    # ---- changing --------------------------------------------------------------------------------------------------

    def arrive(self, each: ModelReference) -> None:
        self.arrived += 1
        each.place, each.tx = self.arrived, 0
        each.state = SCHEDULED if each.due else READY

    def come_due(self, now: int) -> int:
        due = [each for each in self.references(SCHEDULED) if each.due <= now]
        for each in due:
            each.state, each.due = READY, 0
        return len(due)

    def first(self, queue: int, now: int) -> tuple[ModelReference | None, list[ModelReference]]:
        """The first that may be delivered, and the expired ones before it."""
        passed: list[ModelReference] = []
        for each in self.in_order(queue):
            if each.state is READY:
                if not 0 < each.message.expires <= now:
                    return each, passed
                passed.append(each)
        return None, passed

    def come_back(self, each: ModelReference) -> None:
        each.holder = ""
        each.state = SCHEDULED if each.due else READY

    def acknowledge(self, each: ModelReference) -> bool:
        each.state, each.holder, each.due, each.tx = SETTLING, "", 0, 0
        each.message.doomed = not each.message.living
        return each.message.doomed

    def drop(self, each: ModelReference) -> None:
        message = each.message
        del message.references[each.queue]
        if not message.references and message.doomed:
            del self.messages[message.id]

    def remove_queue(self, queue: int) -> set[int]:
        """Messages that have no reference left."""
        left: set[int] = set()
        for each in [each for each in self.references() if each.queue == queue]:
            was_settling, message = each.state is SETTLING, each.message
            self.drop(each)
            if not was_settling and not message.living:
                message.doomed = True
                left.add(message.id)
        del self.queues[queue]
        return left
