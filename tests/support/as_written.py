"""Frames as the writer lays them out: most operations not as a message would be serialised."""

from __future__ import annotations

from journal.v1.journal_pb2 import ADD, DELETE, UPDATE, Frame
from journal.wire.operations import message_element, operation_parts


def as_written(frame: Frame) -> bytes:
    head = Frame()
    head.CopyFrom(frame)
    head.ClearField("operations")
    elements = [head.SerializeToString()]
    for op in frame.operations:
        if op.tx or op.type not in (ADD, UPDATE, DELETE):
            elements.append(message_element(op))
        else:
            elements += operation_parts(op.type, op.id, op.kind, op.data, op.replaceable, op.subject)
    return b"".join(elements)
