"""Unmodified clients of AMQP 1.0 with one broker: each client's program runs once, and each feature of it is a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import pytest

from tests.clients.broker import running_broker
from tests.clients.features import ABSENT, checked_by
from tests.clients.programs import PROGRAMS, ClientMissingError, run_program
from tests.clients.table import PAGE, TABLE, rendered

Said = Mapping[str, str]
"""What a client's program says of its features; one entry without a name if it did not run."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("broker")) as found:
        yield found


@cache
def said_by(name: str, url: str) -> Said:
    """The program runs once, whatever becomes of it."""
    try:
        return run_program(name, url)
    except ClientMissingError as error:
        return {"": str(error)}


@pytest.mark.parametrize(("name", "feature"), [(name, each) for name in PROGRAMS for each in checked_by(name)])
def test_a_client_has_each_feature_or_is_told_that_it_is_absent(url: str, name: str, feature: str) -> None:
    said = said_by(name, url)
    if "" in said:
        pytest.skip(said[""])
    result = said.get(feature, "its program did not come so far")
    if feature in ABSENT:
        assert any(text in result for text in ABSENT[feature]), result
    else:
        assert result == "ok"


def test_the_table_in_the_documents_is_the_tested_one() -> None:
    (found,) = TABLE.findall(PAGE.read_text(encoding="utf-8"))
    assert found == rendered(), "write it with `python -m tests.clients.table`"
