"""A Python for Spark's workers that has imported everything: importing is most of what a short-lived worker costs.

Spark starts a Python for each query of a stream, and others again after a minute without work. It gives a query up
whose Python does not answer within ten seconds, which a busy machine needs to import what a worker imports. Here each
of them is forked from one process, `tests.support.children.spark_python`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes.child import program
from tests.support.waiting import wait_until

_STANDING_FOR_IT = """#!{python} -S
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [json.dumps([sys.argv, dict(os.environ)]).encode()], [0, 1, 2])
    server.shutdown(socket.SHUT_WR)
    server.recv(1)
"""
"""What Spark starts: it lasts as long as the process that is forked for it."""


@contextmanager
def preloaded_python() -> Iterator[str]:
    """The path of a program that runs `-m MODULE ARGUMENT...` as Python does, until this is left."""
    with tempfile.TemporaryDirectory(prefix="spark-python-") as name:
        address, python = Path(name) / "address", Path(name) / "python"
        python.write_text(_STANDING_FOR_IT.format(python=sys.executable, address=str(address)))
        python.chmod(0o700)
        command = program("spark_python", address)
        with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as server:
            assert server.stdin is not None
            wait_until(lambda: address.exists() or server.poll() is not None)
            yield str(python)
            server.stdin.close()
