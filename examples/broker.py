"""An example broker: queues over a line protocol, kept by a message store in Kafka or on this machine's disk.

    KAFKA_JOURNAL_JOURNAL=orders python examples/broker.py      python examples/broker.py --local /tmp/orders

Who connects says lines and is answered in order, a line each; many may be on their way. OK means that it is durable:

    HELLO NAME             OK QUEUE:ID …            who it is, said first (one connection a name), and what it has
    SEND QUEUE KEY TEXT    OK ID                    one KEY is stored once, however often it is sent; - is no key
    TAKE QUEUE             ID TIMES TEXT, or EMPTY  the first message is its own now; it was handed out TIMES before
    ACK QUEUE ID …         OK                       done with them, for ever: all of them, or none
    BACK QUEUE ID          OK                       not done with it; the end of a connection gives back all it has

What is refused is answered with `ERROR kind: reason`. A broker that was killed is started again, here or elsewhere:
it fences the old one, loads, and goes on; what a client had taken stays its own for a while, for its next HELLO.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from journal import BlockingJournal, Held, LocalJournal, Message, MessageStore, QueueConfig, errors, load_settings
from loaders import QueueLoader

Answer = tuple[str, Awaitable[object] | None]  # what is said, once that is durable


class Connection:
    """One client: what it says is accepted in order, and answered in order."""

    def __init__(self, store: MessageStore, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._store, self._reader, self._writer = store, reader, writer
        self._name = "{}:{}".format(*writer.get_extra_info("peername"))
        self._answers: asyncio.Queue[Answer | None] = asyncio.Queue(1000)  # then no more is read

    async def serve(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._answer())
                while line := await self._reader.readline():
                    await self._answers.put(await self._do(*line.decode().rstrip("\r\n").split(" ", 3)))
                await self._answers.put(None)
        except* (ConnectionError, ValueError, errors.JournalError) as ended:  # gone, no text, or fenced
            logging.warning("%s: %s", self._name, ended.exceptions[0])
        finally:
            self._writer.close()
            with suppress(errors.JournalError):  # if the journal is not ours any more, the next one gives it back
                await self._accepted(lambda: self._store.release_holder(self._name))

    async def _answer(self) -> None:
        while (answer := await self._answers.get()) is not None:
            text, durable = answer
            if durable is not None:
                await durable
            self._writer.write(f"{text}\n".encode())
            await self._writer.drain()

    async def _do(self, verb: str, queue: str = "", rest: str = "", text: str = "") -> Answer:
        store, name = self._store, self._name
        try:
            match verb:
                case "HELLO":
                    self._name = queue
                    return " ".join(["OK", *(f"{of}:{message}" for message, of in store.reattach(queue))]), None
                case "SEND":
                    await self._declare(queue)
                    message = Message(queue, text.encode(), duplicate_id=b"" if rest == "-" else rest.encode())
                    sent = await self._accepted(lambda: store.send(message, [queue]))
                    return f"OK {sent.id}", sent
                case "TAKE":
                    if (taken := await self._accepted(lambda: store.take(queue, name))) is None:
                        return "EMPTY", None
                    body = b"".join([piece async for piece in store.body_stream(taken.message)])
                    return f"{taken.message} {taken.deliveries} {body.decode()}", None
                case "ACK" if done := [int(each) for each in (rest, *text.split())]:
                    return "OK", await self._accepted(lambda: store.acknowledge_all([Held(queue, done, name)]))
                case "BACK":
                    return "OK", await self._accepted(lambda: store.release(int(rest), queue, name))
            return f"ERROR unknown: {verb}", None
        except errors.DuplicateMessageError:
            return "OK again", store.flush()  # the first one may be on its way
        except (errors.JournalError, ValueError) as error:
            return f"ERROR {type(error).__name__}: {error}", None

    async def _declare(self, queue: str) -> None:
        """A queue is made when somebody sends to it; all that follows is in the journal behind it."""
        try:
            self._store.queue(queue)
        except errors.QueueMissingError:
            with suppress(errors.AddressExistsError):
                await self._accepted(lambda: self._store.create_address(queue, duplicate_window=10_000))
            with suppress(errors.QueueExistsError):
                await self._accepted(
                    lambda: self._store.create_queue(QueueConfig(queue, address=queue, journaled_acquisition=True))
                )

    async def _accepted(self, operate: Callable[[], Any]) -> Any:
        """Operations do not block: one that finds the journal full is tried again when there is room."""
        while True:
            try:
                return operate()
            except errors.FullError:
                await self._store.room()


async def serve(store: MessageStore, port: int) -> None:
    """Until SIGTERM."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    server = await asyncio.start_server(lambda *streams: Connection(store, *streams).serve(), "127.0.0.1", port)
    print("serving on port", server.sockets[0].getsockname()[1], flush=True)
    await stopped.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--local", type=Path, metavar="DIR", help="keep the journal there, not in Kafka")
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()

    def end(error: errors.JournalError) -> None:  # fenced, or failed: whatever started it may start it again
        signal.raise_signal(signal.SIGTERM)

    journal: BlockingJournal | LocalJournal
    if given.local:
        journal = LocalJournal(given.local, room_timeout_ms=0, on_critical=end)
    else:
        journal = BlockingJournal(load_settings(room_timeout_ms=0), copy_name="broker", on_critical=end)
    with journal:
        loader = QueueLoader(references_in_memory_max=1_000_000, queue_references_in_memory_max=1_000_000)
        journal.activate(loader)
        with MessageStore(journal) as store:
            store.start(loader.loaded)
            asyncio.run(serve(store, given.port))
        return 0 if journal.current else 1


if __name__ == "__main__":
    sys.exit(main())
