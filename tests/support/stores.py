"""A message store on a local journal: opened, closed cleanly, or dropped as by a crash and opened again."""

from __future__ import annotations

import shutil
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from journal.append.appends import Appends
from journal.errors import JournalError
from journal.limits import Limits
from journal.local.journal import LocalJournal
from journal.store.model import Message, QueueConfig, ReferenceInfo
from journal.store.queues.index import ReferenceIndex
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from loaders.queues import QueueLoader
from tests.support.in_process import Collected

START_MS = 1_700_000_000_000


class Clock:
    """Milliseconds that stand still until a test moves them."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.stepped_ms = 0
        """How far the wall's clock was set forward."""

    def __call__(self) -> int:
        return self.now_ms + self.stepped_ms

    def elapsed(self) -> int:
        """By the clock that is never set."""
        return self.now_ms


class StoreNode:
    """One node with a store, on a directory of its own; `restart` and `crash` give it the next activation."""

    def __init__(
        self,
        directory: Path,
        settings: StoreSettings | None = None,
        *,
        limits: Limits | None = None,
        in_memory: tuple[int, int] = (10**6, 10**6),
        index: Callable[[], ReferenceIndex] | None = None,
        kind: type[LocalJournal] = LocalJournal,
        **journal: Any,
    ) -> None:
        """`in_memory`: references of the node, and of a queue; further ones go to an `index` that is made anew for
        every activation."""
        self.clock = Clock()
        self._in_memory = in_memory
        self._index = index
        self._kind = kind
        self.settings = settings or StoreSettings(expiry_agreement_ms=0)
        self._root = directory
        self._limits = limits
        self._journal_arguments = journal
        self._life = 0
        self._dropped: list[LocalJournal] = []
        self._open(directory / "0")

    def _open(self, directory: Path) -> None:
        self.directory = directory
        self.journal = self._kind(directory, shards=4, limits=self._limits, **self._journal_arguments)
        self.journal.start()
        node, queue = self._in_memory
        index = self._index() if self._index is not None else None
        self.loader = QueueLoader(references_in_memory_max=node, queue_references_in_memory_max=queue, index=index)
        self.journal.activate(self.loader)
        self.store = MessageStore(self.journal, self.settings, clock_ms=self.clock, elapsed_ms=self.clock.elapsed)
        self.store.start(self.loader.loaded)

    def restart(self) -> MessageStore:
        """Close cleanly, and activate again."""
        self.store.close()
        self.journal.close()
        self._open(self.directory)
        return self.store

    def crash(self) -> MessageStore:
        """Go on from what is on the disk now; the old store and journal never get to know."""
        self._life += 1
        directory = self._root / str(self._life)
        copy_living(self.directory, directory)
        self._dropped.append(self.journal)
        self._open(directory)
        return self.store

    def blocked_writer(self) -> AbstractContextManager[None]:
        return blocked_writer(self.journal)

    def close(self) -> None:
        self.store.close()
        for journal in (*self._dropped, self.journal):
            journal.close()

    def __enter__(self) -> StoreNode:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def blocked_writer(journal: Appends) -> Iterator[None]:
    """The journal's writer is busy with a callback meanwhile. What was accepted before is durable."""
    here = threading.current_thread()
    entered, leave = threading.Event(), threading.Event()
    called_here: list[bool] = []

    def stay(_: JournalError | None) -> None:
        if threading.current_thread() is here:
            called_here.append(True)  # the group was done too soon
        else:
            entered.set()
            leave.wait(30)

    for attempt in range(1, 1000):
        journal.add(journal.new_id(), 0, b"").add_callback(stay)
        if len(called_here) < attempt:
            break
    assert entered.wait(30)
    try:
        yield
    finally:
        leave.set()


def copy_living(directory: Path, to: Path) -> None:
    """A copy of a RocksDB that is open: all of one moment, up to what its log has got meanwhile."""
    while True:
        before = _tables_of(directory)
        try:
            shutil.copytree(directory, to)
        except shutil.Error:
            pass  # a compaction took a file away
        else:
            if _tables_of(directory) == before:
                return
        shutil.rmtree(to)


def _tables_of(directory: Path) -> list[tuple[str, int]]:
    """Names and sizes of what compactions change."""
    found = []
    for path in directory.iterdir():
        if path.suffix == ".sst" or path.name.startswith(("MANIFEST", "CURRENT")):
            try:
                found.append((path.name, path.stat().st_size))
            except FileNotFoundError:
                continue
    return sorted(found)


def declare(store: MessageStore, *queues: str, address: str = "orders", window: int = 0, **config: Any) -> None:
    """An address with queues. They journal acquisitions, unless it is said otherwise."""
    config.setdefault("journaled_acquisition", True)
    store.create_address(address, window)
    for queue in queues:
        store.create_queue(QueueConfig(queue, address, **config))
    store.flush().wait()


def send(store: MessageStore, body: bytes, *queues: str, address: str = "orders", tx: int = 0, **message: Any) -> int:
    """Send, and wait until it is durable if it is not part of a transaction; the message's id."""
    pending = store.send(Message(address, body, **message), queues or ("q",), tx)
    return pending.id if tx else pending.wait()


def bodies(store: MessageStore, queue: str = "q") -> list[bytes]:
    """Bodies of a queue in delivery order, whatever their state."""
    return [store.message(info.message).body for info in store.browse(queue)]


def infos(store: MessageStore, queue: str = "q") -> list[ReferenceInfo]:
    return list(store.browse(queue))


def taken(store: MessageStore, queue: str = "q", holder: str = "h") -> list[bytes]:
    """Bodies of what can be taken, in order; all of it is held then."""
    out = []
    while (delivery := store.take(queue, holder)) is not None:
        out.append(store.message(delivery.message).body)
    return out


def kinds_in_journal(node: StoreNode) -> Counter[int]:
    """How many records of each kind the journal holds now."""
    return Counter(kind for kind, _ in _in_journal(node).records.values())


def updates_in_journal(node: StoreNode, kind: int) -> list[bytes]:
    """The data of all updates of a kind that the journal holds now, in order of their records."""
    updates = _in_journal(node).updates
    return [data for each in sorted(updates) for its_kind, data, _ in updates[each] if its_kind == kind]


def _in_journal(node: StoreNode) -> Collected:
    node.store.flush().wait()
    directory = node.directory.with_name(f"look-{uuid.uuid4().hex}")
    copy_living(node.directory, directory)
    found = Collected()
    with LocalJournal(directory) as journal:
        journal.activate(found)
    return found


def refuse(error: type[JournalError], *operations: Callable[[], object]) -> None:
    """Each operation raises the error."""
    for operation in operations:
        with pytest.raises(error):
            operation()
