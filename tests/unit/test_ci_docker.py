"""`.ci/docker start` on machines of several kinds, each made of a few commands that stand before the machine's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).parents[2]
COMMANDS = {"id": "echo 0", "unshare": "exit 0", "docker": "exit 1", "dockerd": "exit 1", "apt-get": "exit 1"}
"""A machine whose root may do everything, with an engine that does not start."""


def start(directory: Path, ci_docker: str = "", **commands: str) -> subprocess.CompletedProcess[str]:
    """On such a machine, some of whose commands do something else."""
    own = directory / "bin"
    own.mkdir()
    for name, code in {**COMMANDS, **commands}.items():
        (own / name).write_text(f"#!/bin/sh\n{code}\n", encoding="utf-8")
        (own / name).chmod(0o755)
    env = {
        "PATH": f"{own}:/usr/bin:/bin",
        "HOME": str(directory),
        "CI_DOCKER_DIR": str(directory / "work"),
        "PYTHON": sys.executable,
    }
    if ci_docker:
        env["CI_DOCKER"] = ci_docker
    return subprocess.run([ROOT / ".ci" / "docker", "start"], capture_output=True, text=True, env=env)


CANNOT = {"only root can start one": {"id": "echo 1000"}, "this root may not make": {"unshare": "exit 1"}}


@pytest.mark.parametrize("reason", CANNOT)
def test_where_no_engine_can_be_had_the_reason_is_said_and_tests_may_be_skipped(tmp_path: Path, reason: str) -> None:
    done = start(tmp_path, **CANNOT[reason])
    assert (done.returncode, done.stdout) == (0, "")
    assert reason in done.stderr


def test_required_makes_a_failure_of_every_reason(tmp_path: Path) -> None:
    done = start(tmp_path, "required", id="echo 1000")
    assert (done.returncode, done.stdout) == (1, "")


def test_where_an_engine_can_be_had_one_that_does_not_start_is_a_failure(tmp_path: Path) -> None:
    done = start(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "failed: dockerd does not start" in done.stderr
    assert not (tmp_path / "work").exists()


def test_optional_makes_a_failure_of_no_reason(tmp_path: Path) -> None:
    done = start(tmp_path, "optional")
    assert (done.returncode, done.stdout) == (0, "")
    assert "no engine: dockerd does not start" in done.stderr


def test_where_an_engine_answers_the_tests_that_want_one_are_required(tmp_path: Path) -> None:
    done = start(tmp_path, docker="exit 0")
    assert done.returncode == 0, done.stderr
    assert "export CI_DOCKER=required" in done.stdout.splitlines()
