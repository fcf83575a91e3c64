"""What a consumed record's fields are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
from confluent_kafka import Message

from journal.ingress.consumer import headers_of
from journal.routing.outcomes import Header


class Consumed:
    """A message of the client's, as far as it has headers."""

    def __init__(self, headers: Sequence[Header] | None = None, error: Exception | None = None) -> None:
        self._headers = headers
        self._error = error

    def headers(self) -> Sequence[Header] | None:
        if self._error is not None:
            raise SystemError("returned a result with an exception set") from self._error
        return self._headers


def found(headers: Sequence[Header] | None = None, error: Exception | None = None) -> Sequence[Header] | None:
    return headers_of(cast(Message, Consumed(headers, error)))


def test_headers_whose_names_are_no_utf_8_cannot_be_read_and_others_can() -> None:
    assert found([("a", b"1"), ("b", None)]) == [("a", b"1"), ("b", None)]
    assert found(None) == ()
    assert found(error=UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")) is None


def test_what_else_goes_wrong_in_the_client_is_not_taken_for_that() -> None:
    with pytest.raises(SystemError):
        found(error=MemoryError())
