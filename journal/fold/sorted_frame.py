"""Frames sorted by what the fold does with their operations, so that it takes many of them at once."""

from __future__ import annotations

from array import array
from typing import NamedTuple, Union

Ids = Union["array[int]", bytes]
"""Record ids, 64 bits each: an array, or its bytes from another process of this machine."""


class Run(NamedTuple):
    """Operations that may be applied kind by kind: no two of the plain ones concern the same record."""

    added: Ids
    added_rows: list[bytes]
    """The row of each record: the operation with its position."""
    updated: Ids
    updated_rows: list[bytes]
    """What belongs into each record's row of updates: the operation with its position. None is replaceable."""
    deleted: Ids
    others: list[tuple[int, bytes]]
    """Behind all of these, in their order: index and bytes of operations of transactions and of replaceable updates. A
    COMMIT ends its run, as what it settles may concern any record."""


class SortedFrame(NamedTuple):
    """A frame's header, and its operations; `nonce` is that of an epoch's marker, empty in any other frame."""

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
    runs: list[Run]


def empty_run() -> tuple[array[int], list[bytes], array[int], list[bytes], array[int], list[tuple[int, bytes]]]:
    """What a `Run` is made of, to be filled."""
    return array("q"), [], array("q"), [], array("q"), []
