"""A replay as a process that is killed in the middle.

Arguments: BROKERS JOURNAL DIRECTORY FILE OPERATIONS.

FILE is `tests.support.spark.replay`'s. Dies behind the group with which so many operations are committed in the target;
with 0 OPERATIONS once a transaction is in doubt there, before anything else is appended.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from journal.append.appends import Appends
from journal.cli.activating import activated_journal
from journal.config import load_settings
from journal.limits import Limits
from journal.process.progress import no_progress
from loaders.replay import Replaying
from loaders.replay_state import Progress, ReplaySource, ReplayTarget, Selected
from tests.support.spark.replay import UntilInDoubt, read_replay

LIMITS = Limits(transaction_buffer_operations_max=20)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def behind(operations: list[Selected], progress: Progress) -> list[Selected]:
    """What Spark would give a run that goes on there."""
    return [
        each
        for each in operations
        if (each.tx not in progress.kept if each.in_doubt else each.offset > progress.reached[each.shard])
    ]


def replay(active: Appends, of: ReplaySource, operations: list[Selected], target: ReplayTarget, until: int) -> None:
    def told(operations: int) -> None:
        if operations >= until > 0:
            active.flush().wait()
            die()

    into = active if until else UntilInDoubt(active, die)
    replaying = Replaying(into, LIMITS, of, target, operator="job", now_ms=lambda: 0.0, told=told)
    replaying.run(behind(operations, replaying.progress))


def main(bootstrap: str, journal: str, directory: str, file: str, until: str) -> None:
    settings = load_settings(
        None, bootstrap_servers=bootstrap, journal=journal, directory=Path(directory), limits=LIMITS
    )
    source, operations = read_replay(Path(file))
    target = ReplayTarget()
    with activated_journal(settings, take_over=True, progress=no_progress, loader=target) as (active, _):
        replay(active, source, operations, target, int(until))
