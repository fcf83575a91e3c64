"""Workers in child processes. They are restarted when they die, and end with their parent: a node's worker (`node
--with-worker`), and the processes of a worker (`worker --processes`)."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from journal.cli.common import Chosen
from journal.config import Settings

log = logging.getLogger(__name__)

STOP_S = 30.0
_PAUSE_S = 1.0
_PAUSE_MAX_S = 30.0
_LASTING_S = 60.0
"""A worker that ran for this long did not die because of its command line."""


@contextmanager
def running_workers(command: Sequence[str], count: int = 1) -> Iterator[Callable[[], None]]:
    """Run workers (`worker_command`) while the context lasts. The result is a function that tells them to end, without
    waiting."""
    children = [WorkerChild(command) for _ in range(count)]

    def end() -> None:
        for child in children:
            child.end()

    try:
        yield end
    finally:
        end()
        for child in children:
            child.close()


def worker_command(
    settings: Settings,
    chosen: Chosen,
    *,
    as_json: bool,
    verbose: bool,
    standby: bool,
    name: str | None = None,
) -> list[str]:
    """The command line of one worker that logs like its parent, to the same standard error. Other settings come from
    the environment and file of the parent, as passwords must not be on a command line."""
    # this module ends its process in order when its standard input ends, even if the parent was killed
    command = [sys.executable, "-m", "journal.cli.child"]
    if verbose:
        command.append("--verbose")
    command += ["worker", "--processes", "1"]
    if standby:
        command.append("--standby")
    if name is not None:
        command += ["--name", name]
    if as_json:
        command.append("--json")
    command += ["-b", settings.bootstrap_servers, "-j", settings.journal]
    if settings.topic_prefix:
        command += ["--topic-prefix", settings.topic_prefix]
    for item in chosen.properties or ():
        command += ["-X", item]
    if chosen.config is not None:
        command += ["--config", str(chosen.config)]
    return command


class WorkerChild:
    """Starts the command, and restarts it until `close`."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kafka-journal-worker-child", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Tell the worker to checkpoint and end. It is killed if it takes longer than `STOP_S`."""
        self._stop.set()

    def close(self) -> None:
        """Wait until the worker has ended."""
        self.end()
        self._thread.join()

    def _run(self) -> None:
        pause_s = _PAUSE_S
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                how = f"ended with {self._run_once()}"
            except OSError as error:
                how = f"cannot be started: {error}"
            if self._stop.is_set():
                return
            pause_s = _PAUSE_S if time.monotonic() - began > _LASTING_S else min(2 * pause_s, _PAUSE_MAX_S)
            log.error("the worker %s; it is started again in %g s", how, pause_s)
            self._stop.wait(pause_s)

    def _run_once(self) -> int:
        # The worker gets a session of its own, so that Ctrl-C reaches only this process, its parent, which may still
        # need the worker during a hand-over.
        process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=sys.stderr, start_new_session=True)
        log.info("the worker runs, pid %d", process.pid)
        try:
            while not self._stop.is_set():
                try:
                    return process.wait(0.2)
                except subprocess.TimeoutExpired:
                    continue
            process.terminate()
            try:
                return process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                log.error("the worker did not end in %g s and is killed", STOP_S)
                process.kill()
                return process.wait()
        finally:
            if process.stdin is not None:
                process.stdin.close()
