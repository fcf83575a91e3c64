"""What `make dist` builds, in an environment that has nothing else of ours: the command works, against a broker."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.support.processes.command import command_env, run_command
from tests.support.processes.worker import WorkerProcess

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
INSTALL_TIMEOUT_S = 300.0


def run(*command: object, cwd: Path) -> str:
    """Standard output of a command that must succeed."""
    ended = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, cwd=cwd
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of a new environment with the wheel, which is built of the source archive, and what it depends on."""
    work = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--outdir", work / "dist", ROOT, cwd=work)
    (wheel,) = (work / "dist").glob("*.whl")
    venv.create(work / "venv")
    pip = [sys.executable, "-m", "pip", "--python", work / "venv" / "bin" / "python", "--disable-pip-version-check"]
    run(*pip, "install", "--quiet", "--no-compile", "--constraint", ROOT / "requirements.txt", wheel, cwd=work)
    return work / "venv" / "bin" / "kafka-journal"


def test_an_installed_wheel_gives_a_command_that_works(installed: Path, bootstrap: str, tmp_path: Path) -> None:
    env = command_env(bootstrap, f"wheel-{tmp_path.name}".replace("_", "-"), tmp_path)
    env.pop("PYTHONPATH", None)

    def command(*arguments: str, stdin: str = "") -> str:
        ended = run_command(*arguments, env=env, stdin=stdin, command=installed)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    assert command("--version").split()[0] == "kafka-journal"
    assert "apply" in command("--help")
    command("init", "--shards", "2")
    worker = WorkerProcess(bootstrap, env["KAFKA_JOURNAL_JOURNAL"], tmp_path / "worker", command=installed)
    with worker.start(ready=False):
        command("apply", "-", stdin='{"op":"add","id":1,"kind":7,"data":"aGVsbG8="}\n')
        (record,) = map(json.loads, command("dump", "--now").splitlines())
        assert record == {"type": "record", "id": 1, "kind": 7, "data": "aGVsbG8=", "updates": []}
        assert worker.terminate() == 0


def test_an_installed_wheel_imports_its_public_names_without_spark_or_faust(installed: Path, tmp_path: Path) -> None:
    program = (
        "import importlib.util, sys; from journal import Journal, MessageStore; from loaders import Node, QueueLoader; "
        "print(importlib.util.find_spec('pyspark'), 'faust' in sys.modules)"
    )
    assert run(installed.with_name("python"), "-c", program, cwd=tmp_path) == "None False\n"
