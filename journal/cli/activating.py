"""Commands that append: they activate the journal for the time of the command, if no other node is active."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial

from journal.activate.activation import ActivationReport
from journal.cli.common import ended_by_sigterm_as_by_ctrl_c
from journal.cli.first_contact import first_contact
from journal.cli.status.gate_stops import GateStops
from journal.cli.status.shard_stops import lines_of_stops, stops_now
from journal.config import Settings
from journal.disk.slots import leaving_nothing_of_no_journal, take_slot
from journal.errors import GateTimeoutError, OperatingError
from journal.journal import BlockingJournal
from journal.kafka.clients import kafka_of
from journal.load.loading import Loader
from journal.process.background import in_thread
from journal.process.progress import Progress
from loaders.node.liveness import require_no_active_node

_LOOK_S = 5.0
"""How long a command waits for each answer about a shard that may be stopped. Its gate may open meanwhile."""


@contextmanager
def activated_journal(
    settings: Settings, *, take_over: bool, progress: Progress, loader: Loader | None = None
) -> Iterator[tuple[BlockingJournal, ActivationReport]]:
    """An active journal. It is closed in order when the command ends, also by SIGTERM. `loader` is told its state.

    Raises ActiveNodeError unless `take_over`, and GateTimeoutError, which names what stops shards; it comes within
    seconds if only `repair` mends that.
    """
    with leaving_nothing_of_no_journal(settings.journal_directory):
        slot = take_slot(settings.journal_directory, "command")
        look = partial(stops_now, kafka_of(settings), settings.journal, timeout_s=_LOOK_S)
        stops = GateStops(settings.journal, look, clock=time.monotonic, beside=in_thread)
        journal = BlockingJournal(settings, copy_name=f"{slot.path.name}/tables", progress=progress, at_gate=stops)
        try:
            with ended_by_sigterm_as_by_ctrl_c():
                with first_contact(settings):
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
                    if stops.told:
                        raise
                    raise GateTimeoutError("\n".join([str(error), *_stops(settings, range(journal.shards))])) from error
                yield journal, report
        finally:
            journal.close()
            slot.release()


def _stops(settings: Settings, shards: Collection[int]) -> list[str]:
    """Lines that name each shard that cannot move on, and the WAL record that no worker can apply, even if one is
    running. Empty if there are none, or if they cannot be read."""
    try:
        timeout_s = settings.request_timeout_ms / 1000
        return lines_of_stops(settings.journal, stops_now(kafka_of(settings), settings.journal, shards, timeout_s))
    except OperatingError:  # the user needs the gate's own error instead
        return []


def _pause_showing(progress: Progress) -> Callable[[float], None]:
    looks = 0

    def pause(seconds: float) -> None:
        nonlocal looks
        looks += 1
        progress("other nodes", looks, 0)
        time.sleep(seconds)

    return pause
