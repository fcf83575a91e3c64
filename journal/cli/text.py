"""Durations, times, and bytes that may be text, as people read them. This module is pure."""

from __future__ import annotations

import time

from journal.words import counted

_SHOWN_BYTES = 48

_UNITS = ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))


def duration(seconds: float) -> str:
    """A duration in at most two units: 0.3 s, 12 s, 3 min 4 s, 2 h 5 min, 3 d 4 h."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    left = round(seconds)
    for size, name, smaller_size, smaller in _UNITS:
        if left >= size:
            rest = left % size // smaller_size
            return f"{left // size} {name}" + (f" {rest} {smaller}" if rest else "")
    return f"{left} s"


def moment(ms: float) -> str:
    """A time in milliseconds since 1970 as text: 2023-11-14 22:13:20 UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(ms / 1000))


def printable(data: bytes, limit: int = _SHOWN_BYTES) -> str:
    """Bytes as text if they are printable ASCII, otherwise in hex, cut off at `limit` bytes."""
    if not data:
        return ""
    head, rest = data[:limit], len(data) - limit
    text = head.decode("ascii") if head.isascii() and head.decode("ascii").isprintable() else head.hex()
    return text if rest <= 0 else f"{text}… ({counted(rest, 'byte')} more)"


def differences_left_out(count: int) -> str:
    """A line for people if `verify` counted differences that it did not name; it says how to see them all."""
    return f"differences that are not named here: {count:,} (--differences-max 0 names all)"


def records_skipped(count: int) -> str:
    """A line for people on the records that an operator had skipped, which `verify` has named."""
    return f"{counted(count, 'record')} that an operator had skipped: named above, and no difference"
