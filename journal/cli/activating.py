"""Commands that append: a journal activated for the command's time, if no other node is active."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from journal.activation import ActivationReport, Progress
from journal.cli.common import ended_by_sigterm_as_by_ctrl_c, shown_if_long
from journal.cli.shard_stops import lines_of_stops
from journal.config import Settings
from journal.errors import GateTimeoutError, OperatingError
from journal.journal import BlockingJournal
from journal.kafka.control import ControlRows
from journal.liveness import require_no_active_node
from journal.loading import Loader
from journal.local.slots import take_slot
from journal.runtime import kafka_of


@contextmanager
def activated_journal(
    settings: Settings, *, take_over: bool, progress: Progress, loader: Loader | None = None
) -> Iterator[tuple[BlockingJournal, ActivationReport]]:
    """An active journal, closed cleanly however the command ends, by SIGTERM too; `loader` is told its state.

    Raises ActiveNodeError unless `take_over`, and GateTimeoutError with what stops shards, if anything does.
    """
    slot = take_slot(settings.directory / settings.journal, "command")
    journal = BlockingJournal(settings, copy_name=f"{slot.path.name}/tables", progress=progress)
    try:
        with ended_by_sigterm_as_by_ctrl_c():
            with shown_if_long("Kafka"):
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
            try:
                report = journal.activate(loader)
            except GateTimeoutError as error:
                raise GateTimeoutError("\n".join([str(error), *_stops(settings, rows)])) from error
            yield journal, report
    finally:
        journal.close()
        slot.release()


def _stops(settings: Settings, rows: ControlRows) -> list[str]:
    """A worker may run, and not be able to go on."""
    try:
        return lines_of_stops(kafka_of(settings), settings, rows)
    except OperatingError:  # that the gate did not open is what there is to tell
        return []


def _pause_showing(progress: Progress) -> Callable[[float], None]:
    looks = 0

    def pause(seconds: float) -> None:
        nonlocal looks
        looks += 1
        progress("other nodes", looks, 0)
        time.sleep(seconds)

    return pause
