"""The worker as a Faust app: which shards it has, which records the WAL delivers, and when it stops.

The app drives the worker's shell and decides nothing. It calls the shell in one thread, in order, so the shell may
block while the group's heartbeats go on. The first error of the shell or of reading ends the worker: no call follows
it, the worker leaves the group at once, and the caller that runs the worker gets the error. If only one shard cannot be
read, the shell is told and decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any, TypeVar

from mode import Service

from journal.errors import CorruptionError, JournalError
from journal.process.waits import LongWait
from streams.reading.ahead import Batches, ReadAhead
from streams.reading.group_settings import GroupSettings
from streams.reading.shell import WorkerShell
from streams.reading.signals import run_until_signalled
from streams.reading.wal_app import WalApp
from streams.reading.wal_transport import WalTransport, wal_consumer

log = logging.getLogger(__name__)

T = TypeVar("T")

IDLE_WAIT_S = 0.2
"""How long a worker without shards waits before it checks whether it got some."""

_SHARDS_COME = "they come when a worker that has some ends, or once its session has timed out"


class ShellStopped(Exception):
    """Raised by a call of the shell that failed, by every later call, and by calls after the last one."""


class ShellThread:
    """The only thread in which the shell is called."""

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="worker-shell")
        self._on_error = on_error
        self._stopped = False

    async def call(self, function: Callable[..., T], *arguments: Any, last: bool = False) -> T:
        """Call the shell. Calls run in the order in which they were made, even if a caller is cancelled meanwhile."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._call, loop, function, arguments, last)

    def _call(
        self, loop: asyncio.AbstractEventLoop, function: Callable[..., T], arguments: tuple[Any, ...], last: bool
    ) -> T:
        if self._stopped:
            raise ShellStopped
        self._stopped = last
        try:
            return function(*arguments)
        except Exception as error:
            self._stopped = True
            loop.call_soon_threadsafe(self._on_error, error)
            raise ShellStopped from error

    def close(self) -> None:
        self._executor.shutdown()


class StreamWorker:
    """A worker in the running event loop, with `start`, `ended` and `stop`."""

    def __init__(self, shell: WorkerShell, settings: GroupSettings) -> None:
        self._shell = shell
        self._settings = settings
        self._thread = ShellThread(self.failed)
        self._failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._turn = 0
        """The number of revocations so far. Records that were fetched, or shards recovered, in an older turn are
        dropped."""
        self._assigned: frozenset[int] | None = None
        """The shards of the last assignment; None from a revocation until the next assignment."""
        self._given: frozenset[int] = frozenset()
        """Shards handed to the shell by `assigned` and not yet taken back."""
        self._is_moving = False
        """Whether the shell was told of a revocation, but not yet of the shards that follow."""
        self._begin: Mapping[int, int] = {}
        """The WAL offset to seek to, by shard. The feed seeks between its fetches, because a fetch under way would
        change the position again."""
        self._reading: frozenset[int] = frozenset()
        self._applied: Mapping[int, int] = {}
        self.app = WalApp(settings, self)
        self.app.transport = WalTransport(self.app.conf.broker_consumer, self.app)
        self.app.topics.add(self.app.topic(settings.topic, value_serializer="raw", acks=False))
        self.app.on_partitions_assigned.connect(self._on_assigned, weak=True)
        self.app.on_partitions_revoked.connect(self._on_revoked, weak=True)
        self.app.on_rebalance_complete.connect(self._on_rebalance_complete, weak=True)
        self.app.on_before_shutdown.connect(self._on_before_shutdown, weak=True)
        self._starting: asyncio.Task[None] | None = None

    # ---- lifecycle ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the worker. Returns when it has joined the group and the shell has its first shards, or when the worker
        has failed."""
        self._starting = asyncio.create_task(self.app.start())
        await asyncio.wait([self._starting, self._failed], return_when=asyncio.FIRST_COMPLETED)
        error = self._starting.exception() if self._starting.done() else None
        if error is not None:
            self.failed(error)

    async def ended(self) -> BaseException | None:
        """Wait for the end of the worker: None if it was stopped, else the error of the shell, of reading, or of Faust
        itself."""
        down = asyncio.ensure_future(self.app.wait_until_stopped())
        await asyncio.wait([self._failed, down], return_when=asyncio.FIRST_COMPLETED)
        down.cancel()
        if self._failed.done():
            failure: BaseException = self._failed.result()
            return failure
        return self.app.crash_reason

    async def stop(self) -> None:
        """Stop: make the final checkpoint (unless the worker failed), commit its group offsets, and leave the group."""
        try:
            await self.app.stop()
            if self._starting is not None:
                await asyncio.wait([self._starting])
        finally:
            self._thread.close()

    # ---- rebalances, in the order in which Faust tells them -------------------------------------------------

    async def _on_revoked(self, _app: Any, /, *places: Any, **_: Any) -> None:
        """Called before the worker joins the group again. Heartbeats go on meanwhile, up to the rebalance time-out."""
        self._turn += 1
        self._assigned, self._reading = None, frozenset()
        self._begin = {}
        given, self._given = self._given, frozenset()
        if given:
            self._is_moving = True
            try:
                self._applied = await self._thread.call(self._revoke, given)
            except ShellStopped:
                return
            log.info("%s: gave back %s", self._settings.topic, sorted(given))
            await wal_consumer(self.app).force_commit()

    async def _on_assigned(self, _app: Any, /, *places: Any, **_: Any) -> None:
        """Note the shards only: no heartbeats are sent until this returns, so the shell is told in
        `_on_rebalance_complete`."""
        self._assigned = frozenset(place.partition for place in places[0] if place.topic == self._settings.topic)

    async def _on_rebalance_complete(self, _app: Any, /, *_args: Any, **_: Any) -> None:
        """Tell the shell its shards. Faust waits for this before records flow again, but the group does not, so it may
        take long."""
        turn, shards = self._turn, self._assigned
        if shards is None or (shards == self._given and not self._is_moving):
            return
        self._given, self._is_moving = shards, False
        try:
            offsets = await self._thread.call(self._shell.assigned, shards)
        except ShellStopped:
            return
        if turn == self._turn:
            self._begin = {**self._begin, **offsets}

    async def _on_before_shutdown(self, _app: Any, /, *_args: Any, **_: Any) -> None:
        """Called while the worker is still a member of the group; then its consumer leaves the group."""
        self._reading = frozenset()
        try:
            self._applied = await self._thread.call(self._stop, last=True)
        except ShellStopped:
            return
        await wal_consumer(self.app).force_commit()

    # ---- the feed --------------------------------------------------------------------------------------------

    async def run(self, fetcher: Service) -> None:
        """Pass fetched batches to the shell, with ticks between them, until the fetcher stops."""
        try:
            await self._run(fetcher)
        except ShellStopped:
            return
        except JournalError as error:
            self.failed(error)

    async def _run(self, fetcher: Service) -> None:
        ahead = ReadAhead(self._read)
        try:
            await self._serve(fetcher, ahead)
        finally:
            ahead.close()

    async def _read(self, shards: Collection[int], wait_ms: int) -> Batches:
        return await wal_consumer(self.app).fetch(shards, wait_ms)

    async def _serve(self, fetcher: Service, ahead: ReadAhead) -> None:
        consumer = wal_consumer(self.app)
        wait_s = self._settings.fetch_wait_ms / 1000
        tick_at = monotonic()
        wait = LongWait(monotonic)
        while not fetcher.should_stop:
            if monotonic() >= tick_at:
                given = self._given
                turn = self._turn
                seconds, applied, seeks = await self._thread.call(self._tick)
                self._applied = {shard: offset for shard, offset in applied.items() if shard in given}
                if turn == self._turn:
                    self._begin = {**self._begin, **seeks}
                tick_at = monotonic() + seconds
            left_s = max(0.0, tick_at - monotonic())
            turn = self._turn
            if self._begin:
                begin, self._begin = self._begin, {}
                await ahead.leave_out(begin)
                if await consumer.seek_shards(begin) and turn == self._turn:
                    log.info("%s: reading from %s", self._settings.topic, dict(sorted(begin.items())))
                    self._reading |= frozenset(begin)
            shards = self._reading
            if not shards:
                wait.look(f"shards of {self._settings.topic}", _SHARDS_COME)
                await fetcher.sleep(min(left_s, IDLE_WAIT_S))
                continue
            wait = LongWait(monotonic)
            ahead.begin(turn, shards, int(min(left_s, wait_s) * 1000))
            try:
                batches = await ahead.take(turn, left_s)
            except JournalError as error:
                if turn != self._turn:
                    continue  # a rebalance has changed the positions during this read; they are set again after it
                if not isinstance(error, CorruptionError):
                    raise
                self._reading -= {error.partition}
                await self._thread.call(self._shell.unreadable, error.partition, error)
                tick_at = monotonic()
                continue
            if batches and turn == self._turn:
                ahead.begin(turn, shards, self._settings.fetch_wait_ms)
            for shard, records in batches.items():
                if turn == self._turn:
                    await self._thread.call(self._shell.frames, shard, records)
            if batches:
                tick_at = monotonic()

    def failed(self, error: BaseException) -> None:
        """End the worker with an error; the first one counts."""
        if not self._failed.done():
            self._failed.set_result(error)

    def committable(self) -> Mapping[int, int]:
        return self._applied

    # ---- in the shell's thread -----------------------------------------------------------------------------

    def _revoke(self, shards: Collection[int]) -> Mapping[int, int]:
        self._shell.revoked(shards)
        return dict(self._shell.applied())

    def _tick(self) -> tuple[float, Mapping[int, int], Mapping[int, int]]:
        seconds = self._shell.tick()
        return seconds, dict(self._shell.applied()), self._shell.seeks()

    def _stop(self) -> Mapping[int, int]:
        self._shell.stop()
        return dict(self._shell.applied())


async def serve(
    shell: WorkerShell,
    settings: GroupSettings,
    stop: asyncio.Event,
    started: Callable[[], Any],
) -> None:
    """Run a worker until `stop` is set; raises the error that ended it before. `started` is called when the worker
    reads."""
    worker = StreamWorker(shell, settings)
    stopping = asyncio.create_task(stop.wait())
    ended = asyncio.create_task(worker.ended())
    starting = asyncio.create_task(worker.start())
    starting.add_done_callback(lambda _: started())
    try:
        await asyncio.wait([stopping, ended], return_when=asyncio.FIRST_COMPLETED)
    finally:
        await worker.stop()
        stopping.cancel()
    error = await ended
    if error is not None:
        raise error


def run_worker(shell: WorkerShell, settings: GroupSettings, on_signal: Callable[[], None] = lambda: None) -> None:
    """Run a worker in this process until SIGTERM or SIGINT, and call `on_signal` for each; raises the error that ended
    it before. A second signal that comes more than a second after the first ends the process at once."""
    run_until_signalled(lambda stop: serve(shell, settings, stop, lambda: None), on_signal)
