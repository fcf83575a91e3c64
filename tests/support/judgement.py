"""The end of a test with nodes: one more activation, whose load, tables and WAL must all agree with their histories."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from journal.config import Settings, load_settings
from journal.journal import BlockingJournal
from tests.support import in_process
from tests.support.children.loaders import CollectingLoader
from tests.support.evidence import Evidence, order_faults, settled_evidence, verify_all
from tests.support.node_history import Activation, Verdict, check_history, happenings


@dataclass(frozen=True)
class Judgement:
    """What was found, for tests that look further."""

    verdict: Verdict
    evidence: Evidence


def settings_of(bootstrap: str, journal: str, directory: Path, **more: object) -> Settings:
    """The settings of a node in this process."""
    return load_settings(
        None, **{"bootstrap_servers": bootstrap, "journal": journal, "directory": directory, "node": "judge", **more}
    )


def made_journal(bootstrap: str, shards: int, directory: Path, **more: object) -> Settings:
    """Settings of a new journal that nobody else has, made in this process."""
    return in_process.made_journal(bootstrap, directory, **{"shards": shards, "node": "judge", **more})


def judge(settings: Settings, histories: Iterable[Activation]) -> Judgement:
    """Activate once more and compare everything with everything. Fails with all that is wrong."""
    loader = CollectingLoader()
    with BlockingJournal(settings, copy_name="judge") as journal:
        journal.activate(loader)
    evidence = settled_evidence(settings.bootstrap_servers, settings.journal)
    verdict = check_history([*histories, loader.activation()], evidence.shards)
    faults = verdict.faults + verify_all(evidence, loader.lines)
    if not verdict.faults:
        faults += order_faults(evidence, happenings(verdict.effective, evidence.shards))
    assert not faults, "\n".join(faults[:50])
    return Judgement(verdict, evidence)
