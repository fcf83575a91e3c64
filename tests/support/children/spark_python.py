"""Forks a Python that has imported what Spark's workers import, for whoever asks for one.

Argument: ADDRESS, of a socket. Who asks sends its standard streams, and as JSON its arguments and its environment; what
is forked runs the module that these name. Its connection is closed when that has ended. This process ends once nobody
holds its standard input open any more.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import time
import warnings
from importlib import import_module

_IMPORTED = (
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pandas",
    "pyarrow.compute",
    "loaders.spark.read.data_source",
)
_STREAMS = 3


def main(address: str) -> None:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # no thread runs where a process is forked
    for name in _IMPORTED:
        import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{address}.new")
        listening.listen(64)
        os.rename(f"{address}.new", address)
        while sys.stdin not in (ready := select.select([listening, sys.stdin], [], [])[0]):
            assert ready
            asking, _ = listening.accept()
            with asking:
                if os.fork() == 0:
                    listening.close()
                    run(asking)


def run(asking: socket.socket) -> None:
    """Become the process that is asked for."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    told, streams, _, _ = socket.recv_fds(asking, 1 << 16, _STREAMS)
    while more := asking.recv(1 << 16):
        told += more
    (_, _, module, *arguments), environment = json.loads(told)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.path += [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path not in sys.path]
    sys.argv[:] = [module, *arguments]
    warnings.simplefilter("ignore", RuntimeWarning)  # it is imported already
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit()
