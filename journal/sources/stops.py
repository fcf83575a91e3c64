"""Sources that a record or a partition has stopped. They stay stopped until an operator resumes them, or until the next
activation."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple

from journal.errors import InvalidOperationError


class RecordPlace(NamedTuple):
    """The topic, partition and offset of a record that a source reads."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


class Resumption(NamedTuple):
    """An operator's request to resume a source, with or without the record that has stopped it."""

    source: str
    skip: RecordPlace | None

    def __str__(self) -> str:
        return f"source {self.source} goes on{f' without {self.skip}' if self.skip else ''}"


class Stops:
    """The stopped sources. Thread-safe: the loop stops sources, and operators resume them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reasons: dict[str, str] = {}
        self._places: dict[str, RecordPlace] = {}
        self._asked: list[Resumption] = []

    def add(self, reasons: Mapping[str, str], places: Mapping[str, RecordPlace]) -> None:
        """Stop sources. `places` has the stopping record of each source that a record stops."""
        with self._lock:
            self._reasons.update(reasons)
            for source in reasons:
                self._places.pop(source, None)
            self._places.update(places)

    def reasons(self) -> dict[str, str]:
        """The reason by stopped source."""
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
        """Ask for a source to be resumed soon. Raises InvalidOperationError if it is not stopped, or if `skip` is set
        and no record has stopped it."""
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
        """The next request to grant. A request to skip is void if another record stops the source now."""
        with self._lock:
            places = self._places
            return next((each for each in self._asked if each.skip in (None, places.get(each.source))), None)

    def granted(self, done: Resumption) -> list[Resumption]:
        """Note that the source goes on. Other requests for it are void and are returned, because they were made for
        another stop."""
        with self._lock:
            void = [each for each in self._asked if each.source == done.source and each != done]
            self._asked = [each for each in self._asked if each.source != done.source]
            self._reasons.pop(done.source, None)
            self._places.pop(done.source, None)
            return void
