"""A standalone Spark on loopback: a master and a worker, each a process in a directory of its own; and a server of
Spark Connect. What they have in common with drivers is this machine's files, where these are named by a URI or an
absolute path."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

import pyspark

from journal.embedded.ports import choose_free_ports
from tests.support.processes.child import program
from tests.support.spark.jobs import INTERPRETED, QUICK_JAVA, SETTINGS

_HOME = Path(pyspark.__file__).parent
_LOOPBACK = "127.0.0.1"
_UP_S = 60.0
_LOOK_S = 0.05
_END_S = 30.0
_PIPELINE_S = 200.0
_CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_SERVED = INTERPRETED | {
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
    "spark.connect.grpc.binding.address": _LOOPBACK,
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
}
_EXECUTOR = {"spark.executor.memory": "600m", "spark.executor.extraJavaOptions": QUICK_JAVA}


class SparkCluster:
    """`master` is its URL."""

    def __init__(self, master: str, directory: Path) -> None:
        self.master = master
        self._directory = directory

    def submit(self, module: str, *arguments: str, jars: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
        """A module as `spark-submit` runs it, in a directory that is no worker's. Raises subprocess.TimeoutExpired, and
        ends it."""
        here = self._directory / "driver"
        here.mkdir(exist_ok=True)
        job = here / "job.py"
        job.write_text(f"from {module} import main\n\nmain()\n")
        given = SETTINGS | _EXECUTOR
        options = [option for name, value in given.items() for option in ("--conf", f"{name}={value}")]
        command = [_HOME / "bin/spark-submit", "--master", self.master, "--jars", jars, *options, job, *arguments]
        with _process(command, here, subprocess.PIPE, subprocess.PIPE) as process:
            output, errors = process.communicate(timeout=timeout_s)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


@contextmanager
def spark_cluster(directory: Path) -> Iterator[SparkCluster]:
    """Until it is left, with one worker of one core; everything that they have started ends with them."""
    port, master_page, worker_page = choose_free_ports(3, ())
    url = f"spark://{_LOOPBACK}:{port}"
    master = ("master.Master", "--host", _LOOPBACK, "--port", port, "--webui-port", master_page)
    worker = ("worker.Worker", url, "--host", _LOOPBACK, "--cores", 1, "--memory", "700m")
    directory.mkdir(parents=True)
    with ExitStack() as running:
        running.enter_context(_daemon(directory / "master", *master))
        _wait_for(port)
        running.enter_context(
            _daemon(directory / "worker", *worker, "--webui-port", worker_page, "--work-dir", directory / "work")
        )
        yield SparkCluster(url, directory)


@contextmanager
def connect_server(directory: Path, python: str) -> Iterator[str]:
    """A Spark that serves Spark Connect until it is left, with workers of that `python`. The result is its URL. Tables
    with a name are in its `directory`, below `spark-warehouse`."""
    (port,) = choose_free_ports(1, ())
    settings = _SERVED | {"spark.connect.grpc.binding.port": str(port)}
    options = [option for name, value in settings.items() for option in ("--conf", f"{name}={value}")]
    server = ("SparkSubmit", "--master", "local[2]", *options, "--class", _CONNECT_SERVER, "spark-internal")
    with _daemon(directory, *server, python=python):
        _wait_for(port)
        yield f"sc://{_LOOPBACK}:{port}"


def run_pipeline(url: str, specification: Path) -> str:
    """Run a Declarative Pipeline by Spark's own command, on the server at `url`; gives what the command says."""
    command = [_HOME / "bin/spark-pipelines", "--remote", url, "run", "--spec", specification]
    with _process(command, specification.parent, subprocess.PIPE, subprocess.STDOUT) as process:
        return str(process.communicate(timeout=_PIPELINE_S)[0])


@contextmanager
def _daemon(directory: Path, name: str, *arguments: object, python: str = sys.executable) -> Iterator[None]:
    directory.mkdir()
    command = [_HOME / "bin/spark-class", f"org.apache.spark.deploy.{name}", *arguments]
    with (directory / "log").open("w") as log, _process(command, directory, log, log, python):
        yield


@contextmanager
def _process(
    command: Sequence[object],
    directory: Path,
    stdout: IO[str] | int,
    stderr: IO[str] | int,
    python: str = sys.executable,
) -> Iterator[subprocess.Popen[str]]:
    """A command that ends, with all that it has started, when this is left, and when this process dies."""
    watched = program("mortal_command", *command)
    held_until, held = os.pipe()
    try:
        process = subprocess.Popen(
            watched,
            cwd=directory,
            env=_environment(python),
            stdin=held_until,
            stdout=stdout,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(_END_S)
    finally:
        os.close(held_until)
        os.close(held)


def _environment(python: str) -> Mapping[str, str]:
    own = {
        "SPARK_HOME": str(_HOME),
        "SPARK_LOCAL_IP": _LOOPBACK,
        "SPARK_DAEMON_MEMORY": "700m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        "PYSPARK_PYTHON": python,
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
            assert time.monotonic() < until, "nothing listens there"
            time.sleep(_LOOK_S)
        else:
            return
