"""What a JVM says goes to nowhere, is kept nowhere, and is shown if it does not start."""

from __future__ import annotations

import subprocess
import sys

import pytest

from journal.errors import MissingExtraError
from loaders.spark.session.chatter import starting_spark

LATER = """
import os, stat, sys
print("starting", flush=True)
sys.stdin.read()
for _ in range(100):
    os.write(2, b"a warning " * 1000)
sys.exit(0 if all(stat.S_ISFIFO(os.fstat(of).st_mode) for of in (1, 2)) else 3)
"""


def test_output_of_a_jvm_behind_its_start_grows_no_file_and_blocks_nobody(capfd: pytest.CaptureFixture[str]) -> None:
    with starting_spark(quiet=True):
        started = subprocess.Popen([sys.executable, "-c", LATER], stdin=subprocess.PIPE)
    print("the command's own")
    started.communicate(timeout=60.0)
    assert started.returncode == 0
    assert capfd.readouterr() == ("the command's own\n", "")


@pytest.mark.parametrize("error", [MissingExtraError, KeyboardInterrupt])
def test_output_of_a_jvm_that_fails_to_start_is_shown(
    capfd: pytest.CaptureFixture[str], error: type[BaseException]
) -> None:
    with pytest.raises(error), starting_spark(quiet=True):  # noqa: PT012  # it says so first
        subprocess.run(["sh", "-c", "echo here; echo there >&2"], check=True)
        raise error
    assert capfd.readouterr() == ("", "here\nthere\n" if error is MissingExtraError else "")


def test_output_of_a_jvm_goes_to_standard_error_if_the_command_is_not_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    with starting_spark(quiet=False):
        subprocess.run(["sh", "-c", "echo here; echo there >&2"], check=True)
    assert capfd.readouterr() == ("", "here\nthere\n")
