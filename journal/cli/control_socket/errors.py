"""How typed errors go through a socket: as the name of the class, the text, and the error's fields."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from typing import Any

from journal.errors import JournalError


def _all(root: type[JournalError]) -> Iterator[type[JournalError]]:
    yield root
    for each in root.__subclasses__():
        yield from _all(each)


def error_classes() -> Mapping[str, type[JournalError]]:
    """The classes of `journal.errors` by name; no two share a name."""
    return {each.__name__: each for each in _all(JournalError) if each.__module__ == JournalError.__module__}


def encode_error(error: JournalError) -> dict[str, Any]:
    """An error as the name of a class that the other side knows, its text and its fields."""
    known = error_classes()
    name = next(each.__name__ for each in type(error).__mro__ if each.__name__ in known)
    fields = {name: value for name, value in vars(error).items() if isinstance(value, (str, int, float))}
    data = {name: b64encode(value).decode() for name, value in vars(error).items() if isinstance(value, bytes)}
    return {"type": name, "message": str(error), "fields": fields, "data": data}


def decode_error(value: object) -> JournalError:
    """The error that was encoded. If this side does not know its class, it is a JournalError that names the class."""
    said = value if isinstance(value, dict) else {}
    name, message, fields = said.get("type"), str(said.get("message", value)), said.get("fields")
    made_of = error_classes().get(str(name))
    if made_of is None:
        return JournalError(f"{name}: {message}")
    # this does not call the constructor, which may build the text from other arguments
    error = made_of.__new__(made_of, message)
    if isinstance(fields, dict):
        vars(error).update(fields)
    if isinstance(data := said.get("data"), dict):
        vars(error).update({name: b64decode(each) for name, each in data.items()})
    return error
