"""Archives and tables of frames that had their operations one by one are refused, with what to do instead."""

from __future__ import annotations

import pytest

from journal.errors import ArchiveError, ConfigError
from loaders.spark.read.source import JournalIdentity
from loaders.spark.stored.manifest import Manifest
from loaders.spark.stored.table_stores import TableFormat
from loaders.spark.tables.tables_place import TablesPlace, is_described
from tests.support.spark.files import FilesInMemory

FORMER_MANIFEST = (
    '{"format":1,"archive":"e9dec3447af2758e6b307f0fc5072489","journal":"orders",'
    '"uuid":"cd30572ea784459e802d4268068cf4fb","number":1,"batch":"000000000001-be129531","written":1795826883646,'
    '"shards":[{"shard":0,"start":0,"end":13,"records":7,"frames":7,"first":1,"last":7,"epoch":2,"epochs":[1,2],'
    '"bytes":4998,"faults":0,"files":["frames/journal=orders/day=2026-11-28/shard=0/batch=000000000001-be129531/'
    'part-00002.c000.snappy.parquet"]}],"skipped":[]}'
)
"""A manifest as it was written before frames had columns."""
FORMER_TABLES = '{"format": 2, "journal": "orders", "uuid": "cd30572ea784459e802d4268068cf4fb", "tables": "parquet"}'


def test_a_former_archive_is_refused() -> None:
    with pytest.raises(ArchiveError, match=r"has format 1, .* reads 3: archive the journal to another place"):
        Manifest.from_json(FORMER_MANIFEST, "/archive/manifest/orders/000000000001.json")


def test_former_tables_are_neither_read_nor_kept_on() -> None:
    files = FilesInMemory()
    files.texts["journal.json"] = FORMER_TABLES
    journal = JournalIdentity(bytes.fromhex("cd30572ea784459e802d4268068cf4fb"), 1)
    said = "/tables has tables of format 2, this kafka-journal keeps 3: keep the tables anew elsewhere"
    with pytest.raises(ConfigError, match=said):
        TablesPlace(files, "/tables", now_ms=0).open("orders", journal, TableFormat.PARQUET, None)
    with pytest.raises(ConfigError, match=said):
        is_described(files, "/tables")
