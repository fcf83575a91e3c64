"""Commands of role changes: what they are told, and that nothing of theirs harms the node."""

from __future__ import annotations

import logging
import shlex
import sys
from pathlib import Path

import pytest

from journal.config import Settings
from journal.roles import Role
from loaders.hooks import RoleHooks

NOTE = (
    "import os, sys; "
    "open(sys.argv[1], 'a').write(' '.join(os.environ['KAFKA_JOURNAL_' + name] for name in "
    "('ROLE', 'NODE', 'JOURNAL', 'EPOCH', 'REASON')) + '\\n')"
)


def python(*arguments: str) -> str:
    return shlex.join([sys.executable, *arguments])


def settings(**commands: str) -> Settings:
    return Settings(journal="j", node="one", hook_timeout_ms=2000, **commands)  # type: ignore[arg-type]


def test_each_role_with_a_command_runs_it_in_order_and_tells_it_what_happened(tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    command = python("-c", NOTE, str(noted))
    hooks = RoleHooks(settings(on_active_command=command, on_fenced_command=command))
    hooks.changed(Role.ACTIVATING, Role.ACTIVE, 7, "node two left")
    hooks.changed(Role.FENCED, Role.STANDBY, 0, "no command")
    hooks.changed(Role.ACTIVE, Role.FENCED, 0, "epoch 8 has begun")
    hooks.close()
    assert noted.read_text().splitlines() == ["active one j 7 node two left", "fenced one j 0 epoch 8 has begun"]


def test_a_standbys_command_runs_once_when_an_active_node_stops_and_not_when_another_does(tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    hooks = RoleHooks(settings(on_standby_command=python("-c", NOTE, str(noted))))
    hooks.changed(Role.ACTIVE, Role.STOPPING, 0, "asked to stop")
    hooks.changed(Role.STOPPING, Role.STANDBY, 0, "handed over")
    hooks.changed(Role.STANDBY, Role.STOPPING, 0, "asked to stop")
    hooks.close()
    assert noted.read_text().splitlines() == ["stopping one j 0 asked to stop"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/does/not/exist", "cannot be run"),
        (python("-c", "raise SystemExit(3)"), "ended with 3"),
        (python("-c", "import time; time.sleep(60)"), "was killed after 2 s"),
    ],
)
def test_a_command_that_fails_is_logged_and_no_more(command: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    hooks = RoleHooks(settings(on_active_command=command))
    with caplog.at_level(logging.ERROR):
        hooks.changed(Role.ACTIVATING, Role.ACTIVE, 1, "")
        hooks.close()
    assert said in caplog.text


def test_without_commands_nothing_happens() -> None:
    hooks = RoleHooks(settings())
    hooks.changed(Role.ACTIVATING, Role.ACTIVE, 1, "")
    hooks.close()
