"""Errors that RocksDB meets when it opens, reads or writes a store: only damage counts as damage, and files stay
otherwise.

Each error is made with the real library.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from journal.disk.rocks import RocksStore, open_copy
from journal.errors import LocalDamageError, LocalStorageError
from journal.fold.rows import Base
from journal.wire.keys import record_key, transaction_key
from tests.support.damaged import flip

ROWS = [(record_key(number), bytes([number % 256]) * 500) for number in range(1, 2000)]
NOBODY = 65534
FILES = 7
"""Number of files of each table. With one more, RocksDB would merge them. It keeps ten open."""


def made_copy(directory: Path) -> Path:
    """A copy with rows in a file of its own, and in RocksDB's log."""
    with closing(RocksStore(directory)) as store:
        store.write(ROWS, {})
        store.flush()
        store.write([(record_key(1), b"newest")], {b"position": b"7"})
    return directory


def is_whole(directory: Path) -> bool:
    with closing(open_copy(directory)) as store:
        newest = [(record_key(1), b"newest"), *ROWS[1:]]
        return list(store.scan(b"r")) == newest and store.named(b"position") == b"7"


@contextmanager
def few_descriptors(more: int) -> Iterator[None]:
    """Allows so many more descriptors than are open now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 10, hard))
    fillers = []
    try:
        with suppress(OSError):
            while True:
                fillers.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(more):
            os.close(fillers.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            os.close(filler)


@contextmanager
def another_user(directory: Path) -> Iterator[None]:
    """Runs as a user who may not write the directory."""
    directory.chmod(0o500)
    if os.geteuid() == 0:
        for each in directory.parents:
            if each.stat().st_uid == 0 and not each.stat().st_mode & 1:
                each.chmod(each.stat().st_mode | 0o011)
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        directory.chmod(0o700)


@contextmanager
def disk_that_takes_nothing(_: Path) -> Iterator[None]:
    """Refuses every byte, as the quota of a user who may write does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def held(directory: Path) -> Iterator[None]:
    with closing(RocksStore(directory)):
        yield


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        pytest.param(lambda _: few_descriptors(2), "Too many open files.*ulimit -n", id="no descriptors"),
        pytest.param(lambda _: few_descriptors(5), "Too many open files.*ulimit -n", id="too few descriptors"),
        pytest.param(another_user, "Permission denied.*user", id="another user's"),
        pytest.param(disk_that_takes_nothing, "File too large.*ulimit -f", id="no room"),
        pytest.param(held, "another process", id="held"),
    ],
)
def test_a_sound_copy_that_cannot_be_opened_is_an_error_and_stays(
    tmp_path: Path, trouble: Callable[[Path], Iterator[None]], said: str
) -> None:
    directory = made_copy(tmp_path / "Corruption: No such file or directory")
    with trouble(directory), pytest.raises(LocalStorageError, match=said) as raised:  # type: ignore[attr-defined]
        open_copy(directory)
    assert not isinstance(raised.value, LocalDamageError)
    assert is_whole(directory)


def gone(file: Path) -> None:
    file.unlink()


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def garbled(file: Path) -> None:
    file.write_bytes(b"\x00\x17junk" * 50)


@pytest.mark.parametrize("damage", [gone, emptied, cut, garbled])
@pytest.mark.parametrize("files", ["CURRENT", "MANIFEST-*", "*.sst"])
def test_a_copy_whose_files_are_damaged_is_built_anew(
    tmp_path: Path, files: str, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    directory = made_copy(tmp_path / "a")
    for file in directory.glob(files):
        damage(file)
    with closing(open_copy(directory)) as store:
        assert list(store.scan(b"")) == []
        assert store.named(b"position") is None
        store.write(ROWS, {})
    # Half a list of files is a list of files too: of older ones, which say nothing of what this list had.
    assert ("built anew" in caplog.text) == ((files, damage) != ("MANIFEST-*", cut))


KILLED = """
import os, shutil, signal, sys
from itertools import count
from pathlib import Path
from journal.disk.rocks import RocksStore, open_copy

sample, act = Path(sys.argv[1]), sys.argv[2]

def killing(remove):
    def removing(path, *, dir_fd=None):
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        remove(path, dir_fd=dir_fd)
    return removing

for removals in count():
    directory = sample.with_name(f"{removals}")
    shutil.copytree(sample, directory)
    if not os.fork():
        store = RocksStore(directory) if act == "clear" else None
        left = count(removals, -1)
        os.unlink, os.rmdir = killing(os.unlink), killing(os.rmdir)
        open_copy(directory) if store is None else store.clear()
        os._exit(0)
    _, ended = os.wait()
    if ended != signal.SIGKILL:
        sys.exit(ended)
"""


@pytest.mark.parametrize("act", ["open a damaged one", "clear"])
def test_a_copy_whose_deletion_is_killed_beside_any_removal_holds_no_state(tmp_path: Path, act: str) -> None:
    """RocksDB would open some halves of a store, with tables of different moments."""
    sample = made_copy(tmp_path / "sample")
    if act != "clear":
        garbled(next(sample.glob("MANIFEST-*")))
    subprocess.run([sys.executable, "-c", KILLED, str(sample), act], check=True, timeout=60)
    killed = sorted(each for each in tmp_path.iterdir() if each != sample)
    assert len(killed) > len(list(sample.iterdir()))
    if act == "clear":
        assert is_whole(killed.pop(0))  # before the first removal
    for directory in killed:
        with closing(open_copy(directory)) as store:
            assert (list(store.scan(b"")), store.named(b"position")) == ([], None)


def test_nothing_is_merged_once_a_store_is_closed_though_somebody_still_reads(tmp_path: Path) -> None:
    with ExitStack() as reading:
        with closing(RocksStore(tmp_path / "a")) as store:
            reading.enter_context(closing(store.snapshot()))
            for part in range(9):  # eight files are merged
                store.write([(key, os.urandom(500)) for key, _ in ROWS[part::9]], {})
                store.flush()
                if part == 6:
                    files = {*(tmp_path / "a").glob("*.sst")}
        left = {*(tmp_path / "a").iterdir()}
    assert files & left <= {*(tmp_path / "a").iterdir()} <= left


@pytest.mark.parametrize("how", ["get", "scan", "snapshot get", "snapshot scan"])
def test_reading_damaged_rows_raises_damage(tmp_path: Path, how: str) -> None:
    flip(made_copy(tmp_path / "a"))
    with (
        closing(RocksStore(tmp_path / "a")) as store,
        closing(store.snapshot()) as snapshot,
        pytest.raises(LocalDamageError),
    ):
        read_all(snapshot if "snapshot" in how else store, scanning="scan" in how)


@pytest.mark.parametrize("scanning", [True, False])
def test_a_sound_file_that_cannot_be_opened_for_reading_is_an_error_and_no_damage(
    tmp_path: Path, scanning: bool
) -> None:
    directory = tmp_path / "a"
    with closing(RocksStore(directory)) as store:
        for part in range(FILES):
            store.write([*ROWS[part::FILES], (transaction_key(7, part), b"t")], {})
            store.flush()
    with closing(RocksStore(directory, files_max=1)) as store:
        with few_descriptors(0), pytest.raises(LocalStorageError, match="ulimit") as raised:
            read_all(store, scanning=scanning)
        assert not isinstance(raised.value, LocalDamageError)
        assert list(store.scan(b"r")) == ROWS


def read_all(rows: Base, *, scanning: bool) -> None:
    if scanning:
        list(rows.scan(b"r"))
    else:
        for key, _ in ROWS:
            rows.get(key)


def test_a_store_whose_directory_is_gone_is_damaged(tmp_path: Path) -> None:
    directory = made_copy(tmp_path / "a")
    with closing(RocksStore(directory)) as store:
        shutil.rmtree(directory)
        store.write(ROWS, {})
        with pytest.raises(LocalDamageError):
            store.flush()
