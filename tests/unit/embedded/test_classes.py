"""The archive of Kafka's classes in the cache: it is made once, whole or not at all, and no start fails because of
it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from journal.embedded.classes import archive_option
from journal.embedded.process import read_pid_file
from journal.errors import EmbeddedKafkaError

Make = Callable[[Path, Path], None]


class Cache:
    """A cache with jars and a Java, and a function that asks for their archive."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "cache"
        self.jars = self.directory / "kafka-1"
        self.java = directory / "java"
        self.jars.mkdir(parents=True)
        self.java.write_text("one", encoding="utf-8")
        self.said: list[str] = []
        self.made: list[Path] = []

    def option(self, make: Make | None = None) -> list[str]:
        return archive_option(self.java, self.jars, make or self.make, self.said.append)

    def make(self, directory: Path, archive: Path) -> None:
        assert not directory.exists()
        assert directory.parent.parent == self.directory, "a rename is all that it takes"
        archive.write_bytes(b"classes")
        archive.chmod(0o444)  # as Java leaves it
        self.made.append(archive)

    def archives(self) -> list[Path]:
        return sorted(self.directory.glob("*.jsa"))

    def parts(self) -> list[Path]:
        return list(self.directory.glob("*.part-*"))


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path)


def test_an_archive_is_made_once_and_every_start_gets_its_name(cache: Cache) -> None:
    (option,) = cache.option()
    assert cache.option() == [option]
    (archive,) = cache.archives()
    assert option == f"-XX:SharedArchiveFile={archive}"
    assert archive.read_bytes() == b"classes"
    assert (len(cache.made), cache.parts()) == (1, [])
    assert cache.said == ["preparing Apache Kafka for faster starts, once"]


@pytest.mark.parametrize("what", ["java", "jars"])
def test_another_java_or_other_jars_have_an_archive_of_their_own(cache: Cache, what: str) -> None:
    before = cache.option()
    if what == "java":
        cache.java.write_text("another", encoding="utf-8")
    else:
        os.utime(cache.jars, ns=(1, 1))
    assert cache.option() != before
    assert len(cache.archives()) == 2


def test_an_archive_that_cannot_be_made_is_reported_once_and_brokers_start_without_it(cache: Cache) -> None:
    def fail(directory: Path, archive: Path) -> None:
        archive.write_bytes(b"cla")
        raise EmbeddedKafkaError("this Java has no archives")

    assert cache.option(fail) == []
    (archive,) = cache.archives()
    assert cache.said[1:] == [
        "Apache Kafka could not be prepared, its starts take longer: this Java has no archives; "
        f"remove {archive} to have it tried again"
    ]
    assert cache.option() == []
    assert (cache.made, len(cache.said), cache.parts()) == ([], 2, [])
    archive.unlink()
    assert cache.option()


def test_a_cache_that_cannot_be_written_is_started_from_without_one(cache: Cache) -> None:
    (cache.directory / "kafka-1-classes.lock").mkdir()
    assert cache.option() == []
    assert cache.said == []


def test_an_interrupted_archive_leaves_nothing_and_the_next_start_makes_it(cache: Cache) -> None:
    def interrupted(directory: Path, archive: Path) -> None:
        archive.write_bytes(b"cla")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.option(interrupted)
    assert (cache.archives(), cache.parts()) == ([], [])
    assert cache.option()


KILLED = """
import os, signal, subprocess, sys
from pathlib import Path
from journal.embedded.classes import archive_option
from journal.embedded.process import write_pid_file

def make(directory, archive):
    archive.write_bytes(b"cla")
    (directory / "broker-1").mkdir(parents=True)
    broker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    write_pid_file(directory / "broker-1" / "broker.pid", broker.pid)
    os.kill(os.getpid(), signal.SIGKILL)

archive_option(Path(sys.argv[1]), Path(sys.argv[2]), make, print)
"""


def test_after_a_kill_the_next_start_ends_the_archives_broker_and_makes_the_archive(cache: Cache) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, cache.java, cache.jars], check=False)
    assert killed.returncode == -signal.SIGKILL
    (part,) = cache.parts()
    broker = read_pid_file(part / "kafka" / "broker-1" / "broker.pid")
    assert broker is not None
    assert cache.archives() == []
    assert cache.option()
    assert not broker.is_alive()
    assert (cache.archives()[0].read_bytes(), cache.parts()) == (b"classes", [])
