"""One fault at chosen steps: whatever a test's subject asks of Kafka or of its disk is a step."""

from __future__ import annotations

from collections.abc import Collection

from tests.simulation.faults import Fault, Faults


class FaultAt(Faults):
    """A fault at each of these steps, counted from 1."""

    def __init__(self, fault: Fault = Fault.NONE, *steps: int, uncounted: Collection[str] = ()) -> None:
        """Requests in `uncounted` are no steps."""
        self.step = 0
        self.requests: list[str] = []
        self._fault = fault
        self._at = steps
        self._uncounted = uncounted

    def at(self, request: str, node: str) -> Fault:
        if request in self._uncounted:
            return Fault.NONE
        self.step += 1
        self.requests.append(request)
        return self._fault if self.step in self._at else Fault.NONE
