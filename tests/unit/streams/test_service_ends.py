"""What becomes of a worker's shell when an error has ended it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

import streams.worker.service
from journal.config import Settings
from streams.worker.service import run_service


def test_the_shell_is_abandoned_before_its_copies_are_anybody_elses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done: list[str] = []
    slot = SimpleNamespace(path=tmp_path, release=lambda: done.append("released"))
    shell = SimpleNamespace(abandon=lambda: done.append("abandoned"))
    rows = SimpleNamespace(require_identity=lambda journal: SimpleNamespace(shards=2))

    def fail(*_: object) -> None:
        done.append("run")
        raise LookupError("of the shell")

    parts = {"open_journal": rows, "take_slot": slot, "make_worker": None, "with_trims": shell}
    for name, made in parts.items():
        monkeypatch.setattr(streams.worker.service, name, lambda *_, made=made, **__: made)
    monkeypatch.setattr("streams.reading.app.run_worker", fail)
    settings = Settings(journal="j", bootstrap_servers="127.0.0.1:1", directory=tmp_path)
    with pytest.raises(LookupError, match="of the shell"):
        run_service(settings, None)
    assert done == ["run", "abandoned", "released"]
