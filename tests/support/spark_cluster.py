"""A standalone Spark on loopback: a master and a worker, each a process, with nothing in common with drivers but
directories that are named by a URI."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyspark

from journal.kafka.embedded_ports import choose_free_ports
from tests.support.spark_jobs import INTERPRETED, SETTINGS

_HOME = Path(pyspark.__file__).parent
_LOOPBACK = "127.0.0.1"
_UP_S = 120.0
_LOOK_S = 0.05
_END_S = 30.0
_QUICK_JAVA = SETTINGS["spark.driver.extraJavaOptions"]
_EXECUTOR = {"spark.executor.memory": "600m", "spark.executor.extraJavaOptions": _QUICK_JAVA}


class SparkCluster:
    """`master` is its URL."""

    def __init__(self, master: str, directory: Path) -> None:
        self.master = master
        self._directory = directory

    def submit(self, module: str, *arguments: str, jars: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
        """A module as `spark-submit` runs it, in a directory that is no worker's."""
        here = self._directory / "driver"
        here.mkdir(exist_ok=True)
        job = here / "job.py"
        job.write_text(f"from {module} import main\n\nmain()\n")
        given = SETTINGS | INTERPRETED | _EXECUTOR
        options = [option for name, value in given.items() for option in ("--conf", f"{name}={value}")]
        command = [_HOME / "bin/spark-submit", "--master", self.master, "--jars", jars, *options, job, *arguments]
        return subprocess.run(
            list(map(str, command)), cwd=here, env=_environment(), capture_output=True, text=True, timeout=timeout_s
        )


@contextmanager
def spark_cluster(directory: Path) -> Iterator[SparkCluster]:
    """Until it is left, with one worker of one core; everything that they have started ends with them."""
    port, master_page, worker_page = choose_free_ports(3, ())
    url = f"spark://{_LOOPBACK}:{port}"
    master = ("master.Master", "--host", _LOOPBACK, "--port", port, "--webui-port", master_page)
    worker = ("worker.Worker", url, "--host", _LOOPBACK, "--cores", 1, "--memory", "700m")
    directory.mkdir(parents=True)
    with ExitStack() as running:
        running.enter_context(_process(directory / "master", *master))
        _wait_for(port)
        running.enter_context(
            _process(directory / "worker", *worker, "--webui-port", worker_page, "--work-dir", directory / "work")
        )
        yield SparkCluster(url, directory)


@contextmanager
def _process(directory: Path, name: str, *arguments: object) -> Iterator[None]:
    directory.mkdir()
    command = [str(_HOME / "bin/spark-class"), f"org.apache.spark.deploy.{name}", *map(str, arguments)]
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=directory, env=_environment(), stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(_END_S)


def _environment() -> Mapping[str, str]:
    own = {
        "SPARK_HOME": str(_HOME),
        "SPARK_LOCAL_IP": _LOOPBACK,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": _QUICK_JAVA,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    return os.environ | own


def _wait_for(port: int) -> None:
    """A worker that finds no master asks again much later."""
    until = time.monotonic() + _UP_S
    while True:
        try:
            socket.create_connection((_LOOPBACK, port), timeout=_LOOK_S).close()
        except OSError:
            assert time.monotonic() < until, "the master does not come up"
            time.sleep(_LOOK_S)
        else:
            return
