"""Commands of role changes: what they are told, and that nothing of theirs harms the node."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from journal.config import Settings
from journal.embedded.process import start_time, wait_until
from loaders.node.hooks import RoleHooks
from loaders.node.roles import Role

NOTE = (
    "import os, sys; "
    "open(sys.argv[1], 'a').write(' '.join(os.environ['KAFKA_JOURNAL_' + name] for name in "
    "('ROLE', 'NODE', 'JOURNAL', 'EPOCH', 'REASON')) + '\\n')"
)


NOTE_GROUP = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpgid(0)))"

LIMIT_S = 30.0


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
    ],
)
def test_a_command_that_fails_is_logged_and_no_more(command: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    hooks = RoleHooks(settings(on_active_command=command))
    with caplog.at_level(logging.ERROR):
        hooks.changed(Role.ACTIVATING, Role.ACTIVE, 1, "")
        hooks.close()
    assert said in caplog.text


def test_a_command_that_takes_too_long_is_killed_with_all_that_it_has_started(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    noted = tmp_path / "pid"
    command = shlex.join(["sh", "-c", f"sleep 600 & echo $! > {noted}; wait"])
    hooks = RoleHooks(settings(on_active_command=command))
    with caplog.at_level(logging.ERROR):
        hooks.changed(Role.ACTIVATING, Role.ACTIVE, 1, "")
        hooks.close()
    assert "was killed after 2 s" in caplog.text
    pid = int(noted.read_text())
    try:
        assert wait_until(lambda: start_time(pid) is None, LIMIT_S)
    finally:
        if start_time(pid) is not None:
            os.kill(pid, signal.SIGKILL)


def test_a_command_that_cannot_be_killed_holds_no_later_command_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    groups: list[int] = []

    def refuse(group: int, number: int) -> None:
        groups.append(group)
        raise PermissionError(1, "Operation not permitted")  # by sudo it runs as another user

    noted = tmp_path / "noted"
    slow, quick = python("-c", "import time; time.sleep(60)"), python("-c", NOTE, str(noted))
    hooks = RoleHooks(settings(on_active_command=slow, on_fenced_command=quick))
    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr(os, "killpg", refuse)
        hooks.changed(Role.ACTIVATING, Role.ACTIVE, 1, "")
        hooks.changed(Role.ACTIVE, Role.FENCED, 0, "c")
        hooks.close()
    (group,) = groups
    os.killpg(group, signal.SIGKILL)
    assert "takes longer than 2 s (hook_timeout_ms): [Errno 1] Operation not permitted" in caplog.text
    assert noted.read_text() == "fenced one j 0 c\n"


def test_ctrl_c_does_not_reach_a_command(tmp_path: Path) -> None:
    noted = tmp_path / "group"
    hooks = RoleHooks(settings(on_active_command=python("-c", NOTE_GROUP, str(noted))))
    hooks.changed(Role.ACTIVATING, Role.ACTIVE, 1, "")
    hooks.close()
    assert int(noted.read_text()) != os.getpgid(0)


def test_what_no_environment_can_say_keeps_no_later_command_from_running(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    noted = tmp_path / "noted"
    hooks = RoleHooks(settings(on_active_command=python("-c", NOTE, str(noted))))
    with caplog.at_level(logging.ERROR):
        hooks.changed(Role.ACTIVATING, Role.ACTIVE, 1, "a\0b")
        hooks.changed(Role.ACTIVATING, Role.ACTIVE, 2, "c")
        hooks.close()
    assert "cannot be run" in caplog.text
    assert noted.read_text() == "active one j 2 c\n"


def test_without_commands_nothing_happens() -> None:
    hooks = RoleHooks(settings())
    hooks.changed(Role.ACTIVATING, Role.ACTIVE, 1, "")
    hooks.close()
