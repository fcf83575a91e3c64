"""`kafka-journal routes`: what is configured, and what would become of a message; no broker is asked."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from journal.cli.main import app

FILE = """
journal = "flights"
[[routing.routes]]
name = "landed"
address = "flights.landed.#"
filter = "delay > 15"
[[routing.routes.targets]]
topic = "landed"
key = "header:tail"
[[routing.sources]]
name = "corrections"
topics = ["corrections"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "journal.toml"
    path.write_text(FILE)
    return path


def routes(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["routes", *arguments])


def test_list_shows_routes_and_sources(file: Path) -> None:
    shown = routes("list", "--config", str(file))
    assert shown.exit_code == 0
    for part in ("landed", "delay > 15", "header:tail", "corrections", "kafka.{topic}"):
        assert part in shown.output
    found = json.loads(routes("list", "--config", str(file), "--json").stdout)
    assert found["routes"][0]["targets"][0]["topic"] == "landed"
    assert "has no routes" in routes("list").output


def test_a_faulty_configuration_is_a_usage_error(file: Path) -> None:
    file.write_text(FILE.replace("delay > 15", "delay > "))
    assert routes("list", "--config", str(file)).exit_code == 2
    file.write_text(FILE.replace('"landed"\nkey', '"flights.wal"\nkey'))
    assert routes("list", "--config", str(file)).exit_code == 2


def test_test_says_what_would_be_sent(file: Path) -> None:
    message = ("--address", "flights.landed.EWR", "--header", "delay:long=17", "--header", "tail=N1", "--body", "hello")
    shown = routes("test", "--config", str(file), *message)
    assert shown.exit_code == 0
    assert "landed -> landed" in shown.output
    found = json.loads(routes("test", "--config", str(file), *message, "--json").stdout)
    assert found["routes"] == [{"route": "landed", "verdict": "yes"}]
    [out] = found["outcomes"]
    assert (out["topic"], out["key"], out["value"], out["partitioner"]) == ("landed", "N1", "hello", "murmur2")


def test_test_says_why_nothing_would_be_sent(file: Path) -> None:
    assert "another address" in routes("test", "--config", str(file), "--address", "x").output
    assert "unknown" in routes("test", "--config", str(file), "--address", "flights.landed").output


def test_a_refusal_that_stops_the_shard_ends_with_1(file: Path) -> None:
    shown = routes("test", "--config", str(file), "--address", "flights.landed", "--header", "delay:double=17.5")
    assert shown.exit_code == 1
    assert "no-key" in shown.output


@pytest.mark.parametrize("header", ["tail", "=x", "n:long=x", "b:boolean=yes", "b:bytes=?", "n:int=1"])
def test_a_header_that_is_none_is_a_usage_error(file: Path, header: str) -> None:
    assert routes("test", "--config", str(file), "--address", "a", "--header", header).exit_code == 2


def test_a_body_may_be_a_file(file: Path) -> None:
    message = ("--address", "flights.landed", "--header", "delay:long=17", "--header", "tail=N1", "--json")
    [out] = json.loads(routes("test", "--config", str(file), *message, "--body", f"@{file}").stdout)["outcomes"]
    assert base64.b64decode(out["value"]["base64"]) == file.read_bytes()
    assert routes("test", "--config", str(file), *message, "--body", "@/no/such").exit_code == 2


@pytest.mark.parametrize("arguments", [(), ("--id", "7", "--address", "a"), ("--id", "7", "--body", "b")])
def test_a_message_is_described_or_named_and_not_both(file: Path, arguments: tuple[str, ...]) -> None:
    assert routes("test", "--config", str(file), *arguments).exit_code == 2
