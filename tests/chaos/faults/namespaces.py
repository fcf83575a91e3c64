"""Network namespaces with names of their own: `kj-<pid>-<start>-<number>-<host>`.

The name says which process made one, so a run that was killed leaves nothing behind for long: whoever starts the next
run removes the namespaces of dead processes, and ends what still runs in them. Nothing here touches the namespace that
the machine itself lives in.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from journal.embedded.process import start_time, wait_until

DIRECTORY = Path("/run/netns")
COMMANDS = ("ip", "nft", "tc", "nsenter")
COMMAND_TIMEOUT_S = 30.0
END_TIMEOUT_S = 10.0

_NAME = re.compile(r"kj-(\d+)-(\d+)-\d+-.+")
_CLONE_NEWNET = 0x40000000
_numbers = itertools.count()
_libc = ctypes.CDLL(None, use_errno=True)


class NoNamespacesError(Exception):
    """This machine has not the means; the message says which is missing. A test is skipped with it."""


class CommandError(Exception):
    """`ip`, `nft` or `tc` refused: a fault of the caller, or of the kernel's configuration."""


def run(*command: str, given: str = "") -> str:
    """What the command says, once it has ended well. Raises CommandError."""
    try:
        ended = subprocess.run(command, input=given, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
    except FileNotFoundError as error:
        raise CommandError(f"{command[0]}: not installed") from error
    if ended.returncode != 0:
        raise CommandError(f"{' '.join(command)}: {ended.stderr.strip()}\n{given}")
    return ended.stdout


def require_means() -> None:
    """Raises NoNamespacesError unless this process may make namespaces, with the commands that fill them."""
    if os.geteuid() != 0:
        raise NoNamespacesError("network namespaces need root")
    missing = [command for command in COMMANDS if shutil.which(command) is None]
    if missing:
        raise NoNamespacesError(f"not installed: {', '.join(missing)}")


def new_prefix() -> str:
    """What the names of one network's namespaces begin with."""
    pid = os.getpid()
    return f"kj-{pid}-{_ticks(pid)}-{next(_numbers)}-"


def make(names: Iterable[str]) -> None:
    """Empty namespaces, their loopback up. Raises NoNamespacesError where the kernel refuses."""
    try:
        for name in names:
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
    except CommandError as error:
        raise NoNamespacesError(str(error)) from error


def remove(names: Iterable[str]) -> None:
    """The namespaces, and every process that is still in one of them."""
    for name in names:
        try:
            _end_processes(name)
            run("ip", "netns", "del", name)
        except CommandError:
            if name in existing():  # else another run has removed it meanwhile
                raise


def existing() -> list[str]:
    """The names of all namespaces of this machine."""
    return sorted(entry.name for entry in DIRECTORY.iterdir()) if DIRECTORY.is_dir() else []


def remove_stale() -> list[str]:
    """Removes what runs that are dead have left; gives the names."""
    stale = [name for name in existing() if _is_stale(name)]
    remove(stale)
    return stale


def command_prefix(name: str) -> tuple[str, ...]:
    """A command behind this runs in the namespace, under the same pid, and sees the machine's own mounts."""
    return ("nsenter", f"--net={DIRECTORY / name}", "--")


@contextmanager
def entered(name: str) -> Iterator[None]:
    """This thread, and every process and thread that it starts meanwhile, is in the namespace."""
    own = os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY)
    try:
        inside = os.open(DIRECTORY / name, os.O_RDONLY)
        try:
            _enter(inside)
        finally:
            os.close(inside)
        try:
            yield
        finally:
            _enter(own)
    finally:
        os.close(own)


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _end_processes(name: str) -> None:
    pids = [int(pid) for pid in run("ip", "netns", "pids", name).split()]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(start_time(pid) for pid in pids), END_TIMEOUT_S)


def _is_stale(name: str) -> bool:
    found = _NAME.fullmatch(name)
    if found is None:
        return False
    pid, ticks = int(found[1]), found[2]
    return _ticks(pid) != ticks


def _ticks(pid: int) -> str | None:
    """When the process began, in ticks since the machine did; None when it is gone."""
    started = start_time(pid)
    return started and started.rsplit("/", 1)[-1]
