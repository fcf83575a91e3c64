"""The Java that is used, and what errors say about one that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from journal.embedded.java import find_java, parse_java_major
from journal.errors import EmbeddedKafkaError


def put_java(directory: Path, says: str, status: int = 0) -> Path:
    """Makes a program named java that prints this version."""
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ncat >&2 <<'EOF'\n{says}\nEOF\nexit {status}\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19 LTS', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "11.0.2" 2019-01-15', 11),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx=y\nopenjdk version "17.0.1" 2021-10-19', 17),
        ("no such thing", None),
    ],
)
def test_the_major_version_is_read_from_every_way_java_writes_it(text: str, major: int | None) -> None:
    assert parse_java_major(text) == major


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    home = put_java(tmp_path / "home", 'openjdk version "21.0.1"')
    path = put_java(tmp_path / "path", 'openjdk version "17.0.1"')
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": f"{path.parent}:/bin:/usr/bin"}
    assert find_java(environ) == home


def test_without_a_java_home_the_java_on_path_is_taken(tmp_path: Path) -> None:
    path = put_java(tmp_path / "path", 'openjdk version "17.0.1"')
    assert find_java({"JAVA_HOME": "", "PATH": f"{path.parent}:/bin:/usr/bin"}) == path


def test_a_java_home_without_java_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = put_java(tmp_path / "path", 'openjdk version "17.0.1"')
    with pytest.raises(EmbeddedKafkaError, match=f"JAVA_HOME is {tmp_path}/empty, and there is no bin/java in it: set"):
        find_java({"JAVA_HOME": str(tmp_path / "empty"), "PATH": str(path.parent)})


def test_an_old_java_is_refused_with_its_version_and_the_remedy(tmp_path: Path) -> None:
    put_java(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    with pytest.raises(EmbeddedKafkaError, match=r"is Java 11, too old .* install Java 17"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})


def test_a_missing_java_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedKafkaError, match="no java on PATH: install Java 17"):
        find_java({"PATH": str(tmp_path)})


def test_a_java_that_fails_is_refused_with_what_it_said(tmp_path: Path) -> None:
    put_java(tmp_path, "cannot open shared object", status=127)
    with pytest.raises(EmbeddedKafkaError, match=r"exit 127.*cannot open shared object"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})
