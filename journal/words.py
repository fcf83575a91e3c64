"""Texts for people that contain what came from outside: they are shortened, as a client's text may be of any length,
and escaped, as a terminal may obey what is in them."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

CHARACTERS_MAX = 4000
"""The longest text that an error, a log line, a status or a control row contains."""

NAMED_MAX = 8
"""How many things of one kind a message names. Whoever reads it needs the advice behind them more than the rest."""


def shortened(text: str, characters_max: int = CHARACTERS_MAX) -> str:
    """The text, or its beginning, its length and its end: a message begins with what happened, and ends with what mends
    it."""
    if len(text) <= characters_max:
        return text
    begin = characters_max * 2 // 3
    dots, end = "\N{HORIZONTAL ELLIPSIS}", text[begin - characters_max :]
    return f"{text[:begin]}{dots} ({len(text):,} characters in all) {dots}{end}"


def first_few(names: Sequence[object], separator: str = ", ") -> str:
    """The first names of a list, and how many more there are."""
    named = separator.join(map(str, names[:NAMED_MAX]))
    return named if len(names) <= NAMED_MAX else f"{named} and {len(names) - NAMED_MAX} more"


def escaped(text: str, kept: str = "") -> str:
    """The text for a terminal, a table or a log. A character that is not printable, or that turns the direction of
    writing, is written as Python would write it; so are line breaks and tabs, unless they are in `kept`."""
    if text.isprintable():
        return text
    return "".join(each if _is_shown(each) or each in kept else _escape(each) for each in text)


def _is_shown(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
