"""`verify` shares no code with what it checks."""

from __future__ import annotations

import subprocess
import sys


def test_verify_loads_nothing_of_the_engine_and_its_wire_code() -> None:
    program = "import sys, journal.verify; print(*sorted(name for name in sys.modules if name.startswith('journal')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    others = [name for name in done.stdout.split() if not name.startswith("journal.verify")]
    assert others == ["journal", "journal.limits", "journal.v1", "journal.v1.journal_pb2"]
