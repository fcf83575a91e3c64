"""A replay as a process that is killed in the middle.

`python -m tests.support.replay_job BROKERS JOURNAL DIRECTORY PATH APPENDS`

Dies, with its JVM, behind so many groups that are committed in the target.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from journal.cli.activating import activated_journal
from journal.cli.spark_replay import source_of
from journal.config import load_settings
from journal.limits import Limits
from journal.runtime import no_progress
from loaders.replay import Replaying
from loaders.replay_state import ReplayTarget, Selected
from loaders.spark.packages import Part
from loaders.spark.replaying import Filter, Selection, open_archive
from loaders.spark.session import make_session
from tests.support.archive_job import SETTINGS

LIMITS = Limits(transaction_buffer_operations_max=20)


def main() -> None:
    bootstrap, journal, directory, path, appends = sys.argv[1:]
    settings = load_settings(
        None, bootstrap_servers=bootstrap, journal=journal, directory=Path(directory), limits=LIMITS
    )
    spark = make_session("a replay", parts=frozenset({Part.PROTOBUF}), master="local[1]", settings=SETTINGS)
    selection = Selection(spark, path, open_archive(spark, path), Filter())
    target, left = ReplayTarget(), int(appends)
    with activated_journal(settings, take_over=True, progress=no_progress, loader=target) as (active, _):

        def told(_: int) -> None:
            nonlocal left
            left -= 1
            if not left:
                active.flush().wait()
                os.killpg(0, signal.SIGKILL)

        of = source_of(selection, path, Filter(), remapped=False)
        replaying = Replaying(active, LIMITS, of, target, operator="job", now_ms=lambda: 0.0, told=told)
        rows = selection.operations(replaying.progress.reached, replaying.progress.kept).toLocalIterator()
        replaying.run(Selected(*row) for row in rows)


if __name__ == "__main__":
    main()
