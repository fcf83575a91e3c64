"""What `settings` prints: every setting, as a settings file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from journal.cli.main import app
from journal.config import Settings, load_settings

LATER = {"node"}
"""Settings whose default is computed anew."""


def shown(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["settings", *arguments])


def test_what_is_printed_is_a_settings_file_of_all_defaults(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(shown().stdout)
    found = load_settings(file)
    assert found.model_dump(exclude=LATER) == Settings().model_dump(exclude=LATER)
    assert found.limits.model_fields_set == set(type(found.limits).model_fields)


@pytest.mark.parametrize("name", Settings.model_fields)
def test_each_setting_is_printed_with_a_text(name: str) -> None:
    found = [each for each in json.loads(shown("--json").stdout) if each["name"].partition(".")[0] == name]
    assert found
    assert all(each["text"].endswith(".") for each in found)


def test_settings_of_each_route_are_comments_that_name_their_table() -> None:
    printed = shown("routes.stop").stdout
    assert printed.splitlines()[-2:] == ["# [[routing.routes]] stop = false", ""]


def test_settings_are_chosen_by_a_part_of_their_name() -> None:
    names = [each["name"] for each in json.loads(shown("session", "--json").stdout)]
    assert names == ["session_timeout_ms", "node_session_timeout_ms", "amqp.per_user.sessions_max"]


def test_a_name_that_no_setting_has_is_refused() -> None:
    refused = shown("nonsense")
    assert refused.exit_code == 2
    assert "no setting's name contains" in refused.stderr
