"""Where jobs archived and kept tables until their process was killed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.children.killed_jobs import TABLES
from tests.support.spark.history import History
from tests.support.spark.jobs import KILLED, ended_jobs, jars_of
from tests.support.spark.written_wal import Written, make_written

_ARCHIVE_MOMENTS = ("files", "manifest", "delta")


@dataclass(frozen=True, slots=True)
class Killed:
    """What killed jobs have left behind."""

    archives: dict[str, Written]
    """The archived journals, by the moment at which their jobs stopped."""
    tables: Path
    """The directory of the tables of the history; each format has a directory of its name there."""


def kill_jobs(spark: SparkSession, bootstrap: str, history: History, directory: Path) -> Killed:
    """Run the jobs in one process until each has come to its moment, and kill it."""
    archives = {moment: make_written(bootstrap, directory / moment) for moment in _ARCHIVE_MOMENTS}
    for each in archives.values():
        each.frames(20)
    jobs = [(of.source.journal, of.path, moment) for moment, of in archives.items()]
    tables = directory / "tables"
    jobs += [(history.source.journal, f"{tables}/{kept_as.value}", moment) for moment, kept_as in TABLES.items()]
    code, said = ended_jobs("killed_jobs", bootstrap, jars_of(spark), *(word for job in jobs for word in job))
    assert code == KILLED, said
    return Killed(archives, tables)
