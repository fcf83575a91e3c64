"""Records of the WAL on their way from the Kafka client to the shards."""

from __future__ import annotations

from journal.fold.sorted_frame import SortedFrame

Record = tuple[int, int, bytes]
"""A record of the WAL: its offset, the broker's timestamp in ms, and its value (empty if the record has none)."""

Prepared = tuple[int, int, bytes | SortedFrame]
"""A record of the WAL as the worker receives it: a `Record`, but its value may already be decoded into a sorted
frame."""
