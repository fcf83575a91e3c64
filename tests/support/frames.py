"""Frames read without the product's code: as any protobuf library gives their columns."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from journal.v1.journal_pb2 import Frame, Operation


@dataclass(slots=True)
class ReadFrame:
    """A frame with its operations one by one."""

    message: Frame
    operations: list[Operation]

    @property
    def epoch(self) -> int:
        return self.message.epoch

    @property
    def group(self) -> int:
        return self.message.group

    @property
    def number(self) -> int:
        return self.message.number

    @property
    def previous(self) -> int:
        return self.message.previous

    @property
    def last(self) -> bool:
        return self.message.last

    @property
    def issued(self) -> int:
        return self.message.issued

    @property
    def is_marker(self) -> bool:
        return [op.type for op in self.operations] == [7]


def read_frame(value: bytes | None) -> ReadFrame:
    message = Frame.FromString(value or b"")
    data, ends = message.data, [*accumulate(message.lengths)]
    few = message.subjects, message.replaceable, message.txs, message.covers, message.shards
    columns = zip(
        message.types,
        message.ids,
        message.kinds,
        [0, *ends],
        ends,
        *([*column] or [0] * message.count for column in few),
        strict=False,
    )
    operations = [
        Operation(
            type=type_,
            id=record_id,
            kind=kind,
            data=data[begin:end],
            subject=subject,
            replaceable=bool(replaceable),
            tx=tx,
            covers=covers,
            shards=shards,
        )
        for type_, record_id, kind, begin, end, subject, replaceable, tx, covers, shards in columns
    ]
    return ReadFrame(message, operations)
