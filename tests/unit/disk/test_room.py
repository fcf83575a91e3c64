"""A disk that takes nothing holds up only the store that is written; all other threads run."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from journal.disk.rocks import RocksStore
from journal.disk.rocks_options import BUFFERS_BYTES, SHARD_FILES, write_buffers
from journal.errors import LocalStorageError
from journal.wire.keys import record_key

STORES = 24
FLUSHES = 60
ROCKSDB_FILES = 10
"""Number of files that a store has open besides its tables."""

STALLED = """
import os, sys, threading, time
from pathlib import Path
from journal.errors import LocalStorageError
from journal.disk.rocks import RocksStore
from journal.wire.keys import record_key

directory, act = Path(sys.argv[1]), sys.argv[2]
store = RocksStore(directory)
store.write([(record_key(0), b"sound")], {b"position": b"1"})
store.flush()
taken = {path.name for path in directory.iterdir()}
# whoever opens a pipe waits for somebody at its other end: RocksDB's threads, for every table that they would write
pipes = [directory / f"{number:06d}.sst" for number in range(1, 100) if f"{number:06d}.sst" not in taken]
for pipe in pipes:
    os.mkfifo(pipe)
written, met = [], []

def fill(until):
    while len(written) < until:
        rows = [(record_key(len(written) * 10 + number), bytes(100_000)) for number in range(10)]
        store.write(rows, {b"position": b"2"})
        written.append(len(rows))

def work():
    try:
        fill(1000 if act == "write" else 5)
        store.flush() if act == "write" else store.clear()
    except LocalStorageError as error:
        met.append(error)

writer = threading.Thread(target=work)
writer.start()
while len(written) < (64 if act == "write" else 5):
    time.sleep(0.001)
for _ in range(30):  # this thread runs, and that one waits
    time.sleep(0.01)
assert writer.is_alive()
assert len(written) < 200, len(written)
ends = [os.open(pipe, os.O_RDWR | os.O_NONBLOCK) for pipe in pipes]
for pipe in pipes:
    pipe.unlink()
for end in ends:
    os.close(end)
writer.join()
assert bool(met) == (act == "write"), met
assert store.named(b"position") == (b"2" if act == "write" else None)
store.write([(record_key(0), b"again")], {b"position": b"3"})
assert store.get(record_key(0)) == b"again"
assert store.get(record_key(49)) == (bytes(100_000) if act == "write" else None)
store.close()
"""


@pytest.mark.parametrize("act", ["write", "clear"])
def test_a_disk_that_takes_nothing_stops_no_other_thread(tmp_path: Path, act: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", STALLED, str(tmp_path / "a"), act], capture_output=True, text=True, timeout=30
    )
    assert ran.returncode == 0, ran.stderr


def test_a_store_waits_for_room_before_it_writes_and_says_in_the_end_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(RocksStore(tmp_path)) as store:
        monkeypatch.setattr("journal.disk.room.ROOM_TIMEOUT_S", 0.05)
        monkeypatch.setattr("journal.disk.room.BUFFERS_BYTES", 0)  # there is never room
        with pytest.raises(LocalStorageError, match=r"its disk has taken nothing for 0\.05 s"):
            store.write([(record_key(0), b"sound")], {b"position": b"1"})
        assert store.get(record_key(0)) is None


def test_rows_that_are_in_no_file_yet_count_in_the_buffers_that_all_stores_share(tmp_path: Path) -> None:
    with closing(RocksStore(tmp_path)) as store:
        before = write_buffers().get_usage()
        store.write([(record_key(0), bytes(1_000_000))], {})
        assert write_buffers().get_usage() - before >= 1_000_000


def test_files_and_write_buffers_of_stores_are_bounded_and_idle_stores_hold_up_no_other(
    tmp_path: Path,
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    batch = [(record_key(number), bytes(100_000)) for number in range(BUFFERS_BYTES // 1_000_000)]
    with ExitStack() as stack:
        stores = [
            stack.enter_context(closing(RocksStore(tmp_path / f"{number}", files_max=SHARD_FILES)))
            for number in range(STORES)
        ]
        for store in stores:
            store.write(batch, {}, durable=False)
            assert write_buffers().get_usage() < 2.2 * BUFFERS_BYTES
        for _ in range(FLUSHES):
            stores[-1].write(batch[:1], {})
            stores[-1].flush()
        assert len(os.listdir("/proc/self/fd")) - before < STORES * (SHARD_FILES + ROCKSDB_FILES)
