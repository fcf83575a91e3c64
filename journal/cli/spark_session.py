"""Spark for a command: a session of its own, or the one that is there; and what it says when it fails."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from journal.errors import OperatingError
from loaders.spark.packages import READING, Part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

SMALL: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.showConsoleProgress": "false",
}
"""For what fits one machine."""


@contextmanager
def spark_session(
    name: str,
    master: str | None,
    parts: Collection[Part] = READING,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """The session that is there (`spark-submit` has made one), or one of this command alone with these settings.

    Raises OperatingError for what Spark refuses, or fails at, that means nothing for the journal: a file system or a
    master that it does not know, a path that cannot be written, a lost executor. In one line; all of it is logged for
    `--verbose`.
    """
    # PySpark is an extra, and takes a second to import; the second of these says so if there is none
    from loaders.spark.chatter import starting_spark
    from loaders.spark.session import make_session, running_session

    own = settings if running_session() is None else None
    # behind that one, which knows whether there is a PySpark
    from loaders.spark.failures import SPARK_ERRORS, in_words

    try:
        with starting_spark(quiet=not logging.getLogger().isEnabledFor(logging.DEBUG)):
            spark = make_session(name, parts=parts, master=master, settings=own)
        try:
            yield spark
        finally:
            if spark.sparkContext.appName == name:
                spark.stop()
    except SPARK_ERRORS as error:
        log.debug("what Spark raised", exc_info=error)
        raise OperatingError(f"Spark: {in_words(error)}") from error


def further_parts(archive: str | None) -> frozenset[Part]:
    """What a session of this command alone needs beside, to read the archive at a path: Delta Lake, if it is kept so.

    A session that is there, or that `spark-submit` makes, has what it was started with: whoever reads the archive says
    what is missing.
    """
    from loaders.spark.session import is_submitted, running_session

    if archive is None or running_session() is not None or is_submitted():
        return frozenset()
    return frozenset({Part.DELTA}) if may_be_in_delta(archive) else frozenset()


def may_be_in_delta(archive: str) -> bool:
    """Before Spark runs that is known only of an archive in this machine's files; one that is elsewhere may be."""
    match urlsplit(archive).scheme:
        case "":
            local = archive
        case "file":
            local = urlsplit(archive).path
        case _:
            return True
    return Path(local, "table", "_delta_log").exists()
