"""Finds the Java that runs the embedded Apache Kafka: that of JAVA_HOME, or else the one on PATH. It must be new
enough.

`make` checks for the same Java before it builds anything.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from journal.errors import EmbeddedKafkaError

JAVA_MAJOR_MIN = 17
VERSION_TIMEOUT_S = 30.0

_MEND = f"install Java {JAVA_MAJOR_MIN} or newer (Debian: openjdk-17-jre-headless), or set JAVA_HOME to one"
_MEND_HOME = "set it to the directory of a Java, or unset it for the one on PATH"
_VERSION = re.compile(r'version "(?P<first>\d+)(?:\.(?P<second>\d+))?')


def find_java(environ: Mapping[str, str] = os.environ) -> Path:
    """The `java` to run. Raises EmbeddedKafkaError if there is none, or if it is too old."""
    java = _locate_java(environ)
    if java is None:
        raise EmbeddedKafkaError(f"no java on PATH: {_MEND}")
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmbeddedKafkaError(f"{java} does not run ({error}): {_MEND}") from error
    major = parse_java_major(answer.stderr + answer.stdout)
    if answer.returncode != 0 or major is None:
        said = (answer.stderr + answer.stdout).strip() or "nothing"
        raise EmbeddedKafkaError(f"{java} -version failed (exit {answer.returncode}) and said: {said}: {_MEND}")
    if major < JAVA_MAJOR_MIN:
        raise EmbeddedKafkaError(f"{java} is Java {major}, too old for Apache Kafka: {_MEND}")
    return java


def parse_java_major(text: str) -> int | None:
    """The major version in the output of `java -version`; Java 8 and older call themselves 1.x."""
    found = _VERSION.search(text)
    if found is None:
        return None
    first = int(found["first"])
    return int(found["second"]) if first == 1 and found["second"] else first


def _locate_java(environ: Mapping[str, str]) -> Path | None:
    """The `java` of JAVA_HOME or PATH. Raises EmbeddedKafkaError if JAVA_HOME has none: a user who sets it wants no
    other."""
    home = environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise EmbeddedKafkaError(f"JAVA_HOME is {home}, and there is no bin/java in it: {_MEND_HOME}")
        return java
    on_path = shutil.which("java", path=environ.get("PATH"))
    return Path(on_path) if on_path else None
