"""A disk that fills up under a local copy: the journal goes on and says what is wrong; the copy follows again later."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from journal.config import Settings
from journal.errors import LocalStorageError
from journal.journal import BlockingJournal
from tests.support.children.loaders import CollectingLoader
from tests.support.judgement import judge, made_journal
from tests.support.node_history import Activation
from tests.support.processes.node import NodeProcess
from tests.support.processes.worker import WorkerProcess

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

SEED = 17
NO_SPACE = "No space left on device"


class SmallDisk:
    """A file system of its own, and a file that fills it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self) -> None:
        with self._filler.open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while file.write(b"x" * size):
                        pass
                except OSError:
                    continue

    def make_room(self) -> None:
        self._filler.unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(path)]
    mounted = subprocess.run(mount, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"no small disk: {' '.join(mount)}: {mounted.stderr.strip()}")
    yield SmallDisk(path)
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def wait_for(log: Callable[[], str], condition: Callable[[str], bool]) -> None:
    until = time.monotonic() + 60
    while not condition(log()):
        assert time.monotonic() < until, log()
        time.sleep(0.02)


def is_full(log: str) -> bool:
    return NO_SPACE in log


def follows_again(log: str) -> bool:
    """Every time that it could not follow was told once, and has ended."""
    return log.count("the local copy cannot follow") == log.count("the local copy follows again")


@pytest.mark.parametrize("shards", [1, 8])
def test_the_node_goes_on_when_the_disk_of_its_copy_is_full(
    bootstrap: str, tmp_path: Path, small_disk: SmallDisk, shards: int
) -> None:
    settings = made_journal(bootstrap, shards, tmp_path / "judge")
    worker = WorkerProcess(bootstrap, settings.journal, tmp_path / "worker")
    with worker.start(ready=False), NodeProcess(bootstrap, settings.journal, small_disk.path, SEED) as node:
        node.history_file = tmp_path / "node.history"
        node.log_file = tmp_path / "node.log"
        node.start().wait_for_lines('{"done":', count=200)
        small_disk.fill()
        wait_for(node.log, is_full)
        node.wait_for_more('{"done":', 500)
        small_disk.make_room()
        wait_for(node.log, follows_again)
        node.stop()
        node.start().wait_for_lines('{"active":', count=2)
        node.stop()
        repeated = activate_on(small_disk, settings.model_copy(update={"directory": small_disk.path / "new"}))
        judge(settings, [*node.activations(), repeated])
        assert worker.terminate() == 0


def activate_on(small_disk: SmallDisk, settings: Settings) -> Activation:
    """A new copy, whose first activation meets the full disk, and so does the next process: the copy stays."""
    loader = CollectingLoader()
    with BlockingJournal(settings) as journal:
        small_disk.fill()
        with pytest.raises(LocalStorageError, match=NO_SPACE):
            journal.activate(loader)
        small_disk.make_room()
        journal.activate(loader)
    files = sorted(settings.journal_directory.rglob("*.sst"))
    small_disk.fill()
    with pytest.raises(LocalStorageError, match=f"{NO_SPACE}.*nothing was deleted"), BlockingJournal(settings):
        pass
    assert files == sorted(settings.journal_directory.rglob("*.sst")) != []
    small_disk.make_room()
    return loader.activation()


@pytest.mark.parametrize("shards", [1, 8])
def test_a_worker_whose_disk_is_full_goes_on_when_there_is_room(
    bootstrap: str, tmp_path: Path, small_disk: SmallDisk, shards: int
) -> None:
    settings = made_journal(bootstrap, shards, tmp_path / "judge")
    worker = WorkerProcess(bootstrap, settings.journal, small_disk.path)
    worker.log_file = tmp_path / "worker.log"
    with worker.start(ready=False), NodeProcess(bootstrap, settings.journal, tmp_path / "node", SEED) as node:
        node.start().wait_for_lines('{"done":', count=200)
        small_disk.fill()
        wait_for(worker.log, is_full)
        node.wait_for_more('{"done":', 500)
        small_disk.make_room()
        node.wait_for_more('{"done":', 500)
        node.stop()
        judge(settings, node.activations())
        assert worker.terminate() == 0
