"""Address patterns with Artemis' wildcards, patterns of header names, and the search for texts in a given order, which
header patterns and LIKE use.

An address consists of words between dots. In a pattern the word `*` stands for one word, and the word `#` for any
number of words, also none. The routes of an address are looked up once and then kept, so matching is simple rather than
fast.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

from journal.process.kept import Kept

ONE, ANY = "*", "#"


def parse_pattern(text: str) -> tuple[str, ...]:
    """A pattern's words. Raises ValueError."""
    if not text:
        raise ValueError("an address pattern is empty: # stands for every address")
    words = tuple(text.split("."))
    for word in words:
        if word not in (ONE, ANY) and (ONE in word or ANY in word):
            raise ValueError(f"{word!r} in {text!r}: {ONE} and {ANY} stand for whole words, between dots")
    return words


def matches(pattern: Sequence[str], address: str) -> bool:
    """Whether an address matches a pattern."""
    return _walk(tuple(pattern), tuple(address.split(".")), _is_word_of)


def overlaps(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether some address matches both patterns."""

    @cache
    def meet(i: int, j: int) -> bool:
        if i == len(first) or j == len(second):
            return all(word == ANY for word in (*first[i:], *second[j:]))
        if first[i] == ANY or second[j] == ANY:
            return meet(i + 1, j) or meet(i, j + 1)
        return (ONE in (first[i], second[j]) or first[i] == second[j]) and meet(i + 1, j + 1)

    return meet(0, 0)


def covers(wide: Sequence[str], narrow: Sequence[str]) -> bool:
    """Whether `wide` certainly matches every address that `narrow` does. Some such pairs are not recognised (`*.#` and
    `#.*`)."""
    return _walk(tuple(wide), tuple(narrow), lambda word, other: word == other or (word == ONE and other != ANY))


def regex_of(pattern: Sequence[str]) -> str:
    """A regular expression that matches the addresses of a pattern."""
    if not pattern:
        return ""
    first, rest = pattern[0], pattern[1:]
    behind = "".join(r"(?:\.[^.]*)*" if word == ANY else rf"\.{_regex_of_word(word)}" for word in rest)
    if first != ANY:
        return _regex_of_word(first) + behind
    return rf"(?:[^.]*(?:\.[^.]*)*{behind}|{regex_of(rest)})"


def regex_of_word(pattern: Sequence[str], at: int) -> str:
    """A regular expression that matches the word at this index (counted from the end if negative) of an address of the
    pattern."""
    words = [*pattern] if at >= 0 else [*reversed(pattern)]
    known = words[: words.index(ANY)] if ANY in words else words
    at = at if at >= 0 else -1 - at
    return _regex_of_word(known[at]) if at < len(known) else "[^.]*"


def _regex_of_word(word: str) -> str:
    return "[^.]*" if word == ONE else re.escape(word)


def _is_word_of(word: str, other: str) -> bool:
    return word in (ONE, other)


def _walk(pattern: tuple[str, ...], words: tuple[str, ...], same: Callable[[str, str], bool]) -> bool:
    """The set of places in the pattern that the words read so far can lead to, for one word after the other."""
    places = _with_skips(pattern, {0})
    for word in words:
        stepped = {at for at in places if at < len(pattern) and pattern[at] == ANY}
        stepped |= {at + 1 for at in places if at < len(pattern) and pattern[at] != ANY and same(pattern[at], word)}
        places = _with_skips(pattern, stepped)
    return len(pattern) in places


def _with_skips(pattern: tuple[str, ...], places: set[int]) -> set[int]:
    """The places, and the place after each `#`, because `#` may stand for no more words."""
    found = set(places)
    for at in places:
        while at < len(pattern) and pattern[at] == ANY:
            at += 1
            found.add(at)
    return found


class NamePatterns:
    """Patterns that decide which header names are taken: `*` stands for any characters, and a `!` in front excludes.
    The last pattern that matches decides."""

    def __init__(self, patterns: Sequence[str]) -> None:
        """Raises ValueError."""
        if any(not pattern.removeprefix("!") for pattern in patterns):
            raise ValueError("a header pattern is empty")
        self._steps = [(not each.startswith("!"), in_order(each.removeprefix("!").split("*"))) for each in patterns]
        self.all = tuple(patterns) == ("*",)
        self.none = not patterns
        self._known: Kept[str, bool] = Kept()

    def __contains__(self, name: str) -> bool:
        known = self._known.get(name)
        if known is None:
            known = False
            for taken, fits in self._steps:
                if fits(name) is not None:
                    known = taken
            self._known.keep(name, known, len(name))
        return known


def in_order(segments: Sequence[Sequence[str | None]]) -> Callable[[str], object | None]:
    """A function that tells whether a text consists of these segments, in this order, with any characters between them.

    A segment is a sequence of characters, or None for any single one. Each segment is searched from the left, and its
    first place counts. No other place is tried, so the time is short; a regular expression with several `.*` would try
    them all.
    """
    first, *between = segments
    last = between.pop() if between else None
    searches = [re.compile(_regex_of_segment(segment), re.DOTALL).search for segment in between if segment]
    if len(searches) == 1 and not first and not last:
        return searches[0]
    whole = re.compile(_regex_of_ends(first, last), re.DOTALL).fullmatch
    if not searches:
        return whole
    before, behind = len(first), len(last or ())

    def run(text: str) -> object | None:
        if whole(text) is None:
            return None
        at, end = before, len(text) - behind
        for search in searches:
            found = search(text, at, end)
            if found is None:
                return None
            at = found.end()
        return text

    return run


def _regex_of_ends(first: Sequence[str | None], last: Sequence[str | None] | None) -> str:
    """A regular expression for a text's beginning and end; without `last`, `first` is the whole text."""
    if last is None:
        return _regex_of_segment(first)
    # the end of the text is compared once, and must not overlap its beginning
    end = f"(?=.{{{len(last)}}}).*+(?<={_regex_of_segment(last)})" if last else ".*"
    return _regex_of_segment(first) + end


def _regex_of_segment(segment: Sequence[str | None]) -> str:
    return "".join("." if character is None else re.escape(character) for character in segment)
