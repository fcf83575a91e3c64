"""Where control sockets are: `<directory>/<journal>/nodes/<name>.sock`, which only the user who runs the node can open.

A socket's address has less room than a path. If a path does not fit, the directory's descriptor stands for it. A node
holds a lock beside its socket while it lives, so that the socket of a killed node is known to be stale.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, unquote

from journal.config import Settings
from journal.disk.slots import is_at, lock_file
from journal.errors import NodeSocketError

ADDRESS_BYTES_MAX = 107
"""The size of Linux' sun_path, with its final zero."""

LOOK_S = 1.0
"""How long `accept` waits each time. A deleted socket is noticed within this time."""

_FILE_BYTES_MAX = 72
_HASH_DIGITS = 16
_SUFFIX = ".sock"


def sockets_directory(settings: Settings) -> Path:
    return settings.journal_directory / "nodes"


def socket_path(settings: Settings, node: str) -> Path:
    """The path of a node's socket. A node may have any name; the end of a long name is replaced by its hash."""
    name = quote(node, safe="")
    if len(name) + len(_SUFFIX) > _FILE_BYTES_MAX:
        digest = hashlib.sha256(node.encode()).hexdigest()[:_HASH_DIGITS]
        name = name[: _FILE_BYTES_MAX - len(_SUFFIX) - _HASH_DIGITS - 1] + "-" + digest
    return sockets_directory(settings) / (name + _SUFFIX)


def sockets_of(settings: Settings) -> list[Path]:
    """Sockets of this journal's nodes, living and killed ones. Raises NodeSocketError."""
    directory = sockets_directory(settings)
    try:
        return sorted(path for path in directory.iterdir() if path.suffix == _SUFFIX)
    except FileNotFoundError:
        return []
    except PermissionError as error:
        raise NodeSocketError(f"{directory} is another user's ({owner_of(directory)}): ask as that one") from error
    except OSError as error:
        raise NodeSocketError(f"cannot look for control sockets: {error}") from error


def node_of(path: Path) -> str:
    """The name of the node that a socket belongs to, made from the file's name. The end of a long name may be
    missing."""
    return unquote(path.stem)


@contextmanager
def address_of(path: Path) -> Iterator[str]:
    """The address by which to bind or connect to a path, of any length. Raises OSError."""
    if len(os.fsencode(path)) <= ADDRESS_BYTES_MAX:
        yield str(path)
        return
    descriptor = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)


def owner_of(path: Path) -> str:
    """The owner of a file, or of the directory that hides the file; `?` if nobody's name is visible."""
    for each in (path, path.parent):
        with suppress(OSError, KeyError):
            return each.owner()
    return "?"


class OwnSocket:
    """A listening socket and its lock, until `close`."""

    def __init__(self, path: Path) -> None:
        """Create the socket, and replace the one that a killed node left. Raises NodeSocketError if a node of this name
        lives, or if the socket cannot be created."""
        self.path = path
        self._lock = _locked(path)
        try:
            self.listening = _listen(path)
        except NodeSocketError:
            os.close(self._lock)
            raise

    @property
    def is_lost(self) -> bool:
        """Whether the socket or its lock was deleted, so that commands cannot find this node."""
        return not (is_at(self._lock, _lock_of(self.path)) and self.path.is_socket())

    def renew(self) -> None:
        """Create the deleted socket or lock again. Raises NodeSocketError if a node of this name was started meanwhile,
        or if that fails."""
        if not is_at(self._lock, _lock_of(self.path)):
            lock = _locked(self.path)
            os.close(self._lock)
            self._lock = lock
        listening = _listen(self.path)
        self.listening.close()
        self.listening = listening

    def close(self) -> None:
        self.listening.close()
        if is_at(self._lock, _lock_of(self.path)):
            self.path.unlink(missing_ok=True)
        os.close(self._lock)


def _lock_of(path: Path) -> Path:
    return path.with_suffix(".lock")


def _locked(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.parent.chmod(0o700)
        lock = lock_file(_lock_of(path), mode=0o600)
    except OSError as error:
        raise NodeSocketError(f"cannot use {path.parent} for a control socket: {error}") from error
    if lock is None:
        raise NodeSocketError(
            f"a node named {node_of(path)} runs on this machine already: stop it, or give this one another name"
        )
    return lock


def _listen(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        with address_of(path) as address:
            listening.bind(address)
        path.chmod(0o600)  # nobody can connect before the socket listens
        listening.listen()
    except OSError as error:
        listening.close()
        raise NodeSocketError(f"cannot open the control socket {path}: {error}") from error
    listening.settimeout(LOOK_S)
    return listening


def connect(path: Path, timeout_s: float) -> socket.socket:
    """A connection to a node's socket. Raises NodeSocketError, which says why there is none."""
    node = node_of(path)
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.settimeout(timeout_s)
    try:
        with address_of(path) as address:
            connected.connect(address)
    except OSError as error:
        connected.close()
        raise NodeSocketError(_why(node, path, error)) from error
    return connected


def _why(node: str, path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"no node named {node} runs on this machine: there is no {path}"
    if isinstance(error, ConnectionRefusedError):
        return f"node {node} does not run any more: it was killed, and left {path}"
    if isinstance(error, PermissionError):
        return f"{path} is another user's ({owner_of(path)}): ask as that one"
    if isinstance(error, TimeoutError) or error.errno == errno.EAGAIN:
        return f"node {node} does not answer: it takes no connection at {path}"
    return f"node {node} does not answer at {path}: {error}"
