"""Spark for a command: an existing session or one of its own, and the errors of Spark."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from journal.cli.common import print_note
from journal.errors import OperatingError
from journal.process.stop_requests import StopRequests
from loaders.spark.session.packages import SparkPart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

SMALL: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings for work that fits on one machine."""


@contextmanager
def spark_session(
    name: str,
    master: str | None,
    parts: Collection[SparkPart] = (),
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """The existing session (`spark-submit` makes one), or one of this command alone with these settings.

    Raises OperatingError, in one line, for failures of Spark that say nothing of the journal: a file system or a master
    that it does not know, a path that cannot be written, a lost executor. `--verbose` logs all of it. On Ctrl-C it
    waits for nothing: Spark ends after this process.
    """
    # PySpark is an extra and takes a second to import; the second import raises the error if it is missing
    from loaders.spark.session.chatter import starting_spark
    from loaders.spark.session.session import make_session, running_session

    own = settings if running_session() is None else None
    # this import comes after the one above, which checks for PySpark
    from loaders.spark.session.failures import SPARK_ERRORS, in_words

    try:
        with starting_spark(quiet=not logging.getLogger().isEnabledFor(logging.DEBUG)):
            spark = make_session(name, parts=parts, master=master, settings=own)
        with _interrupted_by_ctrl_c(), ExitStack() as stopping:
            if spark.sparkContext.appName == name:
                stopping.callback(spark.stop)
            try:
                yield spark
            except KeyboardInterrupt:
                stopping.pop_all()
                raise
    except SPARK_ERRORS as error:
        log.debug("what Spark raised", exc_info=error)
        raise OperatingError(f"Spark: {in_words(error)}") from error


@contextmanager
def _interrupted_by_ctrl_c() -> Iterator[None]:
    """Answer Ctrl-C without a call to Spark, which may be busy: PySpark's own handler would first make Spark cancel its
    work. A second Ctrl-C ends the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    requests = StopRequests()

    def on_ctrl_c(number: int, _frame: object) -> None:
        if requests.hear(number):
            print_note("stopping; again, and it ends at once")
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, on_ctrl_c)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def further_parts(archive: str | None) -> frozenset[SparkPart]:
    """The further parts that a command's own session needs to read the archive at a path: Delta Lake, if the archive
    has that format. An existing session has the parts it was started with, and the reader says what is missing."""
    from loaders.spark.session.session import is_submitted, running_session

    if archive is None or running_session() is not None or is_submitted():
        return frozenset()
    return frozenset({SparkPart.DELTA}) if may_be_in_delta(archive) else frozenset()


def may_be_in_delta(archive: str) -> bool:
    """Whether the archive may be in Delta Lake. Before Spark runs, only an archive in local files can be checked; any
    other may be in that format."""
    match urlsplit(archive).scheme:
        case "":
            local = archive
        case "file":
            local = urlsplit(archive).path
        case _:
            return True
    return Path(local, "table", "_delta_log").exists()
