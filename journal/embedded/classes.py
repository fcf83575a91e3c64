"""An archive of the classes that brokers load. Java maps the archive into memory, instead of reading and checking the
classes in the jars.

The archive halves the time that a broker takes to start. Java writes one when a broker ends that was started for that
purpose (JEP 350, a dynamic archive). Java uses it only with the same Java, jars and directory that it was made with,
and starts without it otherwise. So the cache has one archive for each of these combinations. It is made once, and put
into the cache whole or not at all.
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
    """The option of Java that names the archive for brokers with these jars; none where there can be no archive.

    `make(directory, archive)` runs a broker in a new directory, which leaves an archive, or raises EmbeddedKafkaError.
    Brokers start without an archive then: the error is reported, and no archive is tried again with this Java until the
    empty archive is removed.
    """
    try:
        archive = jars.with_name(f"{jars.name}-classes-{_identity(java, jars)}.jsa")
        if not archive.exists():
            with one_at_a_time(jars.with_name(f"{jars.name}-classes.lock"), "preparing Apache Kafka", report):
                if not archive.exists():
                    _make(archive, f"{jars.name}-classes.part-", make, report)
        size = archive.stat().st_size
    except OSError:  # a read-only cache may already have the archive, which is enough to start
        return []
    return [f"-XX:SharedArchiveFile={archive}"] if size else []


def _make(archive: Path, prefix: str, make: Callable[[Path, Path], None], report: Report) -> None:
    # a killed process left this file: nobody holds its lock
    for leftover in archive.parent.glob(prefix + "*"):
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
            made.touch()  # an empty file says that no archive can be made
        made.rename(archive)
    finally:
        shutil.rmtree(work)


def _remove(leftover: Path) -> None:
    """Removes a directory with its broker: the guard of a killed process would not find the broker once the directory
    is gone."""
    brokers = kill_brokers(leftover / _KAFKA)
    wait_until(lambda: not any(broker.is_alive() for broker in brokers), KILL_TIMEOUT_S)
    shutil.rmtree(leftover)


def _sync(path: Path) -> None:
    """Syncs a file, because Java does not check an archive: a machine that crashes must not leave half of it."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _identity(java: Path, jars: Path) -> str:
    """A name that changes when another Java is installed in the same place, or when the same jars are downloaded
    again."""
    program = java.resolve()
    seen = program.stat()
    parts = [str(program), seen.st_mtime_ns, seen.st_size, str(jars), jars.stat().st_mtime_ns]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
