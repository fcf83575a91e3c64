"""Lines over a socket pair: whole ones pass, and everything else ends in an error within its bound."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from journal.cli.control_socket.lines import JsonConnection, require_no_gap
from journal.errors import DeadlineError, InvalidOperationError, NodeSocketError

LONG_S = 60.0
NOW_S = 0.01


@pytest.fixture
def pair() -> Iterator[tuple[JsonConnection, socket.socket]]:
    """Lines of at most 100 bytes, and their other side."""
    one, other = socket.socketpair()
    lines = JsonConnection(one, bytes_max=100, line_s=LONG_S)
    yield lines, other
    lines.close()
    other.close()


def test_lines_arrive_one_by_one_however_they_were_cut(pair: tuple[JsonConnection, socket.socket]) -> None:
    lines, other = pair
    other.sendall(b'{"id": 1}\n{"id"')
    assert lines.read(LONG_S) == {"id": 1}
    other.sendall(b": 2}\n")
    assert lines.read(LONG_S) == {"id": 2}
    other.close()
    assert lines.read(LONG_S) is None


@pytest.mark.parametrize("line", [b"not json", b"[1]", b"\xff", b'{"id": ' + b"1" * 100 + b"}"])
def test_a_line_that_will_not_do_is_refused(pair: tuple[JsonConnection, socket.socket], line: bytes) -> None:
    lines, other = pair
    other.sendall(line + b"\n")
    with pytest.raises(InvalidOperationError):
        lines.read(LONG_S)


def test_a_line_without_an_end_is_refused_at_its_bound(pair: tuple[JsonConnection, socket.socket]) -> None:
    lines, other = pair
    other.sendall(b"x" * 101)
    with pytest.raises(InvalidOperationError, match="more than 100 bytes"):
        lines.read(LONG_S)


def test_silence_is_an_error_before_a_line_and_within_one() -> None:
    one, other = socket.socketpair()
    lines = JsonConnection(one, bytes_max=100, line_s=NOW_S)
    with other:
        with pytest.raises(DeadlineError):
            lines.read(NOW_S)
        other.sendall(b'{"id"')
        with pytest.raises(DeadlineError):
            lines.read(LONG_S)
        with pytest.raises(DeadlineError, match="does not read"):
            lines.write({"part": "x" * 10_000_000})
    lines.close()


def test_a_connection_that_was_shut_reads_nothing_more(pair: tuple[JsonConnection, socket.socket]) -> None:
    lines, other = pair
    lines.shut()
    assert lines.read(LONG_S) is None
    other.close()
    lines.shut()


def test_a_reply_is_of_the_request_that_was_asked() -> None:
    assert require_no_gap({"id": 2}, 2) == {"id": 2}
    assert require_no_gap({"id": None}, 2) == {"id": None}
    for line in (None, {"id": 1}):
        with pytest.raises(NodeSocketError):
            require_no_gap(line, 2)
