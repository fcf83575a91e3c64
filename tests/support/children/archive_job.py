"""Archive jobs in one process, each of which stops at a moment; then the process is killed.

Arguments: BROKERS JARS (JOURNAL PATH MOMENT)...

MOMENT is `files` or `manifest`: behind which of them the second batch of that job goes no further. `delta` is as
`files`, of an archive in Delta Lake.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import SparkSession

from loaders.spark.archive import archive as archiving
from loaders.spark.read.source import JournalSource
from loaders.spark.stored.manifest import Manifest, ManifestLog
from loaders.spark.stored.table_stores import TableFormat
from tests.support.spark.jobs import Ends, begin, job_session

BATCH_OFFSETS = 40


def main(bootstrap: str, jars: str, *rest: str) -> None:
    jobs = list(zip(rest[::3], rest[1::3], rest[2::3], strict=True))
    moments = {journal: moment for journal, _, moment in jobs}
    ends = Ends()

    class MortalLog(ManifestLog):
        """Ends before, or behind, a manifest."""

        def __init__(self, spark: SparkSession, path: str, journal: str) -> None:
            super().__init__(spark, path, journal)
            self._moment = moments[journal]
            self._batches = 0

        def commit(self, manifest: Manifest) -> None:
            self._batches += 1
            if self._moment != "manifest" and self._batches == 2:
                ends.go_no_further()
            super().commit(manifest)
            if (self._moment, self._batches) == ("manifest", 2):
                ends.go_no_further()

    setattr(archiving, "ManifestLog", MortalLog)  # noqa: B010  # what the jobs open
    spark = job_session("archives", jars, f"{jobs[0][1]}-warehouse")
    for journal, path, moment in jobs:
        kept_as = TableFormat.DELTA if moment == "delta" else TableFormat.PARQUET
        run = partial(archiving.archive, once=True, max_offsets=BATCH_OFFSETS, kept_as=kept_as)
        begin(partial(run, spark, JournalSource(bootstrap, journal), path))
    ends.die_behind(len(jobs))
