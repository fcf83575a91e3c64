"""Address patterns against a matcher that tries everything."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from journal.patterns import NamePatterns, covers, matches, overlaps, parse_pattern, regex_of, regex_of_word

WORDS = ("a", "b", "")
patterns = st.lists(st.sampled_from((*WORDS, "*", "#")), min_size=1, max_size=5).map(tuple).filter(lambda p: p != ("",))
addresses = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(".".join)


def naive(pattern: Sequence[str], words: Sequence[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(naive(pattern[1:], words[at:]) for at in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and naive(pattern[1:], words[1:])


def some_words(length: int) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = [()]
    every = [()]
    for _ in range(length):
        every = [(*words, word) for words in every for word in ("a", "b", "", "x")]
        found += every
    return found


@given(patterns, addresses)
def test_a_pattern_matches_what_a_naive_matcher_says(pattern: tuple[str, ...], address: str) -> None:
    assert matches(parse_pattern(".".join(pattern)), address) is naive(pattern, address.split("."))


SHORT = some_words(4)
short = st.lists(st.sampled_from(("a", "b", "*", "#")), min_size=1, max_size=3).map(tuple)


@given(short, short)
def test_patterns_overlap_exactly_if_some_address_is_of_both(first: tuple[str, ...], second: tuple[str, ...]) -> None:
    shared = any(naive(first, words) and naive(second, words) for words in SHORT)
    assert overlaps(first, second) is shared
    assert overlaps(second, first) is shared


@given(short, short)
def test_a_pattern_that_covers_another_matches_all_of_it(wide: tuple[str, ...], narrow: tuple[str, ...]) -> None:
    if covers(wide, narrow):
        assert all(naive(wide, words) for words in SHORT if naive(narrow, words))


@given(patterns)
def test_a_pattern_covers_itself_and_is_covered_by_all(pattern: tuple[str, ...]) -> None:
    assert covers(pattern, pattern)
    assert covers(("#",), pattern)


@given(patterns, addresses)
def test_a_patterns_regular_expression_is_of_the_same_addresses(pattern: tuple[str, ...], address: str) -> None:
    assert bool(re.fullmatch(regex_of(pattern), address)) is naive(pattern, address.split("."))


@given(short, st.integers(-4, 3))
def test_a_word_of_an_address_is_one_that_its_pattern_allows(pattern: tuple[str, ...], at: int) -> None:
    allowed = regex_of_word(pattern, at)
    for words in SHORT:
        if naive(pattern, words) and -len(words) <= at < len(words):
            assert re.fullmatch(allowed, words[at])


def naive_name(pattern: str, name: str) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(naive_name(pattern[1:], name[at:]) for at in range(len(name) + 1))
    return name[:1] == pattern[0] and naive_name(pattern[1:], name[1:])


@given(st.text("ab.*", min_size=1, max_size=8), st.text("ab.\n*", max_size=8))
def test_a_header_is_taken_if_trying_everything_says_so(pattern: str, name: str) -> None:
    assert (name in NamePatterns([pattern])) is naive_name(pattern, name)
