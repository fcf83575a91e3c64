"""An archive of the classes that brokers load: Java maps them, instead of reading and checking them in the jars.

It halves the time that a broker takes to start. Java writes one when a broker ends that was started for that (JEP 350,
a dynamic archive), and takes one only with the very Java, jars and directory that it was made with: with anything else
it starts without. So there is one for each of them in the cache, made once, and put there whole or not at all.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from journal.embedded.distribution import Report
from journal.embedded.downloads import one_at_a_time
from journal.embedded.guard import kill_brokers
from journal.embedded.process import wait_until
from journal.errors import EmbeddedKafkaError

KILL_TIMEOUT_S = 10.0

_KAFKA = "kafka"


def archive_option(java: Path, jars: Path, make: Callable[[Path, Path], None], report: Report) -> list[str]:
    """The option of Java that names the archive of brokers with these jars; none where there can be no archive.

    `make(directory, archive)` runs a broker in a new directory, which leaves an archive, or raises EmbeddedKafkaError.
    That is no reason not to start: it is said, and not tried again with this Java until the empty archive is removed.
    """
    try:
        archive = jars.with_name(f"{jars.name}-classes-{_identity(java, jars)}.jsa")
        if not archive.exists():
            with one_at_a_time(jars.with_name(f"{jars.name}-classes.lock"), "preparing Apache Kafka", report):
                if not archive.exists():
                    _make(archive, f"{jars.name}-classes.part-", make, report)
        size = archive.stat().st_size
    except OSError:  # a cache that can only be read has what is needed to start
        return []
    return [f"-XX:SharedArchiveFile={archive}"] if size else []


def _make(archive: Path, prefix: str, make: Callable[[Path, Path], None], report: Report) -> None:
    for leftover in archive.parent.glob(prefix + "*"):  # of one that was killed; the lock says it is not alive
        _remove(leftover)
    work = Path(tempfile.mkdtemp(prefix=prefix, dir=archive.parent))
    try:
        made = work / archive.name
        report("preparing Apache Kafka for faster starts, once")
        try:
            make(work / _KAFKA, made)
            _sync(made)
        except EmbeddedKafkaError as error:
            report(
                f"Apache Kafka could not be prepared, its starts take longer: {error}; "
                f"remove {archive} to have it tried again"
            )
            made.unlink(missing_ok=True)
            made.touch()  # an empty one says that there is none
        made.rename(archive)
    finally:
        shutil.rmtree(work)


def _remove(leftover: Path) -> None:
    """With its broker: the guard of whoever was killed finds none any more where there is no directory."""
    brokers = kill_brokers(leftover / _KAFKA)
    wait_until(lambda: not any(broker.is_alive() for broker in brokers), KILL_TIMEOUT_S)
    shutil.rmtree(leftover)


def _sync(path: Path) -> None:
    """Java does not check what it maps: a machine that dies must not leave half of it."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _identity(java: Path, jars: Path) -> str:
    """Changes when another Java is installed in the same place, or the same jars are got again."""
    program = java.resolve()
    seen = program.stat()
    parts = [str(program), seen.st_mtime_ns, seen.st_size, str(jars), jars.stat().st_mtime_ns]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
