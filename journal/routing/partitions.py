"""The partition of a record, which follows from its key, so that a replay sends the record to the same partition again.

A record without a key gets its partition from its message's id. Kafka's clients would choose any partition, and two
workers could choose different ones.
"""

from __future__ import annotations

import zlib

from confluent_kafka import murmur2

from journal.routing.outcomes import OutgoingRecord, PartitionRule, Reason, UnfitError

MURMUR2, CRC32, MESSAGE_ID, FIXED = "murmur2", "crc32", "message-id", "partition"


def parse_rule(text: str) -> PartitionRule:
    """Parse a partition rule: `murmur2` (as Java's clients), `crc32` (as librdkafka), `message-id`, or `partition:N`.
    Raises ValueError."""
    if text in (MURMUR2, CRC32, MESSAGE_ID):
        return PartitionRule(text)
    kind, _, number = text.partition(":")
    if kind == FIXED and number.isascii() and number.isdecimal() and len(number) < 10:
        return PartitionRule(FIXED, int(number))
    raise ValueError(f"{text!r} is none of {MURMUR2}, {CRC32}, {MESSAGE_ID} and {FIXED}:N")


def partition_of(record: OutgoingRecord, partitions: int) -> int:
    """The record's partition in a topic with this number of partitions. Raises UnfitError if the topic does not have
    the fixed partition."""
    rule, key = record.rule, record.key
    if key is not None and rule.name == MURMUR2:
        return murmur2(key, partitions)
    if rule.name == FIXED:
        if rule.fixed >= partitions:
            raise UnfitError(Reason.BAD_TOPIC, f"topic {record.topic} has no partition {rule.fixed}")
        return rule.fixed
    if key is None or rule.name == MESSAGE_ID:
        return record.message % partitions
    return zlib.crc32(key) % partitions
