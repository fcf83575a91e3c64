"""The worker's reader: Faust, the WAL and the sorting of its frames, in a process beside the one that applies them.

Python runs one thread at a time, so what one process does for a frame no other thread of it does meanwhile. The reader
is in the group and decides nothing: it calls the shell (`streams.reading.calls`), which is in its parent with all that
a worker holds. It ends with its parent, however that goes; one that dies is replaced, and joins the group as a new
member.
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
from functools import partial
from typing import TYPE_CHECKING, Any

from journal.errors import DisconnectedError, FrameError, JournalError, OperatingError
from journal.fold.sorted_frame import SortedFrame
from journal.fold.sorting import sort_frame
from journal.topics.names import wal_topic
from journal.v1.journal_pb2 import Identity
from streams.reading.calls import CalledShell, CallsEnded, Channel, Inbox, ShellAnswers, is_readable
from streams.reading.garbage import collect_seldom
from streams.reading.records import Prepared, Record
from streams.reading.shell import WorkerShell
from streams.reading.signals import run_until_signalled

if TYPE_CHECKING:
    from journal.config import Settings

log = logging.getLogger(__name__)

SIGN_EVERY_S = 0.5
"""How often the parent sends its reader a sign of life."""

END_S = 10.0
"""How long a reader may take to leave the group once its parent is gone, or has nothing more for it to do."""

NICE = 5
"""What its parent does is waited for, what it reads ahead is not: with few cores the parent goes first. But a reader
that has no turn is no member for long: beside six busy processes on two cores, one ten steps nicer left its group again
and again. They are of one session, as Linux weighs sessions against each other whatever the niceness of processes."""

PAUSE_S = 1.0
PAUSE_MAX_S = 30.0
"""The pause before a dead reader is replaced: twice as long each time, until one has lasted for `LASTING_S`."""

LASTING_S = 60.0


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """What a reader has to know of its worker's settings: `streams.reading.group_settings.MemberSettings`.

    Not on its command line, which everybody sees: there may be passwords. Not as `Settings`, which take long to import.
    """

    bootstrap_servers: str
    journal: str
    node: str
    session_timeout_ms: int
    client_properties: Mapping[str, str]


class ReaderProcess:
    """The parent's side. Starts the process at once, so that it imports what it needs meanwhile."""

    def __init__(self, command: Sequence[str]) -> None:
        """`command` runs `read_for_parent` with the number behind it."""
        self._command = command
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        """Guards the process, which one thread replaces and another tells things."""
        self._pause_s = PAUSE_S
        self._start()

    def _start(self) -> None:
        self._is_told = False
        self._started_at = time.monotonic()
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                # a process group of its own: Ctrl-C is for the parent to hear, which asks the reader to stop
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
        """Answer what the reader calls until SIGTERM or SIGINT has it stop, as `run_worker` does in one process."""
        told = settings.model_dump(include={field.name for field in fields(ReaderSettings)})
        about = (told, name, identity.journal, identity.shards)
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
            with self._lock, suppress(OSError):  # it is gone, or stands still: others notice
                if self._process.stdin is not None and not self._process.stdin.closed:
                    os.write(self._process.stdin.fileno(), b".")
            await asyncio.sleep(SIGN_EVERY_S)

    def _answer_all(self, answering: ShellAnswers, about: tuple[object, ...], topic: str) -> None:
        """Answer all calls, of one reader after the other. Runs in the shell's thread."""
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
        """Wait until the reader has ended, now that nobody answers it; how it ended."""
        self._channel.disconnect()
        with self._lock, suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        if not self._is_told:
            self._process.kill()  # it knows of no group to leave
        try:
            status = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._channel.close()
        return f"was killed by signal {-status}" if status < 0 else f"ended with {status}"

    def close(self) -> None:
        """End the reader: it leaves its group, if it is in one."""
        self._end()


def read_for_parent(number: int) -> None:
    """The reader: `number` is the file descriptor of its socket. Returns when it has ended."""
    # Faust, which its parent does not need
    from streams.reading.app import serve
    from streams.reading.group_settings import group_settings

    os.nice(NICE)  # one that starts is waited for too; before there are threads, as each has its own
    channel = Channel(socket.socket(fileno=number))
    try:
        chosen, name, journal, shards = channel.receive()
    except DisconnectedError:
        return
    collect_seldom()
    settings = ReaderSettings(**chosen)
    silent_after_s = settings.session_timeout_ms / 1000
    threading.Thread(target=_watch_parent, args=(channel, silent_after_s), name="parent", daemon=True).start()
    shell = CalledShell(channel)
    prepare = partial(_sort, shell, journal, shards)
    error: BaseException | None = None
    try:
        group = group_settings(settings, name, shards)
        run_until_signalled(lambda stop: serve(shell, group, stop, lambda: None, prepare))
    except JournalError as failure:
        error = failure
    except Exception as failure:
        log.exception("the reader ends")
        error = failure
    with suppress(DisconnectedError):
        shell.ended(error)


def _watch_parent(channel: Channel, silent_after_s: float) -> None:
    """A parent that is gone, or stands still for so long that its group would count it as dead, has no reader: what it
    had is for others to serve."""
    signs = sys.stdin.fileno()
    while True:
        if not is_readable(signs, silent_after_s) or not os.read(signs, 4096):
            break
    channel.disconnect()
    time.sleep(END_S)
    os._exit(1)


def _sort(shell: CalledShell, journal: bytes, shards: int, shard: int, records: Sequence[Record]) -> list[Prepared]:
    if shard in shell.unsorted():
        return list(records)
    return [(offset, timestamp, _sorted(value, offset, journal, shard, shards)) for offset, timestamp, value in records]


def _sorted(value: bytes, offset: int, journal: bytes, shard: int, shards: int) -> bytes | SortedFrame:
    """Sort the frames. What is no frame goes on as it is: its shard says what is wrong with it, and stops there."""
    try:
        return sort_frame(value, offset, journal, shard, shards)
    except FrameError:
        return value
