"""How many connections, sessions, links and messages in flight each user has, and the bound of each."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Protocol

from journal.amqp.conditions import RESOURCE_LIMIT_EXCEEDED
from journal.amqp.security_settings import UserLimits
from journal.errors import AmqpPeerError
from journal.words import counted

_NO_BOUND = 2**31


class Counted(StrEnum):
    """What is counted; `UserLimits` has a bound for each."""

    CONNECTION = "connection"
    SESSION = "session"
    LINK = "link"


class WaitingLink(Protocol):
    """A link that waits until its user has fewer messages in flight."""

    def pump(self) -> None:
        """Send what there is."""


class UsersUsage:
    """What all users have. The event loop's thread uses it."""

    def __init__(self, limits: UserLimits | None) -> None:
        """Without `limits` nothing is refused."""
        self._limits = limits
        self._taken: dict[tuple[str, Counted], set[Any]] = {}
        self._waiting: dict[str, dict[WaitingLink, None]] = {}

    def take(self, user: str, what: Counted, one: object) -> None:
        """One more. Raises AmqpPeerError if the user has as many as it may."""
        taken = self._taken.setdefault((user, what), set())
        if self._limits is not None and len(taken) >= getattr(self._limits, f"{what}s_max"):
            text = f"user {user} has {counted(len(taken), what)}: amqp.per_user.{what}s_max allows no more"
            raise AmqpPeerError(RESOURCE_LIMIT_EXCEEDED, text)
        taken.add(one)

    def give_back(self, user: str, what: Counted, one: object) -> None:
        """The user has it no more."""
        taken = self._taken[user, what]
        taken.remove(one)
        if not taken:
            del self._taken[user, what]

    def room(self, user: str) -> int:
        """How many more messages the user may be sent before it settles some."""
        if self._limits is None:
            return _NO_BOUND
        connections = self._taken.get((user, Counted.CONNECTION), ())
        in_flight: int = sum(each.in_flight for each in connections)
        return self._limits.in_flight_max - in_flight

    def wait(self, user: str, link: WaitingLink) -> None:
        """Have a link pump when its user has room."""
        self._waiting.setdefault(user, {})[link] = None

    def pump_waiting(self, user: str) -> None:
        """Have a user's waiting links send, if there is room now."""
        if user in self._waiting and self.room(user) > 0:
            for link in self._waiting.pop(user):
                link.pump()


class ConnectionUsage:
    """What one connection has of its user's."""

    def __init__(self, usage: UsersUsage) -> None:
        self._usage = usage
        self.user = ""
        """The user's name, once SASL has ended."""
        self._taken: dict[Counted, set[Any]] = {each: set() for each in Counted}

    def take(self, what: Counted, one: object) -> None:
        """The connection has one more. Raises AmqpPeerError if its user may have no more."""
        self._usage.take(self.user, what, one)
        self._taken[what].add(one)

    def give_back(self, what: Counted, one: object) -> None:
        """The connection has it no more; nothing happens if it was refused."""
        if one in self._taken[what]:
            self._taken[what].remove(one)
            self._usage.give_back(self.user, what, one)

    @property
    def sessions(self) -> list[Any]:
        """The connection's sessions."""
        return list(self._taken[Counted.SESSION])

    @property
    def links(self) -> list[Any]:
        """The connection's links."""
        return list(self._taken[Counted.LINK])

    def room(self, link: WaitingLink) -> int:
        """How many more messages the user may be sent before it settles some. Without room, the link is pumped when
        there is some."""
        room = self._usage.room(self.user)
        if room <= 0:
            self._usage.wait(self.user, link)
        return room

    def pump_waiting(self) -> None:
        """Have links that wait for room send, if there is some now."""
        self._usage.pump_waiting(self.user)

    def close(self) -> None:
        """The connection has ended, and has nothing more."""
        for what, taken in self._taken.items():
            for one in list(taken):
                self.give_back(what, one)
        self.pump_waiting()
