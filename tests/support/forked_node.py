"""A test's node in a process of its own, forked like those of `tests.support.forked`: of one that is killed a moment
after its start, importing is most of the cost."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from multiprocessing import connection, get_context
from pathlib import Path

from tests.support import forked as _preloads  # noqa: F401  # what the new process finds imported

_CONTEXT = get_context("forkserver")


def run_node(
    target: Callable[..., None], arguments: tuple[str | int, ...], env: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Call `target(*arguments)` there. The exit code is that of a process. Raises subprocess.TimeoutExpired."""
    with tempfile.TemporaryDirectory(prefix="node-") as name:
        stdout, stderr = Path(name) / "stdout", Path(name) / "stderr"
        process = _CONTEXT.Process(target=_run, args=(target, arguments, dict(env), stdout, stderr))
        process.start()
        ended = bool(connection.wait([process.sentinel], timeout_s))
        if not ended:
            process.kill()
        process.join()
        if not ended or process.exitcode is None:
            raise subprocess.TimeoutExpired(str(target), timeout_s)
        return subprocess.CompletedProcess(
            str(target), process.exitcode, stdout.read_text(), stderr.read_text(errors="replace")
        )


def _run(
    target: Callable[..., None], arguments: tuple[str | int, ...], env: dict[str, str], stdout: Path, stderr: Path
) -> None:
    for number, file in ((1, stdout), (2, stderr)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(env)
    target(*arguments)
