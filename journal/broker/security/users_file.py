"""The file of users: JSON that only its owner may read. Commands write it whole, and a server reads a changed one
again.

    {"format": 1, "secret": BASE64,
     "roles": {"clerks": {"orders.#": ["send", "consume"]}},
     "users": {"alice": {"roles": ["clerks"], "permissions": {"news": ["consume"]},
                         "SCRAM-SHA-256": {"iterations": 100000, "salt": BASE64, "stored_key": BASE64,
                                           "server_key": BASE64},
                         "SCRAM-SHA-512": ...}}}
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from journal.broker.security.passwords import SCRAM_HASHES, Verifier
from journal.broker.security.permissions import Action, Permissions
from journal.broker.security.users import User, Users
from journal.errors import ConfigError
from journal.process.commands import command

_FORMAT = 1
_FORBIDDEN_MODE = stat.S_IRWXG | stat.S_IRWXO


class UsersFile:
    """The users as the file has them now."""

    def __init__(self, path: Path, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called when the file was read again. Raises ConfigError if it cannot be used."""
        self.path = path
        self._changed = changed
        self._mark = self._mark_now()
        self._users = read_users(path)

    def current(self) -> Users:
        """The users, read again if the file has changed. Raises ConfigError while it cannot be used."""
        mark = self._mark_now()
        if mark != self._mark:
            self._users, self._mark = read_users(self.path), mark
            self._changed()
        return self._users

    def _mark_now(self) -> tuple[int, int, int]:
        """Differs from the one before if the file or its mode has changed."""
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise _not_readable(self.path, error) from None
        return found.st_ino, found.st_ctime_ns, found.st_size


def read_users(path: Path) -> Users:
    """The users of a file. Raises ConfigError if it cannot be read, if others may read it, or if it is damaged."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read()
    except OSError as error:
        raise _not_readable(path, error) from None
    if mode & _FORBIDDEN_MODE:
        raise ConfigError(f"other users of this machine may read or write {path}: `chmod 600 {path}` mends that")
    try:
        return _users_in(json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is no file of users: {type(error).__name__}: {error}") from None


def change_users(path: Path, change: Callable[[Users], Users]) -> None:
    """Change the users of a file, or of a new one if there is none. Whoever reads it sees the old or the new file, and
    two changes at once follow each other. Raises ConfigError, and what `change` raises."""
    try:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        _write(path, change(read_users(path) if path.exists() else Users.none()), directory)
    finally:
        os.close(directory)


def _write(path: Path, users: Users, directory: int) -> None:
    data = json.dumps(_document(users), indent=1).encode() + b"\n"
    try:
        # it is made with mode 0600
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                os.rename(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
        os.fsync(directory)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None


def _not_readable(path: Path, error: OSError) -> ConfigError:
    text = f"the file of users {path} cannot be read: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        text += f": `{command('users add', '--file', path, 'NAME')}` makes it"
    return ConfigError(text)


# ---- the document --------------------------------------------------------------------------------------------------


def _users_in(document: Any) -> Users:
    """Raises ValueError, KeyError, TypeError or AttributeError for a document of another form."""
    if document["format"] != _FORMAT:
        raise ValueError(f"its format is {document['format']!r}, and this release reads {_FORMAT}")
    roles = {name: _permissions_in(granted) for name, granted in document["roles"].items()}
    users = {name: _user_in(name, each) for name, each in document["users"].items()}
    for user in users.values():
        if unknown := sorted({*user.roles} - {*roles}):
            raise ValueError(f"user {user.name} has the role {unknown[0]}, which is not there")
    return Users(base64.b64decode(document["secret"], validate=True), users, roles)


def _user_in(name: str, document: Any) -> User:
    verifiers = {each: _verifier_in(document[each]) for each in SCRAM_HASHES if each in document}
    if verifiers and len(verifiers) < len(SCRAM_HASHES):
        raise ValueError(f"user {name} has keys for one hash alone")
    return User(name, tuple(document["roles"]), _permissions_in(document["permissions"]), verifiers)


def _verifier_in(document: Any) -> Verifier:
    iterations = document["iterations"]
    if not isinstance(iterations, int) or iterations < 1:
        raise ValueError(f"{iterations!r} is no number of iterations")
    salt, stored, server = (base64.b64decode(document[key], validate=True) for key in _KEYS)
    return Verifier(salt, iterations, stored, server)


_KEYS = ("salt", "stored_key", "server_key")


def _permissions_in(document: Any) -> Permissions:
    return Permissions({pattern: frozenset(map(Action, actions)) for pattern, actions in document.items()})


def _document(users: Users) -> Mapping[str, Any]:
    return {
        "format": _FORMAT,
        "secret": _text(users.secret),
        "roles": {name: granted_lists(each) for name, each in users.roles.items()},
        "users": {name: _user_document(each) for name, each in users.users.items()},
    }


def _user_document(user: User) -> Mapping[str, Any]:
    keys = {mechanism: _verifier_document(each) for mechanism, each in user.verifiers.items()}
    return {"roles": list(user.roles), "permissions": granted_lists(user.permissions), **keys}


def _verifier_document(verifier: Verifier) -> Mapping[str, Any]:
    values = (verifier.salt, verifier.stored_key, verifier.server_key)
    return {"iterations": verifier.iterations} | dict(zip(_KEYS, map(_text, values), strict=True))


def granted_lists(permissions: Permissions) -> dict[str, list[str]]:
    """Permissions as JSON has them: the actions of each pattern, in order."""
    return {pattern: [each for each in Action if each in actions] for pattern, actions in permissions.granted.items()}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
