"""`python -m bench` as a process that is ended while it measures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

TIMEOUT_S = 120.0


def test_a_bench_that_is_ended_by_sigterm_leaves_no_processes_and_no_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "process", "--quick"]
    env = os.environ | {"TMPDIR": str(tmp_path)}
    said: list[str] = []
    with (
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env, text=True) as bench,
        ExitStack() as ending,
    ):
        ending.callback(bench.kill)
        assert bench.stderr is not None
        for line in bench.stderr:
            said.append(line)
            if "reading from" in line:  # its worker does
                break
        children = psutil.Process(bench.pid).children(recursive=True)
        for child in children:
            ending.callback(child.kill)
        assert len(children) >= 2, "a broker and a worker"
        bench.send_signal(signal.SIGTERM)
        said += bench.stderr.readlines()
        assert bench.wait(TIMEOUT_S) == 130, "".join(said)
        ending.pop_all()
    _, alive = psutil.wait_procs(children, timeout=TIMEOUT_S)
    assert not alive
    assert not list(tmp_path.glob("kafka-journal*"))
