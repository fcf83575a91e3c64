"""Programs may name a directory or a file by a text: every public call that takes a path takes that too."""

from __future__ import annotations

from pathlib import Path

import pytest

from journal import LocalJournal, MessageStore, RocksReferenceIndex, Settings, StoreSettings, load_settings
from loaders import QueueLoader
from streams import GlobalView
from tests.support.stores import declare, send, taken

Kind = type[str] | type[Path]
KINDS = pytest.mark.parametrize("kind", [str, Path])


@KINDS
def test_a_store_is_kept_in_a_directory_that_a_text_or_a_path_names(tmp_path: Path, kind: Kind) -> None:
    loader = QueueLoader(
        references_in_memory_max=10,
        queue_references_in_memory_max=10,
        index=RocksReferenceIndex(kind(tmp_path / "index")),
    )
    settings = StoreSettings.model_validate({"swap_directory": kind(tmp_path / "swap"), "volatile_bytes_max": 0})
    with LocalJournal(kind(tmp_path / "journal")) as journal:
        journal.activate(loader)
        with MessageStore(journal, settings) as store:
            store.start(loader.loaded)
            declare(store, "q")
            send(store, b"kept")
            send(store, b"swapped", durable=False)
            assert sorted(taken(store)) == [b"kept", b"swapped"]
    assert {each.name for each in tmp_path.iterdir()} >= {"journal", "index", "swap"}


@KINDS
def test_settings_are_read_from_a_file_that_a_text_or_a_path_names(tmp_path: Path, kind: Kind) -> None:
    file = tmp_path / "journal.toml"
    file.write_text(f'journal = "orders"\ndirectory = "{tmp_path}"\n')
    settings = load_settings(kind(file))
    assert (settings.journal, settings.directory) == ("orders", tmp_path)
    GlobalView(settings, lambda: pytest.fail("not started"), kind(tmp_path / "view"))
    assert Settings.model_validate({"directory": kind(tmp_path)}).directory == tmp_path
