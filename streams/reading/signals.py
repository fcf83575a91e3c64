"""Runs a service until SIGTERM or Ctrl-C asks it to stop; a second request ends the process at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from journal.process.stop_requests import STOP_SIGNALS, StopRequests


def run_until_signalled(
    serve: Callable[[asyncio.Event], Coroutine[Any, Any, None]], on_signal: Callable[[], None] = lambda: None
) -> None:
    """Run a service until the event that SIGTERM or SIGINT sets; raises the error of the service. A second signal that
    comes more than a second after the first ends the process at once. `on_signal` is called for each signal."""

    async def run() -> None:
        stop, requests = asyncio.Event(), StopRequests()

        def hear(number: int) -> None:
            stop.set()
            on_signal()
            requests.hear(number)

        for number in STOP_SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, hear, number)
        await serve(stop)

    asyncio.run(run())
