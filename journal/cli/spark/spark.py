"""`kafka-journal spark` names the packages that Spark needs, tries them, and shows a little of what Spark reads.

Results go to standard output. What Spark says goes to standard error (with `--verbose`, or if it does not start). Exit
codes: 0: done; 1: something cannot be had; 2: wrong usage.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from journal.cli.common import Chosen, JsonOption, exit_codes, journal_command, print_json, print_line, print_note
from journal.cli.spark.analytics import add_to as add_analytics
from journal.cli.spark.archive import add_to as add_archive
from journal.cli.spark.replay import add_to as add_replay
from journal.cli.spark.session import SMALL, further_parts, spark_session
from journal.cli.spark.tables import add_to as add_tables
from journal.cli.tables import print_table
from journal.cli.text import printable
from journal.errors import ConfigError
from journal.words import called
from loaders.spark.session.packages import SparkPart, installed_pyspark, packages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from loaders.spark.read.source import JournalSource

app = typer.Typer(no_args_is_help=True, help="Spark: the packages that it needs, and a look at what it reads.")

DeltaOption = Annotated[bool, typer.Option("--delta", help="Include Delta Lake.")]
MasterOption = Annotated[str, typer.Option(help="Spark's master URL.")]
_NAME = "kafka-journal"
"""The name of a session that only shows something; it needs no web page and few partitions."""


add_analytics(app)
add_archive(app)
add_tables(app)
add_replay(app)


class What(Enum):
    """What `spark read` shows."""

    WAL = "wal"
    TABLE = "table"
    TRANSACTIONS = "transactions"


@app.command("packages")
def packages_(delta: DeltaOption = False, as_json: JsonOption = False) -> None:
    """Print the packages for the installed PySpark, as `spark-submit --packages` takes them."""
    with exit_codes():
        coordinates = packages(installed_pyspark(), _parts(delta))
    if as_json:
        print_json({"packages": coordinates})
    else:
        print_line(",".join(coordinates))


@app.command()
def check(delta: DeltaOption = False, master: MasterOption = "local[1]", as_json: JsonOption = False) -> None:
    """Start Spark with these packages, and stop it again. The first time, this downloads them."""
    with exit_codes(), spark_session(_NAME, master, _parts(delta), SMALL) as spark:
        version = spark.version
    parts = sorted(part.value for part in _parts(delta))
    if as_json:
        print_json({"spark": version, "parts": parts})
    else:
        print_line(" with ".join([f"Spark {version} starts on {master}", *parts]))


@app.command()
@journal_command
def read(
    chosen: Chosen,
    what: Annotated[
        What, typer.Argument(help="What to read: the WAL's operations, the table's records, or transactions in doubt.")
    ],
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many rows to show.")] = 20,
    store: Annotated[
        bool, typer.Option("--store", help="Add columns that say what the rows mean to a message store.")
    ] = False,
    from_trimmed: Annotated[
        bool, typer.Option("--from-trimmed", help="For a trimmed WAL: read what is left of it.")
    ] = (False),
    archive: Annotated[
        str | None, typer.Option("--archive", help="For a trimmed WAL: also read the archive at this path.")
    ] = None,
    master: MasterOption = "local[*]",
    as_json: JsonOption = False,
) -> None:
    """Show the first rows in order, as Spark reads them. Standard error names records that are no frames or rows, and
    skipped records."""
    for option, is_given in (("--from-trimmed", from_trimmed), ("--archive", archive is not None)):
        if is_given and what is not What.WAL:
            raise ConfigError(f"{option} is of the WAL: it has no meaning for {what.value}")
    if from_trimmed and archive is not None:
        raise ConfigError("--from-trimmed is without what was trimmed, --archive with it: give one of them")
    settings = chosen.settings()
    with spark_session(_NAME, master, further_parts(archive), SMALL) as spark:
        # the import is here, because only this command needs PySpark
        from loaders.spark.read.source import JournalSource
        from loaders.spark.session.failures import journal_errors

        source = JournalSource.from_settings(settings)
        with journal_errors():
            rows, dead_letters, skipped = _read(
                spark, source, what, store=store, from_trimmed=from_trimmed, archive=archive
            )
            found = [row.asDict(recursive=True) for row in rows.limit(limit).collect()]
            damaged = [] if dead_letters is None else dead_letters.limit(limit).collect()
            left_out = [] if skipped is None else skipped.orderBy("shard", "offset").limit(limit).collect()
    for letter in damaged:
        _warn(f"{letter['topic']}[{letter['partition']}]@{letter['offset']}: {letter['reason']}")
    for row in left_out:
        _warn(f"{source.wal}[{row['shard']}]@{row['offset']}: skipped by {row['operator']}: {row['reason']}")
    if as_json:
        print_json([_plain(row) for row in found])
    else:
        title = f"{what.value} of {called(settings.journal)}"
        print_table(title, rows.columns, [[_shown(cell) for cell in row.values()] for row in found])


def _read(
    spark: SparkSession, source: JournalSource, what: What, *, store: bool, from_trimmed: bool, archive: str | None
) -> tuple[DataFrame, DataFrame | None, DataFrame | None]:
    """The rows in order, the records that are no rows, and the records that operators have had skipped."""
    from loaders.spark.read.readers import read_table, read_transactions, read_wal
    from loaders.spark.read.source import EARLIEST, identity
    from loaders.spark.read.start import readable_start
    from loaders.spark.tables.store_columns import with_store_columns

    if what is What.TRANSACTIONS:
        return read_transactions(spark, source).transactions.orderBy("tx"), None, None
    table = read_table(spark, source)
    if what is What.WAL:
        if archive is None:
            journal = identity(source)
            left = dict.fromkeys(range(journal.shards), EARLIEST)
            mend = "--archive PATH reads it from there, --from-trimmed shows what is left"
            start = left if from_trimmed else readable_start(source, journal, mend=mend)
            wal = read_wal(spark, source, starting=start)
        else:
            wal = read_wal(spark, source, include_archive=archive)
        rows, order, letters = wal.operations, ["shard", "offset", "index"], wal.dead_letters
    else:
        rows, order, letters = table.records, ["shard", "id"], table.dead_letters
    return (with_store_columns(rows) if store else rows).orderBy(*order), letters, table.skipped


def _parts(delta: bool) -> frozenset[SparkPart]:
    return frozenset({SparkPart.DELTA} if delta else ())


# ---- words -------------------------------------------------------------------------------------------------


def _warn(told: str) -> None:
    print_note(told, style="yellow")


def _plain(value: Any) -> Any:
    """A value as JSON has it: bytes in base64, times in UTC."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return value


def _shown(value: Any) -> str:
    """A value as a table's cell shows it."""
    if value is None:
        return ""
    if isinstance(value, bytes | bytearray):
        return printable(bytes(value))
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    if isinstance(value, dict):
        return " ".join(f"{name}={_shown(each)}" for name, each in value.items())
    if isinstance(value, list):
        return "; ".join(_shown(each) for each in value)
    return str(value)
