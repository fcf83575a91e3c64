"""Properties on the command line have types, and are the same in every command that takes some."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from journal.cli.main import app
from journal.cli.operations.typed_values import parse_values, value_texts
from journal.errors import InvalidOperationError
from journal.store.model import Value

VALUES: dict[str, Value] = {"s": "a=b:c", "n": -20, "x": 1.5, "yes": True, "no": False, "raw": b"\x00\xff", "e": ""}


def test_a_value_is_a_string_unless_a_type_is_named() -> None:
    given = ["s=a=b:c", "n:long=-20", "x:double=1.5", "yes:boolean=true", "no:boolean=false", "raw:bytes=AP8=", "e="]
    assert parse_values(given, "-p") == ({}, VALUES)


def test_names_of_jms_are_headers() -> None:
    assert parse_values(["JMSType=t", "JMSXGroupID=g", "JMS_x=1"], "-p") == (
        {"JMSType": "t"},
        {"JMSXGroupID": "g", "JMS_x": "1"},
    )


def test_values_are_written_as_they_are_read() -> None:
    assert parse_values(value_texts(VALUES), "-p") == ({}, VALUES)


@pytest.mark.parametrize(
    "command", [["send", "orders", "body", "-p"], ["routes", "test", "--address", "a", "--header"]]
)
@pytest.mark.parametrize(
    ("item", "says"),
    [
        ("delay", "expected NAME[:TYPE]=VALUE"),
        ("=x", "expected NAME[:TYPE]=VALUE"),
        ("delay:int=20", "there is no type int, the types are string, long, double, boolean, bytes"),
        ("delay:long=x", "'x' is no long"),
        ("on:boolean=yes", "'yes' is no boolean: expected true or false"),
        ("raw:bytes=?", "'?' is no bytes"),
    ],
)
def test_a_property_that_is_none_is_refused_by_every_command_with_what_is_expected(
    command: list[str], item: str, says: str
) -> None:
    ended = CliRunner().invoke(app, [*command, item])
    assert ended.exit_code == 2
    assert says in " ".join(ended.stderr.split())


def test_the_error_names_the_option() -> None:
    with pytest.raises(InvalidOperationError, match=r"^--header a:b=c: there is no type b"):
        parse_values(["a:b=c"], "--header")
