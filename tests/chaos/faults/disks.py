"""Disks that fill up, and local copies that are damaged while their owner is down."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from journal.embedded.process import start_time
from tests.chaos.cluster import Cluster
from tests.chaos.faults.fault import Choice, FaultOfOne
from tests.chaos.processes import ChildProcess, Process

SIZE_MB = 24
_FILLER = "filler"
_SOURCE = re.compile(r"chaos-(\d+)-(\d+)")
_FILL_STEPS = (1 << 20, 1 << 12, 1)


class NoDiskError(Exception):
    """This machine lets us mount nothing; the message says why. A test is skipped with it."""


# ---- full disks ------------------------------------------------------------------------------------------------


@contextmanager
def small_disk(path: Path, megabytes: int = SIZE_MB) -> Iterator[Path]:
    """A file system of its own at `path`, which goes with the `with`; those of dead runs go first."""
    _remove_stale()
    path.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", _source(os.getpid()), str(path)]
    mounted = subprocess.run(mount, capture_output=True, text=True)
    if mounted.returncode != 0:
        raise NoDiskError(f"no small disk: {' '.join(mount)}: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        _unmount(path)


class FullDisk(FaultOfOne):
    """The disk of a process' local copies, which must be a `small_disk`, has no byte left."""

    def __init__(self, seed: int, choose: Choice, name: str = "full disk") -> None:
        super().__init__(name, seed, choose)

    def inject(self, cluster: Cluster) -> None:
        disk = _copies_of(self.choose(cluster))
        assert disk.is_mount(), f"{disk} is no disk of its own: filling it would fill the machine's"
        fill(disk)

    def heal(self, cluster: Cluster) -> None:
        (_copies_of(self.target) / _FILLER).unlink(missing_ok=True)

    def is_met(self) -> bool:
        """Whether the process' log says that its disk is full."""
        assert isinstance(self.target, ChildProcess)
        return "No space left on device" in self.target.log()


def fill(disk: Path) -> None:
    """To the last byte."""
    with (disk / _FILLER).open("ab", buffering=0) as file:
        for size in _FILL_STEPS:
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                continue


def _copies_of(process: Process) -> Path:
    assert isinstance(process, ChildProcess), f"{process.name} has no local copies"
    return process.directory


def _source(pid: int) -> str:
    """What the mount table calls a disk of this process; it names the process for ever."""
    started = start_time(pid) or "/0"
    return f"chaos-{pid}-{started.rsplit('/', 1)[-1]}"


def _remove_stale() -> None:
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        source, path = line.split(" ")[:2]
        found = _SOURCE.fullmatch(source)
        if found is not None and _source(int(found[1])) != source:
            _unmount(Path(path))


def _unmount(path: Path) -> None:
    subprocess.run(["umount", "--lazy", str(path)], check=True)


# ---- damaged copies --------------------------------------------------------------------------------------------

Damage = Callable[[Path, Random], str]
"""Spoils the files under a directory; says what it did."""


class DamagedCopy(FaultOfOne):
    """A process is killed, its local copies are damaged, and it is started again when this is healed."""

    def __init__(self, seed: int, choose: Choice, damage: Damage, name: str = "") -> None:
        super().__init__(name or damage.__name__.replace("_", " "), seed, choose)
        self._damage = damage
        self.done = ""
        """What was damaged last."""

    def inject(self, cluster: Cluster) -> None:
        process = self.choose(cluster)
        process.kill()
        self.done = f"{process.name}: {self._damage(_copies_of(process), self.chance)}"

    def heal(self, cluster: Cluster) -> None:
        self.target.start(ready=False)


def everything_deleted(directory: Path, chance: Random) -> str:
    for entry in directory.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    return "everything deleted"


def some_files_deleted(directory: Path, chance: Random) -> str:
    """A third of RocksDB's files, at least one of each copy."""
    return _to_each_copy(directory, chance, 0.33, lambda file: file.unlink(), "deleted")


def some_files_flipped(directory: Path, chance: Random) -> str:
    """A bit in each of half of RocksDB's files, at least one of each copy."""
    return _to_each_copy(directory, chance, 0.5, lambda file: _flip(file, chance), "flipped")


def tables_flipped(directory: Path, chance: Random) -> str:
    """Many bits in every file of rows (of a copy that has none yet, in every file): whoever reads them meets one."""

    def flip_many(file: Path) -> None:
        for _ in range(64):
            _flip(file, chance)

    return _to_each_copy(directory, chance, 1.0, flip_many, "flipped", ".sst")


def some_files_truncated(directory: Path, chance: Random) -> str:
    """The last half of each of half of RocksDB's files is gone."""

    def truncate(file: Path) -> None:
        os.truncate(file, file.stat().st_size // 2)

    return _to_each_copy(directory, chance, 0.5, truncate, "truncated")


def _to_each_copy(
    directory: Path, chance: Random, share: float, damage: Callable[[Path], None], done: str, suffix: str = ""
) -> str:
    damaged: list[str] = []
    for copy in sorted(path.parent for path in directory.rglob("CURRENT")):
        files = _files_of(copy, suffix) or _files_of(copy, "")
        chosen = chance.sample(files, max(1, round(share * len(files))))
        for file in chosen:
            damage(file)
            damaged.append(str(file.relative_to(directory)))
    return f"{done} {', '.join(sorted(damaged))}"


def _files_of(copy: Path, suffix: str) -> list[Path]:
    """What RocksDB needs of a copy: not its lock, nor what it logs for people."""
    files: Iterable[Path] = (path for path in copy.iterdir() if path.is_file() and path.stat().st_size)
    return sorted(path for path in files if path.name.endswith(suffix) and not path.name.startswith(("LOCK", "LOG")))


def _flip(file: Path, chance: Random) -> None:
    """One bit."""
    with file.open("r+b") as opened:
        at = chance.randrange(file.stat().st_size)
        opened.seek(at)
        (byte,) = opened.read(1)
        opened.seek(at)
        opened.write(bytes([byte ^ 1 << chance.randrange(8)]))
