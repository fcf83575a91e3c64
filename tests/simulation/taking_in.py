"""A node that takes in records of a source, and the judgement: each is in the WAL once, as far as offsets say.

The source is one partition without end, whose record n has the offset n. What the WAL keeps of it is its number and
which try it was, so that a second one of the same record is told from the first.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

from journal.append.core import Core
from journal.append.state import JournalState
from journal.errors import CallerError, NotTakenInError, OperatingError
from journal.kafka.ports import Consumed, Kafka
from journal.limits import VIRTUAL_SHARDS
from journal.v1.journal_pb2 import ADD
from tests.simulation.history import Tenure, Unit
from tests.simulation.reference import Call
from tests.simulation.scheduler import Scheduler
from tests.simulation.setting import REQUEST_S

SOURCE = ("orders", 0)
GROUP = "sim.sources"
_MARK = b"record "


def takes_in(seed_chance: Random) -> bool:
    """Whether the nodes of a seed take in."""
    return seed_chance.random() < 0.5


class Taking:
    """What a node's sources do, for one activation."""

    def __init__(
        self,
        core: Core,
        tenure: Tenure,
        kafka: Kafka,
        scheduler: Scheduler,
        chance: Random,
        *,
        next_number: Callable[[], int],
        woken: Callable[[], None],
    ) -> None:
        self._core = core
        self._tenure = tenure
        self._kafka = kafka
        self._scheduler = scheduler
        self._chance = chance
        self._next_number = next_number
        self._woken = woken
        self._count = 0

    def run(self, goes_on: Callable[[], bool]) -> None:
        """Until it is not to go on, or the node is not active."""
        position = -1
        while goes_on() and self._core.state is JournalState.ACTIVE:
            if position < 0:
                position = self._committed()
            elif not self._take(position):
                position = -1
            else:
                position += self._count
            self._scheduler.pause(self._chance.choice((0.001, 0.01, 0.1, 0.3)))

    def _committed(self) -> int:
        """Where the source stands, or -1: ask again."""
        try:
            return self._kafka.cluster().stable_offsets(GROUP, [SOURCE], REQUEST_S).get(SOURCE, 0)
        except OperatingError:
            return -1

    def _take(self, position: int) -> bool:
        """Take in some records from a position on, and wait for what becomes of them; whether they are there."""
        self._count = self._chance.choice((1, 1, 2, 5))
        core = self._core
        calls: list[Call] = []
        try:
            ids = core.new_ids([self._chance.randrange(VIRTUAL_SHARDS) for _ in range(self._count)])
            for n, record_id in enumerate(ids, position):
                calls.append(Call("add", record_id, 1, _MARK + b"%d %d" % (n, self._next_number())))
            operations = [(ADD, call.id, call.kind, call.data, False, 0) for call in calls]
            completion = core.take_in(operations, Consumed(GROUP, {SOURCE: position + self._count}))
        except (CallerError, OperatingError):
            self._count = 0
            return True
        self._tenure.issued += ids
        for call in calls:
            self._tenure.accepted(call, completion)
        self._woken()
        while not completion.done:
            self._scheduler.wait(1.0, lambda: completion.done)
        return completion.error is None


def is_taken_back(unit: Unit | None) -> bool:
    """Whether calls were told that it is as if they had never been made."""
    return unit is not None and isinstance(unit.completion.error, NotTakenInError)


def judge(committed: int, data: list[bytes]) -> list[str]:
    """What is wrong with what the WAL adds (`data`, in any order), given the committed offset of the source."""
    numbers = sorted(int(each.split()[1]) for each in data if each.startswith(_MARK))
    wrong = [f"taken in: record {n} is there twice" for n, after in pairwise(numbers) if n == after]
    there = set(numbers)
    wrong += [f"taken in: record {n} is lost: offset {committed}" for n in range(committed) if n not in there]
    wrong += [f"taken in: record {n} is there, and would be again: offset {committed}" for n in there if n >= committed]
    return wrong
