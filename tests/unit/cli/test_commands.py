"""The table of commands: each is there, and an overview imports none of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from bench.__main__ import app as bench
from bench.rounds import Outcome
from journal.cli.common import Chosen, JsonOption, confirm, journal_command
from journal.cli.main import COMMANDS, app, load_command
from journal.errors import ConfigError, StoreError

HEAVY = ("pydantic_settings", "confluent_kafka", "rocksdict", "google.protobuf", "faust", "psutil", "journal.config")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_of_the_table_is_there_with_help_of_its_own(name: str) -> None:
    assert load_command(name).help


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["no-such-command"]])
def test_what_calls_no_command_imports_none(arguments: list[str]) -> None:
    script = f"""
import sys
from journal.cli.main import app
try:
    app({arguments!r})
finally:
    print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert ended.stderr.splitlines()[-1] == "[]"


def test_the_overview_has_a_line_for_each_command() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    for name, command in COMMANDS.items():
        assert any(name in line and command.line in line for line in shown.splitlines()), name


def test_a_command_that_there_is_not_is_refused_with_those_like_it() -> None:
    ended = CliRunner().invoke(app, ["queus"])
    assert ended.exit_code == 2
    assert "queues" in ended.output


# ---- options that commands share -----------------------------------------------------------------------------


def command_of(told: list[object], error: Exception | None = None) -> typer.Typer:
    """A command of a journal that keeps what it was told, and raises `error`."""

    def tell(chosen: Chosen, name: str, as_json: JsonOption = False) -> None:
        """Tell."""
        told.extend((chosen, name, as_json))
        if error is not None:
            raise error

    made = typer.Typer(add_completion=False)
    made.command()(journal_command(tell))
    return made


def test_a_command_gets_the_shared_options_beside_its_own(tmp_path: Path) -> None:
    told: list[object] = []
    file = tmp_path / "settings.toml"
    arguments = ["x", "--json", "-b", "host:1", "-j", "orders", "-X", "a=b", "-X", "c=d", "--config", str(file)]
    assert CliRunner().invoke(command_of(told), arguments).exit_code == 0
    assert told == [Chosen("host:1", "orders", ["a=b", "c=d"], file), "x", True]
    told.clear()
    assert CliRunner().invoke(command_of(told), ["x"]).exit_code == 0
    assert told == [Chosen(), "x", False]


@pytest.mark.parametrize(("error", "code"), [(StoreError("no"), 1), (ConfigError("no"), 2)])
def test_an_error_of_a_command_is_a_line_and_an_exit_code(error: Exception, code: int) -> None:
    ended = CliRunner().invoke(command_of([], error), ["x"])
    assert (ended.exit_code, ended.stdout) == (code, "")
    assert "error: no" in ended.stderr


def asking() -> typer.Typer:
    made = typer.Typer(add_completion=False)

    @made.command()
    def ask(yes: bool = False) -> None:
        confirm("go on?", yes=yes)
        typer.echo("went on")

    return made


@pytest.mark.parametrize(("arguments", "given"), [(["--yes"], ""), ([], "y\n")])
def test_a_question_is_answered_with_yes(arguments: list[str], given: str) -> None:
    assert "went on" in CliRunner().invoke(asking(), arguments, input=given).stdout


def test_a_question_that_nobody_can_answer_names_the_option_that_answers_it() -> None:
    ended = CliRunner().invoke(asking(), [], input="")
    assert (ended.exit_code, "went on" in ended.stdout) == (1, False)
    assert "standard input has ended: --yes answers the question" in ended.stderr


def test_no_is_an_answer_too() -> None:
    ended = CliRunner().invoke(asking(), [], input="n\n")
    assert (ended.exit_code, "went on" in ended.stdout) == (1, False)
    assert "--yes" not in ended.stderr


# ---- which brokers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["option", "environment", "file"])
def test_the_demo_runs_on_the_brokers_that_are_configured(given: str, tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text('bootstrap_servers = "127.0.0.1:1"\n')
    arguments = {"option": ["-b", "127.0.0.1:1"], "file": ["--config", str(tmp_path / "settings.toml")]}
    env = {"KAFKA_JOURNAL_REQUEST_TIMEOUT_MS": "100", "COLUMNS": "300"}
    if given == "environment":
        env["KAFKA_JOURNAL_BOOTSTRAP_SERVERS"] = "127.0.0.1:1"
    ended = CliRunner().invoke(app, ["demo", "--rows", "100", *arguments.get(given, [])], env=env)
    assert (ended.exit_code, "Kafka does not answer" in ended.stderr) == (1, True)


def test_a_bench_runs_on_the_brokers_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []

    def run(name: str, bootstrap: str | None, quick: bool) -> Outcome:
        asked.append(bootstrap)
        return Outcome()

    monkeypatch.setattr("bench.__main__.run_bench", run)
    for env in ({}, {"KAFKA_JOURNAL_BOOTSTRAP_SERVERS": "host:1"}):
        assert CliRunner().invoke(bench, ["append", "--quick"], env=env).exit_code == 0
    assert asked == [None, "host:1"]


# ---- apply ---------------------------------------------------------------------------------------------------


def applied(file: str, tmp_path: Path) -> Result:
    """What `apply` of a file comes to where no broker answers."""
    settings = {"KAFKA_JOURNAL_DIRECTORY": str(tmp_path / "state"), "KAFKA_JOURNAL_REQUEST_TIMEOUT_MS": "100"}
    return CliRunner().invoke(app, ["apply", file, "-b", "127.0.0.1:1"], env=settings | {"COLUMNS": "300"})


def test_apply_takes_what_can_be_read_also_if_it_is_no_file(tmp_path: Path) -> None:
    ended = applied(os.devnull, tmp_path)
    assert (ended.exit_code, "Kafka does not answer" in ended.stderr) == (1, True)


@pytest.mark.parametrize("name", [".", "none"])
def test_apply_refuses_what_cannot_be_opened(name: str, tmp_path: Path) -> None:
    ended = applied(str(tmp_path / name), tmp_path)
    assert (ended.exit_code, "cannot be read" in ended.stderr) == (2, True)


def test_help_of_kafka_start_shows_what_its_options_are_by_default() -> None:
    shown = CliRunner().invoke(app, ["kafka", "start", "--help"], env={"COLUMNS": "200"}).output
    for default in ("the user's data directory", "what the directory holds, else 1", "the last ones, else free ones"):
        assert f"[default: ({default})]" in shown
