"""Tables of a journal as DataFrames, by the data source `kafka_journal`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import DataFrame, SparkSession

from loaders.spark.read.data_source import FORMAT_NAME, KafkaJournal
from loaders.spark.read.options import offsets_option
from loaders.spark.read.source import JournalSource
from loaders.spark.session.failures import journal_errors

_TAKES_FILTERS = "spark.sql.python.filterPushdown.enabled"
"""The setting with which Spark asks Python data sources to take filters."""


def load(
    spark: SparkSession,
    source: JournalSource,
    table: str,
    *,
    starting: Mapping[int, int] | str | None = None,
    ending: Mapping[int, int] | None = None,
    shards: Collection[int] | None = None,
    columns: Collection[str] | None = None,
) -> DataFrame:
    """A table, read anew by every action. Raises the errors of `source.control`, and ConfigError for an option that
    cannot be."""
    options = _options(source, table, starting, ending, shards, columns)
    if spark.conf.get(_TAKES_FILTERS, "false") == "true":
        options["filters"] = "true"
    _register(spark)
    with journal_errors():
        table_ = spark.read.format(FORMAT_NAME).options(**options).load()
        table_.schema  # noqa: B018  where Spark is asked through Connect, only this asks it
    return table_


def load_stream(
    spark: SparkSession,
    source: JournalSource,
    table: str,
    *,
    starting: Mapping[int, int] | str | None = None,
    max_offsets: int | None = None,
    columns: Collection[str] | None = None,
) -> DataFrame:
    """A table as a stream. `starting` counts for a query without a checkpoint; `max_offsets` bounds a micro-batch.
    Raises the errors of `load`."""
    options = _options(source, table, starting, None, None, columns)
    if max_offsets is not None:
        options["max_offsets"] = str(max_offsets)
    _register(spark)
    with journal_errors():
        table_ = spark.readStream.format(FORMAT_NAME).options(**options).load()
        table_.schema  # noqa: B018
    return table_


def _register(spark: SparkSession) -> None:
    """Make the data source known to a session. Spark refuses to if another session, which knows it already, is the
    active one of the thread that asks; so a thread asks that has no active session."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(spark.dataSource.register, KafkaJournal).result()


def _options(
    source: JournalSource,
    table: str,
    starting: Mapping[int, int] | str | None,
    ending: Mapping[int, int] | None,
    shards: Collection[int] | None,
    columns: Collection[str] | None,
) -> dict[str, str]:
    given = {
        "table": table,
        "start": offsets_option(starting) if isinstance(starting, Mapping) else starting,
        "end": None if ending is None else offsets_option(ending),
        "shards": None if shards is None else ",".join(map(str, shards)),
        "columns": None if columns is None else ",".join(columns),
    }
    return source.reader_options() | {name: value for name, value in given.items() if value is not None}
