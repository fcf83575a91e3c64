"""The commands as a user runs them: processes against a real broker, judged by what they print and leave behind."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it re-exports them without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from journal.cli.status.gate_stops import STILL_S
from journal.embedded.cluster import EmbeddedKafka
from journal.v1.journal_pb2 import ADD, Position, Record, Transaction
from journal.wire.keys import record_key, transaction_key
from tests.integration.test_damaged_batch import MARK, damage
from tests.support.brokers import JVM_OPTIONS
from tests.support.processes.command import COMMAND, command_env, new_journal, run_command
from tests.support.processes.worker import WorkerProcess
from tests.support.script_model import ScriptModel, encode, random_script, to_text
from tests.support.sources import delete_topic, topics

pytestmark = pytest.mark.kafka

TIMEOUT_S = 30.0


@dataclass
class Cli:
    """Commands for one journal, and its broker as a foreign client sees it."""

    bootstrap: str
    journal: str
    shards: int
    directory: Path

    def __call__(self, *arguments: str | int, stdin: str | bytes = "", **env: str) -> subprocess.CompletedProcess[str]:
        return run_command(*arguments, env=self.env(**env), stdin=stdin)

    def env(self, **env: str) -> dict[str, str]:
        return command_env(self.bootstrap, self.journal, self.directory, env)

    def ok(self, *arguments: str | int, stdin: str | bytes = "") -> str:
        """What it prints; it must succeed."""
        ended = self(*arguments, stdin=stdin)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def json(self, *arguments: str | int, stdin: str = "") -> Any:
        return json.loads(self.ok(*arguments, "--json", stdin=stdin))

    def fails(self, *arguments: str | int, stdin: str | bytes = "", code: int = 1, **env: str) -> str:
        """What it says on standard error; it must fail."""
        ended = self(*arguments, stdin=stdin, **env)
        assert ended.returncode == code, ended.stdout + ended.stderr
        return " ".join(ended.stderr.split())

    def dump(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.ok("dump", "--now").splitlines()]

    def worker(self) -> WorkerProcess:
        return WorkerProcess(self.bootstrap, self.journal, self.directory)

    def write(self, topic: str, partition: int, value: bytes | None, key: bytes | None = None) -> int:
        """A record by a client that knows nothing of journals; its offset."""
        offsets: list[int | None] = []
        producer = Producer({"bootstrap.servers": self.bootstrap})
        producer.produce(
            f"{self.journal}.{topic}", value, key, partition, lambda _error, message: offsets.append(message.offset())
        )
        producer.flush(TIMEOUT_S)
        assert offsets[0] is not None
        return offsets[0]

    def active_node(self, **more: str) -> subprocess.Popen[bytes]:
        """An `apply` that has appended the record 1 and waits for more."""
        node = subprocess.Popen(
            [str(COMMAND), "apply", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.env(KAFKA_JOURNAL_NODE="the-first-node", **more),
        )
        assert node.stdin is not None
        node.stdin.write(b'{"op":"add","id":1}\n')
        node.stdin.flush()
        while not self.dump():
            assert node.poll() is None, node.communicate()
        return node


@pytest.fixture
def make_cli(bootstrap: str, tmp_path: Path) -> Callable[[int], Cli]:
    def make(shards: int) -> Cli:
        return Cli(bootstrap, new_journal(bootstrap, shards, directory=tmp_path), shards, tmp_path)

    return make


@pytest.fixture
def nobody(bootstrap: str, tmp_path: Path) -> Cli:
    """Commands for a journal that was never made."""
    return Cli(bootstrap, "nobody", 0, tmp_path)


@pytest.fixture
def idle(make_cli: Callable[[int], Cli]) -> Cli:
    """A journal without a worker."""
    return make_cli(2)


@pytest.fixture
def cli(make_cli: Callable[[int], Cli]) -> Iterator[Cli]:
    """A journal with a worker."""
    made = make_cli(2)
    with made.worker():
        yield made


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


# ---- init ----------------------------------------------------------------------------------------------------


def test_init_again_finds_the_same_journal_and_refuses_another_number_of_shards(idle: Cli) -> None:
    first, second = idle.json("init"), idle.json("init", "--shards", 2)
    assert first == second
    assert (first["journal"], first["shards"], first["epoch"]) == (idle.journal, 2, 0)
    for command in ("init", "up"):
        said = idle.fails(command, "--shards", 3)
        assert f"{idle.journal}.wal is there already, with 2 partitions instead of 3, and nothing was written" in said
    assert idle.json("init") == first


# ---- apply and dump ------------------------------------------------------------------------------------------


def test_what_scripts_append_is_what_dump_prints(cli: Cli) -> None:
    model = ScriptModel(cli.shards)
    script = random_script(seed=7, lines=3000, transactions=24)
    model.apply(script)
    in_doubt = [line["tx"] for line in model.dump() if line["type"] == "prepared"]
    assert {tx % 4 for tx in in_doubt} == {2}
    assert len(in_doubt) >= 3
    answer = cli.json("apply", "-", stdin=to_text(script))
    assert (answer["operations"], answer["in_doubt"]) == (len(script), in_doubt)
    assert cli.dump() == model.dump()

    by_script, by_hand, *_ = in_doubt
    second = [{"op": "rollback", "tx": by_script}, {"op": "add", "id": 5_000_000, "data": encode(b"later")}]
    model.apply(second)
    file = cli.directory / "second.jsonl"
    file.write_text(to_text(second) + "\n")
    cli.ok("apply", str(file))
    assert cli.dump() == model.dump()

    model.apply([{"op": "commit", "tx": by_hand}])
    ended = cli("tx", "commit", by_hand, "--yes")
    assert ended.returncode == 0, ended.stderr
    assert f"transaction {by_hand} (xid-{by_hand}) was committed by hand" in ended.stderr
    assert cli.dump() == model.dump()
    report = cli.json("verify")
    assert (report["agrees"], report["complete"], report["differences"]) == (True, True, 0)


def test_a_refused_line_stops_a_script_with_its_number_and_the_journal_holds_what_came_before(cli: Cli) -> None:
    before = [{"op": "add", "id": 1, "data": encode(b"x")}, {"op": "update", "id": 1, "kind": 3}]
    script = to_text(before).encode() + b"\n%b\n" + b'{"op":"add","id":2}\n'
    assert "error: line 4: not JSON" in cli.fails("apply", "-", stdin=script % b"\xff\xfe")
    assert cli.json("init")["epoch"] == 0, "a line that is no operation costs no epoch"
    refused = script % b'{"op":"commit","tx":9}'
    assert "error: line 4: no transaction 9 is open or prepared" in cli.fails("apply", "-", stdin=refused)
    model = ScriptModel(cli.shards)
    model.apply(before)
    assert cli.dump() == model.dump()


def test_dump_needs_no_worker_and_starts_no_epoch(idle: Cli) -> None:
    with idle.worker() as worker:
        idle.ok("apply", "-", stdin='{"op":"add","id":1}\n')
        assert worker.terminate() == 0
    assert [line["id"] for line in idle.dump()] == [1]
    assert idle.json("init")["epoch"] == 1
    assert "is a worker running?" in idle.fails("apply", "-", stdin="", KAFKA_JOURNAL_GATE_TIMEOUT_MS="500")


def test_an_active_node_is_named_and_only_fenced_when_asked(cli: Cli) -> None:
    node = cli.active_node()
    try:
        second = '{"op":"add","id":2}\n'
        said = cli.fails("apply", "-", stdin=second)
        assert "node the-first-node is active in epoch 1" in said
        assert "--take-over" in said
        assert cli.json("status")["node"]["state"] == "active"
        worker = f"is a member of kafka-journal.{cli.journal}.worker: stop it first"
        assert worker in cli.fails("destroy", cli.journal, "--yes")
        assert cli.json("apply", "-", "--take-over", stdin=second)["epoch"] == 2
        _, said_by_first = node.communicate(b'{"op":"add","id":3}\n' * 2, timeout=TIMEOUT_S)
        assert node.returncode == 1
        assert b"took the journal over" in said_by_first
        assert b"cut off: in the journal: 1 operation, up to line 1" in said_by_first
    finally:
        node.kill()
        node.wait()
    assert [line["id"] for line in cli.dump()] == [1, 2]


def test_a_destroyed_journal_is_gone_and_a_new_one_of_its_name_begins_anew(idle: Cli, admin: AdminClient) -> None:
    with idle.worker() as worker:
        node = idle.active_node()
        assert worker.terminate() == 0
    try:
        assert "node the-first-node is active in epoch 1" in idle.fails("destroy", idle.journal, "--yes")
    finally:
        node.kill()
        node.wait()
    local = idle.directory / idle.journal
    assert local.is_dir()
    assert "--yes answers the question" in idle.fails("destroy", idle.journal)
    assert "nothing was done" in idle.fails("destroy", idle.journal, stdin="another\n")
    told = idle.json("destroy", idle.journal, "--yes")
    assert told["deleted"]["topics"] == [f"{idle.journal}.{topic}" for topic in ("table", "wal", "control")]
    assert told["deleted"]["groups"] == [f"kafka-journal.{idle.journal}.worker"]
    assert str(local) in told["deleted"]["directories"]
    assert not local.exists()
    assert [name for name in admin.list_topics(timeout=TIMEOUT_S).topics if name.startswith(idle.journal)] == []
    assert "nothing of it is in Kafka" in idle.fails("destroy", idle.journal, "--yes")
    assert idle.json("init", "--shards", 2)["epoch"] == 0


def test_an_interrupted_apply_leaves_a_journal_that_the_next_one_may_use(cli: Cli) -> None:
    node = cli.active_node()
    try:
        node.send_signal(signal.SIGINT)
        _, said = node.communicate(timeout=TIMEOUT_S)
        assert (node.returncode, said.splitlines()[-1:]) == (130, [b"interrupted"]), said
    finally:
        node.kill()
        node.wait()
    assert cli.json("status")["node"]["state"] == "left"
    cli.ok("apply", "-", stdin='{"op":"delete","id":1}\n')
    assert cli.dump() == []


# ---- tx ------------------------------------------------------------------------------------------------------


def test_transactions_in_doubt_are_listed_shown_and_settled_by_hand(cli: Cli) -> None:
    script = [
        {"op": "add", "id": 1, "kind": 4, "data": encode(b"one"), "tx": 8},
        {"op": "update", "id": 1, "kind": 5, "data": encode(bytes(range(3))), "tx": 8},
        {"op": "prepare", "tx": 8, "data": encode(b"payment-8")},
        {"op": "prepare", "tx": 9, "data": encode(b"\x00\x01")},
    ]
    cli.ok("apply", "-", stdin=to_text(script))
    first, second = cli.json("tx", "list")["in_doubt"]
    assert first["age_seconds"] < 60
    facts = ("tx", "text", "operations", "records")
    assert [tuple(line[fact] for fact in facts) for line in (first, second)] == [
        (8, "payment-8", 2, 1),
        (9, "0001", 0, 0),
    ]
    assert cli.json("tx", "show", 8)["held"] == as_shown(script[:2])
    assert "payment-8" in cli.ok("tx", "list")
    assert "update" in cli.ok("tx", "show", 8)

    assert "no transaction 7 is in doubt" in cli.fails("tx", "commit", 7, "--yes")
    assert "Aborted" in cli.fails("tx", "commit", 8, stdin="n\n")
    assert "--yes answers the question" in cli.fails("tx", "commit", 8, stdin="")
    assert cli.json("init")["epoch"] == 1, "a refusal activates nothing"
    assert "transaction 8 is rolled back" in cli.ok("tx", "rollback", "payment-8", stdin="y\n")
    assert cli.json("tx", "commit", 9, "--yes")["outcome"] == "commit"
    assert cli.json("tx", "list") == {"in_doubt": [], "outcomes": []}
    assert cli.dump() == []


def as_shown(script: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Operations as they are shown: without their transaction, with every field."""
    model = ScriptModel(1)
    model.apply([*script, {"op": "prepare", "tx": script[0]["tx"]}])
    operations: list[dict[str, Any]] = model.dump()[0]["operations"]
    return operations


# ---- verify --------------------------------------------------------------------------------------------------


def test_verify_names_a_row_that_no_worker_wrote_and_repair_takes_it_out(idle: Cli) -> None:
    with idle.worker() as worker:
        idle.ok("apply", "-", stdin='{"op":"add","id":2}\n')
        assert "agree" in idle.ok("verify")
        row = Record(type=ADD, id=4, kind=1, data=b"stray", position=Position(offset=1))
        idle.write("table", 0, row.SerializeToString(), record_key(4))
        behind = idle("verify", "--json")
        assert behind.returncode == 1
        assert json.loads(behind.stdout)["shards"][0]["differences"]["counts"] == {"row": 1}

        for said in ("is built anew when it is used again", "shard 0 has 2 records"):
            assert said in idle.fails("apply", "-", stdin='{"op":"add","id":6}\n')
        with_mark = idle("verify")
        assert with_mark.returncode == 1
        assert "shard 0: record: id 4: expected none, found kind 1" in with_mark.stdout
        assert "shard 0: loaded state: of all shards: expected rows that can be loaded" in with_mark.stdout
        assert "has shard 0: stop it first" in idle.fails("repair", "table", 0, "--record", 4)
        assert worker.terminate() == 0
    assert "--record" in idle.fails("repair", "table", 0)
    assert idle.json("repair", "table", 0, "--record", 4, "--yes")["deleted"] == record_key(4).hex()
    assert json.loads(idle.ok("dump"))["id"] == 2


def test_verify_counts_it_as_a_difference_that_nobody_can_load_the_tables(cli: Cli) -> None:
    cli.ok("apply", "-", stdin='{"op":"add","id":2}\n')
    part = Transaction(tx=7, shard=0, epoch=1, prepared=True, shards=2)
    cli.write("table", 0, part.SerializeToString(), transaction_key(7, 0))
    for said in ("is built anew when it is used again", f"`kafka-journal verify -j {cli.journal}` names where"):
        assert said in cli.fails("apply", "-", stdin='{"op":"add","id":4}\n')
    found = cli("verify", "--json")
    assert found.returncode == 1
    counts = [shard["differences"]["counts"] for shard in json.loads(found.stdout)["shards"]]
    assert counts[0]["loaded state"] == 1
    assert "found shard 0 has 1 record, 0 updates, 0 staged operations and 1 prepared part" in cli("verify").stdout


def left_by_worker(journal: Cli) -> subprocess.Popen[bytes]:
    """An active node that has appended the record 1, whose worker was stopped. It appends nothing by itself: what is
    behind the marks is what a test puts there."""
    with journal.worker() as worker:
        node = journal.active_node(KAFKA_JOURNAL_FENCE_CHECK_MS="59000", KAFKA_JOURNAL_TRANSACTION_TIMEOUT_MS="60000")
        assert worker.terminate() == 0
    return node


def test_verify_names_as_many_differences_of_a_sort_as_it_is_told_to(cli: Cli) -> None:
    cli.ok("apply", "-", stdin='{"op":"add","id":2}\n')
    for id in (4, 6, 8):
        row = Record(type=ADD, id=id, kind=1, data=b"stray", position=Position(offset=1))
        cli.write("table", 0, row.SerializeToString(), record_key(id))
    assert "shard 0 has 4 records" in cli.fails("apply", "-", stdin='{"op":"add","id":10}\n')

    def named(*options: str | int) -> tuple[int, int, str]:
        """How many records of the tables, how many the report says that it left out, and its text."""
        shown, report = cli("verify", *options), json.loads(cli("verify", *options, "--json").stdout)
        kept = [one for one in report["shards"][0]["differences"]["kept"] if one["what"] == "record"]
        assert report["shards"][0]["differences"]["counts"]["record"] == 3
        assert shown.returncode == 1
        assert len(re.findall("shard 0: record: id", shown.stdout)) == len(kept)
        return len(kept), report["left_out"], shown.stdout

    (kept, left_out, text), whole = named("--differences-max", 1), named("--differences-max", 0)
    assert (kept, whole[:2], named()[:2]) == (1, (3, 0), (3, 0))
    assert f"differences that are not named here: {left_out} (--differences-max 0 names all)\n" in text
    assert left_out >= 2
    assert "not named here" not in whole[2]
    assert "--differences-max" in cli.fails("verify", "--differences-max", -1, code=2)


def test_verify_compares_also_what_no_worker_has_applied_yet(idle: Cli) -> None:
    node = left_by_worker(idle)
    script = "".join(f'{{"op":"add","id":{number}}}\n' for number in range(2, 602))
    _, said = node.communicate(script.encode(), timeout=TIMEOUT_S)
    assert node.returncode == 0, said
    assert sum(shard["records"] for shard in idle.json("status")["shards"]) == 1
    report = idle.json("verify")
    assert (report["agrees"], report["complete"]) == (True, True)
    assert sum(shard["records"] for shard in report["shards"]) == 601
    assert "the WAL, the tables and the loaded state agree\n" in idle.ok("verify")
    garbage = idle.write("wal", 0, b"garbage")
    shard = json.loads(idle("verify", "--json").stdout)["shards"][0]
    assert [finding["offset"] for finding in shard["findings"]] == [garbage]


def test_verify_says_how_much_of_the_wal_it_compared_with_nothing(idle: Cli) -> None:
    node = left_by_worker(idle)
    mark = idle.json("status")["shards"][0]["mark_offset"]
    garbage = idle.write("wal", 0, b"garbage")
    assert "the skip is requested" in idle.fails("repair", "skip", 0, garbage, "--yes", "--timeout-s", 1)
    _, said = node.communicate(b'{"op":"add","id":2}\n', timeout=TIMEOUT_S)
    assert node.returncode == 0, said
    report = idle.json("verify")
    assert (report["agrees"], report["complete"]) == (True, False)
    loaded, records = report["shards"][0]["unchecked"]
    assert loaded.startswith("the loaded state: ")
    assert f"[0]@{garbage}: " in loaded
    assert re.fullmatch(
        rf"\d WAL records behind offset {mark}, to offset \d+: they were compared with nothing", records
    )
    shown = idle.ok("verify")
    assert f"shard 0: cannot check: {records}\n" in shown
    assert "agree where checked" in shown


def test_verify_compares_what_is_before_a_damaged_batch_and_names_that(tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path / "kafka", attached=True, jvm_options=JVM_OPTIONS) as kafka:
        bootstrap = kafka.bootstrap_servers
        journal = Cli(bootstrap, new_journal(bootstrap, 1, directory=tmp_path), 1, tmp_path)
        node = left_by_worker(journal)
        line = {"op": "add", "id": 2, "data": encode(MARK)}
        _, said = node.communicate(to_text([line]).encode(), timeout=TIMEOUT_S)
        assert node.returncode == 0, said
        mark = journal.json("status")["shards"][0]["mark_offset"]
        kafka.stop()
        damage(tmp_path / "kafka", f"{journal.journal}.wal-0")
        kafka.start()
        found = journal("verify", "--json")
    (shard,) = json.loads(found.stdout)["shards"]
    assert (found.returncode, shard["differences"]["total"], shard["records"]) == (1, 0, 1)
    (finding,) = shard["findings"]
    assert (shard["offset"], finding["topic"]) == (mark, f"{journal.journal}.wal")
    assert finding["offset"] > mark
    assert f"what lies behind offset {mark}: it cannot be read to its end" in shard["unchecked"][-1]


# ---- damage and repair ---------------------------------------------------------------------------------------


def test_control_rows_that_are_lost_are_written_anew_from_what_is_left(cli: Cli) -> None:
    cli.ok("apply", "-", stdin='{"op":"add","id":1}\n')
    assert "nothing to mend" in cli.fails("repair", "control")
    before, control = cli.json("init"), f"{cli.journal}.control"
    delete_topic(cli.bootstrap, control)
    until = time.monotonic() + TIMEOUT_S
    while control in topics(cli.bootstrap):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert f"kafka-journal repair control -j {cli.journal}" in cli.fails("up")
    assert before["uuid"] in cli.fails("repair", "control", stdin="n\n")
    assert cli.json("repair", "control", "--yes")["epoch"] == before["epoch"] == 1
    assert cli.json("init") == before
    cli.ok("apply", "-", stdin='{"op":"add","id":2}\n')
    assert [line["id"] for line in cli.dump()] == [1, 2]


def test_foreign_records_stop_their_shards_until_they_are_skipped(cli: Cli) -> None:
    cli.ok("apply", "-", stdin='{"op":"add","id":1}\n{"op":"add","id":2}\n')
    garbage, empty = cli.write("wal", 0, b"garbage", b"key"), cli.write("wal", 1, None)
    first, second = cli.json("status")["shards"]
    assert first["stopped"]["offset"] == garbage
    assert second["stopped"] == {"offset": empty, "reason": "an empty record is not a frame"}
    assert f"repair skip -j {cli.journal} 0 {garbage}" in cli.ok("status")
    found = cli("verify", "--json")
    assert found.returncode == 1
    assert [shard["findings"][0]["offset"] for shard in json.loads(found.stdout)["shards"]] == [garbage, empty]

    assert f"is stopped at offset {garbage}, not at 99" in cli.fails("repair", "skip", 0, 99, "--yes")
    assert "shards 0 to 1" in cli.fails("repair", "skip", 2, 5, "--yes", code=2)
    refused = cli.fails("repair", "skip", 0, garbage, stdin="n\n")
    assert "garbage" in refused

    assert "passed offset" in cli.ok("repair", "skip", 0, garbage, stdin="y\n")
    assert cli.json("repair", "skip", 1, empty, "--yes")["mark_offset"] >= empty
    assert "is already behind it" in cli.fails("repair", "skip", 0, garbage, "--yes")
    cli.ok("apply", "-", stdin='{"op":"add","id":3}\n')
    dumped = cli("dump", "--now")
    assert [json.loads(line)["id"] for line in dumped.stdout.splitlines()] == [1, 2, 3]
    assert f"not in this state: WAL record {garbage} of shard 0, skipped by " in dumped.stderr
    shards = cli.json("status")["shards"]
    assert [(shard["skipped"], shard["stopped"]) for shard in shards] == [(1, None), (1, None)]
    after = cli.ok("verify")
    assert f"shard 0: skipped: offset {garbage}: expected a frame, found skipped by an operator" in after
    assert "2 records that an operator had skipped" in after


def test_apply_that_waited_in_vain_names_what_its_shards_are_stopped_at(cli: Cli) -> None:
    cli.ok("apply", "-", stdin='{"op":"add","id":1}\n')
    garbage = cli.write("wal", 0, b"garbage")
    said = cli.fails("apply", "-", KAFKA_JOURNAL_GATE_TIMEOUT_MS="1000")
    assert "did not reach epoch 2" in said
    assert f"shard 0 is STOPPED at {cli.journal}.wal[0]@{garbage}: " in said
    assert f"kafka-journal repair skip -j {cli.journal} 0 {garbage}" in said


def test_apply_is_told_within_seconds_of_a_shard_that_only_a_repair_lets_go_on(cli: Cli) -> None:
    cli.ok("apply", "-", stdin='{"op":"add","id":1}\n')
    garbage = cli.write("wal", 0, b"garbage")
    said = cli.fails("apply", "-", KAFKA_JOURNAL_GATE_TIMEOUT_MS="50000")
    assert "did not reach epoch" not in said, "it waited to the time-out"
    assert "shards that the activation waits for are stopped until they are repaired: 0" in said
    assert f"shard 0 is STOPPED at {cli.journal}.wal[0]@{garbage}: " in said
    assert said.count(f"kafka-journal repair skip -j {cli.journal} 0 {garbage}") == 1
    cli.ok("repair", "skip", 0, garbage, "--yes")
    cli.ok("apply", "-", stdin='{"op":"add","id":3}\n')


def test_apply_waits_for_a_worker_that_comes_late(idle: Cli) -> None:
    without = idle.fails("apply", "-", KAFKA_JOURNAL_GATE_TIMEOUT_MS=str(int(3000 * STILL_S)))
    assert f"no worker is running, start one: kafka-journal worker -j {idle.journal}" in without
    assert "did not reach epoch" in without, "it ended before the time-out"
    node = subprocess.Popen([str(COMMAND), "apply", "-"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=idle.env())
    with idle.worker():
        _, said = node.communicate(b'{"op":"add","id":1}\n', timeout=TIMEOUT_S)
    assert node.returncode == 0, said


def test_a_skip_waits_for_a_worker_and_says_so(idle: Cli) -> None:
    offset = idle.write("wal", 0, b"garbage")
    said = idle.fails("repair", "skip", 0, offset, "--yes", "--timeout-s", 1)
    assert "the skip is requested" in said
    assert "kafka-journal worker" in said
    with idle.worker():
        idle.ok("apply", "-", stdin='{"op":"add","id":2}\n')
    assert idle.json("status")["shards"][0]["skipped"] == 1


def test_a_shard_that_is_not_stopped_is_not_skipped(cli: Cli) -> None:
    cli.ok("apply", "-", stdin='{"op":"add","id":2}\n')
    assert "shard 0 is not stopped" in cli.fails("repair", "skip", 0, 1000, "--yes")


# ---- status --------------------------------------------------------------------------------------------------


def test_status_tells_of_a_journal_that_nobody_serves_and_of_its_lag(idle: Cli) -> None:
    found = idle.json("status")
    assert (found["node"]["state"], found["workers"]) == ("none", [])
    assert "no worker is running" in idle.ok("status")
    assert "no node is active; no worker has shards 0, 1" in idle.fails("status", "--check", code=3)
    with idle.worker() as worker:
        idle.ok("apply", "-", stdin='{"op":"add","id":2}\n')
        assert worker.terminate() == 0
    idle.fails("apply", "-", KAFKA_JOURNAL_GATE_TIMEOUT_MS="500")
    found = idle.json("status")
    assert found["workers"] == []
    assert [shard["lag_frames"] for shard in found["shards"]] == [1, 1]
    assert all(shard["stopped"] is None and shard["lag_seconds"] > 0 for shard in found["shards"])
    assert sum(shard["records"] for shard in found["shards"]) == 1


def test_status_counts_rows_and_staged_transactions_of_each_shard(cli: Cli) -> None:
    in_doubt = [{"op": "add", "id": 4, "tx": 8}, {"op": "prepare", "tx": 8}]
    too_large_for_memory = [{"op": "add", "id": id, "tx": 9} for id in (1, 3)]
    script = [{"op": "add", "id": 2}, {"op": "update", "id": 2, "kind": 1}, *in_doubt, *too_large_for_memory]
    staging = {"KAFKA_JOURNAL_LIMITS__TRANSACTION_BUFFER_OPERATIONS_MAX": "1"}
    ended = cli("apply", "-", stdin=to_text(script), **staging)
    assert ended.returncode == 0, ended.stderr
    until = time.monotonic() + TIMEOUT_S
    while any(shard["lag_frames"] for shard in cli.json("status", "--no-rows")["shards"]):
        assert time.monotonic() < until
    found = cli.json("status")
    told = ("records", "rows", "staged", "staged_transactions", "prepared")
    # record and updates, part, staged operation, mark; part, two staged operations, mark
    assert [[shard[name] for name in told] for shard in found["shards"]] == [[1, 5, 1, 0, 1], [0, 4, 2, 1, 0]]
    assert [shard["rows_offset"] for shard in found["shards"]] == [shard["mark_offset"] for shard in found["shards"]]
    assert cli.json("status", "--rows")["shards"][1]["staged_transactions"] == 1
    assert [shard["rows"] for shard in cli.json("status", "--no-rows")["shards"]] == [None, None]
    assert "not counted" not in cli.ok("status", "--no-rows")


# ---- what is refused -----------------------------------------------------------------------------------------


def test_a_wal_with_finite_retention_is_refused_with_the_command_that_mends_it(idle: Cli, admin: AdminClient) -> None:
    topic = f"{idle.journal}.wal"

    def retain(value: str) -> None:
        entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    retain("86400000")
    for command in (["worker"], ["init"]):
        said = idle.fails(*command)
        assert f"topic {topic} has retention.ms=86400000 and needs -1" in said
        assert f"--entity-name {topic} --add-config retention.ms=-1" in said
    (fault,) = json.loads(idle("init", "--json").stdout)["faults"]
    assert (fault["topic"], fault["settings"][0]["key"], fault["mend"][:13]) == (topic, "retention.ms", "kafka-configs")
    retain("-1")
    idle.ok("status")


def test_partitions_that_the_control_rows_do_not_know_are_refused(idle: Cli, admin: AdminClient) -> None:
    topic = f"{idle.journal}.wal"
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(TIMEOUT_S)
    assert f"topic {topic} has 3 partitions and its control rows say 2" in idle.fails("worker")


def test_fewer_replicas_than_configured_are_refused(idle: Cli) -> None:
    said = idle.fails("worker", KAFKA_JOURNAL_REPLICATION="2")
    assert "has 1 replica and 2 are configured" in said


def test_a_journal_that_is_not_there_is_named_with_what_makes_it(nobody: Cli) -> None:
    commands = ["worker"], ["node"], ["apply", "-"], ["dump"], ["send", "queue", "body"], ["queues"], ["status"]
    for command in commands:
        assert "run `kafka-journal init -j nobody`" in nobody.fails(*command)
        assert list(nobody.directory.rglob("nobody*")) == [], f"{command[0]} leaves no directory behind"


def test_a_broker_that_is_away_is_an_error_within_the_request_time(nobody: Cli) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        away = f"127.0.0.1:{taken.getsockname()[1]}"
        for command in (["status"], ["worker"], ["apply", "-"]):
            said = nobody.fails(*command, "-b", away, KAFKA_JOURNAL_REQUEST_TIMEOUT_MS="1500")
            assert "Kafka does not answer" in said
            assert "-b" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["apply", "/there/is/no/such/file"],
        ["dump", "-j", "Not A Name"],
        ["dump", "-X", "no-equals-sign"],
        ["dump", "-X", "no.such.property=1"],
        ["dump", "-X", "isolation.level=read_uncommitted"],
        ["status", "--config", "/there/is/no/such/file"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_exit_code_2(nobody: Cli, arguments: list[str]) -> None:
    nobody.fails(*arguments, code=2)
