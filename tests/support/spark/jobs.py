"""How a Spark is started for jobs that are killed: small, and with the packages that the tests' own Spark has found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NoReturn

from pyspark.sql import SparkSession

from loaders.spark.session.session import make_session
from tests.support.brokers import JVM_OPTIONS
from tests.support.processes.child import program

QUICK_JAVA = " ".join(
    (
        *JVM_OPTIONS,
        "-XX:+UseSerialGC",
        "-XX:ReservedCodeCacheSize=240m",
        "-XX:+UnlockDiagnosticVMOptions",
        "-XX:-BytecodeVerificationRemote",
    )
)
"""For minutes of small jobs. With one compiler alone, Java has room for 48 MB of compiled code. Spark has filled them
after a minute, and from then on Java throws code away and compiles it again. To verify what is in Spark's jars is a
tenth of a start."""

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Spark does not compile queries here: over a few hundred rows, that is a third of their cost. Queries are compiled, as
everywhere else, in what `spark_cluster` submits and in commands that start a Spark of their own."""

SMALL_DELTA = {
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.stats.collect": "false",
    "spark.databricks.delta.stats.skipping": "false",
}
"""For tables of a few hundred rows. What their columns go from and to, for readers to pass files over, is a seventh of
the cost of keeping them."""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "700m",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.showConsoleProgress": "false",
} | SMALL_DELTA
KILLED = -signal.SIGKILL
JOB_TIMEOUT_S = 600.0
_JARS = "spark.jars"


def jars_of(spark: SparkSession) -> str:
    """The files of a session's packages: whoever starts with them need not resolve them again."""
    return str(spark.sparkContext.getConf().get(_JARS))


def job_session(name: str, jars: str, warehouse: str) -> SparkSession:
    """In a process of its own. `warehouse` is where it makes a directory, which a killed process cannot remove."""
    settings = SETTINGS | INTERPRETED | {_JARS: jars, "spark.sql.warehouse.dir": warehouse}
    return make_session(name, parts=(), master="local[2]", settings=settings)


def ended_jobs(name: str, *arguments: str) -> tuple[int, str]:
    """The exit code of a program of these, and its log, once it has died; `KILLED`, if as it should."""
    jobs = subprocess.Popen(
        program(name, *arguments),
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    with ThreadPoolExecutor(1) as drain:
        assert jobs.stderr is not None
        reading = drain.submit(jobs.stderr.read)
        try:
            jobs.wait(JOB_TIMEOUT_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(jobs.pid, signal.SIGKILL)
        return jobs.wait(), reading.result().decode(errors="replace")


class Ends:
    """Where jobs of one process stop; then it dies."""

    def __init__(self) -> None:
        self._reached = threading.Semaphore(0)

    def go_no_further(self) -> NoReturn:
        """For a job that has come to its moment."""
        self._reached.release()
        threading.Event().wait()
        raise AssertionError

    def die_behind(self, jobs: int) -> NoReturn:
        """When so many have."""
        begin(die_with_parent)
        for _ in range(jobs):
            self._reached.acquire()
        die()


def begin(job: Callable[[], object]) -> None:
    """Run a job beside others; an error of one ends the process."""
    threading.excepthook = _end
    threading.Thread(target=job, daemon=True).start()


def _end(ended: threading.ExceptHookArgs) -> None:
    threading.__excepthook__(ended)
    os._exit(1)


def die() -> NoReturn:
    """The process, and its JVM."""
    os.killpg(0, signal.SIGKILL)
    raise AssertionError


def die_with_parent() -> NoReturn:
    """Once nobody holds standard input open any more."""
    sys.stdin.read()
    die()
