"""Permissions: which actions are granted on which addresses, by patterns (`journal.patterns`)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from journal.patterns import matches, parse_pattern


class Action(StrEnum):
    """What a client may be allowed to do with an address."""

    SEND = "send"
    CONSUME = "consume"
    BROWSE = "browse"
    CREATE = "create"
    """Have the address, or a queue of it, made on demand."""
    DELETE = "delete"
    MANAGE = "manage"


class Permissions:
    """The actions that are granted, by pattern."""

    def __init__(self, granted: Mapping[str, frozenset[Action]]) -> None:
        """Raises ValueError for what is no pattern."""
        self.granted = granted
        self._words = [(parse_pattern(pattern), actions) for pattern, actions in granted.items()]

    def allow(self, action: Action, address: str) -> bool:
        """Whether one of the patterns that match the address grants the action."""
        return any(action in actions and matches(words, address) for words, actions in self._words)

    def with_grant(self, pattern: str, actions: frozenset[Action]) -> Permissions:
        """The same, and these actions on a pattern."""
        return Permissions({**self.granted, pattern: self.granted.get(pattern, frozenset()) | actions})

    def without_grant(self, pattern: str, actions: frozenset[Action]) -> Permissions:
        """The same without these actions on a pattern; without the pattern if none is left."""
        rest = self.granted.get(pattern, frozenset()) - actions
        others = {each: granted for each, granted in self.granted.items() if each != pattern}
        return Permissions({**others, pattern: rest} if rest else others)
