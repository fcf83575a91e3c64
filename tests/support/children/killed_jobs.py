"""Archive jobs and jobs that keep tables in one process, each of which stops at a moment; then the process is killed.

Arguments: BROKERS JARS (JOURNAL PATH MOMENT)...

`files` and `manifest` are moments of an archive: its second batch goes no further behind its files, or behind its
manifest. `delta` is as `files`, of an archive in Delta Lake. `rows` and `progress` are of tables, in Delta Lake and in
Parquet: their second batch goes no further once it has changed the rows, or before it changes the progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from loaders.spark.archive import archive as archiving
from loaders.spark.read.source import JournalSource
from loaders.spark.stored.files import Files
from loaders.spark.stored.manifest import Manifest, ManifestLog
from loaders.spark.stored.table_batches import TableBatch
from loaders.spark.stored.table_stores import DeltaStore, ParquetStore, TableFormat, TableStore
from loaders.spark.tables.tables import keep_tables
from tests.support.spark.jobs import Ends, begin, job_session

ARCHIVE_BATCH_OFFSETS = 40
TABLES_BATCH_OFFSETS = 80
TABLES = {"rows": TableFormat.DELTA, "progress": TableFormat.PARQUET}
SECOND = 1
"""The number of the second batch of tables."""

ends = Ends()


class MortalDelta(DeltaStore):
    """Ends once it has changed the rows."""

    def begin(self, batch: TableBatch) -> None:
        super().begin(batch)
        self.number = batch.number

    def replace(self, table: str, keys: Sequence[str], fresh: DataFrame, gone: DataFrame | None = None) -> None:
        super().replace(table, keys, fresh, gone)
        if (table, self.number) == ("rows", SECOND):
            ends.go_no_further()


class MortalParquet(ParquetStore):
    """Ends when it is to change the progress."""

    def begin(self, batch: TableBatch) -> None:
        super().begin(batch)
        self.number = batch.number

    def overwrite(self, table: str, fresh: DataFrame) -> None:
        if (table, self.number) == ("progress", SECOND):
            ends.go_no_further()
        super().overwrite(table, fresh)


def opened_mortal(files: Files, kept_as: TableFormat) -> TableStore:
    return MortalDelta(files) if kept_as is TableFormat.DELTA else MortalParquet(files)


def main(bootstrap: str, jars: str, *rest: str) -> None:
    jobs = list(zip(rest[::3], rest[1::3], rest[2::3], strict=True))
    moments = {journal: moment for journal, _, moment in jobs}

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
    spark = job_session("killed", jars, f"{jobs[0][1]}-warehouse")

    def keep(source: JournalSource, path: str, kept_as: TableFormat) -> None:
        own = spark.newSession()  # a session has one query of a name
        keep_tables(
            own, source, path, once=True, kept_as=kept_as, max_offsets=TABLES_BATCH_OFFSETS, opened=opened_mortal
        )

    def archive(source: JournalSource, path: str, kept_as: TableFormat) -> None:
        archiving.archive(spark, source, path, once=True, kept_as=kept_as, max_offsets=ARCHIVE_BATCH_OFFSETS)

    for journal, path, moment in jobs:
        source = JournalSource(bootstrap, journal)
        if moment in TABLES:
            begin(partial(keep, source, path, TABLES[moment]))
        else:
            begin(partial(archive, source, path, TableFormat.DELTA if moment == "delta" else TableFormat.PARQUET))
    ends.die_behind(len(jobs))
