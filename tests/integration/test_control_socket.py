"""`--node` as a user gives it: commands that ask a running node, beside those that read for themselves.

One node is active the whole time; nobody takes it down to settle a transaction.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from journal.cli.control_socket.client import find_node
from journal.cli.control_socket.paths import socket_path
from journal.config import Settings, load_settings
from tests.integration.test_cli import Cli
from tests.integration.test_store_cli import Left, a_broker_leaves
from tests.support.children.served import served_node
from tests.support.processes.child import Child
from tests.support.processes.command import COMMAND, new_journal
from tests.support.sources import create_topic

pytestmark = pytest.mark.kafka

NODE = "broker a"


@pytest.fixture(scope="module")
def cli(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A journal with a worker."""
    directory = tmp_path_factory.mktemp("control-socket")
    made = Cli(bootstrap, new_journal(bootstrap, 2, directory=directory), 2, directory)
    with made.worker():
        yield made


@pytest.fixture(scope="module")
def settings(cli: Cli) -> Settings:
    return load_settings(bootstrap_servers=cli.bootstrap, journal=cli.journal, directory=cli.directory)


@pytest.fixture(scope="module")
def left(cli: Cli, settings: Settings) -> Left:
    """What a broker left, before the node became active."""
    return a_broker_leaves(settings.model_copy(update={"directory": cli.directory / "broker"}))


@pytest.fixture(scope="module")
def node(cli: Cli, left: Left) -> Iterator[Child]:
    with served_node(cli.env(), Path(cli.directory), NODE) as running:
        yield running


def unchanging(value: Any) -> Any:
    """What a load knows and does not change while a test runs: all but ages, and words that tell them."""
    if isinstance(value, dict):
        left_out = [name for name in value if name.endswith("age_seconds")]
        left_out += ["why", "since_activation", "holders_acted"]
        return {name: unchanging(each) for name, each in value.items() if name not in left_out}
    return [unchanging(each) for each in value] if isinstance(value, list) else value


def test_what_a_node_tells_is_what_a_load_tells(cli: Cli, left: Left, node: Child) -> None:
    commands: list[tuple[str | int, ...]] = [
        ("queues",),
        ("messages", "us", "--limit", 4),
        ("messages", "eu"),
        ("tx", "list"),
        ("tx", "show", left.tx),
        ("explain", left.ids["locked"]),
        ("explain", left.ids["chunk"]),
    ]
    for command in commands:
        asked = unchanging(cli.json(*command, "--node"))
        assert asked, command
        assert asked == unchanging(cli.json(*command)), command


def test_tables_for_people_are_printed_of_what_a_node_tells(cli: Cli, left: Left, node: Child) -> None:
    assert "consumer-1 (1)" in cli.ok("queues", "--node")
    assert "in both" in cli.ok("messages", "us", "--node", NODE)
    assert "eu (adds 1, acknowledges 1)" in cli.ok("tx", "list", f"--node={NODE}")
    assert "kafka-journal queues -j" in cli.fails("messages", "no-such-queue", "--node")


def test_a_node_tells_a_message_for_routes_as_the_tables_do(
    cli: Cli, settings: Settings, left: Left, node: Child
) -> None:
    topic = create_topic(settings.bootstrap_servers, f"{settings.journal}-out")
    target = {"topic": topic, "key": ["header:colour", "message-id"]}
    routing = json.dumps({"routes": [{"name": "r", "address": "orders", "targets": [target]}]})

    def tested(*arguments: str | int) -> Any:
        ended = cli("routes", "test", *arguments, "--json", KAFKA_JOURNAL_ROUTING=routing)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    for name, value in (("in both", "in both"), ("large", "x" * 2500)):
        asked = tested("--id", left.ids[name], "--node")
        assert asked == tested("--id", left.ids[name]), name
        assert asked["outcomes"][0]["value"] == value
    said = cli.fails("routes", "test", "--id", left.ids["chunk"], f"--node={NODE}", KAFKA_JOURNAL_ROUTING=routing)
    assert f"no message {left.ids['chunk']} lives" in said
    assert "a node is asked for a message that it has: --id" in cli.fails(
        "routes", "test", "--address", "a", "--node", code=2, KAFKA_JOURNAL_ROUTING=routing
    )


def test_messages_go_in_and_out_through_a_node_as_they_do_without(cli: Cli, settings: Settings, node: Child) -> None:
    assert "--create makes it" in cli.fails("send", "new", "body", "--node")
    assert "there is no queue new" in cli.fails("receive", "new", "--node")
    sent = cli.json("send", "new", "one", "--create", "-p", "a=b", "--count", 3, "--node")
    assert (sent["address"], sent["queues"], len(sent["messages"])) == ("new", ["new"], 3)
    assert cli.json("send", "new", "--node", NODE, "-", "--priority", 9, stdin="first")["queues"] == ["new"]
    received = [json.loads(line) for line in cli.ok("receive", "new", "--count", 2, "--json", "--node").splitlines()]
    assert [(line["body"], line["properties"]) for line in received] == [("Zmlyc3Q=", {}), ("b25l", {"a": "b"})]
    assert received[1]["id"] == sent["messages"][0]

    with find_node(settings, NODE) as vanishing:
        taken = vanishing.receiving("new", "somebody").take()
        assert taken is not None
        assert taken["id"] == sent["messages"][1]
    with find_node(settings, NODE) as client:
        while any(line["held"] for line in client.queues().queues if line["queue"] == "new"):
            continue  # it is not given back yet
    rest = cli.ok("receive", "new", "--json", "--count", 0, "--node")
    lines = {line["id"]: line["deliveries"] for line in map(json.loads, rest.splitlines())}
    assert lines == {sent["messages"][1]: 1, sent["messages"][2]: 0}
    assert cli.ok("receive", "new", "--node") == ""


def test_a_receiver_that_is_killed_has_received_what_it_printed_at_most_once_more(
    cli: Cli, settings: Settings, node: Child
) -> None:
    total = 5000
    sent = cli.json("send", "killed", "x", "--create", "--count", total, "--node")["messages"]
    receiver = subprocess.Popen(
        [str(COMMAND), "receive", "killed", "--count", "0", "--json", "--node"], stdout=subprocess.PIPE, env=cli.env()
    )
    assert receiver.stdout is not None
    printed = [json.loads(receiver.stdout.readline())["id"] for _ in range(10)]
    receiver.kill()
    printed += [json.loads(line)["id"] for line in receiver.stdout.read().splitlines() if line.endswith(b"}")]
    receiver.communicate()
    rest: list[int] = []
    with find_node(settings, "") as client:
        while any(
            holder.startswith("kafka-journal receive") for line in client.queues().queues for holder in line["holders"]
        ):
            continue  # the node has not noticed yet
        receiving = client.receiving("killed", "me")
        while (line := receiving.take()) is not None:
            receiving.acknowledge(line["id"])
            rest.append(line["id"])
        assert receiving.finish() == 0
    assert sorted({*printed, *rest}) == sent
    assert len(printed) + len(rest) <= total + 1


def test_a_transaction_is_settled_by_the_node_that_is_active(cli: Cli, left: Left, node: Child) -> None:
    assert "is active in epoch" in cli.fails("tx", "commit", left.tx, "--yes")
    assert "give one of them" in cli.fails("tx", "commit", left.tx, "--yes", "--take-over", "--node", code=2)
    (listed,) = cli.json("tx", "list")["in_doubt"]
    done = cli.json("tx", "commit", left.tx, "--yes", "--node")
    assert unchanging(done) == unchanging(listed) | {
        "outcome": "commit",
        "operator": done["operator"],
        "epoch": done["epoch"],
    }
    found = cli.json("tx", "list", "--node")
    assert unchanging(found) == unchanging(cli.json("tx", "list"))
    assert found["in_doubt"] == []
    assert {line["decision"] for line in found["outcomes"]} == {"committed", "heuristic commit"}
    assert "is forgotten" in cli.ok("tx", "forget", listed["text"], "--yes", "--node")
    assert [line["decision"] for line in cli.json("tx", "list")["outcomes"]] == ["committed"]
    eu = next(line for line in cli.json("queues", "--node") if line["queue"] == "eu")
    assert (eu["depth"], eu["ready"], eu["in_doubt"]) == (1, 1, 0)
    assert "no transaction" in cli.fails("tx", "rollback", left.tx, "--yes", "--node")
    assert node.running


def test_a_command_names_the_nodes_when_it_is_not_clear_which_to_ask(cli: Cli, settings: Settings, node: Child) -> None:
    with served_node(cli.env(), Path(cli.directory), "broker b", "standby", NODE) as another:
        said = cli.fails("queues", "--node", code=2)
        assert "broker a, broker b: --node=NAME" in said
        said = cli.fails("queues", "--node", "broker b")
        assert f"node broker b of journal {cli.journal} is standby, not active; {NODE} is" in said
        assert cli.json("queues", "--node", NODE)
        another.kill()
    assert socket_path(settings, "broker b").exists()
    assert "node broker b does not run any more" in cli.fails("tx", "list", "--node", "broker b")
    assert cli.json("queues", "--node")
    assert "no node named broker c" in cli.fails("queues", "--node=broker c")
    elsewhere = cli.fails("queues", "--node", KAFKA_JOURNAL_DIRECTORY=str(Path(cli.directory) / "elsewhere"))
    assert "no node of journal" in elsewhere
