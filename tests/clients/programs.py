"""The clients' programs: how each is built from its folder with the packages of its ecosystem, and run.

The packages come through Maven, npm and Go, with their own repositories and mirrors. What is built is kept in the
user's cache under the hash of its sources and commands, so that it is built once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from journal.embedded.distribution import MAVEN_GOAL, cache_directory
from journal.embedded.downloads import one_at_a_time
from tests.support.javascript_reader import node

HERE = Path(__file__).parent
FETCH_TIMEOUT_S = 600
RUN_TIMEOUT_S = 60
GO_PLACE = "/usr/local/go/bin"
_SAID_LAST = 1000


class ClientMissingError(Exception):
    """A client's program cannot be built on this machine: the reason says what is missing."""


@dataclass(frozen=True, slots=True)
class Program:
    """A client: what its program is made of, and the commands that fetch its packages, build it and run it.

    Commands run in a copy of its folder. `{0}` in a command that runs stands for that copy.
    """

    client: str
    """The client and its version, as the table names it."""

    folder: str
    needs: Sequence[str] = ()
    """Commands that this machine must have."""

    fetch: Sequence[str] = ()
    build: Sequence[Sequence[str]] = ()
    run: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)


def _java(client: str, pom: str, main: str, *build: Sequence[str], version: str = "") -> Program:
    fetch = ("mvn", "-q", "-B", "-f", pom, f"-Dqpid={version}", MAVEN_GOAL, "-DoutputDirectory=lib")
    compile_it = ("javac", "-nowarn", "-cp", "lib/*", "-d", "classes", "Checks.java", f"{main}.java")
    run = ("java", "-XX:TieredStopAtLevel=1", "-cp", f"{{0}}/lib/*{os.pathsep}{{0}}/classes", main)
    return Program(client, "java", ("java", "javac", "mvn"), fetch, (*build, compile_it), run)


PROGRAMS: Mapping[str, Program] = {
    "jms": _java("Qpid JMS 2.7.0", "jms.xml", "JmsFeatures", version="2.7.0"),
    "jms-javax": _java(
        "Qpid JMS 1.13.0",
        "jms.xml",
        "JmsFeatures",
        ("sed", "-i", "s/^import jakarta/import javax/", "JmsFeatures.java"),
        version="1.13.0",
    ),
    "protonj2": _java("ProtonJ2 1.0.0", "protonj2.xml", "ProtonFeatures"),
    "rhea": Program("rhea 3.0.5", "rhea", ("npm",), ("npm", "ci", "--ignore-scripts"), (), (node(), "{0}/features.js")),
    "proton-python": Program("Proton 0.40 (Python)", "proton", run=(sys.executable, "{0}/features.py")),
    "go-amqp": Program(
        "go-amqp 1.7.0",
        "go",
        ("go",),
        ("go", "mod", "download"),
        (("go", "build", "-o", "features", "."),),
        ("{0}/features",),
        {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"},
    ),
}


def run_program(name: str, url: str) -> dict[str, str]:
    """What a client's program says of each feature, `ok` or what went wrong. Raises ClientMissingError."""
    program = PROGRAMS[name]
    place = _built(program)
    command = [each.replace("{0}", str(place)) for each in program.run]
    try:
        done = subprocess.run([*command, url, name], capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
        text = done.stdout
        if done.returncode:
            sys.stderr.write(f"{program.client} ended with {done.returncode}: {done.stderr[-_SAID_LAST:]}\n")
    except subprocess.TimeoutExpired as error:
        text = (error.stdout or b"").decode()
    return dict(line.split("\t", 1) for line in text.splitlines() if "\t" in line)


def _built(program: Program) -> Path:
    source = HERE / program.folder
    environment = {**os.environ, **program.env, "PATH": os.pathsep.join([os.environ.get("PATH", ""), GO_PLACE])}
    for each in program.needs:
        if shutil.which(each, path=environment["PATH"]) is None:
            raise ClientMissingError(f"{program.client} is not tested: there is no `{each}` on this machine")
    if not program.fetch:
        return source
    digest = hashlib.sha256(repr((program.fetch, program.build)).encode())
    for file in sorted(source.iterdir()):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    target = cache_directory() / "clients" / f"{program.folder}-{digest.hexdigest()[:16]}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(target.with_suffix(".lock"), f"building {program.client}", print):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(prefix=".part-", dir=target.parent) as work:
                partial = Path(work) / "built"
                shutil.copytree(source, partial)
                fetched = _call(program.fetch, partial, environment)
                if fetched.returncode:
                    raise ClientMissingError(
                        f"{program.client} is not tested: `{' '.join(program.fetch)}` failed: {_said(fetched)}"
                    )
                for command in program.build:
                    built = _call(command, partial, environment)
                    assert not built.returncode, f"{program.client} is not built: {_said(built)}"
                partial.rename(target)
    return target


def _call(command: Sequence[str], place: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    # `which` looks through the PATH that the program is given; subprocess would look through ours
    first = shutil.which(command[0], path=env["PATH"]) or command[0]
    return subprocess.run(
        [first, *command[1:]], cwd=place, env=env, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
    )


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr + done.stdout)[-_SAID_LAST:].strip()
