"""`queues create|change|delete|pause|resume|purge` through a running node: what they do, ask, print and refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from journal.cli.main import app
from journal.store.model import QueueConfig, Routing
from journal.store.store import MessageStore
from tests.support.sockets import NodeUnderTest
from tests.support.stores import bodies, declare, send


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeUnderTest]:
    made = NodeUnderTest(tmp_path)
    declare(made.store_node.store, "q")
    with made.socket():
        yield made
    made.store_node.close()


def run(node: NodeUnderTest, *words: str, typed: str = "") -> Result:
    directory = str(node.settings.directory)
    arguments = ["queues", *words, "-j", "orders", "--node"]
    return CliRunner().invoke(app, arguments, input=typed, env={"KAFKA_JOURNAL_DIRECTORY": directory})


def store_of(node: NodeUnderTest) -> MessageStore:
    return node.store_node.store


def test_a_queue_is_created_changed_paused_resumed_and_shown(node: NodeUnderTest) -> None:
    made = run(node, "create", "eu", "--address", "sales", "--multicast", "--deliveries-max", "5", "--json")
    assert json.loads(made.stdout) == {"queue": "eu", "action": "create"}
    assert run(node, "change", "eu", "--filter", "a = 1", "--exclusive").exit_code == 0
    assert run(node, "pause", "eu").stdout == "queue eu is paused\n"
    expected = QueueConfig(
        "eu", "sales", Routing.MULTICAST, filter="a = 1", exclusive=True, deliveries_max=5, paused=True
    )
    assert store_of(node).queue("eu").config == expected
    lines = {line["queue"]: line for line in json.loads(run(node, "--json").stdout)}
    assert (lines["eu"]["paused"], lines["q"]["paused"]) == (True, False)
    assert "eu (paused)" in run(node).stdout
    refused = CliRunner().invoke(
        app, ["receive", "eu", "-j", "orders", "--node"], env={"KAFKA_JOURNAL_DIRECTORY": str(node.settings.directory)}
    )
    said = " ".join(refused.output.split())
    assert (refused.exit_code, "kafka-journal queues resume -j orders eu ends that" in said) == (1, True), said
    run(node, "resume", "eu")
    assert not store_of(node).queue("eu").config.paused


def test_purge_and_delete_do_nothing_until_the_queue_is_named(node: NodeUnderTest) -> None:
    for body in (b"one", b"two"):
        send(store_of(node), body)
    for word in ("purge", "delete"):
        refused = run(node, word, "q", typed="r\n")
        assert (refused.exit_code, "that is not q: nothing was done" in refused.output) == (1, True)
        assert run(node, word, "q").exit_code == 1
    assert bodies(store_of(node)) == [b"one", b"two"]
    assert "queue q is purged: 2 messages" in run(node, "purge", "q", typed="q\n").output
    assert run(node, "delete", "q", "--yes").exit_code == 0
    assert store_of(node).queues() == []


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["pause", "no"], 1, "there is no queue no: kafka-journal queues"),
        (["delete", "no"], 1, "there is no queue no: kafka-journal queues"),
        (["create", "q"], 1, "queue q exists: kafka-journal queues change -j orders q changes it"),
        (["change", "q"], 2, "give an option"),
        (["change", "q", "--expiry-address", "orders"], 2, "its own address"),
        (["--json", "pause", "q"], 2, "options of pause come behind its name"),
    ],
)
def test_what_cannot_be_done_says_what_to_do(node: NodeUnderTest, words: list[str], code: int, says: str) -> None:
    ended = run(node, *words)
    assert (ended.exit_code, says in " ".join(ended.output.split())) == (code, True), ended.output
