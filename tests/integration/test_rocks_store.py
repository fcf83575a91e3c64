"""Local storage on a real disk: what is there after a killed process, and what a snapshot sees."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from journal.disk.rocks import RocksStore
from journal.errors import LocalDamageError, LocalStorageError
from journal.wire.keys import (
    mark_key,
    record_key,
    skipped_key,
    staged_key,
    staged_prefix,
    transaction_key,
    updates_key,
)

KILLED = """
import os, signal, sys
from pathlib import Path
from journal.disk.rocks import RocksStore
from journal.wire.keys import record_key
store = RocksStore(Path(sys.argv[1]))
store.write([(record_key(1), b"durable")], {b"position": b"1"})
store.write([(record_key(2), b"lossy")], {b"position": b"2"}, durable=False)
if sys.argv[2] == "flush":
    store.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_while_writing(directory: Path, how: str) -> RocksStore:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(directory), how], check=False)
    assert ended.returncode == -signal.SIGKILL
    return RocksStore(directory)


def test_a_durable_batch_survives_sigkill_with_its_named_values_and_a_lossy_one_goes_as_a_whole(tmp_path: Path) -> None:
    store = killed_while_writing(tmp_path / "a", "leave")
    assert dict(store.scan(b"r")) == {record_key(1): b"durable"}
    assert store.named(b"position") == b"1"


def test_what_was_flushed_survives_sigkill(tmp_path: Path) -> None:
    store = killed_while_writing(tmp_path / "a", "flush")
    assert dict(store.scan(b"r")) == {record_key(1): b"durable", record_key(2): b"lossy"}


def test_the_highest_record_is_that_of_the_last_record_row(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "a")
    assert store.highest_record() == 0
    store.write([(mark_key(0), b"m"), (skipped_key(0, 5), b"s"), (transaction_key(9, 0), b"t")], {})
    assert store.highest_record() == 0
    store.write([(record_key(1 << 40), b"r"), (record_key(7), b"r"), (updates_key(1 << 40), b"u")], {})
    assert store.highest_record() == 1 << 40
    store.write([(record_key(1 << 40), None), (updates_key(1 << 40), None)], {})
    assert store.highest_record() == 7
    store.close()


@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 1039, 1040, 1041, 5000])
def test_a_scan_gives_every_row_of_its_prefix_in_key_order_and_no_other(tmp_path: Path, rows: int) -> None:
    store = RocksStore(tmp_path / "a")
    keys = [staged_key(7, 3, offset, 0) for offset in range(rows)]
    others = [transaction_key(7, 3), staged_key(7, 2, 0, 0), staged_key(7, 4, 0, 0), staged_key(8, 3, 0, 0)]
    store.write([(key, b"%d" % place) for place, key in enumerate(keys)] + [(key, b"other") for key in others], {})
    expected = [(key, b"%d" % place) for place, key in enumerate(keys)]
    assert list(store.scan(staged_prefix(7, 3))) == expected
    snapshot = store.snapshot()
    assert list(snapshot.scan(staged_prefix(7, 3))) == expected
    snapshot.close()
    store.close()


@pytest.mark.parametrize("records", [0, 1, 1023, 1024, 1025, 3000])
def test_a_scan_of_records_gives_all_of_them_with_their_updates_in_key_order_as_often_as_asked(
    tmp_path: Path, records: int
) -> None:
    store = RocksStore(tmp_path / "a")
    keys = [key(number) for number in range(1, records + 1) for key in (record_key, updates_key)]
    others = [mark_key(0), transaction_key(7, 3), skipped_key(0, 5)]
    store.write([(key, b"%d" % place) for place, key in enumerate(keys)] + [(key, b"other") for key in others], {})
    expected = [(key, b"%d" % place) for place, key in enumerate(keys)]
    assert list(store.scan(b"r")) == expected
    snapshot = store.snapshot()
    store.write([(record_key(0), b"late"), (record_key(1 << 40), b"late")], {})
    assert list(snapshot.scan(b"r")) == expected
    assert list(snapshot.scan(b"r")) == expected
    snapshot.close()
    store.close()


def test_a_scan_of_records_that_meets_a_damaged_file_says_so_and_does_not_just_end(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "a")
    store.write([(record_key(number), bytes([number % 256]) * 500) for number in range(1, 20_000)], {})
    store.close()
    file = max((tmp_path / "a").glob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)
    store = RocksStore(tmp_path / "a")
    snapshot = store.snapshot()
    for scan in (store.scan, snapshot.scan, snapshot.scan):
        with pytest.raises(LocalDamageError):
            list(scan(b"r"))
    snapshot.close()
    store.close()


def test_packed_rows_are_written_when_they_are_called_for_and_only_then(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "a")
    store.write([(record_key(1), b"one"), (transaction_key(7, 0), b"open")], {b"position": b"1"})
    write = store.packed([(record_key(1), None), (record_key(2), b"two"), (transaction_key(7, 0), None)])
    store.packed([(record_key(3), b"never called for")])
    assert [*store.scan(b"r"), *store.scan(b"t")] == [(record_key(1), b"one"), (transaction_key(7, 0), b"open")]
    write({b"position": b"2"})
    assert [*store.scan(b"r"), *store.scan(b"t")] == [(record_key(2), b"two")]
    assert store.named(b"position") == b"2"
    store.close()


def test_a_closed_store_takes_no_rows(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "a")
    write = store.packed([(record_key(1), b"one")])
    store.close()
    with pytest.raises(LocalStorageError, match="closed"):
        write({b"position": b"1"})
    with pytest.raises(LocalStorageError, match="closed"):
        store.write([(record_key(1), b"one")], {})
    with pytest.raises(LocalStorageError, match="closed"):
        store.packed([(record_key(1), b"one")])


def test_a_store_whose_directory_was_deleted_can_be_cleared_and_filled_again(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "a")
    store.write([(record_key(1), b"one")], {b"position": b"1"})
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(LocalDamageError):
        write_until_compacted(store, [(record_key(1), b"one")])
    store.clear()
    assert store.named(b"position") is None
    store.write([(record_key(2), b"two")], {b"position": b"2"})
    store.close()
    assert dict(RocksStore(tmp_path / "a").scan(b"r")) == {record_key(2): b"two"}


def write_until_compacted(store: RocksStore, rows: list[tuple[bytes, bytes]]) -> None:
    """Files enough for a compaction, and time for it to meet whatever there is."""
    for _ in range(200):
        store.write(rows, {})
        store.flush()


def test_damage_that_a_compaction_meets_is_damage_to_whoever_writes_next(tmp_path: Path) -> None:
    """RocksDB then refuses every write, also of a store that is opened again: only one built anew helps."""
    store = RocksStore(tmp_path / "a")
    rows = [(record_key(number), bytes([number % 256]) * 500) for number in range(1, 20_000)]
    store.write(rows, {})
    store.close()
    file = max((tmp_path / "a").glob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)
    store = RocksStore(tmp_path / "a")
    with pytest.raises(LocalDamageError):
        write_until_compacted(store, rows[::100])
    assert store.named(b"position") is None
    store.clear()
    store.write(rows, {b"position": b"1"})
    assert sum(1 for _ in store.scan(b"r")) == len(rows)
    store.close()


def test_a_snapshot_does_not_see_what_is_written_later(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "a")
    store.write([(record_key(1), b"one"), (transaction_key(7, 0), b"open")], {})
    snapshot = store.snapshot()
    store.write([(record_key(1), None), (updates_key(1), b"late"), (transaction_key(7, 0), None)], {})
    assert snapshot.get(record_key(1)) == b"one"
    assert snapshot.get(transaction_key(7, 0)) == b"open"
    assert snapshot.get(updates_key(1)) is None
    assert list(snapshot.scan(b"r")) == [(record_key(1), b"one")]
    assert store.get(record_key(1)) is None
    snapshot.close()


def test_clear_leaves_a_store_as_new(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "a")
    store.write([(record_key(1), b"one")], {b"position": b"1"})
    store.clear()
    assert list(store.scan(b"r")) == []
    assert store.named(b"position") is None
    store.write([(record_key(2), b"two")], {})
    store.close()
    assert dict(RocksStore(tmp_path / "a").scan(b"r")) == {record_key(2): b"two"}


def test_a_cleared_store_is_filled_in_any_order_and_gives_the_last_of_every_key_before_and_after_its_flush(
    tmp_path: Path,
) -> None:
    store = RocksStore(tmp_path / "a")
    store.clear()
    expected: dict[bytes, bytes] = {}
    for turn in range(20):
        rows = [(record_key(1 + number * 7919 % 5000), b"%d/%d" % (turn, number)) for number in range(1000)]
        gone = [record_key(1 + (turn * 31 + number) % 5000) for number in range(100)]
        store.write([*rows, *((key, None) for key in gone)], {}, durable=False)
        expected |= dict(rows)
        for key in gone:
            expected.pop(key, None)
    sample = [record_key(number) for number in range(1, 5000, 97)]
    for flushed in (False, True):
        if flushed:
            store.flush()
        assert [store.get(key) for key in sample] == [expected.get(key) for key in sample]
        assert store.highest_record() == max(int.from_bytes(key[1:], "big") for key in expected)
        assert list(store.scan(b"r")) == sorted(expected.items())
    store.close()


FILLING = """
import os, signal, sys
from pathlib import Path
from journal.disk.rocks import RocksStore
from journal.wire.keys import record_key
store = RocksStore(Path(sys.argv[1]))
store.clear()
store.write((), {b"identity": b"mine"})
for number in range(1, 400):
    store.write([(record_key(number), bytes(200_000))], {}, durable=False)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_store_killed_while_it_is_filled_opens_again_with_its_named_values_and_goes_on(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", FILLING, str(tmp_path / "a")], check=False)
    assert ended.returncode == -signal.SIGKILL
    store = RocksStore(tmp_path / "a")
    assert store.named(b"identity") == b"mine"
    store.write([(record_key(number), b"again") for number in range(1, 400)], {b"position": b"1"})
    store.close()
    assert set(dict(RocksStore(tmp_path / "a").scan(b"r")).values()) == {b"again"}


def test_a_directory_that_another_store_holds_is_refused(tmp_path: Path) -> None:
    held = RocksStore(tmp_path / "a")
    with pytest.raises(LocalStorageError, match="cannot open"):
        RocksStore(tmp_path / "a")
    held.close()
