"""An activation that waits at its gate says for which shards, and whether a worker is there that could move them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

from journal.errors import OperatingError
from journal.process.background import InBackground
from journal.process.clocks import Clock
from journal.process.commands import command
from journal.process.waits import LongWait
from journal.v1.journal_pb2 import Mark
from journal.words import first_few

Workers = Callable[[], Sequence[str]]
"""Returns the names of the workers that run now. Raises OperatingError."""


class GateWait:
    """The `AtGate` of one activation. It asks for the workers in the background, so that the gate opens no later."""

    def __init__(self, journal: str, workers: Workers, *, clock: Clock, beside: InBackground) -> None:
        self._journal = journal
        self._workers = workers
        self._beside = beside
        self._wait = LongWait(clock)
        self._asked: Future[Sequence[str] | None] | None = None

    def __call__(self, waiting: Mapping[int, Mark]) -> None:
        if self._asked is None:
            if self._wait.left_s <= 0:
                self._asked = self._beside(self._known_workers)
        elif self._asked.done():
            workers, self._asked = self._asked.result(), None
            self._wait.say(
                f"a worker to bring shards {first_few(sorted(waiting))} up to this activation", self._ends(workers)
            )

    def _known_workers(self) -> Sequence[str] | None:
        """The names of the workers; None if Kafka does not say them."""
        try:
            return self._workers()
        except OperatingError:
            return None

    def _ends(self, workers: Sequence[str] | None) -> str:
        if workers is None:
            return f"Kafka does not say which workers run; start one if none does: {self._start}"
        if not workers:
            return f"no worker is running, start one: {self._start}"
        says = f"`{command('status', journal=self._journal)}` shows how far they are"
        return f"running workers: {first_few(sorted(workers))}; {says}"

    @property
    def _start(self) -> str:
        return command("worker", journal=self._journal)
