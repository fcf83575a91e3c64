"""How a Spark is started for jobs that are killed: small, and with the packages that the tests' own Spark has found."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from pyspark.sql import SparkSession

from loaders.spark.session import make_session
from tests.support.brokers import JVM_OPTIONS

QUICK_JAVA = " ".join((*JVM_OPTIONS, "-XX:+UseSerialGC"))
"""For a minute of small jobs."""

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Of queries over a few hundred rows, compiling them is a third of the cost. They are compiled, as everywhere else, in
what `spark_cluster` submits and in commands that start a Spark of their own."""

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
    "spark.databricks.delta.snapshotPartitions": "1",
}
_JARS = "spark.jars"


def jars_of(spark: SparkSession) -> str:
    """The files of a session's packages: whoever starts with them need not resolve them again."""
    return str(spark.sparkContext.getConf().get(_JARS))


def job_session(name: str, jars: str, warehouse: str) -> SparkSession:
    """In a process of its own. `warehouse` is where it makes a directory, which a killed process cannot remove."""
    settings = SETTINGS | INTERPRETED | {_JARS: jars, "spark.sql.warehouse.dir": warehouse}
    return make_session(name, parts=(), master="local[2]", settings=settings)


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
