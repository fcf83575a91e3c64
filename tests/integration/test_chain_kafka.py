"""A chain of a store on Kafka and a local one, killed at work: brought in line, both hold what was told complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from journal.config import Settings
from journal.journal import BlockingJournal
from journal.store.chain.lockstep import chained_id
from journal.store.model import Message, ReferenceState
from tests.support.children.chain import ADDRESS, CONSUMED, DEAD, KEPT, Stores, body_of, require_same, stores
from tests.support.children.telling import read_notes
from tests.support.in_process import made_journal, running_worker
from tests.support.processes.child import Child, program
from tests.support.processes.command import command_env
from tests.support.stores import bodies

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

TOLD = 250
"""Messages that a life is told of before it is killed."""

START_S = 60.0


class Node:
    """A node that is killed at work, again and again, on the same two stores."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        self.local = directory / "local"
        self._settings = settings
        self._history = directory / "history"

    def kill_at_work(self) -> None:
        before = self._told()
        env = command_env(self._settings.bootstrap_servers, self._settings.journal, self._settings.directory)
        log = self._history.with_suffix(".log")
        with Child("the node", program("chain", self.local, self._history), log, env).start() as child:
            child.wait_until(lambda: self._told() >= before + TOLD, "news for the node")

    def _told(self) -> int:
        return self._history.read_text().count('"sent"') if self._history.exists() else 0

    def said(self, word: str) -> list[Any]:
        """What it wrote down, in all its lives."""
        return [found[word] for found in read_notes(self._history) if word in found]

    def put_back(self, opened: Stores) -> dict[tuple[str, int], int]:
        """By all its lives, and now."""
        lives = [*self.said("put_back"), opened.put_back]
        return {(queue, message): life for life, found in enumerate(lives, 1) for queue, message in found}


def test_a_chain_over_kafka_that_is_killed_goes_on_with_all_that_was_told_complete(
    bootstrap: str, tmp_path: Path
) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=2)
    node = Node(settings, tmp_path)
    with running_worker(settings):
        for _ in range(2):
            node.kill_at_work()
        with BlockingJournal(settings, copy_name="next") as journal, stores(journal, node.local) as opened:
            check(node, opened)
            go_on(node, opened)
            after = sorted(bodies(opened.first, CONSUMED))
        with BlockingJournal(settings, copy_name="next") as journal, stores(journal, node.local) as opened:
            assert not opened.realigned
            assert sorted(bodies(opened.first, CONSUMED)) == sorted(bodies(opened.second, CONSUMED)) == after


def check(node: Node, opened: Stores) -> None:
    """Both stores hold the same: all that was told complete, and nothing that nobody did. Where nothing was consumed
    it is also in the same order: what the local store had settled already, and Kafka not, comes last there."""
    first, second = opened.first, opened.second
    require_same(first, second, node.put_back(opened))
    for queue in (KEPT, DEAD):
        assert [chained_id(info.message) for info in first.browse(queue)] == [
            info.message for info in second.browse(queue)
        ]
    found = bodies(first, KEPT)
    numbers = [int(body.split()[0]) for body in found]
    assert found == [body_of(number) for number in numbers]
    assert numbers == sorted(set(numbers))
    assert set(node.said("sent")) <= set(numbers) <= set(node.said("sending"))
    assert {len(set(together) & set(numbers)) for together in node.said("together")} <= {0, 3}
    (locked,) = node.said("locks")
    left = {info.message for info in first.browse(CONSUMED)} - {locked}
    everything = {info.message for info in first.browse(KEPT)}
    assert set(node.said("settled")) <= everything - left <= set(node.said("settling"))
    origins = [first.message(info.message).origin for info in first.browse(DEAD)]
    dead = {origin.message for origin in origins if origin is not None}
    assert dead
    assert dead <= everything - left


def go_on(node: Node, opened: Stores) -> None:
    """The chain works as if nothing had been, and what was in doubt is settled in both stores."""
    chain = opened.chain
    (tx,), (locked,), (added,) = node.said("prepared"), node.said("locks"), node.said("adds")
    for store, expected in ((opened.first, tx), (opened.second, chained_id(tx))):
        assert [info.tx for info in store.in_doubt()] == [expected]
    assert {info.state for info in chain.explain(locked)} == {ReferenceState.LOCKED}
    chain.commit(tx).wait()
    assert b"in doubt" in bodies(opened.second, CONSUMED)
    assert opened.second.message(chained_id(added)).body == b"in doubt"
    chain.release_holder("consumer").wait()
    delivery = chain.take(CONSUMED, "next")
    assert delivery is not None
    assert delivery.message != locked
    chain.acknowledge(delivery.message, CONSUMED, "next").wait()
    large = chain.store_stream(Message(ADDRESS), [b"last"] * 1000, [CONSUMED]).wait()
    assert b"".join(chain.body_stream(large)) == b"last" * 1000
    chain.flush().wait()
    require_same(opened.first, opened.second, node.put_back(opened))
