"""Texts with what came from outside in them are shortened, and a terminal obeys nothing of them. Words of the tree
itself: docstrings and comments have subjects."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from journal.errors import CorruptionError, GateTimeoutError, JournalError, RowError
from journal.words import CHARACTERS_MAX, NAMED_MAX, counted, counted_are, escaped, first_few, shortened

ROOT = Path(__file__).parents[2]
FOLDERS = ("journal", "loaders", "streams", "bench", "tests")
FRAGMENT = re.compile(
    r'''^[ \t]*"""(Of|As|Whose)\b
      | ^(?![ \t]*\#).*(\n[ \t]*|[ \t])\#[ ]+([Oo]f|As|[Ww]hose)\b''',
    re.MULTILINE | re.VERBOSE,
)
"""The beginning of a docstring, or of a comment on lines of its own or behind code, that has no subject."""

COUNTED_BY_HAND = re.compile(r'f"[^"\n]*\{(?:len\([^{}]*\)|[^{}]*:,)\} (?!bytes)(?:[a-z]+ )?[a-z]{3,}s\b')
"""A number in a text, with a plural behind it that is also said of one. The units `bytes` and `s` are left alone."""
COUNTED_IN_THOUSANDS = ("journal/cli/flights/", "journal/embedded/", "journal/words.py")
"""The demo counts flights, and the embedded broker its jars: these are never one."""

LONG = "x" * 800_000
MORE = 100
"""Characters that say how long it is, and where it was."""


def test_a_text_that_is_not_long_is_as_it_is() -> None:
    assert shortened("x" * CHARACTERS_MAX) == "x" * CHARACTERS_MAX


def test_a_long_text_keeps_its_beginning_and_its_end_and_says_how_long_it_is() -> None:
    dots = "\N{HORIZONTAL ELLIPSIS}"
    assert shortened("a" * 400_000 + "b" * 400_000, 3) == f"aa{dots} (800,000 characters in all) {dots}b"


def test_an_error_that_many_shards_met_still_says_what_mends_it() -> None:
    met = "\n".join(f"shard {shard} is stopped at orders.wal[{shard}]@{shard}" for shard in range(1000))
    said = str(GateTimeoutError(f"{met}\n`kafka-journal status -j orders` names each"))
    assert said.startswith("shard 0 is stopped")
    assert said.endswith("`kafka-journal status -j orders` names each")


def test_a_list_names_the_first_few_and_how_many_more_there_are() -> None:
    assert first_few(range(3)) == "0, 1, 2"
    assert first_few(range(NAMED_MAX)) == "0, 1, 2, 3, 4, 5, 6, 7"
    assert first_few(range(1024)) == "0, 1, 2, 3, 4, 5, 6, 7 and 1016 more"


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


def test_a_number_of_things_has_its_grammar() -> None:
    assert (counted(1, "record"), counted(2_000, "batch", "batches")) == ("1 record", "2,000 batches")
    assert (counted_are(1, "queue"), counted_are(0, "queue")) == ("1 queue is", "0 queues are")


def test_no_text_counts_things_without_the_one_helper() -> None:
    found = []
    for file in (file for folder in ("journal", "loaders", "streams") for file in (ROOT / folder).rglob("*.py")):
        name = str(file.relative_to(ROOT))
        if not name.startswith(COUNTED_IN_THOUSANDS):
            lines = enumerate(file.read_text().splitlines(), 1)
            found += [f"{name}:{number}" for number, line in lines if COUNTED_BY_HAND.search(line)]
    assert found == []


def test_no_docstring_or_comment_begins_without_a_subject() -> None:
    found = []
    for file in (file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")):
        if not file.name.endswith("_pb2.py"):
            text = file.read_text()
            lines = (text.count("\n", 0, match.end()) + 1 for match in FRAGMENT.finditer(text))
            found += [f"{file.relative_to(ROOT)}:{line}" for line in lines]
    assert found == []
