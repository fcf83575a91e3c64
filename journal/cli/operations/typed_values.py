"""Headers and properties as texts NAME[:TYPE]=VALUE: on the command line, and between a command and a node."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping

from journal.errors import InvalidOperationError
from journal.routing.headers import belongs_to_headers
from journal.store.model import Value

METAVAR = "NAME[:TYPE]=VALUE"

TYPES_HELP = "TYPE is string (default), long, double, boolean or bytes (base64)."


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


_PARSERS: Mapping[str, Callable[[str], Value]] = {
    "string": str,
    "long": int,
    "double": float,
    "boolean": _boolean,
    "bytes": _bytes,
}


def parse_values(given: Iterable[str], option: str) -> tuple[dict[str, Value], dict[str, Value]]:
    """The headers and the properties that texts name; JMS' own names are headers. Raises InvalidOperationError, which
    names the `option` that the texts were given with."""
    headers: dict[str, Value] = {}
    properties: dict[str, Value] = {}
    for item in given:
        name, equals, text = item.partition("=")
        name, _, kind = name.partition(":")
        if not equals or not name:
            raise InvalidOperationError(f"{option} {item}: expected {METAVAR}")
        (headers if belongs_to_headers(name) else properties)[name] = _value(f"{option} {item}", kind or "string", text)
    return headers, properties


def _value(item: str, kind: str, text: str) -> Value:
    if kind not in _PARSERS:
        raise InvalidOperationError(f"{item}: there is no type {kind}, the types are {', '.join(_PARSERS)}")
    try:
        return _PARSERS[kind](text)
    except (ValueError, binascii.Error):
        mend = ": expected true or false" if kind == "boolean" else ""
        raise InvalidOperationError(f"{item}: {text!r} is no {kind}{mend}") from None


def value_texts(values: Mapping[str, Value]) -> list[str]:
    """Headers or properties as texts, which `parse_values` reads back."""
    return [f"{name}:{_typed(value)}" for name, value in values.items()]


def _typed(value: Value) -> str:
    match value:
        case bool():
            return f"boolean={str(value).lower()}"
        case int():
            return f"long={value}"
        case float():
            return f"double={value!r}"
        case bytes():
            return f"bytes={base64.b64encode(value).decode()}"
        case _:
            return f"string={value}"
