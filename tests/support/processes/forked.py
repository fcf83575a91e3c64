"""`kafka-journal` in a process of its own, forked from one that has imported everything: importing is most of what a
command costs.

The environment, the standard streams and the exit code are the new process', but not what is read while modules are
imported. Commands that are interrupted are started as users start them.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import multiprocessing.connection
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_LOCK = threading.Lock()
"""A start polls all children of before, and two threads that poll one child make of its exit code what they like."""
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.support.processes.forked_imports"])
FORKED = frozenset(
    {
        "apply",
        "destroy",
        "dump",
        "explain",
        "init",
        "messages",
        "queues",
        "receive",
        "repair",
        "routes",
        "send",
        "status",
    }
    | {"trim", "tx", "verify"}
)
"""Commands that are short. Their modules and the worker's are what `tests.support.processes.forked_imports` imports."""

_STANDS_S = 1.0
"""So long before its time is over a command says where it stands."""
_STREAMS = ("stdin", "stdout", "stderr")


def run_forked(
    arguments: Sequence[str], env: Mapping[str, str], stdin: bytes, timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    """A command, to its end. Raises subprocess.TimeoutExpired; where it stood then is on standard error."""
    return _run_to_its_end(lambda files: ForkedCommand(arguments, env, files, timeout_s - _STANDS_S), stdin, timeout_s)


def call_forked(
    target: Callable[..., None], arguments: tuple[str | int, ...], env: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Call `target(*arguments)` in such a process, to its end. Raises subprocess.TimeoutExpired."""
    ended = _run_to_its_end(lambda files: ForkedCommand(arguments, env, files, target=target), b"", timeout_s)
    return subprocess.CompletedProcess(ended.args, ended.returncode, ended.stdout.decode(), ended.stderr.decode())


def _run_to_its_end(
    start: Callable[[Sequence[Path]], ForkedCommand], stdin: bytes, timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    with tempfile.TemporaryDirectory(prefix="command-") as name:
        files = [Path(name) / stream for stream in _STREAMS]
        for file in files:
            file.write_bytes(stdin if file.name == "stdin" else b"")
        process = start(files)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            sys.stderr.write(files[2].read_text(encoding="utf-8"))
            process.kill()
            raise
        stdout, stderr = (file.read_bytes() for file in files[1:])
        return subprocess.CompletedProcess(process.args, code, stdout, stderr)


class ForkedCommand:
    """One that runs; what there is of it is as `subprocess.Popen` has it."""

    def __init__(
        self,
        arguments: Sequence[str | int],
        env: Mapping[str, str],
        files: Sequence[Path],
        stands_after_s: float | None = None,
        target: Callable[..., None] | None = None,
    ) -> None:
        """`files` are its standard streams. With `stands_after_s`, it then says where it stands.

        It is `kafka-journal` with these arguments, or calls `target` with them.
        """
        self.args = [str(argument) for argument in arguments]
        run = (arguments, dict(env), files, stands_after_s, target)
        self._process = _CONTEXT.Process(target=_run, args=run, daemon=True)
        with _LOCK:
            self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        with _LOCK:
            return self._process.exitcode

    def wait(self, timeout: float) -> int:
        multiprocessing.connection.wait([self._process.sentinel], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(
    arguments: Sequence[Any],
    env: dict[str, str],
    files: Sequence[Path],
    stands_after_s: float | None,
    target: Callable[..., None] | None,
) -> None:
    from journal.cli.main import main

    for number, file in enumerate(files):
        os.dup2(os.open(file, os.O_RDWR | os.O_APPEND), number)
    if stands_after_s is not None:
        faulthandler.dump_traceback_later(stands_after_s, file=2)
    sys.stdin = os.fdopen(0, encoding="utf-8")
    os.environ.clear()
    os.environ.update(env)
    random.seed()
    if target is not None:
        target(*arguments)
    else:
        sys.argv[:] = ["kafka-journal", *arguments]
        main()
