"""Sources that a record or a partition has stopped: until an operator has them go on, or the next activation."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple

from journal.errors import InvalidOperationError


class RecordPlace(NamedTuple):
    """The place of a source's record."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


class Resumption(NamedTuple):
    """An operator's request that a source goes on, maybe without the record that has stopped it."""

    source: str
    skip: RecordPlace | None

    def __str__(self) -> str:
        return f"source {self.source} goes on{f' without {self.skip}' if self.skip else ''}"


class Stops:
    """The sources that are stopped. Thread-safe: the loop stops sources, and operators have them go on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reasons: dict[str, str] = {}
        self._places: dict[str, RecordPlace] = {}
        self._asked: list[Resumption] = []

    def add(self, reasons: Mapping[str, str], places: Mapping[str, RecordPlace]) -> None:
        """Stop sources; `places` has the records that did it, of those that a record stopped."""
        with self._lock:
            self._reasons.update(reasons)
            for source in reasons:
                self._places.pop(source, None)
            self._places.update(places)

    def reasons(self) -> dict[str, str]:
        """By stopped source, the reason."""
        with self._lock:
            return dict(self._reasons)

    def require(self, source: str) -> None:
        """Raises InvalidOperationError if a source is not stopped."""
        with self._lock:
            self._require(source)

    def _require(self, source: str) -> None:
        if source not in self._reasons:
            raise InvalidOperationError(
                f"source {source} is not stopped by a record or a partition: there is nothing to resume"
            )

    def ask(self, source: str, *, skip: bool) -> Resumption:
        """Have a source go on soon. Raises InvalidOperationError if it is not stopped, or `skip` has no record."""
        with self._lock:
            self._require(source)
            place = self._places.get(source)
            if skip and place is None:
                raise InvalidOperationError(
                    f"no record has stopped source {source}, so none can be skipped: {self._reasons[source]}"
                )
            asked = Resumption(source, place if skip else None)
            if asked not in self._asked:
                self._asked.append(asked)
            return asked

    def asked(self) -> Resumption | None:
        """The next request to grant. A skip of another record than the one that stops its source now is void."""
        with self._lock:
            places = self._places
            return next((each for each in self._asked if each.skip in (None, places.get(each.source))), None)

    def granted(self, done: Resumption) -> list[Resumption]:
        """Note that the source goes on. Other requests for it are void, and returned: they were for where it stood."""
        with self._lock:
            void = [each for each in self._asked if each.source == done.source and each != done]
            self._asked = [each for each in self._asked if each.source != done.source]
            self._reasons.pop(done.source, None)
            self._places.pop(done.source, None)
            return void
