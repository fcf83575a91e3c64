"""Where a journal is archived is what its marks say, if they say one place."""

from __future__ import annotations

import pytest

from journal.errors import ArchiveError
from journal.v1.journal_pb2 import Archive
from loaders.spark.read.archived import archive_path
from loaders.spark.read.source import Control, JournalIdentity, JournalSource

SOURCE = JournalSource("127.0.0.1:1", "orders")


def marked(*paths: str) -> Control:
    marks = {shard: Archive(shard=shard, path=path) for shard, path in enumerate(paths)}
    return Control(JournalIdentity(b"j" * 16, len(paths)), True, marks, {}, frozenset())


def test_the_archives_path_is_that_of_all_marks() -> None:
    assert archive_path(SOURCE, marked("/archive", "/archive")) == "/archive"


def test_no_path_or_several_are_an_error_that_asks_for_the_path() -> None:
    with pytest.raises(ArchiveError, match="orders has no archive: name the archive's path"):
        archive_path(SOURCE, marked())
    with pytest.raises(ArchiveError, match="is archived to /new and /old: name"):
        archive_path(SOURCE, marked("/old", "/new"))
