"""A message is split into its sections without a copy of its body, and its head is written anew."""

from __future__ import annotations

import proton
import pytest

from journal.amqp.filters import selector_filter, source_filters
from journal.amqp.message_types import MessageHeader, MessageProperties
from journal.amqp.sections import DATA, SEQUENCE, VALUE, MessageSections, encode_head, encode_message
from journal.amqp.values import Described, Symbol, Uint, Ulong
from journal.errors import AmqpPeerError


def of_proton() -> bytes:
    message = proton.Message(
        body=b"body" * 100, durable=True, priority=7, ttl=5, delivery_count=2, id="m1", subject="s", user_id=b"ada"
    )
    message.inferred = True
    message.properties = {"colour": "red", "number": proton.int32(3)}
    message.annotations = {proton.symbol("x-opt-delivery-time"): proton.timestamp(99)}
    message.instructions = {proton.symbol("x-opt-hop"): 1}
    return bytes(message.encode())


def test_a_message_of_proton_is_split() -> None:
    payload = of_proton()
    sections = MessageSections(payload)
    assert sections.header == MessageHeader(durable=True, priority=7, ttl=5000, delivery_count=2)
    assert sections.delivery_annotations == {"x-opt-hop": 1}
    assert sections.message_annotations == {"x-opt-delivery-time": 99}
    assert (sections.properties.message_id, sections.properties.user_id) == ("m1", b"ada")
    assert sections.application_properties == {"colour": "red", "number": 3}
    assert sections.body() == (DATA, b"body" * 100)
    kept = sections.kept
    assert isinstance(kept, memoryview)
    assert kept.obj is payload


def test_a_head_that_is_written_anew_and_what_was_kept_are_a_message_for_proton() -> None:
    head = encode_head(MessageHeader(durable=True, delivery_count=9), {Symbol("x-opt-lock"): Uint(1)})
    message = proton.Message()
    message.decode(head + bytes(MessageSections(of_proton()).kept))
    assert (message.delivery_count, message.priority, message.id, message.body) == (9, 4, "m1", b"body" * 100)
    assert message.instructions == {"x-opt-lock": 1}
    assert message.annotations == {"x-opt-delivery-time": 99}


def test_a_head_that_says_nothing_has_no_bytes() -> None:
    assert encode_head(MessageHeader()) == b""
    payload = encode_message("x")
    assert MessageSections(payload).kept is payload


def test_bodies_are_data_sequences_or_a_value() -> None:
    data, sequence = b"\x00\x53\x75\xa0\x02ab", b"\x00\x53\x76\xc0\x02\x01\x43"
    assert MessageSections(data * 2).body() == (DATA, b"abab")
    assert MessageSections(sequence * 2).body() == (SEQUENCE, [[0], [0]])
    assert MessageSections(encode_message({"a": Ulong(1)})).body() == (VALUE, {"a": 1})
    assert MessageSections(b"\x00\xa3\x10amqp:data:binary\xa0\x01x\x00\x80\0\0\0\0\0\0\0\x78\xc1\x01\x00").body() == (
        DATA,
        b"x",
    )


@pytest.mark.parametrize("cut", range(0, 500, 7))
def test_the_beginning_of_a_message_says_whether_its_head_is_whole(cut: int) -> None:
    payload = of_proton()
    whole = MessageSections(payload)
    begun = MessageSections(payload[:cut], whole=False)
    if cut > whole.body_at + 3:
        assert begun.head_is_whole
        assert (begun.body_at, begun.kept_at, begun.properties) == (whole.body_at, whole.kept_at, whole.properties)
    elif 0 < cut < whole.body_at - 1:
        assert begun.body_at == cut


@pytest.mark.parametrize(
    "payload",
    [
        b"\x43",
        b"\x00\x53\x99\x43",
        b"\x00\x53\x70\x43",
        b"\x00\x53\x75\xa1\x01x",
        b"\x00\x53\x75\xa0\x05x",
        b"\x00\x53\x75\xb0\x7f\xff\xff\xffx",
        b"\x00\x53\x75",
        b"\x00\x53\x77\x40\x00\x53\x77\x40",
        b"\x00\x53\x77\x40\x00\x53\x75\xa0\x00",
        b"\x00\x53\x77\x40\x00\x53\x70\x45",
        b"\x00\x53\x73\x45\x00\x53\x73\x45",
    ],
    ids=lambda payload: payload.hex(),
)
def test_sections_that_are_none_are_a_decode_error(payload: bytes) -> None:
    with pytest.raises(AmqpPeerError) as caught:
        MessageSections(payload)
    assert caught.value.condition == "amqp:decode-error"


def test_application_properties_have_strings_as_keys() -> None:
    with pytest.raises(AmqpPeerError, match="no string"):
        _ = MessageSections(b"\x00\x53\x74\xc1\x03\x02\x43\x43\x00\x53\x77\x40").application_properties


@pytest.mark.parametrize(
    "entry",
    [
        selector_filter("a = 1"),
        {Symbol("jms-selector"): Described(Ulong(0x0000468C00000004), "a = 1")},
        {Symbol("jms-selector"): "a = 1"},
        {Symbol("any"): Described(Symbol("apache.org:selector-filter:string"), "a = 1")},
    ],
)
def test_a_selector_is_found_however_it_is_named(entry: dict[Symbol, object]) -> None:
    found = source_filters({**entry, Symbol("unknown"): Described(Symbol("x:y"), 1)})
    assert (found.selector, found.no_local, found.in_force) == ("a = 1", False, entry)


def test_no_local_is_found_and_two_selectors_are_refused() -> None:
    assert source_filters({Symbol("no-local"): Described(Ulong(0x0000468C00000003), [])}).no_local
    assert source_filters(None) == (None, False, {})
    with pytest.raises(AmqpPeerError):
        source_filters({Symbol("jms-selector"): "a", Symbol("b"): Described(Ulong(0x0000468C00000004), "b")})


@pytest.mark.parametrize("properties", [MessageProperties(message_id=3), MessageProperties(group_id="g", to="q")])
def test_properties_are_decoded_as_they_were_encoded(properties: MessageProperties) -> None:
    assert MessageSections(encode_message(b"", properties=properties)).properties == properties
