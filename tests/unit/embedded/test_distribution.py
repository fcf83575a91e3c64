"""Getting Apache Kafka: what is requested, what is accepted, and what an interrupted or wrong download leaves."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from journal.embedded.distribution import (
    KAFKA_VERSION,
    Jar,
    cache_directory,
    check_jars,
    get_kafka,
    parse_jars,
    pinned_jars,
    render_ivy,
    render_pom,
)
from journal.embedded.downloads import run_quietly
from journal.errors import EmbeddedKafkaError

JAVA = Path("/nowhere/java")


def a_jar(content: bytes = b"classes") -> Jar:
    return Jar("org.example", "thing", "1.0", hashlib.sha256(content).hexdigest())


def put_maven_on_path(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Puts a program named mvn on PATH that runs this script; $OUT is the directory for the jars."""
    maven = directory / "bin" / "mvn"
    maven.parent.mkdir()
    reads_output = 'for word in "$@"; do case "$word" in -DoutputDirectory=*) OUT="${word#*=}";; esac; done\n'
    maven.write_text(f"#!/bin/sh\n{reads_output}{script}\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(maven.parent), prepend=":")


def test_a_command_that_downloads_says_nothing_by_itself(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_quietly(["/bin/sh", "-c", "echo one; echo two >&2; exit 3"], "getting", 60.0) == (3, "one\ntwo\n")
    assert capfd.readouterr() == ("", "")


def test_a_command_that_downloads_for_too_long_is_ended() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_quietly(["/bin/sleep", "60"], "getting", 0.2)


def test_every_pinned_jar_has_coordinates_and_a_sha256() -> None:
    jars = pinned_jars()
    assert {(jar.group, jar.version) for jar in jars if jar.artifact == "kafka_2.13"} == {
        ("org.apache.kafka", KAFKA_VERSION)
    }
    assert all(len(bytes.fromhex(jar.sha256)) == 32 for jar in jars)
    assert len({jar.file_name for jar in jars}) == len(jars)


def test_comments_and_blank_lines_of_the_jar_list_say_nothing() -> None:
    assert parse_jars("# words\n\nab12  org.example:thing:1.0\n") == (Jar("org.example", "thing", "1.0", "ab12"),)


def test_maven_is_asked_for_exactly_the_pinned_jars_without_their_dependencies() -> None:
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    dependencies = ElementTree.fromstring(render_pom(pinned_jars())).findall("m:dependencies/m:dependency", space)
    assert [dependency.findtext("m:artifactId", None, space) for dependency in dependencies] == [
        jar.artifact for jar in pinned_jars()
    ]
    assert {
        dependency.findtext("m:exclusions/m:exclusion/m:artifactId", None, space) for dependency in dependencies
    } == {"*"}


def test_ivy_is_asked_for_exactly_the_pinned_jars_without_their_dependencies() -> None:
    dependencies = ElementTree.fromstring(render_ivy(pinned_jars())).findall("dependencies/dependency")
    assert [(d.get("org"), d.get("name"), d.get("rev")) for d in dependencies] == [
        (jar.group, jar.artifact, jar.version) for jar in pinned_jars()
    ]
    assert {dependency.get("transitive") for dependency in dependencies} == {"false"}


def test_the_cache_is_the_variables_directory_then_xdg_then_the_home() -> None:
    assert cache_directory({"KAFKA_JOURNAL_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_directory({"XDG_CACHE_HOME": "/b"}) == Path("/b/kafka-journal")
    assert cache_directory({}) == Path.home() / ".cache" / "kafka-journal"


def test_a_jar_with_its_pinned_checksum_passes(tmp_path: Path) -> None:
    (tmp_path / "thing-1.0.jar").write_bytes(b"classes")
    check_jars(tmp_path, (a_jar(),))


def test_a_jar_with_another_checksum_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "thing-1.0.jar").write_bytes(b"other classes")
    with pytest.raises(EmbeddedKafkaError, match=r"thing-1\.0\.jar is not the jar"):
        check_jars(tmp_path, (a_jar(),))


def test_a_missing_jar_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedKafkaError, match=r"thing-1\.0\.jar cannot be read"):
        check_jars(tmp_path, (a_jar(),))


def test_a_download_that_fails_leaves_no_jar_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_maven_on_path(tmp_path, monkeypatch, 'mkdir -p "$OUT"; echo half > "$OUT/half.jar"; exit 3')
    cache = tmp_path / "cache"
    with pytest.raises(EmbeddedKafkaError, match=r"Maven failed \(exit 3"):
        get_kafka(JAVA, cache=cache, report=lambda line: None)
    assert [path.name for path in cache.iterdir()] == [f"kafka-{KAFKA_VERSION}.lock"]


def test_a_download_of_other_bytes_leaves_no_jar_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = " ".join(jar.file_name for jar in pinned_jars())
    put_maven_on_path(tmp_path, monkeypatch, f'mkdir -p "$OUT"; for n in {names}; do echo bad > "$OUT/$n"; done')
    cache = tmp_path / "cache"
    with pytest.raises(EmbeddedKafkaError, match="is not the jar this version was tested with"):
        get_kafka(JAVA, cache=cache, report=lambda line: None)
    assert [path.name for path in cache.iterdir()] == [f"kafka-{KAFKA_VERSION}.lock"]


def test_what_a_killed_download_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_maven_on_path(tmp_path, monkeypatch, "exit 1")
    leftover = tmp_path / "cache" / f"kafka-{KAFKA_VERSION}.part-dead"
    leftover.mkdir(parents=True)
    with pytest.raises(EmbeddedKafkaError):
        get_kafka(JAVA, cache=leftover.parent, report=lambda line: None)
    assert not leftover.exists()


def test_without_maven_and_pyspark_the_error_names_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("journal.embedded.distribution.find_ivy", lambda: None)
    with pytest.raises(EmbeddedKafkaError, match=r"install Maven .* or PySpark"):
        get_kafka(JAVA, cache=tmp_path / "cache", report=lambda line: None)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedKafkaError, match="KAFKA_JOURNAL_CACHE"):
        get_kafka(JAVA, cache=tmp_path / "file" / "cache", report=lambda line: None)
