"""The example broker as a process, killed in mid-traffic: what it said OK to is so, whatever happens to it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.processes.command import command_env, new_journal
from tests.support.processes.worker import WorkerProcess

BROKER = Path(__file__).parents[2] / "examples" / "broker.py"
TIMEOUT_S = 60.0
LINES_MAX = 149
IN_FLIGHT_MAX = 200
"""Messages that the producer has sent and knows nothing of."""
AHEAD_MAX = 500
"""Messages that it is ahead of the consumer."""
TAKEN_AT_ONCE, KEPT = 20, 5
"""By the consumer, and how many of them it acknowledges only after the next."""

CONSUMED = 300
"""How many more are to be consumed before each kill."""


@contextmanager
def broker(*arguments: str, env: Mapping[str, str] | None = None) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process and its port; killed at the end, if it has not ended."""
    command = [sys.executable, str(BROKER), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert said.startswith("serving on port "), f"it ended with {process.wait(TIMEOUT_S)}"
            yield process, int(said.split()[-1])
        finally:
            process.kill()


class Traffic:
    """One producer and one consumer of a queue, over any number of brokers one after another."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        """In order; what is not in `stored` yet is sent again to the next broker."""
        self.stored: list[str] = []
        self.taken: list[str] = []
        self.acknowledging: set[str] = set()
        """Acknowledged, and not known whether that is so."""
        self.consumed: list[str] = []
        self.given_back: Counter[str] = Counter()
        """How often, after a load, because this consumer had it before; by id."""

    async def run(self, port: int, kill: subprocess.Popen[str]) -> None:
        """Until enough was said OK to, and then the broker is killed with more on its way."""
        enough = len(self.consumed) + CONSUMED
        async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(self._until_it_is_gone(self._produce(port)))
            tasks.create_task(self._until_it_is_gone(self.consume(port, drain=False)))
            while len(self.consumed) < enough:
                assert kill.poll() is None, "the broker ended by itself"
                await asyncio.sleep(0.001)
            kill.kill()

    async def _until_it_is_gone(self, traffic: Awaitable[None]) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await traffic

    async def _produce(self, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        unknown = deque(self.sent[len(self.stored) :])
        for text in unknown:
            writer.write(f"SEND flights {text} text of {text}\n".encode())
        while True:
            while not unknown or (len(unknown) < IN_FLIGHT_MAX and len(self.sent) < len(self.consumed) + AHEAD_MAX):
                text = f"m{len(self.sent)}"
                self.sent.append(text)
                unknown.append(text)
                writer.write(f"SEND flights {text} text of {text}\n".encode())
            assert (await _line(reader)).startswith("OK ")
            self.stored.append(unknown.popleft())

    async def send_the_rest(self, port: int) -> None:
        """Again, what no broker has said OK to."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for text in self.sent[len(self.stored) :]:
            writer.write(f"SEND flights {text} text of {text}\n".encode())
            assert (await _line(reader)).startswith("OK ")
            self.stored.append(text)
        writer.close()

    async def consume(self, port: int, *, drain: bool) -> None:
        """Take and acknowledge, for ever or until the queue is empty. What it has from before is given back first."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HELLO consumer\n")
        for held in (await _line(reader)).split()[1:]:
            writer.write(f"BACK {held.replace(':', ' ')}\n".encode())
            assert await _line(reader) == "OK"
            self.given_back[held.split(":")[1]] += 1
        mine: deque[tuple[str, str]] = deque()
        while True:
            writer.write(b"TAKE flights\n" * TAKEN_AT_ONCE)
            answers = [await _line(reader) for _ in range(TAKEN_AT_ONCE)]
            found = [answer for answer in answers if not answer.startswith(("EMPTY", "ERROR QueueMissingError"))]
            mine += [self._take(answer) for answer in found]
            done = [mine.popleft() for _ in range(len(mine) - (KEPT if found or not drain else 0))]
            texts = [text for _, text in done]
            self.acknowledging.update(texts)
            if done:
                writer.write(f"ACK flights {' '.join(message for message, _ in done)}\n".encode())
                assert await _line(reader) == "OK"
            self.acknowledging.difference_update(texts)
            self.consumed += texts
            if drain and not found:
                break
        writer.close()

    def _take(self, answer: str) -> tuple[str, str]:
        """Id and text."""
        message, times, text = answer.split(" ", 2)
        text = text.removeprefix("text of ")
        assert int(times) == self.given_back[message]
        self.taken.append(text)
        return message, text


async def _line(reader: asyncio.StreamReader) -> str:
    return (await reader.readuntil(b"\n")).decode().rstrip("\n")


def check_kills(kills: int, *arguments: str, env: Mapping[str, str] | None = None) -> None:
    """Traffic through brokers that are killed, then all that is left."""
    traffic = Traffic()
    for _ in range(kills):
        with broker(*arguments, env=env) as (process, port):
            asyncio.run(traffic.run(port, process))
    consumed, unknown = set(traffic.consumed), set(traffic.acknowledging)  # by the killed brokers
    before = len(traffic.taken)
    with broker(*arguments, env=env) as (process, port):
        asyncio.run(traffic.send_the_rest(port))
        asyncio.run(traffic.consume(port, drain=True))
        left = traffic.taken[before:]
        assert traffic.given_back, "nothing was held when the broker was killed"
        assert left == sorted(left, key=lambda text: int(text[1:])), "the queue's order"
        assert not consumed & set(left), "came back after OK"
        assert set(traffic.sent) - set(left) - consumed <= unknown, "lost after OK"
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
    with broker(*arguments, env=env) as (_, port):
        asyncio.run(traffic.consume(port, drain=True))
        assert len(traffic.taken) == before + len(left), "came back after a clean end"


def test_nothing_ok_is_lost_or_comes_back_when_the_broker_is_killed_on_a_local_journal(tmp_path: Path) -> None:
    check_kills(3, "--local", str(tmp_path / "journal"))


@pytest.mark.kafka
def test_nothing_ok_is_lost_or_comes_back_when_the_broker_is_killed_on_kafka(bootstrap: str, tmp_path: Path) -> None:
    journal = new_journal(bootstrap, 2, directory=tmp_path / "command")
    with WorkerProcess(bootstrap, journal, tmp_path / "worker"):
        check_kills(1, env=command_env(bootstrap, journal, tmp_path / "broker"))


def test_what_is_refused_is_said_and_the_connection_goes_on(tmp_path: Path) -> None:
    refused = {
        "TAKE none": "ERROR QueueMissingError: ",
        "ACK q 1": "ERROR MessageMissingError: ",
        "ACK q 1 1": "ERROR StoreError: message 1 is given twice",
        "ACK q x": "ERROR ValueError: ",
        "LEAVE": "ERROR unknown: LEAVE",
        "": "ERROR unknown: ",
        "SEND q key again": "OK again",
    }

    async def say(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"SEND q key once\n")
        assert (await _line(reader)).startswith("OK ")
        for line, answer in refused.items():
            writer.write(f"{line}\n".encode())
            assert (await _line(reader)).startswith(answer)
        writer.write(b"TAKE q\nTAKE q\n")
        assert (await _line(reader)).endswith(" 0 once")
        assert await _line(reader) == "EMPTY"
        writer.close()

    with broker("--local", str(tmp_path / "journal")) as (_, port):
        asyncio.run(say(port))


def test_the_example_is_short() -> None:
    assert len(BROKER.read_text(encoding="utf-8").splitlines()) <= LINES_MAX


def test_help_tells_the_protocol() -> None:
    shown = subprocess.run(
        [sys.executable, str(BROKER), "--help"], capture_output=True, text=True, env=dict(os.environ)
    )
    assert shown.returncode == 0
    assert "TAKE QUEUE" in shown.stdout
