"""The help of every command ends with an example, which the command takes; and shells complete commands and options."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from journal.cli.examples import EXAMPLES
from journal.cli.main import COMMANDS, app, load_command

COMMAND = Path(sys.executable).with_name("kafka-journal")
ROUTE = """
[[routing.routes]]
name = "out"
address = "orders"
[[routing.routes.targets]]
topic = "out"
"""

CHEAP = ("spark packages", "routes list", "routes test")
"""Commands whose examples need neither Kafka nor Spark."""


def leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """A command, if it does something by itself, and all that are under it."""
    under = getattr(command, "commands", {})
    if not under or command.invoke_without_command:
        yield name, command
    for part, each in under.items():
        yield from leaves(f"{name} {part}", each)


EVERY = {name: command for top in COMMANDS for name, command in leaves(top, load_command(top))}


def test_every_command_has_an_example_and_every_example_a_command() -> None:
    assert EXAMPLES.keys() == EVERY.keys()


@pytest.mark.parametrize("name", EVERY)
def test_the_help_of_a_command_ends_with_its_example(name: str) -> None:
    shown = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "200"}).stdout
    assert shown.split()[-len(EXAMPLES[name].split()) - 1 :] == ["Example:", *EXAMPLES[name].split()]


@pytest.mark.parametrize("name", EVERY)
def test_a_command_takes_its_example(name: str) -> None:
    program, *arguments = shlex.split(EXAMPLES[name])
    names, given = arguments[: len(name.split())], arguments[len(name.split()) :]
    assert (program, names) == ("kafka-journal", name.split())
    EVERY[name].make_context(name, given)


@pytest.mark.parametrize("name", CHEAP)
def test_an_example_that_needs_nobody_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "journal.toml").write_text(ROUTE)
    ended = CliRunner().invoke(app, shlex.split(EXAMPLES[name])[1:])
    assert ended.exit_code == 0, ended.output


# ---- wrong command lines -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says", "help_of"),
    [
        (["queus"], "error: No such command 'queus'", "kafka-journal"),
        (["queues", "--jornal", "x"], "error: No such option: --jornal", "kafka-journal queues"),
        (["messages"], "error: Missing argument 'queue'", "kafka-journal messages"),
        (["send", "a", "b", "--count", "x"], "error: Invalid value for '--count'", "kafka-journal send"),
        (["tx", "show"], "error: Missing argument 'TX|XID'", "kafka-journal tx show"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_a_wrong_command_line_is_an_error_like_every_other(arguments: list[str], says: str, help_of: str) -> None:
    ended = CliRunner().invoke(app, arguments, prog_name="kafka-journal", env={"COLUMNS": "300"})
    assert (ended.exit_code, ended.stdout) == (2, "")
    first, last = ended.stderr.splitlines()
    assert first.startswith(says)
    assert last == f"{help_of} --help shows what it takes"


# ---- shells --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("typed", "offered"), [("kafka-journal st", "status"), ("kafka-journal spark tables --fro", "--from-trimmed")]
)
def test_shells_complete_commands_and_options(shell: str, typed: str, offered: str) -> None:
    env = {
        "_KAFKA_JOURNAL_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": typed,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - 1),
        "PATH": "/usr/bin:/bin",
    }
    ended = subprocess.run([str(COMMAND)], env=env, capture_output=True, text=True, timeout=60)
    assert offered in ended.stdout, ended.stderr
