"""Today's code writes the frozen bytes of its format version, and reads those of every version."""

from __future__ import annotations

import json
from typing import Any

import pytest

from journal.append.group import FrameNumbers, FrameOrigin, Group
from journal.append.operations import Append
from journal.limits import Limits
from journal.wire.frames import FORMAT, Frame, decode_frame
from journal.wire.keys import RowType, row_type
from tests.support.build import BuiltFrame
from tests.support.fold import fold_entries
from tests.support.golden import (
    DIRECTORY,
    Case,
    case_of,
    expected_outcome,
    frame_of,
    outcome_of_rows,
)
from tests.support.rows import decode_row

FROZEN = {path.stem: json.loads(path.read_text()) for path in sorted((DIRECTORY / "bytes").glob("*.json"))}
TODAY = FROZEN[f"format-{FORMAT}"]


def rows_of(raw: dict[str, Any]) -> dict[bytes, bytes]:
    return {bytes.fromhex(row["key"]): bytes.fromhex(row["value"]) for row in raw["rows"]}


def header_of(frame: Frame) -> tuple[Any, ...]:
    return frame.epoch, frame.node, frame.group, frame.number, frame.previous, frame.last, frame.issued


def written(frame: BuiltFrame) -> bytes:
    """The bytes that the writer makes of a frame that is its group's only one."""
    group = Group(1, Limits().frame_bytes_max)
    group.put_heartbeat(0)
    for op in frame.operations():
        group.put_append(
            Append(0, op.type, op.id, op.kind, op.data, op.replaceable, op.subject, op.tx, op.covers, op.shards)
        )
    group.issued = frame.issued
    origin = FrameOrigin(frame.message.journal, frame.epoch, frame.node)
    group.seal(origin, FrameNumbers((frame.previous,), frame.group - 1))
    (record,) = group.records("wal")
    assert record.value is not None
    return record.value


def test_frames_are_written_as_they_were() -> None:
    described = [entry["frame"] for entry in TODAY["wal"] if "frame" in entry]
    journal = bytes.fromhex(TODAY["journal"])
    assert [written(frame_of(one, journal)).hex() for one in described] == TODAY["frames"]


def test_rows_are_written_as_they_were() -> None:
    case: Case = case_of(TODAY)
    folded = fold_entries(case.wal[0], case.journal, 0, 1, updates_row_bytes_max=case.updates_row_bytes_max)
    assert folded.rows == rows_of(TODAY)


def test_every_type_of_row_is_frozen() -> None:
    assert {row["type"] for row in TODAY["rows"]} == {one.value for one in RowType}
    assert all(row_type(bytes.fromhex(row["key"])).value == row["type"] for row in TODAY["rows"])


@pytest.mark.parametrize("version", FROZEN)
def test_frames_of_every_version_are_read(version: str) -> None:
    raw = FROZEN[version]
    journal = bytes.fromhex(raw["journal"])
    described = [frame_of(entry["frame"], journal) for entry in raw["wal"] if "frame" in entry]
    read = [decode_frame(bytes.fromhex(frame), journal, 0, 1) for frame in raw["frames"]]
    assert [[*frame.operations()] for frame in read] == [[*frame.operations()] for frame in described]
    assert [header_of(frame) for frame in read] == [header_of(frame) for frame in described]
    assert all(frame.startswith("0d4b4a4c31") for frame in raw["frames"])


@pytest.mark.parametrize("version", FROZEN)
def test_rows_of_every_version_are_read(version: str) -> None:
    raw = FROZEN[version]
    assert outcome_of_rows(rows_of(raw), 0) == expected_outcome(case_of(raw), 0, lambda data: data)
    for key, value in rows_of(raw).items():
        assert decode_row(key, value).ByteSize()
