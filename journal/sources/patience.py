"""Decides when requests that have waited too long are given up: after their source has consumed all records that
existed when the time was over, so that no reply is missed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from journal.errors import OperatingError
from journal.sources.batch import Converter
from journal.sources.consumer import SourceConsumer
from journal.sources.positions import Partition
from journal.sources.taking import SourceTaking

log = logging.getLogger(__name__)

_ASK_S = 2.0
"""How long to wait for a partition's end. It can be asked for again later, so the time is short."""


class Late(NamedTuple):
    """A source whose requests had waited too long at a moment (ms since 1970), although all replies that had arrived
    until then are taken in."""

    source: str
    asked_ms: float
    partitions: Mapping[Partition, int]
    """The committed offset of each partition of the source."""


class _Ends(NamedTuple):
    """Where a source's partitions ended, read at a moment (ms since 1970) or later."""

    asked_ms: float
    offsets: Mapping[Partition, int]


class Patience:
    """Knows the sources with requests to give up. The sources' thread uses it."""

    def __init__(self, converter: Converter, taking: SourceTaking) -> None:
        self._converter = converter
        self._taking = taking
        self._ends: dict[str, _Ends] = {}
        """The ends by source, for each source with requests that have waited too long. When the source has read up to
        its ends, no reply can have come in time."""

    def begin(self) -> None:
        """Forget all ends, because other partitions are consumed now."""
        self._ends = {}

    def over(
        self, consumer: SourceConsumer, source_of: Callable[[Partition], str], pending: Collection[Partition]
    ) -> Iterator[Late]:
        """The sources with requests that are to be given up now. `pending` are partitions with records that are not
        taken in yet."""
        for name, now_ms in self._converter.late_since().items():
            mine = {part: offset for part, offset in self._taking.offsets.items() if source_of(part) == name}
            if not mine:
                continue  # the source is stopped, or has no topic for replies
            ends = self._ends.get(name)
            if ends is None:
                try:
                    ends = _Ends(now_ms, {part: consumer.latest(part, _ASK_S) for part in mine})
                except OperatingError as error:
                    log.warning("whether replies for source %s have come cannot be seen now: %s", name, error)
                    continue
                self._ends[name] = ends
            reached = {part: at if part in pending else max(at, consumer.reached(part)) for part, at in mine.items()}
            if all(reached[part] >= end for part, end in ends.offsets.items()):
                del self._ends[name]
                yield Late(name, ends.asked_ms, mine)
