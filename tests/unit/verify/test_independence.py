"""`verify` shares no code with what it checks."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, journal
of_the_package = set(sys.modules)
import journal.verify
print(*sorted(name for name in sys.modules.keys() - of_the_package if name.startswith("journal")))
"""


def test_verify_loads_nothing_of_the_engine_and_its_wire_code() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    others = [name for name in done.stdout.split() if not name.startswith("journal.verify")]
    assert others == ["journal.limits", "journal.v1", "journal.v1.journal_pb2"]
