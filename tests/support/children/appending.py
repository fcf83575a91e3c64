"""Appends of a seeded workload by a process under test, and what it writes down of them."""

from __future__ import annotations

import base64
import time
from collections import deque
from collections.abc import Callable

from journal.append.appends import Appends
from journal.append.completion import Completion
from journal.cli.script import apply_operation
from journal.errors import CallerError
from tests.support.children.telling import Notes
from tests.support.children.workload import Workload
from tests.support.script_model import Line

IN_FLIGHT_MAX = 300


class Appending:
    """Notes each operation before its call, and afterwards what its completion says.

    `noted` is how a line is written down.
    """

    def __init__(
        self, notes: Notes, journal: Appends, workload: Workload, noted: Callable[[Line], Line] = lambda line: line
    ) -> None:
        self._notes = notes
        self._journal = journal
        self._workload = workload
        self._noted = noted
        self._in_flight: deque[Completion] = deque()

    def burst(self) -> int:
        """Number of operations that were appended. Raises what says that this node is active no more."""
        return sum(self._submit(line) for line in self._workload.burst())

    def wait(self, left: int = 0) -> None:
        """Wait until no more than so many operations are on their way."""
        while len(self._in_flight) > left:
            self._in_flight.popleft().wait()

    def _submit(self, line: Line) -> bool:
        self._notes.write(**self._noted(line))
        number: int = line["n"]
        try:
            operation = line | {"data": base64.b64decode(line.get("data", ""))}
            completion = apply_operation(self._journal, operation, number)
        except CallerError:
            self._notes.write(refused=number)
            self._workload.refused(line)
            return False
        completion.add_callback(lambda error: self._notes.outcome(number, error, t=time.time()))
        if "tx" not in line:
            self._in_flight.append(completion)
        self.wait(IN_FLIGHT_MAX)
        return True
