"""Mutations of who decides to be active, and of disks that the active node waits for."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from journal.append.core import Core
from journal.errors import OperatingError
from loaders.node.duty import Duty
from loaders.node.liveness import LastActive
from tests.simulation.mutations import Patch, mutation
from tests.simulation.node_journal import NodeJournal

# ---- who is active -------------------------------------------------------------------------------------------------


@mutation
def a_silent_node_is_waited_for() -> list[Patch]:
    """Standbys take over only from a node that said that it left."""
    return [(LastActive, "silence_s", lambda self, fence_check_s: float("inf"))]


@mutation
def a_standby_does_not_know_that_nobody_is_active() -> list[Patch]:
    """Whoever holds the duty waits to be handed the journal."""
    return [(Duty, "_vacancy", lambda self, facts: "")]


# ---- disks that stall ----------------------------------------------------------------------------------------------


def _waiting_for_copy(every: int) -> list[Patch]:
    """A writer that looks into the node's copy with every so many steps."""
    activate, step = NodeJournal.activate, Core.step

    def activating(self: Any) -> Any:
        report = activate(self)
        self._core.store, self._core.steps = self._copy.store, 0
        return report

    def stepping(self: Any, timeout_s: float) -> bool:
        self.steps += 1
        if self.steps % every == 0:
            with suppress(OperatingError):
                self.store.named(b"")
        return step(self, timeout_s)

    return [(NodeJournal, "activate", activating), (Core, "step", stepping)]


@mutation
def the_writer_looks_into_the_copy() -> list[Patch]:
    """Before each group the writer reads in the node's local copy."""
    return _waiting_for_copy(1)


@mutation
def the_writer_looks_into_the_copy_now_and_then() -> list[Patch]:
    """Before every twentieth group the writer reads in the node's local copy."""
    return _waiting_for_copy(20)
