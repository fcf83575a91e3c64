"""The limit of open files is checked before anything begins: it is raised, or the error says what it has to be."""

from __future__ import annotations

import subprocess
import sys

import pytest

REQUIRES = """
from journal.process.descriptors import require_descriptors
require_descriptors(200, "a worker")
print("began")
"""


def run(limits: str, *command: str) -> subprocess.CompletedProcess[str]:
    line = ["/bin/sh", "-c", f'{limits}; exec "$0" "$@"', *command]
    return subprocess.run(line, capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize("limits", ["ulimit -n 300", "ulimit -n 200", "ulimit -Hn 300; ulimit -Sn 64"])
def test_a_limit_of_descriptors_that_suffices_or_can_be_raised_is_accepted(limits: str) -> None:
    ended = run(limits, sys.executable, "-c", REQUIRES)
    assert (ended.returncode, ended.stdout) == (0, "began\n")


def test_a_limit_of_descriptors_that_is_too_low_is_an_error_with_the_number_needed() -> None:
    ended = run("ulimit -n 199", sys.executable, "-c", REQUIRES)
    assert ended.returncode == 1
    assert "a worker needs 200 open files and connections, and may have 199: allow it more" in ended.stderr
    assert "ulimit -n 200" in ended.stderr
    assert not ended.stdout


@pytest.mark.parametrize("command", ["queues", "worker", "status"])
def test_a_command_that_may_have_too_few_descriptors_says_so_at_once(command: str) -> None:
    ended = run("ulimit -n 40", sys.executable, "-c", "from journal.cli.main import main; main()", command)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: a command needs 128 open files and connections, and may have 40: allow")
