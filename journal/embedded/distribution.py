"""Gets Apache Kafka: the jars in `jars.txt`, through the user's Maven or the Ivy that PySpark carries.

These tools resolve the jars, with their own repositories and mirrors. This module checks the result: it pins one sha256
for each jar. A set of jars is put into the user's cache by one rename, after every checksum has matched. So a download
that was interrupted leaves nothing that a later start could take for whole.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree

from journal.embedded.downloads import one_at_a_time, run_quietly
from journal.errors import EmbeddedKafkaError
from journal.process.directories import CACHE, user_directory

KAFKA_VERSION = "4.2.2"
"""Kafka 4.3.0, 4.3.1 and 4.4.0 lose transactions: a coordinator that meets a partition without a leader takes it for
deleted, and does not write the end of the transaction there (KAFKA-20734; docs/OPERATIONS.md)."""
JARS_RESOURCE = "jars.txt"
CACHE_VARIABLE = "KAFKA_JOURNAL_CACHE"
DOWNLOAD_TIMEOUT_S = 1800.0
MAVEN_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Jar:
    """One pinned jar: its Maven coordinates and its checksum."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


def report_to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def pinned_jars() -> tuple[Jar, ...]:
    """The pinned jars that ship with the package."""
    return parse_jars(resources.files("journal.embedded").joinpath(JARS_RESOURCE).read_text(encoding="utf-8"))


def parse_jars(text: str) -> tuple[Jar, ...]:
    """Reads lines of `sha256 group:artifact:version`. Blank lines and lines that begin with # are ignored."""
    jars = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            sha256, coordinates = line.split()
            group, artifact, version = coordinates.split(":")
            jars.append(Jar(group, artifact, version, sha256))
    return tuple(jars)


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """The directory for jars: KAFKA_JOURNAL_CACHE, else kafka-journal under the XDG cache directory."""
    own = environ.get(CACHE_VARIABLE)
    if own:
        return Path(own)
    return user_directory(CACHE, CACHE_VARIABLE, environ)


def get_kafka(java: Path, *, cache: Path | None = None, report: Report = report_to_stderr) -> Path:
    """The directory of Apache Kafka's jars, checked. They are downloaded first if the cache has none.

    Raises EmbeddedKafkaError if the jars cannot be downloaded, or are not the pinned ones.
    """
    cache = cache_directory() if cache is None else cache
    jars = pinned_jars()
    target = cache / f"kafka-{KAFKA_VERSION}"
    if target.is_dir():
        check_jars(target, jars)
        return target
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(cache / f"kafka-{KAFKA_VERSION}.lock", "getting Apache Kafka", report):
            if not target.is_dir():
                _download_into(target, jars, java, report)
    except OSError as error:
        raise EmbeddedKafkaError(
            f"cannot write the cache {cache} ({error}): make room there, or set {CACHE_VARIABLE} to another directory"
        ) from error
    check_jars(target, jars)
    return target


def check_jars(directory: Path, jars: tuple[Jar, ...]) -> None:
    """Raises EmbeddedKafkaError unless the directory has every jar with its pinned checksum."""
    for jar in jars:
        path = directory / jar.file_name
        try:
            found = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise EmbeddedKafkaError(
                f"{path} cannot be read ({error}): remove {directory}, then start again"
            ) from error
        if found != jar.sha256:
            raise EmbeddedKafkaError(
                f"{path} is not the jar this version was tested with (sha256 {found}, pinned {jar.sha256}): "
                f"remove {directory}, check the Maven mirror it came from, then start again"
            )


def _download_into(target: Path, jars: tuple[Jar, ...], java: Path, report: Report) -> None:
    prefix = target.name + ".part-"
    # a killed download left this file: nobody holds its lock
    for leftover in target.parent.glob(prefix + "*"):
        shutil.rmtree(leftover)
    partial = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    try:
        fetched = partial / "jars"
        _run_resolver(partial, fetched, jars, java, report)
        check_jars(fetched, jars)
        fetched.rename(target)
    finally:
        shutil.rmtree(partial)


def _run_resolver(work: Path, fetched: Path, jars: tuple[Jar, ...], java: Path, report: Report) -> None:
    """Tries Maven, then Ivy. One line shows how far they are; their output is shown only if they fail."""
    failures = []
    for name, command in (
        ("Maven", _maven_command(work, fetched, jars)),
        ("Ivy", _ivy_command(work, fetched, jars, java)),
    ):
        if command is None:
            continue
        doing = f"getting Apache Kafka {KAFKA_VERSION} ({len(jars)} jars, about 40 MB) through {name}"
        report(doing)
        try:
            status, said = run_quietly(command, doing, DOWNLOAD_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            failures.append(f"{name} did not finish in {DOWNLOAD_TIMEOUT_S:.0f} s")
            continue
        except OSError as error:
            failures.append(f"{name} cannot be run ({error})")
            continue
        if status == 0:
            return
        report(said.rstrip())
        failures.append(f"{name} failed (exit {status}, its output is above)")
    if failures:
        raise EmbeddedKafkaError(f"cannot get Apache Kafka: {'; '.join(failures)}: check the network, then start again")
    raise EmbeddedKafkaError(
        "cannot get Apache Kafka: neither Maven nor PySpark is installed: install Maven (Debian: apt install maven), "
        "or PySpark, whose Ivy serves too (pip install 'kafka-journal[spark]'), or name your own Kafka with -b"
    )


def _maven_command(work: Path, fetched: Path, jars: tuple[Jar, ...]) -> list[str] | None:
    maven = shutil.which("mvn")
    if maven is None:
        return None
    pom = work / "pom.xml"
    pom.write_bytes(render_pom(jars))
    return [maven, "--batch-mode", "--file", str(pom), MAVEN_GOAL, f"-DoutputDirectory={fetched}"]


def _ivy_command(work: Path, fetched: Path, jars: tuple[Jar, ...], java: Path) -> list[str] | None:
    ivy = find_ivy()
    if ivy is None:
        return None
    description = work / "ivy.xml"
    description.write_bytes(render_ivy(jars))
    pattern = str(fetched / "[artifact]-[revision].[ext]")
    main = [str(java), "-cp", str(ivy), "org.apache.ivy.Main"]
    return [*main, "-cache", str(work / "cache"), "-ivy", str(description), "-retrieve", pattern]


def find_ivy() -> Path | None:
    """The Ivy jar of an installed PySpark; PySpark is not imported."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    return next(iter(sorted((Path(found.origin).parent / "jars").glob("ivy-*.jar"))), None)


def render_pom(jars: tuple[Jar, ...]) -> bytes:
    """A Maven project that depends on exactly these jars. What they depend on is in the list too, so nothing is
    transitive."""
    project = ElementTree.Element("project", xmlns="http://maven.apache.org/POM/4.0.0")
    own = {"modelVersion": "4.0.0", "groupId": "kafka-journal", "artifactId": "embedded-kafka", "version": "1"}
    _add_texts(project, {**own, "packaging": "pom"})
    dependencies = ElementTree.SubElement(project, "dependencies")
    for jar in jars:
        dependency = ElementTree.SubElement(dependencies, "dependency")
        _add_texts(dependency, {"groupId": jar.group, "artifactId": jar.artifact, "version": jar.version})
        exclusions = ElementTree.SubElement(dependency, "exclusions")
        _add_texts(ElementTree.SubElement(exclusions, "exclusion"), {"groupId": "*", "artifactId": "*"})
    return _to_bytes(project)


def render_ivy(jars: tuple[Jar, ...]) -> bytes:
    """A module file for Ivy that depends on exactly these jars."""
    module = ElementTree.Element("ivy-module", version="2.0")
    ElementTree.SubElement(module, "info", organisation="kafka-journal", module="embedded-kafka")
    dependencies = ElementTree.SubElement(module, "dependencies")
    for jar in jars:
        attributes = {"org": jar.group, "name": jar.artifact, "rev": jar.version}
        ElementTree.SubElement(
            dependencies, "dependency", {**attributes, "transitive": "false", "conf": "default->master"}
        )
    return _to_bytes(module)


def _to_bytes(root: ElementTree.Element) -> bytes:
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document


def _add_texts(parent: ElementTree.Element, texts: Mapping[str, str]) -> None:
    for tag, text in texts.items():
        ElementTree.SubElement(parent, tag).text = text
