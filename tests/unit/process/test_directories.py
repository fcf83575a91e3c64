"""Directories of a user without a home directory or a name, as in a container: only commands that need one ask for
it."""

from __future__ import annotations

import pwd
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from journal.cli.common import operator
from journal.cli.main import app
from journal.cli.reading import copies_directory
from journal.config import load_settings
from journal.embedded.cluster import default_directory
from journal.embedded.distribution import cache_directory
from journal.errors import ConfigError


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user id that is in no list, with an environment that tells no directory."""

    def unknown(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("KAFKA_JOURNAL_DIRECTORY", "KAFKA_JOURNAL_CACHE", "KAFKA_JOURNAL_KAFKA_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("nobody")
@pytest.mark.parametrize(
    ("asked", "settings"),
    [
        (lambda: load_settings().journal_directory, "directory (KAFKA_JOURNAL_DIRECTORY) or XDG_STATE_HOME or HOME"),
        (copies_directory, "XDG_CACHE_HOME or HOME"),
        (cache_directory, "KAFKA_JOURNAL_CACHE or XDG_CACHE_HOME or HOME"),
        (default_directory, "--dir or KAFKA_JOURNAL_KAFKA_DIR or XDG_DATA_HOME or HOME"),
    ],
)
def test_an_error_about_a_missing_home_names_the_settings_that_replace_it(
    asked: Callable[[], Path], settings: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"user id \d+ has no home directory here: set ") as raised:
        asked()
    assert str(raised.value).endswith(f"set {settings}")
    monkeypatch.setenv("HOME", "/somewhere")
    assert asked().is_relative_to("/somewhere")


@pytest.mark.usefixtures("nobody")
def test_settings_and_an_operator_need_no_directory() -> None:
    assert load_settings(journal="orders").journal == "orders"
    assert operator().startswith("uid-")


@pytest.mark.usefixtures("nobody")
def test_a_command_reports_a_missing_home_without_a_traceback() -> None:
    ended = CliRunner().invoke(app, ["kafka", "status"])
    assert ended.exit_code == 2
    assert "KAFKA_JOURNAL_KAFKA_DIR" in ended.stderr
    assert "Traceback" not in ended.stderr
