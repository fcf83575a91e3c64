"""Whatever bytes stand in a WAL: three readers that share no code agree whether they are a frame, and with which
operations; none crashes, and none takes more memory than the bytes justify.

A frame is damaged byte by byte, cut off, given columns of any size and any count, and given fields twice, fields that
no release has, and groups of them.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from journal.errors import FrameError
from journal.v1.journal_pb2 import FrameColumns, Operation
from journal.verify.frame_check import NotAFrame, parse_frame
from journal.wire.frames import decode_frame
from journal.wire.operations import varint
from tests.support.build import JOURNAL, add, frame, update
from tests.support.golden import WalEntry
from tests.support.histories import histories
from tests.support.javascript_reader import JavaScriptReader, javascript_reader

UNPARSED = "not a frame: "
"""Begins the reason for bytes that are no message; what follows are the parser's own words."""
MEMORY_FACTOR = 64
MEMORY_BYTES = 1 << 16

Outcome = str | list[Operation]
"""Why bytes are no frame, or the frame's operations."""


@pytest.fixture(scope="module")
def javascript() -> Iterator[JavaScriptReader]:
    with javascript_reader() as reader:
        yield reader


def decoded(raw: bytes, shards: int) -> Outcome:
    try:
        return [*decode_frame(raw, JOURNAL, 0, shards).operations()]
    except FrameError as error:
        return error.reason


def parsed(raw: bytes, shards: int) -> Outcome:
    try:
        return parse_frame(raw, JOURNAL, 0, shards)[1]
    except NotAFrame as error:
        return str(error)


def read(javascript: JavaScriptReader, raw: bytes, shards: int) -> Outcome:
    answer = javascript.read(raw, JOURNAL, 0, shards)
    refused: str | None = answer.get("refused")
    return [ParseDict(each, Operation()) for each in answer["operations"]] if refused is None else refused


def plain(outcome: Outcome) -> Outcome:
    is_parsers = isinstance(outcome, str) and outcome.startswith(UNPARSED) and "magic" not in outcome
    return UNPARSED if is_parsers else outcome


def agreed(raw: bytes, shards: int, javascript: JavaScriptReader) -> Outcome:
    """The results of all readers for these bytes."""
    first, *others = map(plain, (decoded(raw, shards), parsed(raw, shards), read(javascript, raw, shards)))
    assert others == [first, first]
    return first


def peak_bytes(call: Callable[[bytes, int], Outcome], raw: bytes) -> int:
    """The most memory that Python held during the call."""
    tracemalloc.start()
    try:
        call(raw, 1)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


EIGHT_BYTES, FOUR_BYTES = ("ids", "subjects", "txs"), ("lengths", "covers", "shards")
WIDTHS = {"types": 1, "kinds": 1, "replaceable": 1} | dict.fromkeys(EIGHT_BYTES, 8) | dict.fromkeys(FOUR_BYTES, 4)
"""The bytes of a value in each column."""
COUNTS = [0, 1, 2, 2**31, 2**32 - 1]


@st.composite
def columns(draw: st.DrawFn) -> bytes:
    """A frame of up to three operations, of which up to two columns have other contents, or a count that is wrong."""
    count = draw(st.integers(0, 3))

    def numbers(width: int, lowest: int, highest: int) -> bytes:
        values = draw(st.lists(st.integers(lowest, highest), min_size=count, max_size=count))
        return b"".join(each.to_bytes(width, "little") for each in values)

    message = FrameColumns(
        magic=int.from_bytes(b"KJL1", "little"), format=1, journal=JOURNAL, epoch=1, group=1, number=1, count=count
    )
    for name, width in WIDTHS.items():
        if name in ("types", "ids", "kinds", "lengths") or draw(st.booleans()):
            setattr(message, name, numbers(width, int(name in ("types", "ids")), 1 if name == "replaceable" else 3))
    message.data = bytes(sum(message.lengths[::4]))
    for name in draw(st.lists(st.sampled_from([*WIDTHS, "data"]), max_size=2)):
        setattr(message, name, draw(st.binary(max_size=3 * WIDTHS.get(name, 1))))
    if draw(st.integers(0, 9)) == 0:
        message.count = draw(st.sampled_from(COUNTS))
    return message.SerializeToString()


NUMBERS = st.integers(1, 30)
"""Numbers of fields; most are of fields that a frame has."""
TAG_BYTES_MAX = 6
VARINT_BYTES_MAX = 11

OTHER_FIELDS = st.one_of(
    st.builds(field, NUMBERS, st.binary(max_size=9)),
    st.builds(lambda number, value: varint(number << 3) + varint(value), NUMBERS, st.integers(0, 2**64 - 1)),
    st.builds(lambda number, value: varint(number << 3 | 1) + value, NUMBERS, st.binary(min_size=8, max_size=8)),
    st.builds(lambda number, value: varint(number << 3 | 5) + value, NUMBERS, st.binary(min_size=4, max_size=4)),
    st.integers(1, 2**29 - 1).map(lambda number: varint(number << 3 | 3) + field(7, b"x") + varint(number << 3 | 4)),
    st.integers(90, 110).map(lambda depth: varint(30 << 3 | 3) * depth + varint(30 << 3 | 4) * depth),
    st.builds(
        lambda number, size, ending: varint(number << 3) + b"\xff" * size + ending,
        NUMBERS,
        st.integers(0, VARINT_BYTES_MAX),
        st.binary(min_size=1, max_size=1),
    ),
    st.builds(
        lambda number, size, ending: varint(number << 3)[:-1] + b"\x80" * size + ending + b"\x01",
        NUMBERS,
        st.integers(0, TAG_BYTES_MAX),
        st.binary(min_size=1, max_size=1),
    ),
    st.binary(max_size=12),
)


@given(st.binary(max_size=200))
def test_random_bytes_are_no_frame(javascript: JavaScriptReader, raw: bytes) -> None:
    assert isinstance(agreed(raw, 1, javascript), str)


@given(histories(frames_max=3), st.data(), st.sampled_from([1, 2]))
def test_mutated_and_truncated_frames_are_the_same_to_all_readers(
    javascript: JavaScriptReader, entries: list[WalEntry], data: st.DataObject, shards: int
) -> None:
    raw = bytearray(data.draw(st.sampled_from(entries)).value)
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    agreed(bytes(raw), shards, javascript)
    agreed(bytes(raw[: data.draw(st.integers(0, len(raw)))]), shards, javascript)


@given(columns(), st.lists(OTHER_FIELDS, max_size=2), st.sampled_from([1, 2]))
def test_frames_with_any_columns_and_other_fields_are_the_same_to_all_readers(
    javascript: JavaScriptReader, raw: bytes, others: list[bytes], shards: int
) -> None:
    whole = raw + b"".join(others)
    agreed(whole, shards, javascript)
    for call in (decoded, parsed):
        assert peak_bytes(call, whole) < MEMORY_FACTOR * len(whole) + MEMORY_BYTES


@pytest.mark.parametrize("call", [decoded, parsed])
def test_memory_follows_the_bytes_that_are_there_and_not_what_they_say(call: Callable[[bytes, int], Outcome]) -> None:
    full = frame(2, *(each for id in range(1, 5000) for each in (add(id, b"d"), update(id, subject=2**62))))
    raw = full.SerializeToString()
    assert len(call(raw, 1)) == 9998
    assert peak_bytes(call, raw) < MEMORY_FACTOR * len(raw)
    full.message.count = 2**32 - 1
    assert peak_bytes(call, full.SerializeToString()) < len(raw) + MEMORY_BYTES
    full.message.count = 9998
    full.message.lengths = b"\xff" * len(full.message.lengths)
    assert isinstance(call(full.SerializeToString(), 1), str)
    assert peak_bytes(call, full.SerializeToString()) < MEMORY_FACTOR * len(raw)
