"""Standard streams that are closed, full, or of an encoding with few letters: an error in words, or none at all."""

from __future__ import annotations

import subprocess
import sys

import pytest

PRINTS = r"""
import sys
from journal.cli.standard_streams import standard_streams
with standard_streams():
    import typer
    from journal.cli.common import exit_codes
    from journal.cli.tables import print_table
    try:
        with exit_codes():
            print("first", flush=True)
            print_table("queues", ("queue",), [("na\xefve \u2713",)])
            print("said", file=sys.stderr)
    except typer.Exit as ended:
        sys.exit(ended.exit_code)
"""


def run(shell: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", "-c", shell, "sh", sys.executable, PRINTS, DOES]
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


@pytest.mark.parametrize(
    ("output", "why"), [(">&-", "Bad file descriptor"), ("> /dev/full", "No space left on device")]
)
@pytest.mark.parametrize("command", ['"$1" -c "$2"', '"$1" -m journal.cli.child --help < /dev/zero'])
def test_an_output_that_cannot_be_written_is_an_error_in_words(output: str, why: str, command: str) -> None:
    ended = run(f"{command} {output}")
    assert (ended.returncode, ended.stderr) == (1, f"error: cannot write standard output: {why}\n")


@pytest.mark.parametrize("errors", ["2>&-", "2>/dev/full"])
def test_a_standard_error_that_cannot_be_written_costs_what_would_be_said_there_and_nothing_else(errors: str) -> None:
    ended = run(f'"$1" -c "$2" {errors}')
    assert ended.returncode == 0
    assert "naïve ✓" in ended.stdout


def test_an_output_that_knows_no_other_letters_has_them_escaped() -> None:
    ended = run('"$1" -c "$2"', LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="ascii")
    assert (ended.returncode, ended.stderr) == (0, "said\n")
    assert r"na\xefve \u2713" in ended.stdout


DOES = r"""
from journal.cli.standard_streams import note_done, standard_streams
with standard_streams():
    note_done("1 message is stored")
    print("sent")
"""


def test_an_output_that_cannot_be_written_does_not_hide_what_the_command_has_done() -> None:
    ended = run('"$1" -c "$3" > /dev/full')
    said = "error: cannot write standard output: No space left on device; 1 message is stored\n"
    assert (ended.returncode, ended.stderr) == (1, said)
