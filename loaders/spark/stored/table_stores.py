"""Where the journal tables are kept: in Delta Lake, or in plain Parquet. In both, applying a batch again changes
nothing, and all that a batch changes in a table appears at once.

Delta Lake, `<path>/<table>`: each change is one commit of the table, with the batch's number as Delta's transaction
(`txnAppId`, `txnVersion`). So an earlier batch never undoes what a later one has changed.

Parquet, `<path>/<table>/<batch>`: a table that a batch changes is written anew, and the file that says that the batch
is done (`table_batches`) names the directory of every table. So all tables change together. The tables of the newest
batch and of the one before it are kept, for readers.
"""

from __future__ import annotations

import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from journal.errors import ConfigError
from loaders.spark.session.failures import java_causes
from loaders.spark.stored.files import Files
from loaders.spark.stored.table_batches import BatchLog, TableBatch, ends_text

_GONE = "_gone"
_MATERIALIZE = "spark.databricks.delta.merge.materializeSource"
_DELTA_APP = "kafka-journal tables"
_DELTA_WRITE = "spark.databricks.delta.write"
_DELTA_CONFLICT = "io.delta.exceptions."
_DELTA_LOG = "_delta_log"


class TableFormat(Enum):
    """The file format of kept tables."""

    DELTA = "delta"
    PARQUET = "parquet"


class TableStore(ABC):
    """The tables below a path. A batch changes each of them at most once."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.batches = BatchLog(files)

    @abstractmethod
    def read(self, spark: SparkSession, table: str) -> DataFrame | None:
        """A table as it is, including what the current batch has changed; None if there is no such table yet."""

    def begin(self, batch: TableBatch) -> None:
        """Begin a batch: all changes from now on belong to it."""
        self.batches.begin(batch)
        self._batch = batch

    @abstractmethod
    def replace(self, table: str, keys: Sequence[str], fresh: DataFrame, gone: DataFrame | None = None) -> None:
        """Put the rows of `fresh` in the place of those with the same keys, and delete the rows with the keys in
        `gone`."""

    @abstractmethod
    def overwrite(self, table: str, fresh: DataFrame) -> None:
        """Put `fresh` in the place of the whole table."""

    def commit(self) -> None:
        """End the batch."""
        self.batches.commit(self._batch)

    @abstractmethod
    def newest_change(self, table: str) -> int:
        """The number of the newest batch that has changed a table, according to the table; -1 if it names none."""

    def require_known(self, tables: Sequence[str]) -> None:
        """Raises ConfigError if a table has a batch that `batches` never began: the batches were restored from a
        backup, and the table was not."""
        changed = {table: self.newest_change(table) for table in tables}
        newest = self.batches.cut_off() or self.batches.newest()
        ahead, number = max(changed, key=lambda table: changed[table]), -1 if newest is None else newest.number
        if changed[ahead] > number:
            known = "the beginning" if newest is None else f"batch {number}, which ends at {ends_text(newest.end)}"
            raise ConfigError(
                f"{self._files.place(ahead)} has batch {changed[ahead]}, and {self._files.place('batches')} ends with "
                f"{known}: put back all that belongs to one moment, or keep the tables anew elsewhere"
            )


def superseded(stored: DataFrame | None, scope: DataFrame, fresh: DataFrame, keys: Sequence[str]) -> DataFrame | None:
    """The keys of stored rows that match `scope` in its columns, and that have no row in `fresh`."""
    if stored is None:
        return None
    of_scope = stored.join(scope, scope.columns, "left_semi").select(*keys)
    return of_scope.join(fresh.select(*keys).alias("fresh"), _same(of_scope, fresh, keys), "left_anti")


class DeltaStore(TableStore):
    """Tables of Delta Lake."""

    def __init__(self, files: Files) -> None:
        super().__init__(files)
        self._changed: set[str] = set()

    def read(self, spark: SparkSession, table: str) -> DataFrame | None:
        if not self._is_there(table):
            return None
        return spark.read.format("delta").load(self._files.place(table))

    def begin(self, batch: TableBatch) -> None:
        super().begin(batch)
        self._changed.clear()

    def replace(self, table: str, keys: Sequence[str], fresh: DataFrame, gone: DataFrame | None = None) -> None:
        if not self._is_there(table):
            self._write(table, fresh, "append")
            return
        source = fresh.withColumn(_GONE, F.lit(False))
        if gone is not None:
            source = source.unionByName(gone.withColumn(_GONE, F.lit(True)), allowMissingColumns=True)
        source = source.localCheckpoint()
        if not source.isEmpty():
            self._merge(table, keys, source)

    def overwrite(self, table: str, fresh: DataFrame) -> None:
        self._write(table, fresh, "overwrite")

    def newest_change(self, table: str) -> int:
        for name in reversed(self._commits(table)):
            for line in self._files.text(f"{table}/{_DELTA_LOG}/{name}").splitlines():
                if (told := json.loads(line).get("txn")) and told["appId"] == _DELTA_APP:
                    return int(told["version"])
        return -1

    def _is_there(self, table: str) -> bool:
        """Whether the table's log has a commit. A log folder without one belongs to a job that was killed at its first
        commit."""
        return bool(self._commits(table))

    def _commits(self, table: str) -> list[str]:
        return sorted(name for name in self._files.names(f"{table}/{_DELTA_LOG}") if name.endswith(".json"))

    def _write(self, table: str, fresh: DataFrame, mode: str) -> None:
        fresh.write.format("delta").mode(mode).options(**self._once(table)).save(self._files.place(table))

    def _once(self, table: str) -> Mapping[str, str]:
        """Options that apply a change once: Delta silently omits a change with this batch's number or an older one."""
        assert table not in self._changed, (
            f"batch {self._batch.number} changes {table} twice: the second one would be lost"
        )
        self._changed.add(table)
        return {"txnAppId": _DELTA_APP, "txnVersion": str(self._batch.number)}

    def _merge(self, table: str, keys: Sequence[str], source: DataFrame) -> None:
        place = self._files.place(table).replace("`", "``")
        view = f"changes_of_{table}"
        same = " AND ".join(f"kept.`{key}` <=> new.`{key}`" for key in keys)
        # the rows are computed already, and Delta need not compute them again
        once = {f"{_DELTA_WRITE}.{name}": value for name, value in self._once(table).items()}
        with _settings(source.sparkSession, once | {_MATERIALIZE: "none"}):
            source.createOrReplaceTempView(view)
            source.sparkSession.sql(
                f"MERGE INTO delta.`{place}` AS kept USING {view} AS new ON {same} "
                f"WHEN MATCHED AND new.{_GONE} THEN DELETE "
                "WHEN MATCHED THEN UPDATE SET * "
                f"WHEN NOT MATCHED AND NOT new.{_GONE} THEN INSERT *"
            )
            source.sparkSession.catalog.dropTempView(view)


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of the session for a while. A later write to any Delta table of the session that still had the number of
    this batch would be omitted silently."""
    former = {name: spark.conf.get(name, None) for name in settings}
    _set(spark, settings)
    try:
        yield
    finally:
        _set(spark, former)


def _set(spark: SparkSession, settings: Mapping[str, str | None]) -> None:
    for name, value in settings.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


class ParquetStore(TableStore):
    """A snapshot of each table, and a file that says which snapshots belong together."""

    def __init__(self, files: Files) -> None:
        super().__init__(files)
        self._reload()

    def read(self, spark: SparkSession, table: str) -> DataFrame | None:
        place = self._places.get(table)
        return None if place is None else spark.read.parquet(self._files.place(place))

    def begin(self, batch: TableBatch) -> None:
        super().begin(batch)
        self._reload()
        self._directory = f"{batch.number:012d}-{secrets.token_hex(4)}"

    def replace(self, table: str, keys: Sequence[str], fresh: DataFrame, gone: DataFrame | None = None) -> None:
        stored = self.read(fresh.sparkSession, table)
        written = fresh
        if stored is not None:
            out = fresh.select(*keys) if gone is None else fresh.select(*keys).unionByName(gone.select(*keys))
            out = out.localCheckpoint()
            if out.isEmpty():
                return
            written = stored.join(out, _same(stored, out, keys), "left_anti").unionByName(fresh)
        self.overwrite(table, written)

    def overwrite(self, table: str, fresh: DataFrame) -> None:
        place = f"{table}/{self._directory}"
        fresh.write.parquet(self._files.place(place))
        self._places[table] = place

    def commit(self) -> None:
        self._batch = replace(self._batch, tables=self._places)
        super().commit()
        self._forget()

    def newest_change(self, table: str) -> int:
        return max((int(name.partition("-")[0]) for name in self._files.names(table) if name[0] != "."), default=-1)

    def _reload(self) -> None:
        newest = self.batches.newest()
        self._places = {} if newest is None else dict(newest.tables)

    def _forget(self) -> None:
        """Delete the snapshots that neither this batch nor the one before it names, and the files that interrupted
        batches have left."""
        kept = {place for batch in self.batches.kept() for place in batch.tables.values()}
        for table in self._places:
            for directory in self._files.names(table):
                if f"{table}/{directory}" not in kept:
                    self._files.delete(f"{table}/{directory}")


def open_store(files: Files, kept_as: TableFormat) -> TableStore:
    """The tables below a path."""
    return DeltaStore(files) if kept_as is TableFormat.DELTA else ParquetStore(files)


def is_delta_conflict(error: Exception) -> bool:
    """Whether Delta refused a change because another one was committed first."""
    return any(cause.name.startswith(_DELTA_CONFLICT) for cause in java_causes(error))


def _same(one: DataFrame, other: DataFrame, keys: Sequence[str]) -> Column:
    return reduce(lambda left, right: left & right, (one[key].eqNullSafe(other[key]) for key in keys))
