"""A load streams: what it takes does not grow with what there is."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.children.bounded_load import DATA_BYTES, fill
from tests.support.processes.child import program

RECORDS = 200_000
GROWTH_MAX = 64 * 1024 * 1024
"""With RocksDB's block cache, and the ids of the records."""


def test_a_load_is_bounded_however_many_records_there_are(tmp_path: Path) -> None:
    fill(tmp_path / "store", RECORDS)
    arguments = [str(tmp_path / "store"), str(RECORDS)]
    ended = subprocess.run(program("bounded_load", *arguments), capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert 0 <= int(ended.stdout) < GROWTH_MAX < RECORDS * DATA_BYTES // 3
