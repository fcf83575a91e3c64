"""The value of a record: a message's body as it is, as text, in a JSON envelope or in a CloudEvent; and back to the
message."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from journal.patterns import NamePatterns
from journal.routing.headers import goes_out, property_value
from journal.routing.outcomes import Header, Reason, UnfitError
from journal.store.model import Value
from journal.v1 import store_pb2 as pb

_TIME_MAX = 253_402_300_799_999
_INT64 = range(-(2**63), 2**63)
CE_JSON = "application/cloudevents+json"


class EventFacts(NamedTuple):
    """The attributes that a target gives its CloudEvents."""

    source: str
    type: str
    content_type: str


Converter = Callable[[int, pb.Message, bytes], tuple[bytes, list[Header]]]
"""Makes a record's value and further headers from a message's id, the message and its body. Raises UnfitError."""


def converter(conversion: str, kept: NamePatterns, event: EventFacts) -> Converter | None:
    """The conversion with this name; None for the one that leaves the body as it is."""
    match conversion:
        case "text":
            return lambda message_id, message, body: (_text(body).encode(), [])
        case "json":
            return lambda message_id, message, body: (_envelope(message_id, message, body, kept), [])
        case "cloudevents-structured":
            return lambda message_id, message, body: _structured(message_id, message, body, event)
        case "cloudevents-binary":
            return lambda message_id, message, body: _binary(message_id, message, body, event)
        case _:
            return None


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise UnfitError(Reason.NOT_TEXT, f"the body is not UTF-8 text: byte {error.start} of {len(body)}") from None


def parsed_json(text: str | bytes, what: str) -> Any:
    """The value of a JSON text. Raises UnfitError."""
    try:
        return json.loads(text if isinstance(text, str) else text.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise UnfitError(Reason.NOT_JSON, f"{what} is not JSON: {error}") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


def _dump(value: object) -> bytes:
    """A value as JSON text. Raises ValueError for values that JSON does not have: NaN, infinity, half of a surrogate
    pair."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


# ---- the envelope --------------------------------------------------------------------------------------------------


def _envelope(message_id: int, message: pb.Message, body: bytes, kept: NamePatterns) -> bytes:
    out: dict[str, object] = {"id": message_id, "address": message.address, "priority": message.priority}
    for name in ("timestamp", "expires", "due"):
        if at := getattr(message, name):
            out[name] = at
    for place in ("headers", "properties"):
        values = getattr(message, place)
        names = [name for name in sorted(values) if name in kept and goes_out(name, place)]
        if found := {name: _to_json(property_value(values[name])) for name in names}:
            out[place] = found
    try:
        out["body"] = body.decode()
    except UnicodeDecodeError:
        out["body_base64"] = base64.b64encode(body).decode()
    return _dump(out)


def _to_json(value: Value) -> object:
    """A value in a form that JSON has: bytes, NaN and infinity become objects."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"double": str(value)}
    return value


class Enveloped(NamedTuple):
    """The body, headers and properties that a record's value holds."""

    body: bytes
    headers: Mapping[str, Value] = {}
    properties: Mapping[str, Value] = {}
    fields: Mapping[str, int] = {}
    """The fields priority, timestamp, expires and due, if the envelope has them."""
    address: str = ""


def of_body(value: bytes, headers: Mapping[str, bytes]) -> Enveloped:
    return Enveloped(value)


def of_text(value: bytes, headers: Mapping[str, bytes]) -> Enveloped:
    _text(value)
    return Enveloped(value)


def of_envelope(value: bytes, headers: Mapping[str, bytes]) -> Enveloped:
    """The content of a JSON envelope, as routes write it. Raises UnfitError."""
    found = parsed_json(value, "the value")
    if not isinstance(found, dict) or ("body" in found) == ("body_base64" in found):
        raise UnfitError(Reason.NOT_ENVELOPE, "the value is not an envelope: an object with body or body_base64")
    places = {place: found.get(place, {}) for place in ("headers", "properties")}
    fields = {name: found[name] for name in ("priority", "timestamp", "expires", "due") if name in found}
    address = found.get("address", "")
    whole = all(type(value) is int for value in fields.values()) and isinstance(address, str) and _is_unicode(address)
    if not whole or not all(isinstance(place, dict) for place in places.values()):
        raise UnfitError(Reason.NOT_ENVELOPE, "a part of the envelope is not of its type")
    refused = Reason.NOT_ENVELOPE
    values = {place: {name: _of_json(name, each, refused) for name, each in places[place].items()} for place in places}
    body = _body_of(found, "body", "body_base64", refused)
    return Enveloped(body, values["headers"], values["properties"], fields, address)


def _of_json(name: str, value: object, refused: Reason) -> Value:
    if not _is_unicode(name):
        raise UnfitError(refused, f"{name!r} of the value is not a header's name")
    match value:
        case bool() | float() if math.isfinite(value):
            return value
        case int() if value in _INT64:
            return value
        case str() if _is_unicode(value):
            return value
        case {"base64": str() as text, **rest} if not rest:
            return _base64(text, refused)
        case {"double": "nan" | "inf" | "-inf" as text, **rest} if not rest:
            return float(text)
    raise UnfitError(refused, f"{name!r} of the value is not a header's value")


def _is_unicode(text: str) -> bool:
    """Whether a text is valid Unicode. JSON can contain half of a surrogate pair."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _base64(text: str, refused: Reason) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UnfitError(refused, f"what should be base64 is not: {error}") from None


def _body_of(found: Mapping[str, Any], text_name: str, binary_name: str, refused: Reason) -> bytes:
    value = found.get(text_name, found.get(binary_name))
    if not isinstance(value, str) or not _is_unicode(value):
        raise UnfitError(refused, f"neither {text_name} nor {binary_name} is a text")
    return value.encode() if text_name in found else _base64(value, refused)


# ---- CloudEvents 1.0 -----------------------------------------------------------------------------------------------


def _attributes(message_id: int, message: pb.Message, event: EventFacts) -> dict[str, str]:
    found = {
        "specversion": "1.0",
        "id": str(message_id),
        "source": event.source,
        "type": event.type,
        "subject": message.address,
    }
    if 0 < message.timestamp <= _TIME_MAX:
        seconds, millis = divmod(message.timestamp, 1000)
        found["time"] = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{millis:03d}Z"
    return found


def _is_json(content_type: str) -> bool:
    media = content_type.partition(";")[0].strip().lower()
    return media.endswith(("/json", "+json"))


def _binary(message_id: int, message: pb.Message, body: bytes, event: EventFacts) -> tuple[bytes, list[Header]]:
    if _is_json(event.content_type):
        parsed_json(body, "the body")
    headers: list[Header] = [("content-type", event.content_type.encode())]
    headers += [
        (f"ce_{name}", value.encode()) for name, value in _attributes(message_id, message, event).items() if value
    ]
    return body, headers


def _structured(message_id: int, message: pb.Message, body: bytes, event: EventFacts) -> tuple[bytes, list[Header]]:
    found = {name: value for name, value in _attributes(message_id, message, event).items() if value}
    head = _dump(found | {"datacontenttype": event.content_type})[:-1]
    if _is_json(event.content_type):
        parsed_json(body, "the body")
        data = b',"data":' + _text(body).encode()
    elif event.content_type.lower().startswith("text/"):
        data = b',"data":' + _dump(_text(body))
    else:
        data = b',"data_base64":"' + base64.b64encode(body) + b'"'
    return head + data + b"}", [("content-type", f"{CE_JSON}; charset=UTF-8".encode())]


def of_cloudevent(value: bytes, headers: Mapping[str, bytes]) -> Enveloped:
    """The content of a CloudEvent in either mode. The attributes of a structured one are treated as if they were
    headers.

    Raises UnfitError.
    """
    if not headers.get("content-type", b"").lower().startswith(CE_JSON.encode()):
        if b"" in (headers.get(f"ce_{name}", b"") for name in ("specversion", "id", "source", "type")):
            raise UnfitError(Reason.NOT_CLOUDEVENT, f"neither content-type {CE_JSON} nor all ce_ headers")
        return Enveloped(value)
    found = parsed_json(value, "the event")
    if not isinstance(found, dict) or not all(
        isinstance(found.get(name), str) and found[name] for name in ("specversion", "id", "source", "type")
    ):
        raise UnfitError(Reason.NOT_CLOUDEVENT, "the event lacks one of specversion, id, source and type")
    # in CloudEvents' JSON format a null attribute counts as absent, but data may be a JSON null
    said = {name: each for name, each in found.items() if each is not None or name == "data"}
    attributes: dict[str, Value] = {
        f"ce_{name}": _of_json(name, each, Reason.NOT_CLOUDEVENT)
        for name, each in said.items()
        if name not in ("data", "data_base64")
    }
    return Enveloped(_event_data(said), {}, attributes)


def _event_data(found: Mapping[str, Any]) -> bytes:
    if "data_base64" in found or "data" not in found:
        encoded = {"data_base64": found.get("data_base64", "")}
        return _body_of(encoded, "data", "data_base64", Reason.NOT_CLOUDEVENT)
    data, content_type = found["data"], found.get("datacontenttype", "application/json")
    if isinstance(data, str) and not (isinstance(content_type, str) and _is_json(content_type)):
        return _body_of(found, "data", "data_base64", Reason.NOT_CLOUDEVENT)
    try:
        return _dump(data)
    except UnicodeEncodeError:
        raise UnfitError(Reason.NOT_TEXT, "the event's data has half a character") from None
    except (ValueError, RecursionError) as error:
        raise UnfitError(Reason.NOT_CLOUDEVENT, f"the event's data cannot be written as JSON: {error}") from None
