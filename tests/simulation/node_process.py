"""A node's process in a simulation: what scripted nodes and those that decide by themselves have in common."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

from journal.append.completion import Completion
from journal.append.core import Core
from journal.append.state import JournalState
from journal.errors import CorruptionError, OperatingError, OutcomeUnknownError
from tests.simulation.disk import Disk, SimulatedStore
from tests.simulation.history import CapturedLoad, History, Tenure
from tests.simulation.node_copy import NodeCopy
from tests.simulation.reference import Call
from tests.simulation.scheduler import Process
from tests.simulation.setting import Setting


class NodeProcess:
    """One start of a node. A subclass' `main` is its first thread."""

    def __init__(
        self,
        setting: Setting,
        history: History,
        name: str,
        disk: Disk,
        chance: Random,
        *,
        next_number: Callable[[], int],
        takes_in: bool = False,
    ) -> None:
        self.process = Process(name)
        self.name = name
        self.disk = disk
        self.core: Core | None = None
        self.tenure: Tenure | None = None
        """The one that it was last told to be active in."""
        self.stop = threading.Event()
        """Set once it is to end."""
        self.busy = True
        """Whether its caller goes on calling."""
        self.work = False
        """Whether its caller has something for the writer."""
        self.at_load: Callable[[], None] | None = None
        """Called when a load is about to be complete."""
        self.setting = setting
        self.scheduler = setting.scheduler
        self.history = history
        self.chance = chance
        self.next_number = next_number
        self.takes_in = takes_in
        setting.scheduler.spawn(self.process, self.main)

    def main(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Ask it to write what it has accepted, and end."""
        raise NotImplementedError

    @property
    def active(self) -> bool:
        return self.process.alive and self.core is not None and self.core.state is JournalState.ACTIVE

    @property
    def is_on_its_way(self) -> bool:
        """Whether it may yet become active by itself."""
        return self.tenure is None

    def add(self, record_id: int, data: bytes) -> Completion:
        """A call from outside, besides those of its caller."""
        assert self.core is not None
        assert self.tenure is not None
        completion = self.core.add(record_id, 1, data)
        self.tenure.accepted(Call("add", record_id, 1, data), completion)
        self.work = True
        return completion

    def open_copy(self) -> NodeCopy:
        """Raises OperatingError, CorruptionError."""
        setting = self.setting
        store = SimulatedStore(self.disk, setting.broker.faults, self.name, self.scheduler)
        return NodeCopy(
            setting,
            store,
            self.name,
            lambda: CapturedLoad(setting.shards, self._take_time),
            self.require_outside,
            self.chance,
        )

    def _take_time(self) -> None:
        self.scheduler.switch()
        if self.at_load is not None:
            at_load, self.at_load = self.at_load, None
            at_load()
        elif self.chance.random() < 0.15 and self.busy:
            self.scheduler.pause(self.chance.choice((0.1, 0.5, 3.0)))

    def require_outside(self, error: Exception) -> None:
        """Complain of what is more than a failed attempt: also of a typed error of which the simulated world knows no
        cause."""
        if isinstance(error, OperatingError | OutcomeUnknownError):
            return
        if not isinstance(error, CorruptionError) or not self.history.takes(error, self.scheduler.now()):
            self.history.violate(f"{type(error).__name__} in {self.name}: {error}")
