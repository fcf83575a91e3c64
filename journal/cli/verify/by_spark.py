"""`kafka-journal verify --with-spark` runs the audit and prints its differences as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import typer

from journal.cli.common import print_json, print_line
from journal.cli.spark.session import further_parts, spark_session
from journal.cli.tables import print_table
from journal.cli.text import differences_left_out, records_skipped
from journal.config import Settings
from journal.verify import Report
from journal.words import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PARTITIONS = "spark.sql.shuffle.partitions"
_PARTITIONS_PER_CORE = 4
_SETTINGS = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
_NOT_COMPARED = (
    "the loaded state, and what lies behind the marks of the tables: `verify` without --with-spark compares them too"
)


def audited(settings: Settings, master: str | None, archive: str | None, kept_max: int) -> Report:
    """The findings of the audit, in the running Spark or in one of this command alone. Raises the errors of
    `make_session` and `audit`."""
    with spark_session("kafka-journal verify", master, further_parts(archive), _SETTINGS) as spark:
        # this import comes after that of the session, which checks for PySpark
        from loaders.spark.audit.audit import audit
        from loaders.spark.read.source import JournalSource

        _fit_to_machine(spark)
        return audit(spark, JournalSource.from_settings(settings), archive=archive, kept_max=kept_max)


def _fit_to_machine(spark: SparkSession) -> None:
    """On one machine, use a few partitions for each core instead of Spark's 200, unless the user has chosen a
    number."""
    context = spark.sparkContext
    if (context.master or "").startswith("local") and not context.getConf().contains(_PARTITIONS):
        spark.conf.set(_PARTITIONS, str(_PARTITIONS_PER_CORE * context.defaultParallelism))


def show(report: Report, *, as_json: bool) -> NoReturn:
    """Print the report on standard output; returns the exit code."""
    if as_json:
        print_json(report.to_json() | {"not_compared": [_NOT_COMPARED]})
    else:
        _show_tables(report)
    raise typer.Exit(0 if report.agrees else 1)


def _show_tables(report: Report) -> None:
    differences = [one for shard in report.shards for one in shard.differences.kept]
    if differences:
        cells = [(one.shard, one.what, one.key, one.expected, one.found) for one in differences]
        print_table("differences", ("shard", "what", "key", "expected", "found"), cells)
    findings = [finding for shard in report.shards for finding in shard.findings]
    if findings:
        columns = ("topic", "partition", "offset", "why")
        print_table("where the WAL cannot be applied", columns, findings)
    if report.left_out:
        print_line(differences_left_out(report.left_out))
    for shard in report.shards:
        if shard.base:
            print_line(f"shard {shard.shard}: {shard.base}")
        for reason in shard.unchecked:
            print_line(f"shard {shard.shard}: cannot check: {reason}")
    print_line(f"not compared: {_NOT_COMPARED}")
    frames, records = sum(each.wal_records for each in report.shards), sum(each.records for each in report.shards)
    if report.skipped:
        print_line(records_skipped(report.skipped))
    print_line(f"{counted(len(report.shards), 'shard')}, {counted(frames, 'WAL record')}, {counted(records, 'record')}")
    if report.agrees:
        print_line("the WAL and the tables agree" + ("" if report.complete else " where checked"))
    else:
        total = sum(shard.differences.total for shard in report.shards)
        print_line(f"{counted(total, 'difference')}, {counted(len(findings), 'place')} where the WAL cannot be applied")
