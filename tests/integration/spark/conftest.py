"""One small Spark for the whole run, with all packages; one journal of a message store that its tests read; and what
jobs left behind whose process was killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from loaders.spark.session.packages import SparkPart
from loaders.spark.session.session import make_session
from tests.support.spark.history import History, write_history
from tests.support.spark.jobs import INTERPRETED, QUICK_JAVA, SMALL_DELTA
from tests.support.spark.killed import Killed, kill_jobs
from tests.support.spark.preloaded import preloaded_python

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
SETTINGS = {
    **INTERPRETED,
    **SMALL_DELTA,
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    JAVA_OPTIONS: f"{QUICK_JAVA} -Xmn400m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    # planning a query over a few hundred rows again after each stage is a quarter of its cost
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # what nobody looks at: plans written out at length, and those of the last thousand queries
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.ui.retainedExecutions": "10",
}


@pytest.fixture(scope="session")
def python() -> Iterator[str]:
    """What Spark runs its workers with."""
    with preloaded_python() as path:
        yield path


@pytest.fixture(scope="session")
def spark(python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    settings = SETTINGS | {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", python)
        session = make_session("kafka-journal tests", parts=frozenset(SparkPart), master="local[2]", settings=settings)
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()


@pytest.fixture(scope="session")
def history(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> History:
    """Written once; nothing writes to it any more."""
    return write_history(bootstrap, tmp_path_factory.mktemp("history"))


@pytest.fixture(scope="session")
def killed(spark: SparkSession, bootstrap: str, history: History, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """One process for all jobs that are killed: it is the start of Spark that costs."""
    return kill_jobs(spark, bootstrap, history, tmp_path_factory.mktemp("killed"))
