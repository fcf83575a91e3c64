"""`send` and `receive`: options that will not do are refused before Kafka is asked for anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from journal.cli.main import load_command


@pytest.mark.parametrize("option", ["--delay-s", "--expire-s"])
@pytest.mark.parametrize("seconds", ["inf", "1e308"])
def test_a_time_that_is_no_number_of_seconds_is_refused(option: str, seconds: str) -> None:
    ended = CliRunner().invoke(load_command("send"), ["orders", "body", option, seconds, "-b", "127.0.0.1:1"])
    assert ended.exit_code == 2, ended.exception
    assert f"{option} {float(seconds)}" in ended.output


def test_a_body_may_have_bytes_that_are_no_text(tmp_path: Path) -> None:
    asked = CliRunner().invoke(
        load_command("send"), ["orders", "\udcff", "--node"], env={"KAFKA_JOURNAL_DIRECTORY": str(tmp_path)}
    )
    assert "no node of the journal" in asked.output, asked.exception
