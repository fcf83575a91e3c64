"""The command line as processes: commands, workers, and new journals for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from journal.embedded.distribution import cache_directory
from tests.support.forked import FORKED, ForkedCommand, run_forked

COMMAND = Path(sys.executable).with_name("kafka-journal")
COMMAND_TIMEOUT_S = 60.0
START_TIMEOUT_S = 60.0
_LOOK_EVERY_S = 0.05
_NOTHING = Path(os.devnull)


def command_env(bootstrap: str, journal: str, directory: Path, env: Mapping[str, str] | None = None) -> dict[str, str]:
    """A process' environment: this journal, local copies under `directory`, and `env` over it."""
    return os.environ | {
        "KAFKA_JOURNAL_CACHE": str(cache_directory()),  # of Kafka's jars, which nobody wants to fetch again
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


class WorkerProcess:
    """`kafka-journal worker` as a process; its log goes to a file under `directory`, and so do its local copies. It is
    forked as `tests.support.forked` has it, unless it is another installation's `command`."""

    def __init__(
        self,
        bootstrap: str,
        journal: str,
        directory: Path,
        env: Mapping[str, str] | None = None,
        *,
        command: Path = COMMAND,
        options: Sequence[str] = (),
    ) -> None:
        self._command, self._arguments = command, ["worker", *options]
        self._env = command_env(bootstrap, journal, directory, env)
        self._directory = directory
        self._process: subprocess.Popen[bytes] | ForkedCommand | None = None
        self.log_file = directory / f"worker-{uuid.uuid4().hex[:8]}.log"

    def ended(self) -> int | None:
        """Its exit code, None while it runs, or before it was started."""
        return None if self._process is None else self._process.poll()

    def start(self, *, ready: bool = True) -> WorkerProcess:
        """Start it; with `ready`, wait until it reads its first shards. A stopped one may be started again."""
        assert self._process is None or self._process.poll() is not None, "it runs already"
        self._directory.mkdir(parents=True, exist_ok=True)
        before = len(self.log())
        with self.log_file.open("ab") as log:
            if self._command == COMMAND:
                self._process = ForkedCommand(self._arguments, self._env, [_NOTHING, self.log_file, self.log_file])
            else:
                command = [str(self._command), *self._arguments]
                self._process = subprocess.Popen(
                    command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self._env
                )
        if ready:
            self.wait_for_log("reading from", after=before)
        return self

    @property
    def pid(self) -> int:
        return self._started().pid

    def log(self) -> str:
        """What it has written so far."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def wait_for_log(self, text: str, *, after: int = 0, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until `text` is in its log behind character `after`."""
        until = time.monotonic() + timeout_s
        while text not in self.log()[after:]:
            assert self._started().poll() is None, f"the worker ended:\n{self.log()}"
            assert time.monotonic() < until, f"no {text!r} within {timeout_s} s:\n{self.log()}"
            time.sleep(_LOOK_EVERY_S)

    def terminate(self, timeout_s: float = COMMAND_TIMEOUT_S) -> int:
        """SIGTERM, and its exit code."""
        self._started().send_signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL, also to one that is gone."""
        process = self._started()
        process.kill()
        process.wait(COMMAND_TIMEOUT_S)

    def wait(self, timeout_s: float = COMMAND_TIMEOUT_S) -> int:
        """Its exit code, once it has ended. Raises subprocess.TimeoutExpired."""
        return self._started().wait(timeout_s)

    def _started(self) -> subprocess.Popen[bytes] | ForkedCommand:
        assert self._process is not None, "it was not started"
        return self._process

    def __enter__(self) -> WorkerProcess:
        return self if self._process is not None else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
