"""What commands print: durations, bytes, tables, and the status of a journal."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import typer
from aiokafka.errors import GroupLoadInProgressError  # type: ignore[import-untyped]
from rich.console import Console

from journal.cli import common
from journal.cli.common import exit_codes, print_json, print_line, print_note, shown_if_long
from journal.cli.logs import JsonLines, LogLines, SeldomAgain
from journal.cli.operations.in_doubt import in_doubt, summary
from journal.cli.repair import record_facts
from journal.cli.status.rows import ShardRows
from journal.cli.status.status import JournalStatus, ShardStatus, notes, print_status, to_json
from journal.cli.tables import print_table
from journal.cli.text import duration, printable
from journal.errors import QueueMissingError
from journal.fold.engine import Fold
from journal.kafka.ports import GroupMember, LogRecord
from journal.process.commands import command
from journal.upkeep.stops import Stop
from journal.v1.journal_pb2 import Identity, Mark
from loaders.node.liveness import LastActive
from tests.support.build import JOURNAL, START_MS, DictBase, add, frame, marker, prepare, update, wal


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0 s"),
        (0.25, "0.2 s"),
        (9.94, "9.9 s"),
        (12.4, "12 s"),
        (60, "1 min"),
        (184, "3 min 4 s"),
        (7500, "2 h 5 min"),
        (3601, "1 h"),
        (3 * 86_400 + 4 * 3600 + 59, "3 d 4 h"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        (b"xid-7", "xid-7"),
        (b"\x00\x01", "0001"),
        ("é".encode(), "c3a9"),
        (b"line\n", "6c696e650a"),
        (b"x" * 50, "x" * 48 + "… (2 bytes more)"),
    ],
)
def test_bytes_are_text_if_they_are_and_hex_otherwise(data: bytes, text: str) -> None:
    assert printable(data) == text


def test_a_table_for_a_pipe_folds_no_cell_and_takes_markup_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("things", ("name", "value"), [("[red]", "v" * 150)])
    output = capsys.readouterr().out
    assert "[red]" in output
    assert "v" * 150 in output


EVIL = "q\x1b[2J\x1b]0;title\x07\n[red]"
SHOWN = r"q\x1b[2J\x1b]0;title\x07\n[red]"


def test_nothing_that_a_client_has_named_reaches_a_terminal_as_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither in tables, nor in lines, notes and errors; and a terminal's colours are the command's own."""
    terminal = Console(file=StringIO(), force_terminal=True, width=200)
    print_table(EVIL, (EVIL,), [(EVIL,)], to=terminal)
    print_table(EVIL, (EVIL,), [(EVIL,)])
    print_line(EVIL)
    print_note(EVIL, style="dim")
    with pytest.raises(typer.Exit), exit_codes():
        raise QueueMissingError(f"there is no queue {EVIL}\nand no other")
    said = capsys.readouterr()
    assert said.out.count(SHOWN) == 4
    assert "".join(said.err.split("\n")).count(SHOWN) == 1
    assert r"there is no queue q\x1b[2J\x1b]0;title\x07" in said.err
    assert "\x1b" not in said.out + said.err
    assert isinstance(terminal.file, StringIO)
    assert "\x1b[2J" not in terminal.file.getvalue()


def test_logs_have_nothing_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    record = logging.LogRecord("journal", logging.WARNING, "", 0, "queue %s is full", (EVIL,), None)
    try:
        raise ValueError(EVIL)
    except ValueError as error:
        record.exc_info = (type(error), error, error.__traceback__)
    line = LogLines("%(name)s: %(message)s").format(record)
    assert "\x1b" not in line
    assert r"queue q\x1b[2J" in line
    assert line.count("\n") > 3, "a traceback has lines"


def test_what_a_client_has_named_cannot_pass_for_a_log_line() -> None:
    name = "q\n2026-11-27 00:00:00,000 ERROR journal.wal.writer: fenced"
    record = logging.LogRecord("journal", logging.WARNING, "", 0, "queue %s is full", (name,), None)
    first, *more = LogLines("%(asctime)s %(levelname)s %(name)s: %(message)s").format(record).split("\n")
    assert first.endswith("WARNING journal: queue q")
    assert [line[:1] for line in more] == [" "]


def test_commands_print_what_they_say_with_the_functions_that_escape_it() -> None:
    """All but those of the embedded Kafka, and what says that nothing can be printed: their words are their own."""
    own = {"common.py", "kafka.py", "main.py", "logs.py", "standard_streams.py", "tables.py"}
    files = [path for path in Path(common.__file__).parent.rglob("*.py") if path.name not in own]
    assert len(files) > 30
    plain = re.compile(r"typer\.echo\(|errors\.print\(|\bConsole\(\)|^\s*print\(|\.print\(", re.MULTILINE)
    assert [path.name for path in files if plain.search(path.read_text())] == []


@pytest.mark.parametrize("long", [True, False])
def test_a_step_that_takes_long_is_shown_on_a_terminal(long: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = StringIO()
    monkeypatch.setattr("journal.cli.common.errors", Console(file=terminal, force_terminal=True))
    monkeypatch.setattr("journal.cli.common.PROGRESS_AFTER_S", 0.0 if long else 600.0)
    with shown_if_long("Kafka"):
        until = time.monotonic() + 30.0
        while long and "Kafka" not in terminal.getvalue():
            assert time.monotonic() < until
            time.sleep(0.01)
    assert ("Kafka" in terminal.getvalue()) == long


def test_aiokafka_says_the_same_seldom_and_we_always() -> None:
    clock = iter([1.0, 2.0, 3.0, 70.0])
    seldom = SeldomAgain(lambda: next(clock))

    def passes(name: str, message: str, *arguments: object, error: Exception | None = None) -> bool:
        found = (type(error), error, None) if error else None
        return bool(seldom.filter(logging.LogRecord(name, logging.ERROR, "", 0, message, arguments, found)))

    assert passes("aiokafka", "Unable connect to node with id %s", 1)
    assert not passes("aiokafka", "Unable connect to node with id %s", 2)
    assert passes("aiokafka", "Unable to update metadata from %s", [1])
    assert all(passes("journal.wal.writer", "fenced") for _ in range(3))
    assert passes("asyncio", "never retrieved", error=ValueError())
    assert not passes("asyncio", "never retrieved", error=GroupLoadInProgressError())
    assert passes("aiokafka", "Unable connect to node with id %s", 1)


def test_json_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [1, None]})
    assert capsys.readouterr().out == '{"a": [1, null]}\n'


def test_a_log_line_is_one_json_object() -> None:
    record = logging.makeLogRecord({"name": "streams", "levelname": "INFO", "msg": "shard %d\n", "args": (3,)})
    line = json.loads(JsonLines().format(record))
    assert (line["level"], line["logger"], line["message"]) == ("INFO", "streams", "shard 3\n")


# ---- status --------------------------------------------------------------------------------------------------

NOW_MS = START_MS + 100_000.0


def shard(
    number: int,
    *,
    ahead_since: int = 0,
    newest: int = 7,
    stop: Stop | None = None,
    rows: ShardRows | None = None,
) -> ShardStatus:
    mark = Mark(shard=number, offset=10, number=7, epoch=3, records=4, staged=2, prepared=1, rejected=5, skipped=6)
    return ShardStatus(number, 0, 13, 15, mark, newest, START_MS + 98_000, ahead_since, stop, rows=rows)


def journal(
    *shards: ShardStatus,
    active: LastActive | None = None,
    silent_after_ms: int = 6000,
    workers: int = 1,
    nodes: Sequence[dict[str, Any]] = (),
    rows_missing: str = "",
) -> JournalStatus:
    members = [GroupMember("id", f"worker-{number}", "host", [("j.wal", 1), ("j.wal", 0)]) for number in range(workers)]
    identity = Identity(journal=JOURNAL, name="j")
    some = shards or [shard(0)]
    found = JournalStatus("j", identity, NOW_MS, active, silent_after_ms, some, members, nodes)
    return replace(found, rows_missing=rows_missing)


@pytest.mark.parametrize(
    ("active", "silent_after_ms", "state", "says"),
    [
        (None, 6000, "none", "no node was ever active"),
        (LastActive(3, "n", True), 6000, "left", "n, epoch 3, left cleanly 2.0 s ago"),
        (LastActive(3, "n", False), 6000, "active", "active: node n, epoch 3 (last seen 2.0 s ago)"),
        (LastActive(3, "n", False), 1000, "silent", "was last seen 2.0 s ago (dead, or cut off from Kafka)"),
    ],
)
def test_the_active_node_is_told_from_its_last_frame(
    active: LastActive | None, silent_after_ms: int, state: str, says: str
) -> None:
    found = journal(active=active, silent_after_ms=silent_after_ms)
    assert found.node_state == to_json(found)["node"]["state"] == state
    assert says in notes(found)[0]


@pytest.mark.parametrize(
    ("role", "gone", "workers", "active", "state", "says"),
    [
        ("activating", False, 0, True, "activating", "n is activating and waits for shards 0: no worker runs"),
        ("activating", False, 1, True, "activating", "n is activating and waits for shards 0"),
        ("activating", False, 1, False, "activating", "n is activating"),
        ("activating", True, 0, True, "silent", "(dead, or cut off from Kafka)"),
        ("standby", False, 0, True, "silent", "wrote last 2.0 s ago, and reports that it is standby"),
    ],
)
def test_a_node_that_reports_is_not_called_dead(
    role: str, gone: bool, workers: int, active: bool, state: str, says: str
) -> None:
    node = {"name": "n", "role": role, "gone": gone, "members": 1, "last_failover": None, "recoveries": 0}
    last = LastActive(4, "n", False) if active else None
    found = journal(active=last, silent_after_ms=1000, workers=workers, nodes=[node])
    assert found.node_state == state
    assert notes(found)[0].startswith("no node is active: ")
    assert notes(found)[0].endswith(says)


def test_what_is_wrong_with_a_journal_is_told_apart_from_the_text() -> None:
    active = LastActive(3, "n", False)
    assert journal(shard(0), shard(1), active=active).problems == []
    stop = Stop(12, "not a frame", None, None)
    found = journal(shard(0, stop=stop), shard(1), shard(2), active=active, silent_after_ms=1000)
    wrong = ["no node is active", "no worker has shards 2", "shards 0 are stopped"]
    assert found.problems == to_json(found)["problems"] == wrong
    assert "no worker has shards 0" in journal(active=active, workers=0).problems


def test_a_shard_is_told_with_its_lag_and_counts() -> None:
    line = to_json(journal(shard(0, ahead_since=START_MS + 97_500, newest=9)))["shards"][0]
    assert (line["lag_frames"], line["lag_seconds"], line["lso_lag"]) == (2, 2.5, 2)
    assert (line["wal_start"], line["wal_end"], line["mark_offset"], line["epoch"]) == (0, 13, 10, 3)
    assert [line[name] for name in ("records", "staged", "prepared", "rejected", "skipped")] == [4, 2, 1, 5, 6]
    assert line["stopped"] is None


def test_rows_and_staged_transactions_are_told_beside_records_and_staged_operations_where_they_were_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    counted = journal(shard(0, rows=ShardRows(9, 1234, 56)))
    line = to_json(counted)["shards"][0]
    assert (line["rows"], line["staged_transactions"], line["rows_offset"]) == (1234, 56, 9)
    assert (line["records"], line["staged"], to_json(counted)["rows_missing"]) == (4, 2, None)
    print_status(counted)
    printed = [[cell.strip() for cell in line.split("│")] for line in capsys.readouterr().out.splitlines()]
    assert ["4", "1,234", "2", "56", "1"] in [cells[8:13] for cells in printed]

    not_counted = journal(rows_missing="the tables are large")
    line = to_json(not_counted)["shards"][0]
    assert (line["rows"], line["staged_transactions"], line["rows_offset"]) == (None, None, None)
    assert to_json(not_counted)["rows_missing"] == "the tables are large"
    assert "rows and staged transactions are not counted: the tables are large" in notes(not_counted)
    print_status(not_counted)
    printed = [[cell.strip() for cell in line.split("│")] for line in capsys.readouterr().out.splitlines()]
    assert ["4", "?", "2", "?", "1"] in [cells[8:13] for cells in printed]


def test_a_stopped_shard_is_told_with_what_mends_it_if_anything_does() -> None:
    record = LogRecord(1, 12, START_MS, None, b"garbage")
    mendable, gone = Stop(12, "not a frame", record, None), Stop(11, "frames are gone", None, None)
    lines = "\n".join(notes(journal(shard(0, stop=gone), shard(1, stop=mendable))))
    assert "shard 1 is STOPPED at j.wal[1]@12: not a frame" in lines
    assert command("repair skip", 1, 12, journal="j") in lines
    assert "shard 0 is STOPPED at j.wal[0]@11: frames are gone" in lines
    assert "repair skip -j j 0" not in lines


def test_workers_are_told_with_their_shards_or_how_to_start_one() -> None:
    assert "worker worker-0 at host: shards 0, 1" in notes(journal())
    assert f"no worker is running: {command('worker', journal='j')}" in notes(journal(workers=0))


# ---- records and transactions --------------------------------------------------------------------------------


def test_a_record_to_skip_is_shown_and_a_frame_with_what_is_lost() -> None:
    record = LogRecord(1, 12, START_MS, b"key", b"garbage")
    facts = record_facts("j.wal", record, Stop(12, "not a frame", record, None))
    assert facts == {
        "record": "j.wal[1]@12",
        "written": "2023-11-14 22:13:20 UTC",
        "reason": "not a frame",
        "bytes": 7,
        "value": "garbage",
        "key": "key",
    }
    lost = frame(4, add(1), add(2), previous=2)
    facts = record_facts("j.wal", record, Stop(12, "a gap", record, lost))
    assert "2 operations of it will not be applied" in str(facts["lost"])
    json.dumps(facts)


def test_a_transaction_in_doubt_is_summed_up_with_its_age_and_the_records_it_holds() -> None:
    base = DictBase()
    fold = Fold(Mark(offset=-1), base, updates_row_bytes_max=4096)
    operations = [add(1, b"x", tx=7), update(1, b"y", tx=7), add(2, tx=7), prepare(7, 3, b"xid-7")]
    for offset, timestamp, each in wal([marker()], operations, [add(9, tx=8)]):
        fold.apply(offset, timestamp, each)
    base.write(fold.changes())
    (found,) = in_doubt(base)
    assert summary(found, found.prepared_ms + 1500) == {
        "tx": 7,
        "xid": None,
        "data": "eGlkLTc=",
        "text": "xid-7",
        "age_seconds": 1.5,
        "queues": {},
        "destroys": [],
        "messages": 0,
        "operations": 3,
        "records": 2,
        "shards": [0],
        "prepared_in": 1,
    }
    assert found.prepared_ms == START_MS + 2
