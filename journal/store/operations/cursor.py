"""Reads a queue by a cursor: a consumer takes the messages that it selects, a browser looks at them. Each message is
looked at once, however often the reader asks; one that becomes ready again is looked at again.

    with store.cursor("orders", lambda message: message.properties.get("region") == "eu") as cursor:
        taken = cursor.take_all("session 7", 10)
        while cursor.unread:            # what comes next is not in memory
            cursor.read().wait()        # or await it
            taken = cursor.take_all("session 7", 10)

A call looks at some hundred messages at most. While `more` is true it has not come to the end of the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType

from journal.errors import InvalidOperationError, MessageMissingError, QueueMissingError
from journal.store.model import Delivery, Message
from journal.store.operations.consume import ConsumeOperations, require_name
from journal.store.operations.core import StoreCore
from journal.store.operations.look import LookOperations, Reading, content_of
from journal.store.queues.cursors import Candidate
from journal.store.queues.state import QueueState

Selects = Callable[[Message], bool]
"""Whether a reader wants a message. A large message has no body here."""

LOOKED_MAX = 250
"""The most messages that one call looks at."""


class StoreCursor:
    """One reader's place in a queue. One thread at a time uses it."""

    def __init__(
        self,
        core: StoreCore,
        look: LookOperations,
        consume: ConsumeOperations,
        queue: str,
        selects: Selects | None,
        *,
        browses: bool,
    ) -> None:
        self.more = False
        """Whether the last call stopped before the end of the queue."""
        self.unread = False
        """Whether it stopped because the next messages are not in memory: `read` reads them."""
        self._core = core
        self._look = look
        self._consume = consume
        self._selects = selects
        self._known: dict[int, bool] = {}
        """What the selection says of messages that `read` has read."""
        self._refused: set[int] = set()
        """Messages that the reader does not want again."""
        self._has_expired = False
        """Some message had expired. If the clock is set back, the cursor begins again to find it."""
        self._latest_ms = 0
        with core.lock:
            state = core.enter()
            self._queue = state.queue(queue)
            self._places = state.cursor(queue, returning=not browses)

    def refuse(self, messages: Sequence[int]) -> None:
        """Do not hand these messages to this reader again."""
        self._refused.update(messages)

    def close(self) -> None:
        """Forget the place. Calling it again does nothing."""
        with self._core.lock:
            self._places.close()

    def __enter__(self) -> StoreCursor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def take_all(self, holder: str, count: int) -> list[Delivery]:
        """Acquire the next ready messages that the reader selects, at most `count`, as `MessageStore.take_all` does.
        Nothing is read from disk.

        Raises QueueMissingError, InvalidOperationError (the holder has no name, or a count below 1), FullError.
        """
        require_name(holder)
        chosen = self._choose(count)
        with self._core.lock:
            self._core.enter()
            try:
                if self._may_hand_out():
                    taken, expired = self._consume.take_each(self._queue, chosen, holder)
                    self._has_expired |= bool(expired)
                    chosen = []
                else:
                    taken = []
            finally:
                self._places.hand_back(chosen)
            self._watch(count - len(taken))
        return taken

    def browse(self, count: int) -> list[Delivery]:
        """The next ready messages that the reader selects, at most `count`. Nothing changes for other readers.

        Raises QueueMissingError, InvalidOperationError (a count below 1).
        """
        chosen = self._choose(count)
        with self._core.lock:
            state = self._core.enter()
            seen = state.look_at_each(self._queue.record_id, chosen, self._core.clock_ms())
            self._watch(count - len(seen))
            return self._look.with_contents(seen)

    def read(self) -> Reading:
        """Read the next messages, so that the next call knows whether the reader selects them. Await it in an event
        loop, or `wait` in a thread. Raises DeadlineError, LocalStorageError."""
        return Reading(self._read)

    def _read(self) -> dict[int, Message]:
        with self._core.lock:
            self._core.enter()
            candidates = self._places.next(LOOKED_MAX)
            self._places.hand_back(candidates)
        for each in candidates:
            try:
                message = self._look.message(each.message, body=False)
            except MessageMissingError:
                self._known[each.message] = False  # somebody has settled it meanwhile
            else:
                self._known[each.message] = self._selects is None or self._selects(message)
        return {}

    def _choose(self, count: int) -> list[Candidate]:
        """The next messages that the reader selects. The cursor stands behind the last of them."""
        if count < 1:
            raise InvalidOperationError(f"{count} messages cannot be taken")
        core = self._core
        with core.lock:
            state = core.enter()
            self._show_ready(state)
            candidates = self._places.next(LOOKED_MAX) if self._may_hand_out() else []
            found = [self._data_of(each) for each in candidates]
        self.unread = False
        left: Sequence[Candidate] = candidates
        try:
            chosen, left = self._select(candidates, found, count)
        finally:
            with core.lock:
                self._places.hand_back(left)
        self.more = bool(left) or len(candidates) == LOOKED_MAX
        return chosen

    def _select(
        self, candidates: Sequence[Candidate], found: Sequence[tuple[bytes | None, bool]], count: int
    ) -> tuple[list[Candidate], Sequence[Candidate]]:
        """The first `count` candidates that the reader selects, and those that were not looked at."""
        chosen: list[Candidate] = []
        for at, (candidate, (data, durable)) in enumerate(zip(candidates, found, strict=True)):
            selected = self._known.pop(candidate.message, None if self._selects else True)
            if selected is None and data is None:
                self.unread = True
                return chosen, candidates[at:]
            if selected is None and data is not None and self._selects is not None:
                selected = self._selects(content_of(data, durable=durable))
            if selected and candidate.message not in self._refused:
                chosen.append(candidate)
                if len(chosen) == count:
                    return chosen, candidates[at + 1 :]
        return chosen, []

    def _data_of(self, candidate: Candidate) -> tuple[bytes | None, bool]:
        if self._selects is None or candidate.message in self._known:
            return None, True
        return self._look.in_memory(candidate.message)

    def _show_ready(self, state: QueueState) -> None:
        now_ms = self._core.clock_ms()
        name = self._queue.config.name
        if state.queue(name) is not self._queue:
            raise QueueMissingError(f"queue {name!r} is another one than when the reader came")
        self._consume.give_back_due()
        state.show_ready(now_ms)
        if now_ms < self._latest_ms and self._has_expired:
            self._places.begin_again()
            self._has_expired = False
        self._latest_ms = now_ms

    def _may_hand_out(self) -> bool:
        return self._core.journal.current and not self._queue.config.paused

    def _watch(self, missing: int) -> None:
        """Watch the queue if the end was reached, unless something has become ready since."""
        if not missing or self.more:
            return
        current = self._core.journal.current
        ahead = self._places.next(1) if current and not self._queue.config.paused else []
        self._places.hand_back(ahead)
        self.more = bool(ahead)
        if not ahead:
            self._core.watch_queue(self._queue, refused=not current)
