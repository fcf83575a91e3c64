"""Three readers that share no code read the frozen frames alike and refuse the damaged ones with the same reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from journal.errors import FrameError
from journal.v1.journal_pb2 import Operation
from journal.verify.frame_check import NotAFrame, parse_frame
from journal.wire.frames import FORMAT, decode_frame
from tests.support.golden import DIRECTORY, cases
from tests.support.javascript_reader import JavaScriptReader, javascript_reader

FROZEN = json.loads((DIRECTORY / "bytes" / f"format-{FORMAT}.json").read_text())
REFUSED = json.loads((DIRECTORY / "refused" / f"format-{FORMAT}.json").read_text())


@pytest.fixture(scope="module")
def javascript() -> Iterator[JavaScriptReader]:
    with javascript_reader() as reader:
        yield reader


def operations_of(answer: dict[str, Any]) -> list[Operation]:
    return [ParseDict(each, Operation()) for each in answer["operations"]]


def test_javascript_reads_the_frozen_frames(javascript: JavaScriptReader) -> None:
    journal = bytes.fromhex(FROZEN["journal"])
    for value in map(bytes.fromhex, FROZEN["frames"]):
        frame, answer = decode_frame(value, journal, 0, 1), javascript.read(value, journal)
        assert operations_of(answer) == [*frame.operations()]
        header = {name: str(getattr(frame, name)) for name in ("epoch", "group", "number", "previous", "issued")}
        assert answer | header | {"node": frame.node, "last": frame.last} == answer


def test_the_readers_agree_on_every_record_of_every_case(javascript: JavaScriptReader) -> None:
    for case in cases():
        for shard, entries in case.wal.items():
            for entry in entries:
                answer = javascript.read(entry.value, case.journal, shard, case.shards)
                try:
                    _, operations = parse_frame(entry.value, case.journal, shard, case.shards)
                except NotAFrame:
                    assert "refused" in answer
                else:
                    assert operations_of(answer) == operations


@pytest.mark.parametrize("damaged", REFUSED["values"], ids=lambda damaged: damaged["what"])
def test_every_reader_refuses_what_is_no_frame_with_the_same_reason(
    damaged: dict[str, Any], javascript: JavaScriptReader
) -> None:
    journal, value, reason = bytes.fromhex(REFUSED["journal"]), bytes.fromhex(damaged["value"]), damaged["reason"]
    place = damaged["shard"], damaged["shards"]
    with pytest.raises(FrameError) as decoded:
        decode_frame(value, journal, *place)
    with pytest.raises(NotAFrame) as parsed:
        parse_frame(value, journal, *place)
    found = [decoded.value.reason, str(parsed.value), javascript.read(value, journal, *place)["refused"]]
    assert [text[: len(reason)] if reason.endswith(":") else text for text in found] == [reason] * 3
