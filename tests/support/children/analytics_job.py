"""Streams of queue analytics in one process, each of which stops at a moment; then the process is killed.

Arguments: BROKERS JARS JOURNAL PATH MAX_OFFSETS MOMENT...

Each has PATH/MOMENT for its state and PATH/MOMENT-windows for its windows. The moments are of the second micro-batch:
`half`, with a part of what it leaves, `left`, with all of it, `told`, with its windows too.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame

from loaders.spark.analytics import follow as following
from loaders.spark.analytics.window_sinks import Sink, WindowSpan, to_files
from loaders.spark.read.source import JournalSource
from tests.support.spark.jobs import Ends, begin, job_session

SECOND = 1


def main(bootstrap: str, jars: str, journal: str, path: str, max_offsets: str, *moments: str) -> None:
    ends = Ends()

    class MortalFollower(following.Follower):
        """Ends at its moment."""

        @property
        def moment(self) -> str:
            return self._state.rpartition("/")[2]

        def _put(self, name: str, table: DataFrame) -> None:
            is_clock = name.startswith(f"{SECOND:012d}-") and name.endswith("/clock")
            if is_clock and self.moment == "half":
                ends.go_no_further()
            super()._put(name, table)
            if is_clock and self.moment == "left":
                ends.go_no_further()

    seen = list[WindowSpan]()

    def mortal(sink: Sink, windows: DataFrame, told: WindowSpan) -> None:
        sink(windows, told)
        seen.append(told)
        if len(seen) == SECOND + 1:
            ends.go_no_further()

    setattr(following, "Follower", MortalFollower)  # noqa: B010  # what the streams go on from
    spark = job_session("analytics", jars, f"{path}-warehouse")
    for moment in moments:
        sink = to_files(f"{path}/{moment}-windows")
        begin(
            partial(
                following.follow,
                spark.newSession(),  # a session has one query of a name
                JournalSource(bootstrap, journal),
                f"{path}/{moment}",
                partial(mortal, sink) if moment == "told" else sink,
                width_s=0.05,
                lateness_s=0,
                once=True,
                max_offsets=int(max_offsets),
            )
        )
    ends.die_behind(len(moments))
