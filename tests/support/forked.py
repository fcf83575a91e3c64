"""`kafka-journal` in a process of its own, forked from one that has imported everything: importing is most of what a
command costs.

The environment, the standard streams and the exit code are the new process', but not what is read while modules are
imported. Commands that are interrupted, killed or left running are started as users start them.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import multiprocessing.connection
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

_LOCK = threading.Lock()
"""A start polls all children of before, and two threads that poll one child make of its exit code what they like."""
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.support.forked_imports"])
FORKED = frozenset(
    {"apply", "dump", "explain", "init", "messages", "queues", "receive", "repair", "routes", "send", "status"}
    | {"trim", "tx", "verify"}
)
"""Commands that are short, and whose modules `tests.support.forked_imports` imports."""

_STANDS_S = 1.0
"""So long before its time is over a command says where it stands."""
_STREAMS = ("stdin", "stdout", "stderr")


def run_forked(
    arguments: Sequence[str], env: Mapping[str, str], stdin: bytes, timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    """To its end. Raises subprocess.TimeoutExpired; where it stood then is on standard error."""
    with tempfile.TemporaryDirectory(prefix="command-") as name:
        directory = Path(name)
        files = [directory / stream for stream in _STREAMS]
        for file in files:
            file.write_bytes(stdin if file.name == "stdin" else b"")
        process = _CONTEXT.Process(target=_run, args=(arguments, dict(env), files, timeout_s - _STANDS_S))
        with _LOCK:
            process.start()
        ended = bool(multiprocessing.connection.wait([process.sentinel], timeout_s))
        with _LOCK:
            if not ended:
                process.kill()
            process.join()
            code = process.exitcode
        if not ended or code is None:
            sys.stderr.write(files[2].read_text(encoding="utf-8"))
            raise subprocess.TimeoutExpired(list(arguments), timeout_s)
        stdout, stderr = (file.read_bytes() for file in files[1:])
        return subprocess.CompletedProcess(list(arguments), code, stdout, stderr)


def _run(arguments: Sequence[str], env: dict[str, str], files: Sequence[Path], stands_after_s: float) -> None:
    from journal.cli.main import main

    for number, file in enumerate(files):
        os.dup2(os.open(file, os.O_RDWR), number)
    faulthandler.dump_traceback_later(stands_after_s, file=2)
    sys.stdin = os.fdopen(0, encoding="utf-8")
    os.environ.clear()
    os.environ.update(env)
    random.seed()
    sys.argv[:] = ["kafka-journal", *arguments]
    main()
