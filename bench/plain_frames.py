"""Frames as a competent user handles them with protobuf and struct alone, without the journal's code."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from io import BytesIO

from journal.v1.journal_pb2 import ADD, Frame, FrameColumns

KIND = 45


def frame_of_adds(ids: range, data: bytes) -> bytes:
    """A frame that adds records with the same data."""
    count = len(ids)
    return Frame(
        epoch=1,
        group=1,
        number=1,
        count=count,
        types=bytes((ADD,)) * count,
        ids=ids,
        kinds=bytes((KIND,)) * count,
        lengths=[len(data)] * count,
        data=data * count,
    ).SerializeToString()


def operations_in(raw: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Type, id, kind and data of each operation."""
    frame = FrameColumns.FromString(raw)
    count = frame.count
    ids, lengths = struct.unpack(f"<{count}q", frame.ids), struct.unpack(f"<{count}I", frame.lengths)
    return zip(frame.types, ids, frame.kinds, map(BytesIO(frame.data).read, lengths), strict=True)
