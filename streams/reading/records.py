"""Records of the WAL on their way from the Kafka client to the shards."""

from __future__ import annotations

from journal.fold.sorted_frame import SortedFrame

Record = tuple[int, int, bytes]
"""A frame as it lies in the WAL: offset, the broker's timestamp in ms, value (empty when the record has none)."""

Prepared = tuple[int, int, bytes | SortedFrame]
"""A frame for the worker's shell: as a `Record`, but the value may be decoded and sorted already."""
