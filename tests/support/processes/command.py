"""`kafka-journal` as a process, and new journals for processes."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

from journal.embedded.distribution import cache_directory
from tests.support.processes.forked import FORKED, run_forked

COMMAND = Path(sys.executable).with_name("kafka-journal")
COMMAND_TIMEOUT_S = 60.0


def command_env(bootstrap: str, journal: str, directory: Path, env: Mapping[str, str] | None = None) -> dict[str, str]:
    """A process' environment: this journal, local copies under `directory`, and `env` over it."""
    return os.environ | {
        "KAFKA_JOURNAL_CACHE": str(cache_directory()),  # with Kafka's jars, which nobody wants to fetch again
        "XDG_CACHE_HOME": str(directory / "cache"),
        "KAFKA_JOURNAL_BOOTSTRAP_SERVERS": bootstrap,
        "KAFKA_JOURNAL_JOURNAL": journal,
        "KAFKA_JOURNAL_DIRECTORY": str(directory),
        **(env or {}),
    }


def run_command(
    *arguments: str | int,
    env: Mapping[str, str],
    stdin: str | bytes = "",
    timeout_s: float = COMMAND_TIMEOUT_S,
    command: Path = COMMAND,
) -> subprocess.CompletedProcess[str]:
    """`kafka-journal` with these arguments, to its end. Raises subprocess.TimeoutExpired."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    texts = [str(argument) for argument in arguments]
    if command == COMMAND and texts[0] in FORKED and "--with-spark" not in texts:
        ended = run_forked(texts, env, given, timeout_s)
    else:
        ended = subprocess.run([str(command), *texts], input=given, capture_output=True, env=env, timeout=timeout_s)
    return subprocess.CompletedProcess(
        ended.args, ended.returncode, ended.stdout.decode(errors="replace"), ended.stderr.decode(errors="replace")
    )


def new_journal(bootstrap: str, shards: int, *, directory: Path, env: Mapping[str, str] | None = None) -> str:
    """The name of a journal that nobody else has, after `init`."""
    name = f"test-{uuid.uuid4().hex}"
    ended = run_command("init", "--shards", shards, env=command_env(bootstrap, name, directory, env))
    assert ended.returncode == 0, ended.stderr
    return name
