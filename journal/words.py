"""Texts for people that have in them what came from outside: shortened, as a client's text may be of any length."""

from __future__ import annotations

CHARACTERS_MAX = 4000
"""Of what errors, logs, statuses and control rows say."""


def shortened(text: str, characters_max: int = CHARACTERS_MAX) -> str:
    """A text, or its beginning and how long it is."""
    if len(text) <= characters_max:
        return text
    return f"{text[:characters_max]}\N{HORIZONTAL ELLIPSIS} ({len(text):,} characters in all)"
