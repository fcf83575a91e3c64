"""A frame whose operations are sorted by kind, so that the fold handles many of them with one call."""

from __future__ import annotations

from array import array
from typing import NamedTuple, Union

Ids = Union["array[int]", bytes]
"""Record ids, 64 bits each: an array, or its bytes from another process of this machine."""


class SortedRun(NamedTuple):
    """Operations that may be applied kind by kind, because no two of the plain ones concern the same record."""

    added: Ids
    added_rows: list[bytes]
    """The row of each record: the operation with its position."""
    updated: Ids
    updated_rows: list[bytes]
    """The update of each record, as it stands in the record's row of updates: the operation with its position. None of
    them is replaceable."""
    deleted: Ids
    others: list[tuple[int, bytes]]
    """Operations that come after all the others, in their order, as index and bytes: those of transactions, and
    replaceable updates. A COMMIT ends its run, because it may settle operations on any record."""


class SortedFrame(NamedTuple):
    """A frame's header and its sorted operations. `nonce` is that of an epoch marker, and is empty in any other
    frame."""

    epoch: int
    node: str
    operations: int
    issued: int
    group: int
    number: int
    previous: int
    last: bool
    nonce: bytes
    bytes_in_wal: int
    runs: list[SortedRun]


def empty_run() -> tuple[array[int], list[bytes], array[int], list[bytes], array[int], list[tuple[int, bytes]]]:
    """The empty fields of a `SortedRun`, to be filled."""
    return array("q"), [], array("q"), [], array("q"), []
