"""Texts with what came from outside in them are shortened where they are said."""

from __future__ import annotations

import pytest

from journal.errors import CorruptionError, JournalError, RowError
from journal.words import CHARACTERS_MAX, shortened

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
