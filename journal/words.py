"""Texts for people that have in them what came from outside: shortened, as a client's text may be of any length, and
escaped, as it may have in it what a terminal obeys."""

from __future__ import annotations

import unicodedata

CHARACTERS_MAX = 4000
"""Of what errors, logs, statuses and control rows say."""


def shortened(text: str, characters_max: int = CHARACTERS_MAX) -> str:
    """A text, or its beginning and how long it is."""
    if len(text) <= characters_max:
        return text
    return f"{text[:characters_max]}\N{HORIZONTAL ELLIPSIS} ({len(text):,} characters in all)"


def escaped(text: str, kept: str = "") -> str:
    """A text for a terminal, a table or a log: what is not printable, or turns the direction of writing, as Python
    would write it. Line breaks and tabs too, unless they are `kept`."""
    if text.isprintable():
        return text
    return "".join(each if _is_shown(each) or each in kept else _escape(each) for each in text)


def _is_shown(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
