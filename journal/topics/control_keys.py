"""Keys of control rows, and the record that writes one."""

from __future__ import annotations

from google.protobuf.message import Message

from journal.kafka.ports import Sent
from journal.topics.names import control_topic

IDENTITY_KEY = b"journal"
EPOCH_KEY = b"epoch"
RELEASED_KEY = b"released"
DESTROYED_KEY = b"destroyed"
HAND_OVER_KEY = b"hand-over"
SOURCES_KEY = b"sources"
CHECK_KEY = b"check"
"""Only tombstones are written under this key. A leader that was deposed cannot show a reader the tombstone."""


def skip_key(shard: int, offset: int) -> bytes:
    return b"skip/%d/%d" % (shard, offset)


def node_key(name: str) -> bytes:
    return b"node/" + name.encode()


def archive_key(shard: int) -> bytes:
    return b"archive/%d" % shard


def trim_key(shard: int) -> bytes:
    return b"trim/%d" % shard


def route_skip_key(shard: int, offset: int) -> bytes:
    return b"route-skip/%d/%d" % (shard, offset)


def routes_key(shard: int) -> bytes:
    return b"routes/%d" % shard


def source_key(name: str) -> bytes:
    return b"source/" + name.encode()


def control_row(journal: str, key: bytes, message: Message | None) -> Sent:
    """The record that writes a control row, or deletes it if `message` is None."""
    return Sent(control_topic(journal), 0, key, None if message is None else message.SerializeToString())
