"""The message store's commands as a user runs them: one journal that a broker left with everything there is in it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from journal.cli.reading import loaded_snapshot, opened_journal
from journal.config import Settings, load_settings
from journal.journal import BlockingJournal
from journal.load.loading import NullLoader
from journal.process.clocks import wall_ms
from journal.store.model import Message, QueueConfig, Routing
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from journal.v1.journal_pb2 import ADD
from journal.v1.store_pb2 import MESSAGE, OUTCOME, Outcome
from journal.xa.outcomes import KeptOutcome
from journal.xa.resource import XaResource
from loaders.queues import QueueLoader
from tests.integration.test_cli import Cli
from tests.support.processes.command import new_journal

pytestmark = pytest.mark.kafka

SHARDS = 2
HOUR_MS = 3_600_000


@dataclass
class Left:
    """What the broker left."""

    ids: dict[str, int]
    tx: int


def a_broker_leaves(settings: Settings) -> Left:
    """Two queues of one address: a message in each of the states that it may have, and one of each other record."""
    with BlockingJournal(settings) as journal:
        loader = QueueLoader(references_in_memory_max=1000, queue_references_in_memory_max=1000)
        journal.activate(loader)
        store = MessageStore(journal, StoreSettings(inline_bytes_max=1000, chunk_bytes=1000))
        store.start(loader.loaded)
        ids: dict[str, int] = {}
        store.create_address("orders")
        for name in ("eu", "us"):
            store.create_queue(QueueConfig(name, "orders", routing=Routing.MULTICAST, journaled_acquisition=True))
        store.bind("eu", key="eu.#", filter="a = 1")
        now = int(wall_ms())

        def send(name: str, *queues: str, **fields: Any) -> None:
            message = Message("orders", name.encode(), timestamp=now - 60_000, **fields)
            ids[name] = store.send(message, queues).wait()

        send("held", "us", priority=9)
        held = store.take("us", "consumer-1")
        assert held is not None
        send("in both", "eu", "us", properties={"colour": "red"})
        send("locked", "eu", "us")
        send("scheduled", "us", due=now + HOUR_MS)
        store.acknowledge(ids["in both"], "eu").wait()
        ids["large"] = store.send(Message("orders", b"x" * 2500), ["us"]).id
        ids["chunk"] = store.describe(ids["large"]).chunks[1]

        resource = XaResource(store, journal, loader.loaded, clock_ms=wall_ms)
        xid = resource.xid(7, b"payment", b"store")
        resource.tpc_begin(xid)
        tx = resource.tx(xid)
        store.acknowledge(ids["locked"], "eu", tx=tx)
        ids["added"] = store.send(Message("orders", b"added"), ["eu"], tx=tx).id
        resource.end(xid)
        resource.tpc_prepare(xid)
        decided = KeptOutcome(journal.new_id(), resource.xid(7, b"other", b"db"), Outcome.COMMITTED, now)
        ids["outcome"] = decided.record_id
        journal.append_all([(ADD, decided.record_id, OUTCOME, decided.encoded(), False, 0)]).wait()
        store.close()
    return Left(ids, tx)


@pytest.fixture(scope="module")
def cli(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A journal with a worker."""
    directory = tmp_path_factory.mktemp("store-cli")
    made = Cli(bootstrap, new_journal(bootstrap, SHARDS, directory=directory), SHARDS, directory)
    with made.worker():
        yield made


@pytest.fixture(scope="module")
def left(cli: Cli) -> Left:
    settings = load_settings(bootstrap_servers=cli.bootstrap, journal=cli.journal, directory=cli.directory / "broker")
    return a_broker_leaves(settings)


def test_queues_tells_what_is_in_each_who_holds_it_and_since_when(cli: Cli, left: Left) -> None:
    eu, us = cli.json("queues")
    names = ("queue", "address", "routing", "depth", "ready", "held", "locked", "scheduled", "in_doubt")
    assert [eu[name] for name in names] == ["eu", "orders", "multicast", 1, 0, 0, 1, 0, 1]
    assert [us[name] for name in names] == ["us", "orders", "multicast", 5, 3, 1, 0, 1, 0]
    assert eu["bindings"] == [{"key": "eu.#", "filter": "a = 1"}]
    assert us["holders"] == {"consumer-1": 1}
    assert us["bytes"] > 2500
    assert 60 <= us["oldest_age_seconds"] < 600
    assert "consumer-1 (1)" in cli.ok("queues")


def test_messages_are_browsed_in_the_order_of_delivery_and_stay(cli: Cli, left: Left) -> None:
    held, both, locked, scheduled, large = cli.json("messages", "us")
    ids = left.ids
    assert [line["id"] for line in (held, both, locked, scheduled, large)] == [
        ids[name] for name in ("held", "in both", "locked", "scheduled", "large")
    ]
    assert (held["state"], held["holder"], held["priority"]) == ("held", "consumer-1", 9)
    assert (both["state"], both["properties"], both["body"]) == ("ready", {"colour": "red"}, "aW4gYm90aA==")
    assert (scheduled["state"], large["text"], large["body"]) == ("scheduled", "in 3 chunks", None)
    (first,) = cli.json("messages", "us", "--limit", 1)
    assert first["id"] == ids["held"]
    (only,) = cli.json("messages", "eu")
    assert (only["state"], only["tx"]) == ("locked", left.tx)
    said = cli("messages", "us", "--limit", 2)
    assert "in both" in said.stdout
    assert "messages shown: 2 of 5 (--limit 0 shows all)" in said.stderr
    assert "kafka-journal queues -j" in cli.fails("messages", "no-such-queue")


def test_explain_says_why_a_record_is_still_there(cli: Cli, left: Left) -> None:
    ids = left.ids

    def explained(name: str) -> tuple[dict[str, Any], str]:
        found = cli.json("explain", ids[name])
        return found, "\n".join(found["why"])

    both, why = explained("in both")
    assert (both["what"], both["address"], both["acknowledged"]) == ("message", "orders", ["eu"])
    assert [reference["queue"] for reference in both["references"]] == ["us"]
    assert why == "queue us: ready, and nobody has taken it"
    locked, why = explained("locked")
    assert [line["tx"] for line in locked["transactions"]] == [left.tx]
    assert f"queue eu: transaction {left.tx} (7:payment:store), in doubt, will acknowledge it, or not" in why
    assert explained("chunk")[0]["message"] == ids["large"]
    assert explained("outcome")[0]["xid"] == "7:other:db"
    assert "held by consumer-1" in cli.ok("explain", ids["held"])
    assert "has not issued that id yet" in cli.fails("explain", 2**62)


def test_a_transaction_in_doubt_is_shown_with_its_xid_and_what_it_holds(cli: Cli, left: Left) -> None:
    found = cli.json("tx", "list")
    (line,), (kept,) = found["in_doubt"], found["outcomes"]
    assert (kept["text"], kept["decision"], kept["record"]) == ("7:other:db", "committed", left.ids["outcome"])
    assert (line["text"], line["xid"]["format_id"]) == ("7:payment:store", 7)
    assert base64.b64decode(line["xid"]["gtrid"]) == b"payment"
    assert (line["queues"], line["messages"]) == ({"eu": {"adds": 1, "acknowledges": 1, "changes": 0}}, 2)
    assert line["age_seconds"] < 600
    references = cli.json("tx", "show", left.tx)["references"]
    assert {(line["message"], line["does"]) for line in references} == {
        (left.ids["locked"], "acknowledges"),
        (left.ids["added"], "adds"),
    }
    assert "eu (adds 1, acknowledges 1)" in cli.ok("tx", "list")


def test_commands_at_once_have_a_copy_each_and_keep_it(cli: Cli, left: Left) -> None:
    settings = load_settings(bootstrap_servers=cli.bootstrap, journal=cli.journal)
    copies = Path(cli.env()["XDG_CACHE_HOME"]) / "kafka-journal" / "copies"
    with opened_journal(settings) as (kafka, rows):
        for _ in range(2):
            with (
                loaded_snapshot(settings, kafka, rows, now=True, copies=copies) as one,
                loaded_snapshot(settings, kafka, rows, now=True, copies=copies) as other,
            ):
                assert one.tell(NullLoader()) == other.tell(NullLoader())
    assert directories(copies / cli.journal) == ["read-0", "read-1"]
    cli.ok("queues")
    assert directories(copies / cli.journal) == ["read-0", "read-1"]


def directories(parent: Path) -> list[str]:
    return sorted(path.name for path in parent.iterdir() if path.is_dir() and path.name.startswith("read"))


def test_a_copy_that_cannot_be_opened_is_built_anew(cli: Cli, left: Left) -> None:
    cli.ok("queues")
    current = Path(cli.env()["XDG_CACHE_HOME"]) / "kafka-journal" / "copies" / cli.journal / "read-0" / "CURRENT"
    current.write_text("damaged\n")
    assert len(cli.json("queues")) == 2
    assert current.read_text() != "damaged\n"


def test_messages_are_sent_and_received_and_a_settled_transaction_lets_go(cli: Cli, left: Left) -> None:
    assert "--create makes it" in cli.fails("send", "new", "body")
    assert "there is no queue new" in cli.fails("receive", "new")
    sent = cli.json("send", "new", "one", "--create", "-p", "a=b", "-p", "n:long=20", "--count", 2)
    assert (sent["queues"], len(sent["messages"])) == (["new"], 2)
    assert cli.json("send", "new", "-", "--priority", 9, stdin="first")["queues"] == ["new"]
    received = [json.loads(line) for line in cli.ok("receive", "new", "--count", 2, "--json").splitlines()]
    assert [line["body"] for line in received] == ["Zmlyc3Q=", "b25l"]
    assert [line["properties"] for line in received] == [{}, {"a": "b", "n": 20}]
    assert cli.ok("receive", "new", "--count", 0) == "one\n"
    assert cli.ok("receive", "new") == ""

    assert cli.json("tx", "show", "7:payment:store")["tx"] == left.tx
    cli.ok("tx", "commit", "7:payment:store", "--yes")
    eu = next(line for line in cli.json("queues") if line["queue"] == "eu")
    assert (eu["depth"], eu["ready"], eu["in_doubt"]) == (1, 1, 0)
    assert "--property x: expected NAME[:TYPE]=VALUE" in cli.fails("send", "new", "body", "-p", "x", code=2)
    (kept,) = [line for line in cli.dump() if line["kind"] == OUTCOME and line["id"] != left.ids["outcome"]]
    assert "heuristic commit" in cli.ok("explain", kept["id"])
    assert "heuristic commit" in cli.ok("tx", "list")
    epoch = cli.json("init")["epoch"]
    assert "has still to commit" in cli.fails("tx", "forget", "7:other:db", "--yes")
    assert "no outcome 7:none:x is kept" in cli.fails("tx", "forget", "7:none:x", "--yes")
    assert "Aborted" in cli.fails("tx", "forget", "7:payment:store", stdin="n\n")
    assert cli.json("init")["epoch"] == epoch, "a refusal activates nothing"
    assert cli.json("tx", "forget", "7:payment:store", "--yes")["record"] == kept["id"]
    assert [line["text"] for line in cli.json("tx", "list")["outcomes"]] == ["7:other:db"]


def test_what_a_transaction_settled_by_hand_leaves_without_references_goes_with_it(cli: Cli) -> None:
    """One without an xid, which only its broker knows."""
    loader = QueueLoader(references_in_memory_max=1000, queue_references_in_memory_max=1000)
    settings = load_settings(bootstrap_servers=cli.bootstrap, journal=cli.journal, directory=cli.directory / "hand")
    settled = {}
    with BlockingJournal(settings) as journal:
        journal.activate(loader)
        with MessageStore(journal) as store:
            store.start(loader.loaded)
            store.create_address("hand")
            store.create_queue(QueueConfig("hand", "hand"))
            for outcome in ("commit", "rollback"):
                sent = store.send(Message("hand", outcome.encode()), ["hand"]).wait()
                tx = store.begin()
                store.acknowledge(sent, "hand", tx=tx)
                store.prepare(tx, b"no xid").wait()
                settled[outcome] = sent, tx
    for outcome, (_, tx) in settled.items():
        cli.ok("tx", outcome, tx, "--yes")
    left = {line["id"] for line in cli.dump() if line.get("kind") == MESSAGE}
    assert left & {sent for sent, _ in settled.values()} == {settled["rollback"][0]}
