"""A real PostgreSQL on loopback, and how it takes part in distributed transactions.

The machine's own server is used if it has one; else Debian's packages are fetched with apt into the user's cache and
unpacked there, without installing anything. PostgreSQL refuses to run as root: then it runs as nobody.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import Connection

from journal.embedded.distribution import cache_directory
from journal.embedded.ports import choose_free_ports

START_S = 30.0
STOP_S = 30.0
PREPARED_MAX = 64
UNPACKED_VARIABLE = "KAFKA_JOURNAL_TEST_POSTGRES"
"""Set to `unpacked`, the machine's own server is passed over."""

_INSTALLED = Path("/usr/lib/postgresql")
_PACKAGE = "postgresql"


class PostgresParticipant:
    """One database as a participant in distributed transactions; it must have max_prepared_transactions."""

    errors: tuple[type[Exception], ...] = (psycopg.Error,)

    def __init__(self, dsn: str, name: str = "postgres") -> None:
        self.name = name
        self._dsn = dsn

    def connect(self) -> Connection[Any]:
        return psycopg.connect(self._dsn)


class Postgres:
    """A running server; its superuser needs no password, and it listens on loopback only."""

    def __init__(self, port: int) -> None:
        self.port = port

    def dsn(self, database: str = "postgres") -> str:
        return f"host=127.0.0.1 port={self.port} user=postgres dbname={database} connect_timeout=10"

    def new_database(self, name: str) -> str:
        """Its dsn."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.dsn(name)


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """A new, empty server, gone at the end."""
    directory = Path(tempfile.mkdtemp(prefix="kafka-journal-postgres-"))
    try:
        account = _account(directory)
        server, env = _server(directory, account)
        data = directory / "data"
        initdb: list[str | Path] = [
            server / "initdb",
            "-D",
            data,
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-locale",
            "-N",
        ]
        _run(initdb, env, account)
        port = choose_free_ports(1, ())[0]
        settings = {
            "port": port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_prepared_transactions": PREPARED_MAX,
            "jit": "off",
            "timezone": "GMT",
            "log_timezone": "GMT",
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        process = subprocess.Popen(
            [*_dying_with_us(), server / "postgres", "-D", data, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(directory / "log").open("wb"),
            env=env,
            cwd=directory,
            **_as(account),
        )
        try:
            running = Postgres(port)
            _wait_until_ready(running, process, directory / "log")
            yield running
        finally:
            process.terminate()
            process.wait(STOP_S)
    finally:
        shutil.rmtree(directory)


def _wait_until_ready(server: Postgres, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    while True:
        try:
            psycopg.connect(server.dsn()).close()
            return
        except psycopg.OperationalError:
            assert process.poll() is None, f"PostgreSQL ended:\n{log.read_text()}"
            assert time.monotonic() < until, f"PostgreSQL is not ready:\n{log.read_text()}"
            time.sleep(0.05)


# ---- whose it runs as ------------------------------------------------------------------------------------------


def _account(directory: Path) -> pwd.struct_passwd | None:
    """Whom the server runs as, if we are root; the directory becomes theirs."""
    if os.geteuid() != 0:
        return None
    account = pwd.getpwnam("nobody")
    os.chown(directory, account.pw_uid, account.pw_gid)
    return account


def _as(account: pwd.struct_passwd | None) -> dict[str, Any]:
    return {} if account is None else {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _dying_with_us() -> list[str]:
    """A killed test process leaves no server behind (where util-linux is there to see to it)."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM"] if setpriv else []


def _run(command: Sequence[str | Path], env: dict[str, str], account: pwd.struct_passwd | None = None) -> None:
    ended = subprocess.run(
        command, env=env, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, check=False, **_as(account)
    )
    assert ended.returncode == 0, f"{command}: {ended.stdout.decode()}{ended.stderr.decode()}"


# ---- where it comes from ---------------------------------------------------------------------------------------


def _server(directory: Path, account: pwd.struct_passwd | None) -> tuple[Path, dict[str, str]]:
    """The directory of its programs, and their environment."""
    env = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "GMT"}
    if os.environ.get(UNPACKED_VARIABLE) != "unpacked":
        installed = _programs(_INSTALLED)
        if installed is not None:
            return installed, env
    root = _unpacked()
    if account is not None:
        # the cache is root's own; nobody cannot read it
        root = Path(shutil.copytree(root, directory / "root", symlinks=True))
        _readable(root)
    programs = _programs(root / "usr/lib/postgresql")
    assert programs is not None, f"{root} has no PostgreSQL"
    libraries = [
        str(path) for path in sorted(root.glob("usr/lib/*-linux-gnu*")) + sorted(root.glob("lib/*-linux-gnu*"))
    ]
    return programs, env | {"LD_LIBRARY_PATH": ":".join(libraries)}


def _readable(root: Path) -> None:
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o444))


def _programs(versions: Path) -> Path | None:
    """The folder with the newest version's programs; None without any."""
    found = [path.parent for path in versions.glob("*/bin/postgres")]
    return max(found, key=lambda path: int(path.parent.name), default=None)


def _unpacked() -> Path:
    """The cached tree, fetched and unpacked if there is none."""
    cache = cache_directory()
    target = cache / "postgresql"
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    print("getting PostgreSQL from Debian (about 50 MB)", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="postgresql.part-", dir=cache) as name:
        work = Path(name)
        for package in _fetched(work):
            _run(["dpkg", "-x", package, work / "root"], dict(os.environ))
        try:
            (work / "root").rename(target)
        except OSError:
            assert target.is_dir(), f"{target} could not be made"  # another process was first
    return target


def _fetched(work: Path) -> list[Path]:
    """PostgreSQL's package and those it needs that this machine lacks: apt works it out, in directories of ours."""
    for part in ("lists/partial", "archives/partial", "state"):
        (work / part).mkdir(parents=True)
    status = work / "state/status"
    shutil.copy("/var/lib/dpkg/status", status)
    apt = [
        "apt-get",
        "-qq",
        *("-o", f"Dir::State::lists={work / 'lists'}"),
        *("-o", f"Dir::Cache={work}"),
        *("-o", f"Dir::State::status={status}"),
        *("-o", "APT::Sandbox::User=root"),
        *("-o", "Debug::NoLocking=true"),
    ]
    _without_server(status)
    _run([*apt, "update"], dict(os.environ))
    _run([*apt, "install", "--download-only", "--no-install-recommends", "-y", _PACKAGE], dict(os.environ))
    return sorted((work / "archives").glob("*.deb"))


def _without_server(status: Path) -> None:
    """An installed server that was passed over is fetched all the same."""
    stanzas = status.read_text(encoding="utf-8").split("\n\n")
    kept = [stanza for stanza in stanzas if not re.match(r"Package: postgresql(-\d+|-contrib)?\n", stanza)]
    status.write_text("\n\n".join(kept), encoding="utf-8")
