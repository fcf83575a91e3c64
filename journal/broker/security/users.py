"""Users and roles, what they may do, and the keys of their passwords. All of it is one state of the users' file."""

from __future__ import annotations

import hmac
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from journal.broker.security.passwords import SALT_BYTES, SCRAM_HASHES, Verifier, prepared, verifier_of
from journal.broker.security.permissions import Action, Permissions
from journal.errors import ConfigError, InvalidOperationError
from journal.process.kept import Kept

ANONYMOUS_USER = "anonymous"
"""The user of clients that give no name."""

NAME_BYTES_MAX = 255
_SECRET_BYTES = 32
_ITERATIONS = 100_000
"""The iterations of an unknown user, where no user has a password."""


class User(NamedTuple):
    """A user. One without verifiers has no password, and can log in with a certificate alone."""

    name: str
    roles: tuple[str, ...]
    permissions: Permissions
    verifiers: Mapping[str, Verifier]
    """By mechanism."""


@dataclass(frozen=True)
class Users:
    """All users and roles."""

    secret: bytes
    """The salts of unknown users are made of it, so that each name has the same one on every node, for ever."""

    users: Mapping[str, User]
    roles: Mapping[str, Permissions]
    _decided: Kept[tuple[str, Action, str], bool] = field(default_factory=Kept, repr=False, compare=False)
    """Decisions that were made, as a connection asks the same again."""

    @classmethod
    def none(cls) -> Users:
        """No users yet."""
        return cls(secrets.token_bytes(_SECRET_BYTES), {}, {})

    # ---- questions -------------------------------------------------------------------------------------------------

    def allow(self, name: str, action: Action, address: str) -> bool:
        """Whether a user, or one of its roles, is granted an action on an address."""
        key = name, action, address
        known = self._decided.get(key)
        if known is None:
            known = any(each.allow(action, address) for each in self._permissions_of(name))
            self._decided.keep(key, known, len(name) + len(address))
        return known

    def _permissions_of(self, name: str) -> list[Permissions]:
        user = self.users.get(name)
        return [] if user is None else [user.permissions, *(self.roles[role] for role in user.roles)]

    def verifier(self, name: str, mechanism: str) -> tuple[Verifier, bool]:
        """What a password is checked against, and whether the name is that of a user with a password. An unknown name
        gets a salt and an iteration count that look like those of a user, so that a client cannot find out who exists.
        No password fits it."""
        user = self.users.get(name)
        if user is not None and user.verifiers:
            return user.verifiers[mechanism], True
        salt = hmac.digest(self.secret, f"{mechanism} {name}".encode(), "sha256")[:SALT_BYTES]
        counts = Counter(each.verifiers[mechanism].iterations for each in self.users.values() if each.verifiers)
        iterations = counts.most_common(1)[0][0] if counts else _ITERATIONS
        # keys of a password that nobody knows
        key = hmac.digest(self.secret, f"key {mechanism} {name}".encode(), SCRAM_HASHES[mechanism])
        return Verifier(salt, iterations, key, key), False

    # ---- changes ---------------------------------------------------------------------------------------------------

    def with_user(self, user: User) -> Users:
        """The same with a user, who may be known already. Raises InvalidOperationError for a role that there is not."""
        for role in user.roles:
            self._require_role(role)
        return replace(self, users={**self.users, user.name: user}, _decided=Kept())

    def without_user(self, name: str) -> Users:
        """The same without a user. Raises InvalidOperationError if there is none of this name."""
        self.user(name)
        return replace(self, users={each: user for each, user in self.users.items() if each != name}, _decided=Kept())

    def with_role(self, role: str, permissions: Permissions) -> Users:
        """The same with the permissions of a role; a role without permissions is gone, for its users too."""
        roles = {each: granted for each, granted in self.roles.items() if each != role}
        if permissions.granted:
            roles[role] = permissions
        users = {
            name: user._replace(roles=tuple(each for each in user.roles if each in roles))
            for name, user in self.users.items()
        }
        return replace(self, users=users, roles=roles, _decided=Kept())

    def user(self, name: str) -> User:
        """A user by name. Raises InvalidOperationError if there is none."""
        if name not in self.users:
            raise InvalidOperationError(f"there is no user {name!r} in this file")
        return self.users[name]

    def _require_role(self, role: str) -> None:
        if role not in self.roles:
            raise InvalidOperationError(
                f"there is no role {role!r}: its first permission makes it (users grant --role)"
            )


def verifiers_of(password: str, iterations: int) -> dict[str, Verifier]:
    """What is kept of a new password, by mechanism. Raises InvalidOperationError for one that cannot be used."""
    try:
        text = prepared(password)
    except ValueError as error:
        raise InvalidOperationError(str(error)) from None
    if not text:
        raise InvalidOperationError("the password is empty")
    return {
        mechanism: verifier_of(text, hash_name, secrets.token_bytes(SALT_BYTES), iterations)
        for mechanism, hash_name in SCRAM_HASHES.items()
    }


def require_name(name: str) -> str:
    """The name of a user or role. Raises ConfigError for one that clients could not write in the same way."""
    try:
        same = prepared(name) == name
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if not name or not same or len(name.encode()) > NAME_BYTES_MAX:
        raise ConfigError(f"{name!r} is no name: 1 to {NAME_BYTES_MAX} bytes, in the form of SASLprep (RFC 4013)")
    return name
