"""The table of features by client in docs/BROKER.md: `python -m tests.clients.table` writes it.

Every cell of it is a test in `test_clients`.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.clients.features import ABSENT, FEATURES
from tests.clients.programs import PROGRAMS

PAGE = Path(__file__).parents[2] / "docs" / "BROKER.md"
TABLE = re.compile(r"^\| feature \|.*\n(?:\|.*\n)+", re.MULTILINE)
YES, NO, UNTRIED = "yes", "not yet", "-"


def rendered() -> str:
    """The table's lines."""
    rows = [["feature", *(each.client for each in PROGRAMS.values())], ["---"] * (len(PROGRAMS) + 1)]
    rows += [[feature, *(_cell(each, feature) for each in PROGRAMS)] for feature in FEATURES]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cell(client: str, feature: str) -> str:
    if client not in FEATURES[feature]:
        return UNTRIED
    return NO if feature in ABSENT else YES


if __name__ == "__main__":
    PAGE.write_text(TABLE.sub(rendered(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
