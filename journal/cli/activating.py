"""Commands that append: a journal activated for the command's time, if no other node is active."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from journal.activation import ActivationReport, Progress
from journal.cli.common import ended_by_sigterm_as_by_ctrl_c
from journal.config import Settings
from journal.journal import BlockingJournal
from journal.liveness import require_no_active_node
from journal.loading import Loader
from journal.local.slots import take_slot
from journal.runtime import kafka_of


@contextmanager
def activated_journal(
    settings: Settings, *, take_over: bool, progress: Progress, loader: Loader | None = None
) -> Iterator[tuple[BlockingJournal, ActivationReport]]:
    """An active journal, closed cleanly however the command ends, by SIGTERM too; `loader` is told its state.

    Raises ActiveNodeError unless `take_over`.
    """
    slot = take_slot(settings.directory / settings.journal, "command")
    journal = BlockingJournal(settings, copy_name=f"{slot.path.name}/tables", progress=progress)
    try:
        with ended_by_sigterm_as_by_ctrl_c():
            rows = journal.start()
            if not take_over:
                require_no_active_node(
                    kafka_of(settings),
                    settings.journal,
                    rows,
                    clock=time.monotonic,
                    pause=_pause_showing(progress),
                    fence_check_s=settings.fence_check_ms / 1000,
                )
            yield journal, journal.activate(loader)
    finally:
        journal.close()
        slot.release()


def _pause_showing(progress: Progress) -> Callable[[float], None]:
    looks = 0

    def pause(seconds: float) -> None:
        nonlocal looks
        looks += 1
        progress("other nodes", looks, 0)
        time.sleep(seconds)

    return pause
