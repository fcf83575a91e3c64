"""Templates of topics and addresses: text that contains `{address}`, `{address[1]}` (one word of the address) or
`{header}`.

The names are replaced when a message is routed. A message that lacks one is refused. `{{` and `}}` stand for braces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from journal.patterns import ANY, ONE, regex_of, regex_of_word
from journal.routing.outcomes import Reason, UnfitError
from journal.store.model import Value

_PARTS = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
_WORD = re.compile(r"(.+)\[(-?\d{1,4})\]")

Lookup = Callable[[str], Value | None]
"""A function that gives a header's value by its name, or None."""


class Template:
    """A template, parsed."""

    def __init__(self, text: str) -> None:
        """Parse a template. Raises ValueError with the position of the mistake."""
        if not text:
            raise ValueError("a template is empty")
        self.text = text
        self.names: tuple[str, ...] = ()
        self._parts: list[str | tuple[str, int | None]] = []
        for found in _PARTS.finditer(text):
            part, name = found.group(), found.group(1)
            if part in ("{{", "}}"):
                self._parts.append(part[0])
            elif name is None and part in ("{", "}"):
                raise ValueError(f"a lone {part} at character {found.start() + 1} of {text!r}: write {part}{part}")
            elif name is None:
                self._parts.append(part)
            elif not name.strip():
                raise ValueError(f"nothing is named at character {found.start() + 1} of {text!r}")
            else:
                word = _WORD.fullmatch(name)
                self._parts.append((word[1], int(word[2])) if word else (name, None))
        self.names = tuple(part[0] for part in self._parts if isinstance(part, tuple))
        self.fixed = None if self.names else "".join(str(part) for part in self._parts)

    def fill(self, lookup: Lookup) -> str:
        """The text for a message. Raises UnfitError."""
        if self.fixed is not None:
            return self.fixed
        return "".join(part if isinstance(part, str) else self._filled(*part, lookup) for part in self._parts)

    def can_be(self, text: str, pattern: Sequence[str]) -> bool:
        """Whether the template can give `text` for a message with an address that matches the pattern. Headers other
        than the address may have any value."""
        parts = (re.escape(part) if isinstance(part, str) else _regex_of(*part, pattern) for part in self._parts)
        return bool(re.fullmatch("".join(parts), text, re.DOTALL))

    def sample(self, pattern: Sequence[str]) -> str:
        """The text for a message with an address that matches the pattern. Wildcards stay as they are, and the name of
        each other header stands for its value."""
        words = ["address" if word in (ONE, ANY) else word for word in pattern]
        return "".join(part if isinstance(part, str) else _sample_of(*part, words) for part in self._parts)

    def _filled(self, name: str, word: int | None, lookup: Lookup) -> str:
        value = lookup(name)
        if value is None:
            raise UnfitError(Reason.NO_HEADER, f"template {self.text!r} names {name!r}, which the message has not")
        text = text_of(value)
        if text is None:
            raise UnfitError(Reason.NO_HEADER, f"template {self.text!r} names {name!r}, which is not text")
        if word is None:
            return text
        words = text.split(".")
        if not -len(words) <= word < len(words):
            raise UnfitError(Reason.NO_HEADER, f"template {self.text!r} names word {word} of {text!r}")
        return words[word]


def _sample_of(name: str, word: int | None, words: Sequence[str]) -> str:
    if name != "address":
        return name
    if word is None:
        return ".".join(words)
    return words[word] if -len(words) <= word < len(words) else name


def _regex_of(name: str, word: int | None, pattern: Sequence[str]) -> str:
    if name != "address":
        return ".*"
    return regex_of(pattern) if word is None else regex_of_word(pattern, word)


def text_of(value: Value) -> str | None:
    """A value as text; None for bytes that are not UTF-8."""
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return None
        case _:
            return str(value)
