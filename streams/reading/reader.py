"""The worker's reader: a process with Faust that reads the WAL, beside the process that applies its frames.

Python runs one thread of a process at a time, so the work is divided between two processes. The reader is the member of
the group, but it decides nothing: it calls the shell (`streams.reading.calls`) in its parent process, which holds all
state of the worker. The reader ends with its parent, even if the parent is killed. If the reader dies, a new one is
started, which joins the group as a new member.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from journal.errors import DisconnectedError, JournalError, OperatingError
from journal.topics.names import wal_topic
from journal.v1.journal_pb2 import Identity
from streams.reading.calls import CalledShell, CallsEnded, Channel, Inbox, ShellAnswers, is_readable
from streams.reading.garbage import collect_seldom
from streams.reading.shell import WorkerShell
from streams.reading.signals import run_until_signalled

if TYPE_CHECKING:
    from journal.config import Settings

log = logging.getLogger(__name__)

SIGN_EVERY_S = 0.5
"""How often the parent sends its reader a sign of life."""

END_S = 10.0
"""How long a reader may take to leave the group after its parent has ended, or has asked it to stop."""

NICE = 5
"""The niceness of the reader. Frames read ahead can wait while the parent's work cannot, so with few cores the parent
has priority. The value is small, because a reader without processor time loses its membership: beside six busy
processes on two cores, a reader ten steps nicer left its group again and again. Linux weighs processes of different
sessions against each other regardless of niceness, so both are in one session."""

PAUSE_S = 1.0
PAUSE_MAX_S = 30.0
"""The longest pause before a dead reader is replaced. The pause doubles each time, until a reader has run for
`LASTING_S`."""

LASTING_S = 60.0


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """The settings that a reader gets from its worker: `streams.reading.group_settings.MemberSettings`.

    They are not passed on the command line, which every user of the machine can read, because they may contain
    passwords. They are not `Settings`, because those take long to import.
    """

    bootstrap_servers: str
    journal: str
    node: str
    session_timeout_ms: int
    client_properties: Mapping[str, str]


class ReaderProcess:
    """The parent's side of the reader. It starts the process at once, so that its imports run meanwhile."""

    def __init__(self, command: Sequence[str]) -> None:
        """`command` starts a process that calls `read_for_parent` with the number that is added to the command."""
        self._command = command
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        """Guards the process, because one thread replaces it while another sends to it."""
        self._pause_s = PAUSE_S
        self._start()

    def _start(self) -> None:
        self._is_told = False
        self._started_at = time.monotonic()
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                # the reader has a process group of its own, so that Ctrl-C reaches only the parent, which asks the
                # reader to stop
                self._process = subprocess.Popen(
                    [*self._command, str(theirs.fileno())],
                    stdin=subprocess.PIPE,
                    stdout=sys.stderr,
                    pass_fds=[theirs.fileno()],
                    process_group=0,
                )
            except OSError as error:
                ours.close()
                raise OperatingError(f"the worker's reader cannot be started: {error}") from error
        self._channel = Channel(ours)
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        log.info("the worker's reader runs, pid %d", self._process.pid)

    def run(
        self,
        shell: WorkerShell,
        settings: Settings,
        identity: Identity,
        name: str,
        on_signal: Callable[[], None] = lambda: None,
    ) -> None:
        """Answer the reader's calls until SIGTERM or SIGINT, as `run_worker` does in one process."""
        told = settings.model_dump(include={field.name for field in fields(ReaderSettings)})
        about = (told, name, identity.shards)
        try:
            run_until_signalled(
                lambda stop: self._serve(ShellAnswers(shell), about, wal_topic(settings.journal), stop), on_signal
            )
        finally:
            self.close()

    async def _serve(self, answering: ShellAnswers, about: tuple[object, ...], topic: str, stop: asyncio.Event) -> None:
        signs = asyncio.create_task(self._give_signs())
        executor = ThreadPoolExecutor(1, thread_name_prefix="worker-shell")
        answered = asyncio.get_running_loop().run_in_executor(executor, self._answer_all, answering, about, topic)
        stopping = asyncio.create_task(stop.wait())
        either: list[asyncio.Future[Any]] = [answered, stopping]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        self._stopping.set()
        with self._lock:
            self._process.terminate()
        try:
            await answered
        finally:
            signs.cancel()
            stopping.cancel()
            executor.shutdown()

    async def _give_signs(self) -> None:
        while True:
            # the write fails if the reader has ended or does not read; other code notices that
            with self._lock, suppress(OSError):
                if self._process.stdin is not None and not self._process.stdin.closed:
                    os.write(self._process.stdin.fileno(), b".")
            await asyncio.sleep(SIGN_EVERY_S)

    def _answer_all(self, answering: ShellAnswers, about: tuple[object, ...], topic: str) -> None:
        """Answer the calls of one reader after the other. It runs in the shell's thread."""
        while True:
            try:
                self._channel.send(about)
                self._is_told = True
                inbox = Inbox(self._channel)
                while True:
                    answering.answer(self._channel, inbox.take())
            except CallsEnded as ended:
                if ended.error is not None:
                    raise ended.error from None
                return
            except DisconnectedError:
                how = self._end()
            if answering.is_stopped and self._stopping.is_set():
                return
            if answering.is_stopped:
                raise OperatingError(f"the worker's reader {how}")
            if not self._stopping.is_set() and (given := answering.revoke()):
                log.info("%s: gave back %s", topic, sorted(given))
            if not self._replace(how):
                answering.stop()
                return

    def _replace(self, how: str) -> bool:
        """Start another reader after a pause; False if the worker stops."""
        if time.monotonic() - self._started_at > LASTING_S:
            self._pause_s = PAUSE_S
        if not self._stopping.is_set():
            log.error("the worker's reader %s; another one is started in %g s", how, self._pause_s)
        if self._stopping.wait(self._pause_s):
            return False
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        with self._lock:
            self._start()
            if self._stopping.is_set():
                self._process.terminate()
        return True

    def _end(self) -> str:
        """Wait until the reader, which gets no more answers, has ended; returns how it ended."""
        self._channel.disconnect()
        with self._lock, suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        if not self._is_told:
            self._process.kill()  # the reader has not joined a group yet, so it has none to leave
        try:
            status = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._channel.close()
        return f"was killed by signal {-status}" if status < 0 else f"ended with {status}"

    def close(self) -> None:
        """End the reader. It leaves its group, if it is in one."""
        self._end()


def read_for_parent(number: int) -> None:
    """The main function of a reader. `number` is the file descriptor of its socket. Returns when the reader has
    ended."""
    # the import loads Faust, which the parent does not need
    from streams.reading.app import serve
    from streams.reading.group_settings import group_settings

    # a thread that is just starting counts too; niceness is per thread, so it is set before other threads start
    os.nice(NICE)
    channel = Channel(socket.socket(fileno=number))
    try:
        chosen, name, shards = channel.receive()
    except DisconnectedError:
        return
    collect_seldom()
    settings = ReaderSettings(**chosen)
    silent_after_s = settings.session_timeout_ms / 1000
    threading.Thread(target=_watch_parent, args=(channel, silent_after_s), name="parent", daemon=True).start()
    shell = CalledShell(channel)
    error: BaseException | None = None
    try:
        group = group_settings(settings, name, shards)
        run_until_signalled(lambda stop: serve(shell, group, stop, lambda: None))
    except JournalError as failure:
        error = failure
    except Exception as failure:
        log.exception("the reader ends")
        error = failure
    with suppress(DisconnectedError):
        shell.ended(error)


def _watch_parent(channel: Channel, silent_after_s: float) -> None:
    """End the reader when its parent has ended, or has sent no sign of life for as long as the group allows. The shards
    are then free for other workers."""
    signs = sys.stdin.fileno()
    while True:
        if not is_readable(signs, silent_after_s) or not os.read(signs, 4096):
            break
    channel.disconnect()
    time.sleep(END_S)
    os._exit(1)
