"""The bodies of messages that are not durable. They are in memory, and beyond a bound in swap files on this machine's
disk, until the store closes.

Each queue has its own swap files, in which bodies follow one another. A file is removed when its last body is dropped,
and all files are removed at close. Files of a killed process are removed by the next process that takes the same place.
Messages that are not durable do not survive their process.

If a file cannot be removed, no call fails, because its messages were consumed. The file still counts against the bound;
its removal is tried again when a queue needs more room.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import NamedTuple

from journal.disk.slots import take_slot
from journal.errors import FullError, LocalStorageError

log = logging.getLogger(__name__)


class _File:
    """A swap file. Bodies are appended until it is full; it is removed when none of them is needed."""

    __slots__ = ("full", "live", "path", "size")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.live = 0
        self.full = False


class _Place(NamedTuple):
    queue: int
    file: _File
    offset: int
    size: int


class Swap:
    """Swap files below a directory. No file stays open, because there are many queues and few descriptors. Not
    thread-safe."""

    def __init__(self, directory: Path, *, file_bytes_max: int, queue_bytes_max: int) -> None:
        """Processes that swap to the same `directory` take different places in it. Raises LocalStorageError."""
        self._slot = take_slot(directory, "swap")
        self._directory = self._slot.path
        self._file_bytes_max = file_bytes_max
        self._queue_bytes_max = queue_bytes_max
        self._current: dict[int, _File] = {}
        self._bytes: dict[int, int] = {}
        self._places: dict[int, _Place] = {}
        self._files = 0
        self._stuck: list[tuple[int, _File]] = []
        """(queue, file) pairs of unneeded files that could not be removed."""
        try:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory.mkdir()
        except OSError as error:
            self._slot.release()
            raise LocalStorageError(f"cannot swap to {self._directory}: {error}") from error

    @property
    def disk_bytes(self) -> int:
        """Bytes of the files on the disk."""
        return sum(self._bytes.values())

    def put(self, queue: int, body_id: int, body: bytes) -> None:
        """Write a body for a queue. Raises FullError when the queue's files are at their bound, LocalStorageError."""
        used = self._bytes.get(queue, 0)
        if self._stuck and used + len(body) > self._queue_bytes_max:
            self._remove_stuck()
            used = self._bytes.get(queue, 0)
        if used + len(body) > self._queue_bytes_max:
            raise FullError(f"queue {queue} has {used} bytes of swap files: consume some (swap_queue_bytes_max)")
        file = self._current.get(queue)
        if file is None or file.full:
            file = self._roll_over(queue, file)
        try:
            with file.path.open("ab") as stream:
                stream.write(body)
        except OSError as error:
            self._cut(file)
            raise LocalStorageError(f"cannot swap to {file.path}: {error}") from error
        self._places[body_id] = _Place(queue, file, file.size, len(body))
        file.size += len(body)
        file.live += 1
        file.full = file.size >= self._file_bytes_max
        self._bytes[queue] = self._bytes.get(queue, 0) + len(body)

    def _roll_over(self, queue: int, full: _File | None) -> _File:
        self._remove_stuck()
        self._files += 1
        file = self._current[queue] = _File(self._directory / f"{queue}-{self._files}.swap")
        if full is not None and not full.live:
            self._remove(queue, full)
        return file

    def _cut(self, file: _File) -> None:
        """Shorten a file to the end of its last whole body, because a failed write may have left bytes behind that."""
        try:
            os.truncate(file.path, file.size)
        except OSError:
            file.full = True  # so nothing more is appended to this file

    def get(self, body_id: int) -> bytes | None:
        """The body with this id; None if it has none. Raises LocalStorageError."""
        place = self._places.get(body_id)
        if place is None:
            return None
        try:
            with place.file.path.open("rb") as stream:
                stream.seek(place.offset)
                body = stream.read(place.size)
        except OSError as error:
            raise LocalStorageError(f"cannot read {place.file.path}: {error}") from error
        if len(body) != place.size:
            raise LocalStorageError(f"{place.file.path} is shorter than what was written to it")
        return body

    def drop(self, body_id: int) -> None:
        """Called when a body is not needed any more. A file that cannot be removed raises no error."""
        place = self._places.pop(body_id, None)
        if place is None:
            return
        place.file.live -= 1
        if not place.file.live:
            if self._current.get(place.queue) is place.file:
                del self._current[place.queue]
            self._remove(place.queue, place.file)

    def _remove(self, queue: int, file: _File) -> None:
        try:
            file.path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("cannot remove %s, which is not needed any more: %s", file.path, error)
            self._stuck.append((queue, file))
            return
        left = self._bytes.pop(queue, 0) - file.size
        if left:
            self._bytes[queue] = left

    def _remove_stuck(self) -> None:
        stuck, self._stuck = self._stuck, []
        for queue, file in stuck:
            self._remove(queue, file)

    def close(self) -> None:
        """Remove all files. Files that cannot be removed are left to the next process that swaps here."""
        shutil.rmtree(self._directory, ignore_errors=True)
        self._slot.release()


class VolatileBodies:
    """The bodies of messages that are not durable, by id: in memory while they fit, and then swapped. The store's lock
    guards them."""

    def __init__(self, memory_bytes_max: int, swap: Swap | None) -> None:
        """Without a `swap`, bodies beyond the bound are refused."""
        self._memory_bytes_max = memory_bytes_max
        self._swap = swap
        self._bodies: dict[int, bytes | None] = {}
        """Bodies by id; None for a body that is swapped."""
        self.memory_bytes = 0

    def __contains__(self, body_id: int) -> bool:
        return body_id in self._bodies

    @property
    def swapped_bytes(self) -> int:
        """Bytes of the swap files on the disk."""
        return 0 if self._swap is None else self._swap.disk_bytes

    def put(self, queue: int, body_id: int, body: bytes) -> None:
        """Keep a body, for the queue that its message goes to. Raises FullError, and what `Swap.put` raises."""
        if self.memory_bytes + len(body) <= self._memory_bytes_max:
            self._bodies[body_id] = body
            self.memory_bytes += len(body)
            return
        if self._swap is None:
            raise FullError(f"{self.memory_bytes} bytes that are not durable are in memory (volatile_bytes_max)")
        self._swap.put(queue, body_id, body)
        self._bodies[body_id] = None

    def get(self, body_id: int) -> bytes | None:
        """The body with this id; None if it has none. Raises LocalStorageError."""
        body = self._bodies.get(body_id)
        if body is None and self._swap is not None:
            return self._swap.get(body_id)
        return body

    def in_memory(self, body_id: int) -> bytes | None:
        """The body with this id; None if it is swapped."""
        return self._bodies[body_id]

    def drop(self, body_id: int) -> None:
        body = self._bodies.pop(body_id, b"")
        if body is None:
            if self._swap is not None:
                self._swap.drop(body_id)
        else:
            self.memory_bytes -= len(body)

    def close(self) -> None:
        self._bodies.clear()
        self.memory_bytes = 0
        if self._swap is not None:
            self._swap.close()
