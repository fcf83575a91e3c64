"""Bodies in pieces through a chain: they come once, every store gets them, and one that is cut off leaves nothing."""

from __future__ import annotations

import asyncio
import errno
import io
import tempfile
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import pytest

from journal.errors import (
    ChainError,
    FencedError,
    FullError,
    LocalStorageError,
)
from journal.store.chain.chain import MessageStoreChain
from journal.store.chain.kept_body import MEMORY_BYTES_MAX
from journal.store.pending import Pending
from tests.unit.store.chain_fakes import MESSAGE, as_chained, chain_of, commit_all


def test_a_body_comes_once_and_every_store_gets_it_in_a_transaction_of_the_chains_own() -> None:
    chain, (first, second) = chain_of()
    pieces = iter([b"one ", b"two"])
    pending = chain.store_stream(MESSAGE, pieces, ["q"])
    tx = first.calls[0][1]
    expected = [("begin", tx), ("store_stream", MESSAGE, b"one two", ("q",), tx, False, pending.id), ("commit", tx)]
    assert first.calls == expected
    assert second.calls == as_chained(expected, [tx, pending.id])
    commit_all([first, second])
    assert pending.wait(0) == pending.id


async def _pieces(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def test_a_body_in_an_event_loop_comes_in_the_transaction_that_is_given() -> None:
    chain, (first, second) = chain_of()
    tx = chain.begin()
    pending = asyncio.run(chain.store_stream_async(MESSAGE, _pieces(b"one ", b"two"), ["q"], tx))
    expected = [("begin", tx), ("store_stream", MESSAGE, b"one two", ("q",), tx, False, pending.id)]
    assert first.calls == expected
    assert second.calls == as_chained(expected, [tx, pending.id])
    first.commit_group()
    assert not pending.done
    second.commit_group()
    assert pending.wait(0) == pending.id


@pytest.mark.parametrize("at", ["begin", "store_stream", "commit", "rollback"])
def test_an_event_loop_goes_on_while_another_store_waits_for_room(at: str) -> None:
    chain, (_, second) = chain_of()
    waits, has_room = threading.Event(), threading.Event()
    in_time: list[bool] = []

    def wait_for_room() -> None:
        if len(second.calls) == (2 if at == "rollback" else ["begin", "store_stream", "commit"].index(at)):
            waits.set()
            in_time.append(has_room.wait(10))

    async def body() -> AsyncIterator[bytes]:
        yield b"one"
        if at == "rollback":
            second.calls.append(("nothing of the body",))
            raise KeyError("the producer is gone")

    async def store() -> None:
        second.before_call = wait_for_room
        storing = asyncio.create_task(chain.store_stream_async(MESSAGE, body(), ["q"]))
        while not waits.is_set() and not storing.done():
            await asyncio.sleep(0.001)
        has_room.set()
        if at == "rollback":
            with pytest.raises(KeyError):
                await storing
        else:
            await storing

    asyncio.run(store())
    assert in_time == [True]


@pytest.mark.parametrize("at", ["begin", "store_stream"])
def test_whoever_is_cancelled_while_another_store_waits_leaves_nothing_in_any(at: str) -> None:
    chain, (first, second) = chain_of()
    waits, has_room = threading.Event(), threading.Event()

    def wait_for_room() -> None:
        if len(second.calls) == ["begin", "store_stream"].index(at):
            waits.set()
            has_room.wait(10)

    async def store() -> None:
        second.before_call = wait_for_room
        storing = asyncio.create_task(chain.store_stream_async(MESSAGE, _pieces(b"one"), ["q"]))
        while not waits.is_set() and not storing.done():
            await asyncio.sleep(0.001)
        for _ in range(3):
            storing.cancel()
            await asyncio.sleep(0)
        assert not storing.done()
        has_room.set()
        with pytest.raises(asyncio.CancelledError):
            await storing

    asyncio.run(store())
    done = ["begin", "rollback"] if at == "begin" else ["begin", "store_stream", "rollback"]
    assert [call[0] for call in first.calls] == [call[0] for call in second.calls] == done
    chain.store(MESSAGE)


def test_a_body_whose_caller_was_cancelled_is_waited_for_once_its_transaction_is_committed() -> None:
    chain, (first, second) = chain_of(lag_timeout_s=0)
    tx = chain.begin()
    waits, has_room = threading.Event(), threading.Event()

    def wait_for_room() -> None:
        waits.set()
        has_room.wait(10)

    async def store() -> None:
        second.before_call = wait_for_room
        storing = asyncio.create_task(chain.store_stream_async(MESSAGE, _pieces(b"one"), ["q"], tx))
        while not waits.is_set():
            await asyncio.sleep(0.001)
        storing.cancel()
        await asyncio.sleep(0)
        has_room.set()
        with pytest.raises(asyncio.CancelledError):
            await storing

    asyncio.run(store())
    chain.commit(tx)
    first.commit_group()
    *_, stored = next(call for call in first.calls if call[0] == "store_stream")
    with pytest.raises(ChainError, match=r"^store 2 of 2: DeadlineError"):
        chain.acquire(stored, "q", "h")


@pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "event-loop"])
def test_a_body_that_has_come_waits_for_room_for_its_commit(asynchronous: bool) -> None:
    chain, (first, second) = chain_of()

    def fill_up() -> None:
        if [call[0] for call in first.calls] == ["begin", "store_stream"]:
            first.before_call = lambda: None
            first.refusals.append(FullError("no room"))

    first.before_call = fill_up
    first.room_now = True
    if asynchronous:
        asyncio.run(chain.store_stream_async(MESSAGE, _pieces(b"one"), ["q"]))
    else:
        chain.store_stream(MESSAGE, [b"one"], ["q"])
    assert [call[0] for call in first.calls] == ["begin", "store_stream", "room", "commit"]
    assert [call[0] for call in second.calls] == ["begin", "store_stream", "commit"]


def test_a_body_that_is_cut_off_is_rolled_back_and_the_chain_goes_on() -> None:
    chain, (first, second) = chain_of()

    def cut_off() -> Iterator[bytes]:
        yield b"one"
        raise KeyError("the producer is gone")

    with pytest.raises(KeyError):
        chain.store_stream(MESSAGE, cut_off(), ["q"])
    assert [call[0] for call in first.calls] == [call[0] for call in second.calls] == ["begin", "rollback"]
    chain.store(MESSAGE)


def test_a_rollback_of_the_chains_own_that_meets_a_full_journal_is_tried_again() -> None:
    chain, (first, second) = chain_of()

    def cut_off() -> Iterator[bytes]:
        yield b"one"
        first.refusals.append(FullError("no room"))
        raise KeyError("the producer is gone")

    with pytest.raises(KeyError):
        chain.store_stream(MESSAGE, cut_off(), ["q"])
    assert [call[0] for call in second.calls] == ["begin"]
    chain.begin()
    assert [call[0] for call in first.calls] == [call[0] for call in second.calls] == ["begin", "rollback", "begin"]


def test_a_body_that_only_another_store_refuses_ends_the_chain() -> None:
    chain, (_, second) = chain_of()
    tx = chain.begin()
    second.refusals.append(FullError("the disk is full"))
    with pytest.raises(ChainError, match=r"^store 2 of 2: FullError"):
        chain.store_stream(MESSAGE, [b"one"], ["q"], tx)


class FullDisk(io.RawIOBase):
    """A file on a disk that has room for so many bytes."""

    def __init__(self, room_bytes: int) -> None:
        self._content = io.BytesIO()
        self._room_bytes = room_bytes

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._content.seek(offset, whence)

    def tell(self) -> int:
        return self._content.tell()

    def readinto(self, buffer: Any) -> int:
        return self._content.readinto(buffer)

    def write(self, data: Any) -> int:
        room_bytes = self._room_bytes - self._content.tell()
        if not room_bytes:
            raise OSError(errno.ENOSPC, "no space left on device")
        return self._content.write(data[:room_bytes])


@pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "event-loop"])
@pytest.mark.parametrize("last", [b"buffered", bytes(MEMORY_BYTES_MAX)], ids=["behind-the-last-piece", "in-a-piece"])
def test_a_body_that_cannot_be_kept_is_refused_and_the_chain_goes_on(
    monkeypatch: pytest.MonkeyPatch, asynchronous: bool, last: bytes
) -> None:
    room_bytes = MEMORY_BYTES_MAX + 1
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: io.BufferedRandom(FullDisk(room_bytes)))
    chain, (first, second) = chain_of()
    pieces = [bytes(room_bytes), b"buffered", last]

    def store() -> None:
        if asynchronous:
            asyncio.run(chain.store_stream_async(MESSAGE, _pieces(*pieces), ["q"]))
        else:
            chain.store_stream(MESSAGE, pieces, ["q"])

    with pytest.raises(LocalStorageError, match=r"cannot keep a body in .*: .* no space left"):
        store()
    assert [call[0] for call in first.calls] == [call[0] for call in second.calls] == ["begin", "rollback"]
    chain.store(MESSAGE)


def stream(chain: MessageStoreChain, body: Iterable[bytes], asynchronous: bool) -> Pending:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in body:
            yield piece

    if asynchronous:
        return asyncio.run(chain.store_stream_async(MESSAGE, pieces(), ["q"]))
    return chain.store_stream(MESSAGE, body, ["q"])


@pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "event-loop"])
def test_a_first_store_that_is_fenced_while_a_body_comes_is_named_by_the_error(asynchronous: bool) -> None:
    chain, (first, _) = chain_of(names=["kafka", "local"])

    def fence() -> None:
        first.refusals += [FencedError("another node")] * len(first.calls)

    first.before_call = fence
    with pytest.raises(ChainError, match=r"^kafka: FencedError"):
        stream(chain, [b"one"], asynchronous)
    assert chain.error is not None


@pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "event-loop"])
def test_a_body_whose_own_store_is_fenced_is_no_fault_of_the_chain(asynchronous: bool) -> None:
    chain, (first, second) = chain_of()

    def body() -> Iterator[bytes]:
        yield b"one"
        raise FencedError("another node has the journal that the body is read from")

    with pytest.raises(FencedError):
        stream(chain, body(), asynchronous)
    assert [call[0] for call in first.calls] == [call[0] for call in second.calls] == ["begin", "rollback"]
    chain.store(MESSAGE)
