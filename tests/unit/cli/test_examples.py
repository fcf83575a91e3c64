"""The help of every command ends with an example, which the command takes; and shells complete commands and options."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from journal.cli.common import Chosen, journal_command
from journal.cli.examples import EXAMPLES
from journal.cli.main import COMMANDS, app, load_command
from journal.process.commands import command
from journal.settings import JournalSettings

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


# ---- commands in messages ------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[3]


def placed(argument: ast.expr) -> str:
    """An argument of a command as it is written, with a 1 for what only the message knows."""
    parts = argument.values if isinstance(argument, ast.JoinedStr) else [argument]
    texts = [str(each.value) if isinstance(each, ast.Constant) else "1" for each in parts]
    return "".join("1" if text.isupper() else text for text in texts)


TREES = {
    path.relative_to(ROOT): ast.parse(path.read_text())
    for top in ("journal", "streams", "loaders")
    for path in (ROOT / top).rglob("*.py")
}
PRINTED = [
    (f"{path}:{call.lineno}", call.args[0].value, [placed(each) for each in call.args[1:]])
    for path, tree in TREES.items()
    for call in ast.walk(tree)
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "command"
    if call.args and isinstance(call.args[0], ast.Constant)
]
WITHOUT_JOURNAL = ("cli/examples.py", "cli/kafka.py", "cli/settings.py", "topics/commands.py")
"""Files that print commands of the embedded Kafka and of the settings, which have none of a journal's options."""


@pytest.mark.parametrize(("place", "words", "arguments"), PRINTED, ids=[place for place, _, _ in PRINTED])
def test_a_command_in_a_message_is_one_that_calls_the_same_journal(
    place: str, words: str, arguments: list[str]
) -> None:
    JournalSettings(topic_prefix="team.", journal="corp", bootstrap_servers="one:1,two:2")
    _, *parts = shlex.split(command(words, *arguments, journal="team.corp"))
    given = EVERY[words].make_context(words, parts[len(words.split()) :]).params
    assert (given["journal"], given["topic_prefix"], given["bootstrap"]) == ("corp", "team.", "one:1,two:2")


def test_no_message_has_a_command_without_the_options_of_its_journal() -> None:
    begun = re.compile(rf"kafka-journal ({'|'.join(COMMANDS)})\b")
    names = {"kafka-journal receive", "kafka-journal demo", "kafka-journal verify", "kafka-journal tables"}
    found = [
        f"{path}:{each.lineno}: {each.value}"
        for path, tree in TREES.items()
        if not str(path).endswith(WITHOUT_JOURNAL)
        for statement in ast.walk(tree)
        for each in ast.iter_child_nodes(statement)
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and not isinstance(statement, ast.Expr)
        if begun.search(each.value) and each.value not in names
    ]
    assert found == []


def test_a_command_in_a_message_has_the_options_that_this_command_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "corp file.toml"
    file.write_text('bootstrap_servers = "one:1"\njournal = "corp"\ntopic_prefix = "team."\n')
    monkeypatch.chdir(tmp_path)
    printed = []

    @journal_command
    def called(chosen: Chosen) -> None:
        settings = chosen.settings()
        printed.extend([command("worker", journal=settings.journal), command("repair skip", 3, 7)])

    program = typer.Typer()
    program.command()(called)
    for given in (["--config", file.name], ["--config", file.name, "-j", "other", "-b", "two:2"]):
        assert CliRunner().invoke(program, given).exit_code == 0
    assert printed == [
        f"kafka-journal worker --config '{file}'",
        f"kafka-journal repair skip --config '{file}' 3 7",
        f"kafka-journal worker -j other -b two:2 --config '{file}'",
        f"kafka-journal repair skip -j other -b two:2 --config '{file}' 3 7",
    ]
