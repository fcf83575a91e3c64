"""What lies between a worker and the process that reads for it: messages in order, late, and lost when one side ends.

`CalledShell` and `Answering` are the product's; the socket pair between them is this.
"""

from __future__ import annotations

import marshal
from collections import deque
from random import Random
from typing import Any

from journal.errors import DisconnectedError
from tests.simulation.scheduler import Process, Scheduler

_LATE_S = (0.0, 0.0, 0.0, 0.002, 0.02, 0.1)
_SILENT_S = 2.0
_LONG_S = 1e6


class Link:
    """Both directions between a worker's process and one start of its reader's."""

    def __init__(self, scheduler: Scheduler, chance: Random, worker: Process, reader: Process) -> None:
        self.scheduler = scheduler
        self.chance = chance
        self.of_worker = SimulatedChannel(self)
        self.of_reader = SimulatedChannel(self)
        self._worker = worker
        self._reader = reader
        self._cut = False

    @property
    def is_cut(self) -> bool:
        """Also where the worker has given no sign of life for so long that its group would count it as dead."""
        worker = self._worker
        silent = worker.frozen and self.scheduler.now() - worker.stopped_at > _SILENT_S
        return self._cut or silent or not worker.alive or not self._reader.alive

    def cut(self) -> None:
        self._cut = True

    def other(self, side: SimulatedChannel) -> SimulatedChannel:
        return self.of_reader if side is self.of_worker else self.of_worker


class SimulatedChannel:
    """One side's `streams.reading.calls.Channel`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._coming: deque[tuple[float, bytes]] = deque()
        """When each message is here."""

    def send(self, message: Any) -> None:
        link = self._link
        link.scheduler.switch()
        if link.is_cut:
            raise DisconnectedError("the other process is gone")
        coming, now = link.other(self)._coming, link.scheduler.now()
        at = max(now + link.chance.choice(_LATE_S), coming[-1][0] if coming else now)
        coming.append((at, marshal.dumps(message)))
        link.scheduler.call_at(at, _nothing)

    def receive(self) -> Any:
        link = self._link
        while not link.is_cut and not self.has_message():
            link.scheduler.wait(_LONG_S, lambda: link.is_cut or self.has_message())
        if link.is_cut:
            raise DisconnectedError("the other process is gone")
        return marshal.loads(self._coming.popleft()[1])

    def has_message(self) -> bool:
        return bool(self._coming) and self._coming[0][0] <= self._link.scheduler.now()


def _nothing() -> None: ...
