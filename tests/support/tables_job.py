"""A job that keeps journal tables, as a process that says what it has done and is killed.

`python -m tests.support.tables_job BROKERS JOURNAL PATH FORMAT` says on standard output `writing TABLE` before each
change of a table, and `batch NUMBER` behind each batch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame

from loaders.spark.packages import Part
from loaders.spark.session import make_session
from loaders.spark.source import JournalSource
from loaders.spark.table_stores import DeltaStore, Files, ParquetStore, TableFormat, TableStore
from loaders.spark.tables import keep_tables

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "700m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
}
BATCH_OFFSETS = 80


class TalkingDelta(DeltaStore):
    """Says what it is about to write."""

    def replace(self, table: str, keys: Sequence[str], fresh: DataFrame, gone: DataFrame | None = None) -> None:
        print("writing", table, flush=True)
        super().replace(table, keys, fresh, gone)


class TalkingParquet(ParquetStore):
    """Says what it is about to write."""

    def replace(self, table: str, keys: Sequence[str], fresh: DataFrame, gone: DataFrame | None = None) -> None:
        print("writing", table, flush=True)
        super().replace(table, keys, fresh, gone)


def opened(files: Files, kept_as: TableFormat) -> TableStore:
    return TalkingDelta(files) if kept_as is TableFormat.DELTA else TalkingParquet(files)


def main() -> None:
    bootstrap, journal, path, kept_as = sys.argv[1:]
    spark = make_session("tables", parts=frozenset(Part), master="local[1]", settings=SETTINGS)
    keep_tables(
        spark,
        JournalSource(bootstrap, journal),
        path,
        kept_as=TableFormat(kept_as),
        once=True,
        max_offsets=BATCH_OFFSETS,
        told=lambda batch: print("batch", batch.number, flush=True),
        opened=opened,
    )


if __name__ == "__main__":
    main()
