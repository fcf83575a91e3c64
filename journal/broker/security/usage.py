"""How many connections, sessions and links each user has, and the bound of each."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Any

from journal.amqp.conditions import RESOURCE_LIMIT_EXCEEDED
from journal.amqp.security_settings import UserLimits
from journal.errors import AmqpPeerError
from journal.words import counted


class Counted(StrEnum):
    """What is counted; `UserLimits` has a bound for each."""

    CONNECTION = "connection"
    SESSION = "session"
    LINK = "link"


class UsersUsage:
    """What all users have. The event loop's thread uses it."""

    def __init__(self, limits: UserLimits | None) -> None:
        """Without `limits` nothing is refused."""
        self._limits = limits
        self._taken: Counter[tuple[str, Counted]] = Counter()

    def take(self, user: str, what: Counted) -> None:
        """One more. Raises AmqpPeerError if the user has as many as it may."""
        taken = self._taken[user, what]
        if self._limits is not None and taken >= getattr(self._limits, f"{what}s_max"):
            text = f"user {user} has {counted(taken, what)}: amqp.per_user.{what}s_max allows no more"
            raise AmqpPeerError(RESOURCE_LIMIT_EXCEEDED, text)
        self._taken[user, what] = taken + 1

    def give_back(self, user: str, what: Counted, count: int) -> None:
        """Fewer by a count."""
        rest = self._taken[user, what] - count
        if rest:
            self._taken[user, what] = rest
        else:
            del self._taken[user, what]


class ConnectionUsage:
    """What one connection has of its user's."""

    def __init__(self, usage: UsersUsage) -> None:
        self._usage = usage
        self.user = ""
        """The user's name, once SASL has ended."""
        self._taken: dict[Counted, set[object]] = {each: set() for each in Counted}

    def take(self, what: Counted, one: object) -> None:
        """The connection has one more. Raises AmqpPeerError if its user may have no more."""
        self._usage.take(self.user, what)
        self._taken[what].add(one)

    def give_back(self, what: Counted, one: object) -> None:
        """The connection has it no more; nothing happens if it was refused."""
        if one in self._taken[what]:
            self._taken[what].remove(one)
            self._usage.give_back(self.user, what, 1)

    @property
    def links(self) -> list[Any]:
        """The connection's links."""
        return list(self._taken[Counted.LINK])

    def close(self) -> None:
        """The connection has ended, and has nothing more."""
        for what, taken in self._taken.items():
            self._usage.give_back(self.user, what, len(taken))
            taken.clear()
