"""LoopCalls the event loop from other threads: any number of calls at a time cost one step of the loop.

    calls.soon(batch.durable)       # from the writer's thread, or any other

The calls are made in the loop, in their order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress

log = logging.getLogger(__name__)


class LoopCalls:
    """Calls that other threads want made in the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def soon(self, call: Callable[[], None]) -> None:
        """Have a call made in the loop. It may come from any thread, the loop's own too."""
        self._calls.append(call)
        # a thread that sees True here was before the step that is scheduled, which takes its call
        if not self._scheduled:
            self._scheduled = True
            with suppress(RuntimeError):  # the loop is closed: nobody is served any more
                self._loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        self._scheduled = False
        calls = self._calls
        for _ in range(len(calls)):
            try:
                calls.popleft()()
            except Exception:
                log.exception("a step of the AMQP front end failed")
