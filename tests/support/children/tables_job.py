"""Jobs that keep journal tables, as a process that says what it has done and is killed.

Arguments: BROKERS JOURNAL PATH JARS FORMAT... It keeps tables in each format below PATH/FORMAT,
all at once, from a line on standard input on. It says on standard output `FORMAT writing TABLE` before each change of a
table, and `FORMAT batch NUMBER` behind each batch; and it does not end.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

from pyspark.sql import DataFrame

from loaders.spark.read.source import JournalSource
from loaders.spark.stored.files import Files
from loaders.spark.stored.table_stores import DeltaStore, ParquetStore, TableFormat, TableStore
from loaders.spark.tables.tables import keep_tables
from tests.support.spark.jobs import begin, die_with_parent, job_session

BATCH_OFFSETS = 80


class TalkingDelta(DeltaStore):
    """Says what it is about to write."""

    def replace(self, table: str, keys: Sequence[str], fresh: DataFrame, gone: DataFrame | None = None) -> None:
        print("delta writing", table, flush=True)
        super().replace(table, keys, fresh, gone)

    def overwrite(self, table: str, fresh: DataFrame) -> None:
        print("delta writing", table, flush=True)
        super().overwrite(table, fresh)


class TalkingParquet(ParquetStore):
    """Says what it is about to write."""

    def overwrite(self, table: str, fresh: DataFrame) -> None:
        print("parquet writing", table, flush=True)
        super().overwrite(table, fresh)


def opened(files: Files, kept_as: TableFormat) -> TableStore:
    return TalkingDelta(files) if kept_as is TableFormat.DELTA else TalkingParquet(files)


def main(bootstrap: str, journal: str, path: str, jars: str, *formats: str) -> None:
    spark = job_session("tables", jars, f"{path}-warehouse")

    def keep(kept_as: TableFormat) -> None:
        keep_tables(
            spark.newSession(),  # a session has one query of a name
            JournalSource(bootstrap, journal),
            f"{path}/{kept_as.value}",
            kept_as=kept_as,
            once=True,
            max_offsets=BATCH_OFFSETS,
            told=lambda batch: print(kept_as.value, "batch", batch.number, flush=True),
            opened=opened,
        )

    sys.stdin.readline()
    for each in formats:
        begin(partial(keep, TableFormat(each)))
    die_with_parent()
