"""Records of the WAL on their way from the Kafka client to the shards."""

from __future__ import annotations

from journal.fold.sorted_frame import SortedFrame

Record = tuple[int, int, bytes]
"""A record of the WAL: its offset, the broker's timestamp in ms, and its value (empty if the record has none)."""

Prepared = tuple[int, int, bytes | SortedFrame]
"""A record for the worker's shell. It is a `Record`, or has a decoded and sorted frame in place of the value."""
