"""The worker of `node --with-worker`: the command line that makes it one of the node's, and what starts it again."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from journal.cli import worker_children
from journal.cli.common import Chosen
from journal.cli.worker_children import running_workers, worker_command
from journal.config import Settings
from journal.kafka.embedded_process import wait_until

CHILD = [sys.executable, "-m", "journal.cli.child"]
ITS_JOURNAL = ["-b", "b:1", "-j", "orders"]
LIMIT_S = 30.0


def command(
    chosen: Chosen | None = None, *, as_json: bool = False, verbose: bool = False, **flags: object
) -> list[str]:
    settings = Settings.model_validate({"journal": "orders", "bootstrap_servers": "b:1", **flags})
    return worker_command(settings, chosen or Chosen(), as_json=as_json, verbose=verbose)


def test_it_keeps_warm_copies_and_has_the_nodes_journal() -> None:
    assert command() == [*CHILD, "worker", "--processes", "1", "--standby", *ITS_JOURNAL]


def test_it_has_the_options_of_the_node_and_shows_nothing_that_it_finds_in_the_same_file() -> None:
    chosen = Chosen(properties=["client.id=a=b", "debug="], config=Path("/etc/j.toml"))
    line = command(chosen, client_properties={"client.id": "a=b", "debug": "", "sasl.password": "secret"})
    assert line == [
        *(*CHILD, "worker", "--processes", "1", "--standby", *ITS_JOURNAL),
        *("-X", "client.id=a=b", "-X", "debug=", "--config", "/etc/j.toml"),
    ]


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("verbose", [False, True])
def test_it_logs_as_the_node_does(as_json: bool, verbose: bool) -> None:
    line = command(as_json=as_json, verbose=verbose)
    before, behind = line[len(CHILD) : line.index("worker")], line[line.index("worker") :]
    assert before == (["--verbose"] if verbose else [])
    assert ("--json" in behind) is as_json


def test_one_that_cannot_be_started_now_is_started_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_children, "_PAUSE_S", 0.05)
    program, ran = tmp_path / "worker", tmp_path / "ran"
    with caplog.at_level(logging.INFO), running_workers([str(program)]):
        assert wait_until(lambda: "cannot be started" in caplog.text, LIMIT_S)
        replacing = tmp_path / "new"
        replacing.write_text(f"#!/bin/sh\ntouch {ran}\nread _\n")
        replacing.chmod(0o700)
        replacing.rename(program)
        assert wait_until(ran.exists, LIMIT_S)
    assert f"the worker cannot be started: [Errno 2] No such file or directory: '{program}'" in caplog.text
