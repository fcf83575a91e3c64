"""Errors through a socket: every class there is comes out as it went in."""

from __future__ import annotations

import json

import pytest

from journal.cli.control_socket.errors import decode_error, encode_error, error_classes
from journal.errors import (
    AmqpPeerError,
    ChainError,
    CorruptionError,
    DuplicateMessageError,
    FencedError,
    JournalError,
    RouteStopError,
    ScriptError,
    SelectorError,
    XidError,
)

MADE_OTHERWISE = {
    "AmqpPeerError": AmqpPeerError("amqp:decode-error", "a message ends inside of a section"),
    "ChainError": ChainError("second", FencedError("another")),
    "CorruptionError": CorruptionError("garbage", topic="orders.wal", partition=3, offset=7),
    "DuplicateMessageError": DuplicateMessageError("seen", b"\x00\xff"),
    "FencedError": FencedError("another", epoch=9),
    "RouteStopError": RouteStopError("no topic", offset=7, retried=True),
    "ScriptError": ScriptError(4, "no operation"),
    "SelectorError": SelectorError("a = = 1", 4, "no value"),
    "XidError": XidError("unknown", code=-4),
}


@pytest.mark.parametrize("name", error_classes())
def test_an_error_comes_out_as_it_went_in(name: str) -> None:
    error = MADE_OTHERWISE.get(name) or _plain(error_classes()[name])
    found = decode_error(json.loads(json.dumps(encode_error(error))))
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(found) == vars(error)


def _plain(of: type[JournalError]) -> JournalError:
    return of("why it is")


def test_an_error_of_a_class_of_its_own_is_one_of_the_class_above() -> None:
    class OwnError(FencedError):
        pass

    found = decode_error(encode_error(OwnError("mine", epoch=2)))
    assert isinstance(found, FencedError)
    assert (str(found), found.epoch) == ("mine", 2)


@pytest.mark.parametrize("said", [{"type": "NewError", "message": "of a later version"}, "nonsense", None, {}])
def test_an_error_that_this_side_does_not_know_is_told_all_the_same(said: object) -> None:
    found = decode_error(said)
    assert type(found) is JournalError
    assert str(found)
