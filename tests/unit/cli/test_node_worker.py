"""The worker of `node --with-worker`: the command line that makes it one of the node's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from journal.cli.common import Chosen
from journal.cli.node_worker import worker_command
from journal.config import Settings

CHILD = [sys.executable, "-m", "journal.cli.child"]
ITS_JOURNAL = ["-b", "b:1", "-j", "orders"]


def command(
    chosen: Chosen | None = None, *, as_json: bool = False, verbose: bool = False, **flags: object
) -> list[str]:
    settings = Settings.model_validate({"journal": "orders", "bootstrap_servers": "b:1", **flags})
    return worker_command(settings, chosen or Chosen(), as_json=as_json, verbose=verbose)


def test_it_keeps_warm_copies_and_has_the_nodes_journal() -> None:
    assert command() == [*CHILD, "worker", "--standby", *ITS_JOURNAL]


def test_it_has_the_nodes_client_properties_and_file() -> None:
    line = command(Chosen(config=Path("/etc/j.toml")), client_properties={"client.id": "a=b", "debug": ""})
    assert line[-6:] == ["-X", "client.id=a=b", "-X", "debug=", "--config", "/etc/j.toml"]


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("verbose", [False, True])
def test_it_logs_as_the_node_does(as_json: bool, verbose: bool) -> None:
    line = command(as_json=as_json, verbose=verbose)
    before, behind = line[len(CHILD) : line.index("worker")], line[line.index("worker") :]
    assert before == (["--verbose"] if verbose else [])
    assert ("--json" in behind) is as_json
