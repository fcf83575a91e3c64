"""Every block of the pages that a new user reads is run as it stands, in an empty directory, and prints what the page
shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.brokers import JVM_OPTIONS
from tests.support.pages import ROOT, run_page

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

ENV = {
    "KAFKA_JOURNAL_SESSION_TIMEOUT_MS": "2000",
    "KAFKA_JOURNAL_NODE_SESSION_TIMEOUT_MS": "2000",
    "JAVA_TOOL_OPTIONS": " ".join(JVM_OPTIONS),
}
"""Sessions of processes that are killed end sooner than a user's, because the test waits for that. Each page starts a
Kafka of its own, and one a Spark: they start with half of the work."""


@pytest.mark.parametrize("name", ["README.md", "docs/FIRST-DAY.md", "docs/STORE.md", "docs/ROUTING.md"])
def test_each_block_of_a_page_runs_and_prints_what_the_page_shows(name: str, tmp_path: Path) -> None:
    run_page(ROOT / name, tmp_path / "work", ENV)
