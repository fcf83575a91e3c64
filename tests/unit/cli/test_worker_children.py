"""Workers in child processes, a node's or beside another: their command line, what starts them again, and their end."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from journal.cli.common import Chosen
from journal.cli.worker import children as worker_children
from journal.cli.worker.children import running_workers, worker_command
from journal.config import Settings
from journal.embedded.process import wait_until

CHILD = [sys.executable, "-m", "journal.cli.child"]
ITS_JOURNAL = ["-b", "b:1", "-j", "orders"]
LIMIT_S = 30.0


def command(
    chosen: Chosen | None = None, *, as_json: bool = False, verbose: bool = False, **flags: object
) -> list[str]:
    settings = Settings.model_validate({"journal": "orders", "bootstrap_servers": "b:1", **flags})
    return worker_command(settings, chosen or Chosen(), as_json=as_json, verbose=verbose, standby=True)


def test_a_nodes_worker_keeps_warm_copies_and_has_the_nodes_journal() -> None:
    assert command() == [*CHILD, "worker", "--processes", "1", "--standby", *ITS_JOURNAL]


def test_a_nodes_worker_has_the_nodes_prefix() -> None:
    assert command(topic_prefix="team.")[-4:] == ["-j", "team.orders", "--topic-prefix", "team."]


def test_a_nodes_worker_has_the_nodes_options_and_shows_nothing_that_it_finds_in_the_same_file() -> None:
    chosen = Chosen(properties=["client.id=a=b", "debug="], config=Path("/etc/j.toml"))
    line = command(chosen, client_properties={"client.id": "a=b", "debug": "", "sasl.password": "secret"})
    assert line == [
        *(*CHILD, "worker", "--processes", "1", "--standby", *ITS_JOURNAL),
        *("-X", "client.id=a=b", "-X", "debug=", "--config", "/etc/j.toml"),
    ]


def test_a_worker_beside_another_has_its_name_and_keeps_warm_copies_if_that_does() -> None:
    settings = Settings(journal="orders", bootstrap_servers="b:1", worker_processes=4)
    line = worker_command(settings, Chosen(), as_json=False, verbose=False, standby=False, name="w")
    assert line == [*CHILD, "worker", "--processes", "1", "--name", "w", *ITS_JOURNAL]


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("verbose", [False, True])
def test_a_nodes_worker_logs_as_the_node_does(as_json: bool, verbose: bool) -> None:
    line = command(as_json=as_json, verbose=verbose)
    before, behind = line[len(CHILD) : line.index("worker")], line[line.index("worker") :]
    assert before == (["--verbose"] if verbose else [])
    assert ("--json" in behind) is as_json


def test_a_worker_that_cannot_be_started_now_is_started_later(
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


def test_several_workers_run_and_end_together_when_they_are_told_to(tmp_path: Path) -> None:
    program, ended = tmp_path / "worker", tmp_path / "ended"
    program.write_text(
        f"#!/bin/sh\ntrap 'echo $$ >> {ended}; exit 0' TERM\necho $$ >> {tmp_path}/ran\nwhile :; do sleep 0.05; done\n"
    )
    program.chmod(0o700)
    with running_workers([str(program)], 3) as end:
        assert wait_until(lambda: len(lines(tmp_path / "ran")) == 3, LIMIT_S)
        assert not ended.exists()
        end()
        assert wait_until(lambda: len(lines(ended)) == 3, LIMIT_S)
    assert sorted(lines(ended)) == sorted(lines(tmp_path / "ran"))


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
