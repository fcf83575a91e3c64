"""What SIGTERM and Ctrl-C do to a service that is slow to stop."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection
from typing import Any

from journal.process.stop_requests import ONE_REQUEST_S
from streams.apps.factory import run_app

DEADLINE_S = 60.0


class StopsNever:
    """The part of an app that `run_app` uses; its stop never ends."""

    def __init__(self, told: Connection) -> None:
        self._told = told

    async def start(self) -> None:
        self._told.send("started")

    async def wait_until_stopped(self) -> None:
        await asyncio.Event().wait()

    async def stop(self) -> None:
        self._told.send("stopping")
        await asyncio.Event().wait()


def run(told: Connection) -> None:
    app: Any = StopsNever(told)
    run_app(app)


def test_a_second_signal_ends_a_service_that_is_slow_to_stop() -> None:
    context = multiprocessing.get_context("spawn")
    heard, told = context.Pipe(duplex=False)
    process = context.Process(target=run, args=(told,))
    process.start()
    assert process.pid is not None
    try:
        assert heard.poll(DEADLINE_S)
        assert heard.recv() == "started"
        os.kill(process.pid, signal.SIGINT)
        assert heard.poll(DEADLINE_S)
        assert heard.recv() == "stopping"
        time.sleep(ONE_REQUEST_S + 0.2)  # sooner it is the same request
        assert process.is_alive()
        os.kill(process.pid, signal.SIGINT)
        process.join(10)
        assert process.exitcode == -signal.SIGINT
    finally:
        process.kill()
        process.join()
