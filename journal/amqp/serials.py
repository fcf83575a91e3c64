"""Numbers of 32 bits that begin again at zero (RFC 1982): transfer ids, delivery ids, delivery counts."""

from __future__ import annotations

from collections.abc import Iterator

MASK = 0xFFFFFFFF
_HALF = 0x80000000


def distance(start: int, end: int) -> int:
    """The distance by which `end` is ahead of `start`; negative if it is behind."""
    ahead = (end - start) & MASK
    return ahead if ahead < _HALF else ahead - MASK - 1


def ranges(ids: list[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of consecutive ids."""
    if ids and ids == [*range(ids[0], ids[0] + len(ids))]:
        yield ids[0], ids[-1]
        return
    first = last = None
    for each in ids:
        if last is not None and each == (last + 1) & MASK:
            last = each
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = each
    if first is not None and last is not None:
        yield first, last
