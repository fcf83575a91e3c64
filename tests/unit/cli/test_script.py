"""Lines of scripts: what is an operation, and what is said about a line that is none."""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
from typer.testing import CliRunner

from journal.cli.main import app
from journal.cli.script import checked_lines, operation_line, parse_line, prepared_line, record_line
from journal.errors import ScriptError
from journal.load.loading import LoadedUpdate
from tests.support.build import add, delete, replace, update


@pytest.mark.parametrize(
    "line",
    [
        '{"op":"add","id":1}',
        '{"op":"add","id":9223372036854775807,"kind":255,"data":"aGVsbG8=","tx":9223372036854775807}',
        '{"op":"update","id":1,"kind":32,"data":"","replaceable":true,"subject":3,"tx":7}',
        '{"op":"delete","id":1}',
        '{"op":"delete","id":1,"tx":7}',
        '{"op":"prepare","tx":7}',
        '{"op":"prepare","tx":7,"data":"aGVsbG8="}',
        '{"op":"commit","tx":7}',
        '{"op":"rollback","tx":7}',
    ],
)
def test_an_operation_parses_with_its_data_decoded(line: str) -> None:
    said = json.loads(line)
    assert parse_line(line, 1) == said | {"data": base64.b64decode(said.get("data", ""))}
    assert parse_line(line.encode(), 1) == parse_line(line, 1)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        (b"\xff", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"op":"add","id":' + "9" * 5000 + "}", "not JSON"),
        ('{"op":"add","id":1,"id":2}', '"id" is given twice'),
        ('{"op":"delete","op":"add","id":1}', '"op" is given twice'),
        ("[]", '"op" must be one of'),
        ("1", '"op" must be one of'),
        ("{}", '"op" must be one of'),
        ('{"op":[]}', '"op" must be one of'),
        ('{"op":"marker"}', '"op" must be one of'),
        ('{"op":"add"}', "add needs id"),
        ('{"op":"commit"}', "commit needs tx"),
        ('{"op":"add","id":1,"subject":2}', "add does not take subject"),
        ('{"op":"delete","id":1,"data":""}', "delete does not take data"),
        ('{"op":"add","id":"1"}', "id must be a whole number"),
        ('{"op":"add","id":true}', "id must be a whole number"),
        ('{"op":"add","id":1.5}', "id must be a whole number"),
        ('{"op":"commit","tx":0}', "tx 0 is not in 1 to"),
        ('{"op":"commit","tx":9223372036854775808}', "is not in 1 to"),
        ('{"op":"update","id":1,"replaceable":1}', "replaceable must be true or false"),
        ('{"op":"add","id":1,"data":1}', "data must be base64 text"),
        ('{"op":"add","id":1,"data":"a"}', "data is not base64"),
        ('{"op":"add","id":1,"data":"é"}', "data is not base64"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_a_line_that_is_no_operation_is_refused_with_its_number(line: str | bytes, says: str) -> None:
    with pytest.raises(ScriptError, match=r"^line 12: ") as refusal:
        parse_line(line, 12)
    assert says in str(refusal.value)
    assert refusal.value.line == 12


def test_a_record_is_printed_with_its_updates_in_order() -> None:
    updates = [LoadedUpdate(3, b"x", False, 0, (5, 0, 0)), LoadedUpdate(4, b"", True, 9, (6, 0, 0))]
    assert record_line(1, 45, b"hello", updates) == {
        "type": "record",
        "id": 1,
        "kind": 45,
        "data": "aGVsbG8=",
        "updates": [{"kind": 3, "data": "eA==", "subject": 0}, {"kind": 4, "data": "", "subject": 9}],
    }


def test_a_prepared_transaction_is_printed_with_operations_that_a_script_may_hold() -> None:
    operations = [add(1, b"x", kind=4), update(1, b"y", kind=5, subject=2), replace(1, kind=6), delete(2)]
    line = prepared_line(7, b"xid", operations)
    assert (line["type"], line["tx"], line["data"]) == ("prepared", 7, "eGlk")
    for printed, op in zip(line["operations"], operations, strict=True):
        parsed = parse_line(json.dumps(printed), 1)
        assert (parsed["id"], parsed["data"]) == (op.id, op.data)
        assert "tx" not in printed
    assert operation_line(operations[2])["replaceable"]


GOOD, BAD = b'{"op":"add","id":1}\n', b'{"op":"add"}\n'


def test_a_file_is_checked_whole_before_its_first_line_is_taken() -> None:
    whole = io.BytesIO(GOOD + b"\n" + GOOD)
    assert list(checked_lines(whole)) == [GOOD, b"\n", GOOD]
    with pytest.raises(ScriptError, match="line 3: add needs id"):
        checked_lines(io.BytesIO(GOOD + b"\n" + BAD))


@pytest.fixture
def pipe() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """The two ends of a pipe."""
    read, write = os.pipe()
    with os.fdopen(read, "rb") as reads, os.fdopen(write, "wb") as writes:
        yield reads, writes


def test_the_first_line_of_a_pipe_is_checked_while_nothing_follows_it(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    reads, writes = pipe
    writes.write(GOOD)
    writes.flush()
    lines = checked_lines(reads)
    writes.write(BAD)
    writes.close()
    assert list(lines) == [GOOD, BAD]


def test_a_bad_first_line_of_a_pipe_is_refused(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    reads, writes = pipe
    writes.write(BAD)
    writes.flush()
    with pytest.raises(ScriptError, match="line 1: add needs id"):
        checked_lines(reads)


def test_a_bad_line_of_a_file_is_refused_before_any_broker_is_asked(tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_bytes(GOOD + BAD)
    ended = CliRunner().invoke(app, ["apply", str(script), "-b", "127.0.0.1:1"])
    assert ended.exit_code != 0
    assert "line 2: add needs id" in ended.stderr
