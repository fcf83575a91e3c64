"""Texts for people that contain foreign text, from a client for example. They are shortened, because such a text may
have any length, and escaped, because a terminal may obey control characters in it."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

CHARACTERS_MAX = 4000
"""The longest text that an error, a log line, a status or a control row contains."""

NAMED_MAX = 8
"""The largest number of things of one kind that a message names. A longer list would hide the advice that follows
it."""


def shortened(text: str, characters_max: int = CHARACTERS_MAX) -> str:
    """The text if it is short; otherwise its beginning, its length and its end: a message begins with what happened,
    and ends with the command that mends it."""
    if len(text) <= characters_max:
        return text
    begin = characters_max * 2 // 3
    dots, end = "\N{HORIZONTAL ELLIPSIS}", text[begin - characters_max :]
    return f"{text[:begin]}{dots} ({len(text):,} characters in all) {dots}{end}"


def first_few(names: Sequence[object], separator: str = ", ") -> str:
    """The first names of a list, and how many more there are."""
    named = separator.join(map(str, names[:NAMED_MAX]))
    return named if len(names) <= NAMED_MAX else f"{named} and {len(names) - NAMED_MAX} more"


def counted(count: int, thing: str, things: str = "") -> str:
    """A number of things: 1 record, 2 records; `things` is the plural if it is not made with an s."""
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


def counted_are(count: int, thing: str, things: str = "") -> str:
    """A number of things with its verb: 1 record is, 2 records are."""
    return f"{counted(count, thing, things)} {'is' if count == 1 else 'are'}"


def called(journal: str) -> str:
    """A journal's name in a sentence. The default name says no more than the word."""
    return "the journal" if journal == "journal" else f"journal {journal}"


def escaped(text: str, kept: str = "") -> str:
    """The text for a terminal, a table or a log. Characters that are not printable, or that turn the direction of
    writing, are written as Python escapes; so are line breaks and tabs, unless they are in `kept`."""
    if text.isprintable():
        return text
    return "".join(each if _is_shown(each) or each in kept else _escape(each) for each in text)


def _is_shown(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
