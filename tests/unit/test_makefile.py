"""What `make` says is missing, before it builds anything: Java as the embedded broker takes it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def needs(java_home: Path) -> subprocess.CompletedProcess[str]:
    """`make` as far as what it needs."""
    env = {
        name: value for name, value in os.environ.items() if name != "MAKEFLAGS"
    }  # a `make test` that runs this sets it
    env["JAVA_HOME"] = str(java_home)
    return subprocess.run(["make", "-C", str(ROOT), ".needs"], env=env, capture_output=True, text=True, timeout=60)


def put_java(home: Path, says: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ncat >&2 <<'end'\n{says}\nend\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize("says", ['openjdk version "17.0.1" 2021-10-19', 'Picked up: -Dx=y\nopenjdk version "25-ea"'])
def test_a_java_that_is_new_enough_will_do(says: str, tmp_path: Path) -> None:
    put_java(tmp_path, says)
    assert needs(tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "Java 11"),
        ('java version "1.8.0_292"', "Java 8"),
        ("no such thing", "Java of no known version"),
    ],
)
def test_an_old_java_is_refused_with_its_version(says: str, version: str, tmp_path: Path) -> None:
    java = put_java(tmp_path, says)
    ended = needs(tmp_path)
    assert ended.returncode != 0
    assert f"make: {java} is {version}: Java 17 or newer is needed" in ended.stderr


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    ended = needs(tmp_path / "none")
    assert ended.returncode != 0
    assert f"Java 17 or newer is missing, there is no {tmp_path}/none/bin/java" in ended.stderr
