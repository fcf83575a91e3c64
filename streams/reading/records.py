"""Records of the WAL on their way from the Kafka client to the shards."""

from __future__ import annotations

Record = tuple[int, int, bytes]
"""A record of the WAL: its offset, the broker's timestamp in ms, and its value (empty if the record has none)."""
