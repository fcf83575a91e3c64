"""Permission checks of one connection. A refusal names user, action, address and the command that grants it."""

from __future__ import annotations

import logging

from journal.amqp.conditions import UNAUTHORIZED_ACCESS
from journal.broker.security.permissions import Action
from journal.broker.security.users_file import UsersFile
from journal.errors import AmqpPeerError, ConfigError
from journal.process.commands import command

log = logging.getLogger(__name__)

_LOGGED_MAX = 100
"""The number of refusals of a connection that are logged. Each is logged once, as a client may try again and again."""


class UserAccess:
    """The permissions of a connection's user."""

    def __init__(self, users: UsersFile | None, user: str, peer: str) -> None:
        """Without `users` everything is allowed. `peer` is the client's address, for the log."""
        self._users = users
        self.user = user
        self._peer = peer
        self._logged: set[tuple[Action, str]] = set()

    @property
    def removed(self) -> bool:
        """Whether the user is there no more."""
        try:
            return self._users is not None and self.user not in self._users.current().users
        except ConfigError:
            return False

    def require(self, action: Action, address: str) -> None:
        """Raises AmqpPeerError if the user may not do that with the address."""
        if self._users is None:
            return
        try:
            if self._users.current().allow(self.user, action, address):
                return
        except ConfigError as error:
            text = f"nothing is allowed now: {error}"
        else:
            grant = command("users grant", "--file", self._users.path.absolute(), self.user, address, action)
            text = f"user {self.user} may not {action} {address}: `{grant}` grants it"
        if len(self._logged) < _LOGGED_MAX and (action, address) not in self._logged:
            self._logged.add((action, address))
            log.warning("%s: refused: %s", self._peer, text)
        raise AmqpPeerError(UNAUTHORIZED_ACCESS, text)
