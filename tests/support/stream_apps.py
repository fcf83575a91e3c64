"""Apps of a service's own inside the test's process, the topics that their agents give to, and their pages."""

from __future__ import annotations

import asyncio
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from journal.config import Settings
from journal.embedded.ports import choose_free_ports
from journal.journal import BlockingJournal
from journal.store.store import MessageStore
from streams.apps.factory import JournalApp, serve_app
from tests.support.children.store import start
from tests.support.sources import create_topic
from tests.support.topic_reader import read_topic
from tests.support.waiting import wait_until

DEADLINE_S = 60.0


def free_port() -> int:
    return choose_free_ports(1, ())[0]


def new_topic(bootstrap: str, name: str = "") -> str:
    """A topic with one partition."""
    return create_topic(bootstrap, name or f"out-{uuid.uuid4().hex[:8]}")


def committed_records(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values of all committed records of a topic with one partition."""
    (records,) = read_topic(bootstrap, topic, lambda record: (record.key(), record.value()))
    return records


@contextmanager
def running(app: JournalApp) -> Iterator[Future[None]]:
    """The app in a thread of its own; what ended it is raised at the end."""
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    started = threading.Event()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve_app(app, stop, started.set))

    with ThreadPoolExecutor(1) as executor:
        ended = executor.submit(run)
        try:
            wait_until(lambda: started.is_set() or ended.done())
            yield ended
        finally:
            if not ended.done():
                loop.call_soon_threadsafe(stop.set)
            ended.result(DEADLINE_S)


@contextmanager
def active_store(settings: Settings) -> Iterator[MessageStore]:
    """An active node with a message store."""
    with BlockingJournal(settings, copy_name="test-node") as journal, start(journal) as store:
        yield store


def fetch(port: int, path: str) -> tuple[int, str]:
    """Status and body of a page."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=DEADLINE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
