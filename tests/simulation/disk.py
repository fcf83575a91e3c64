"""A simulated disk: what a process leaves behind for its next start, and the `LocalStore` that it opens there.

A batch that is not durable is lost by a crash, unless a flush came first; of several, the newest go first, as a
database's buffers do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from random import Random

from journal.errors import LocalDamageError, LocalStorageError
from journal.fold.rows import Change
from journal.wire.keys import RECORD_TAG, record_id_of
from tests.simulation.faults import Fault, Faults, SimulatedCrash
from tests.simulation.timeline import Timeline, never

_Batch = tuple[list[Change], dict[bytes, bytes], bool]


def _nothing(shard: int) -> None: ...


def _no_reason() -> None: ...


class Disk:
    """The rows and named values that one store has on disk."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.named: dict[bytes, bytes] = {}
        self._flushed: tuple[dict[bytes, bytes], dict[bytes, bytes]] | None = None
        self.damaged = False
        """What it has can be read, as luck would have it, but takes no more until it is cleared."""
        self.stalls_until = 0.0
        """Till then it answers nobody."""
        self.no_descriptors_until = 0.0
        """Till then no file can be opened on its machine, and hardly one is open: it opens, reads and writes nothing
        that is not there already."""
        self.on_position: Callable[[int], None] = _nothing
        """Called with a shard whose position was written: the copy says that it is a state there."""
        self._since: list[_Batch] = []
        """Batches since the first one that was not durable, which followed `_flushed`."""

    def write(self, rows: list[Change], named: dict[bytes, bytes], durable: bool) -> None:
        if not durable and self._flushed is None:
            self._flushed = dict(self.rows), dict(self.named)
        if self._flushed is not None:
            self._since.append((rows, named, durable))
        self._apply(rows, named)
        for name in named:
            if name.startswith(b"position/"):
                self.on_position(int(name[9:]))

    def flush(self) -> None:
        self._flushed = None
        self._since.clear()

    def clear(self) -> None:
        self.rows, self.named = {}, {}
        self.damaged = False
        self.flush()

    def crash(self, chance: Random) -> None:
        """The process is gone: what it had not made durable goes with it, from some batch on."""
        if self._flushed is None:
            return
        self.rows, self.named = self._flushed
        kept = chance.randrange(len(self._since) + 1)
        for place, (rows, named, durable) in enumerate(self._since):
            if durable or place < kept:
                self._apply(rows, named)
        self.flush()

    def _apply(self, rows: list[Change], named: dict[bytes, bytes]) -> None:
        own = self.rows
        for key, value in rows:
            if value is None:
                own.pop(key, None)
            else:
                own[key] = value
        self.named.update(named)


class MemorySnapshot:
    """`journal.disk.ports.Snapshot` of a dictionary."""

    def __init__(self, rows: dict[bytes, bytes], read: Callable[[], None] = _no_reason) -> None:
        """`read` is called before each read, and raises what that meets."""
        self._rows = rows
        self._read = read

    def get(self, key: bytes) -> bytes | None:
        self._read()
        return self._rows.get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        rows = self._rows
        for key in sorted([key for key in rows if key.startswith(prefix)]):
            self._read()
            yield key, rows[key]

    def close(self) -> None: ...


class SimulatedStore:
    """`journal.disk.ports.LocalStore` on a simulated disk, as one process has it open."""

    def __init__(self, disk: Disk, faults: Faults, node: str, timeline: Timeline | None = None) -> None:
        """With a `timeline` the disk may stall, and its machine run out of descriptors. Raises LocalStorageError if the
        process has no descriptors left for it."""
        self._disk = disk
        self._faults = faults
        self._node = node
        self._timeline = timeline
        self._open = True
        self._wait_for_disk()
        fault = faults.at("disk_open", node)
        if fault is Fault.CRASH_BEFORE:
            raise SimulatedCrash(node)
        if fault is not Fault.NONE:
            raise LocalStorageError("too many open files")

    def get(self, key: bytes) -> bytes | None:
        self._read()
        return self._disk.rows.get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return MemorySnapshot(self._disk.rows, self._read).scan(prefix)

    def packed(self, rows: Iterable[Change]) -> Callable[[Mapping[bytes, bytes]], None]:
        return partial(self.write, list(rows))

    def write(self, rows: Iterable[Change], named: Mapping[bytes, bytes], *, durable: bool = True) -> None:
        after = self._before("disk_write")
        self._disk.write(list(rows), dict(named), durable)
        self._after(after)

    def named(self, name: bytes) -> bytes | None:
        self._read()
        return self._disk.named.get(name)

    def highest_record(self) -> int:
        self._read()
        return max((record_id_of(key) for key in self._disk.rows if key[:1] == RECORD_TAG), default=0)

    def flush(self) -> None:
        after = self._before("disk_flush")
        self._disk.flush()
        self._after(after)

    def snapshot(self) -> MemorySnapshot:
        return MemorySnapshot(dict(self._disk.rows), self._read)

    def clear(self) -> None:
        after = self._before("disk_clear")
        self._disk.clear()
        self._after(after)

    def close(self) -> None:
        self._open = False

    def _before(self, request: str) -> Fault:
        assert self._open, "a closed store is written"
        self._wait_for_disk()
        fault = self._faults.at(request, self._node)
        if fault is Fault.CRASH_BEFORE:
            raise SimulatedCrash(self._node)
        if fault is Fault.LOSE_REQUEST:
            raise LocalStorageError("the disk refuses")
        self._disk.damaged |= fault is Fault.LOSE_RESPONSE
        if self._disk.damaged and request != "disk_clear":
            raise LocalDamageError("the disk has lost something")
        return fault

    def _wait_for_disk(self) -> None:
        """Raises LocalStorageError while there are no descriptors."""
        timeline, disk = self._timeline, self._disk
        if timeline is None:
            return
        stalls_s = disk.stalls_until - timeline.now()
        if stalls_s > 0:
            timeline.wait(stalls_s, never)
        if disk.no_descriptors_until and timeline.now() < disk.no_descriptors_until:
            raise LocalStorageError("too many open files")

    def _read(self) -> None:
        """A file may have to be opened for it; a damaged disk reads as luck would have it, and says so at times."""
        self._wait_for_disk()
        fault = self._faults.at("disk_read", self._node)
        if fault is Fault.LOSE_REQUEST:
            raise LocalStorageError("too many open files")
        if fault is Fault.LOSE_RESPONSE:
            self._disk.damaged = True
            raise LocalDamageError("the disk has lost something")

    def _after(self, fault: Fault) -> None:
        if fault is Fault.CRASH_AFTER:
            raise SimulatedCrash(self._node)
