"""Texts with what came from outside in them are shortened, and a terminal obeys nothing of them."""

from __future__ import annotations

import pytest

from journal.errors import CorruptionError, JournalError, RowError
from journal.words import CHARACTERS_MAX, escaped, shortened

LONG = "x" * 800_000
MORE = 100
"""Characters that say how long it is, and where it was."""


def test_a_text_that_is_not_long_is_as_it_is() -> None:
    assert shortened("x" * CHARACTERS_MAX) == "x" * CHARACTERS_MAX


def test_a_long_text_says_how_long_it_is() -> None:
    assert shortened(LONG, 3) == "xxx\N{HORIZONTAL ELLIPSIS} (800,000 characters in all)"


@pytest.mark.parametrize("error", [JournalError(LONG), RowError(LONG, topic="t", partition=1, offset=2)])
def test_no_error_says_more_than_is_read(error: JournalError) -> None:
    assert len(str(error)) < CHARACTERS_MAX + MORE
    assert not isinstance(error, CorruptionError) or len(error.reason) < CHARACTERS_MAX + MORE


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders/eu", "orders/eu"),
        ("größe 大\u3000\N{NO-BREAK SPACE}€ [red]\\x1b", "größe 大\u3000\N{NO-BREAK SPACE}€ [red]\\x1b"),
        ("\x1b]0;title\x07\x1b[2J", "\\x1b]0;title\\x07\\x1b[2J"),
        ("a\nb\tc\r\b", "a\\nb\\tc\\r\\x08"),
        ("\x9b31m\x7f", "\\x9b31m\\x7f"),
        ("ab\u202ecd\u2028", "ab\\u202ecd\\u2028"),
        ("\udcff", "\\udcff"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_what_is_kept_is_not_escaped() -> None:
    assert escaped("one\n\ttwo\x1b", kept="\n\t") == "one\n\ttwo\\x1b"
