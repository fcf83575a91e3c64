"""A manifest says in JSON what it says in Python, and what is none is refused with its place."""

from __future__ import annotations

import json

import pytest

from journal.errors import ArchiveError
from loaders.spark.stored.manifest import FORMAT, Manifest, ShardPart

PART = ShardPart(
    1, 10, 25, records=7, frames=6, first=3, last=8, epoch=2, epochs=(1, 2), bytes=700, faults=1, files=("frames/a",)
)
MANIFEST = Manifest(
    bytes(range(16)),
    "orders",
    bytes(16),
    3,
    "000000000003-0a0b0c0d",
    1_700_000_000_000,
    {1: PART, 0: ShardPart(0, 0, 0)},
    ((0, 7), (1, 12), (1, 25)),
)


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert Manifest.from_json(MANIFEST.to_json(), "here") == MANIFEST
    assert MANIFEST.ends() == {0: 0, 1: 25}
    assert MANIFEST.skipped_and_archived() == [(1, 12)]


def test_a_manifest_that_says_nothing_of_skips_knows_of_none() -> None:
    text = {key: value for key, value in json.loads(MANIFEST.to_json()).items() if key != "skipped"}
    assert Manifest.from_json(json.dumps(text), "here").skipped == ()


def test_shards_are_written_in_order() -> None:
    assert [part["shard"] for part in json.loads(MANIFEST.to_json())["shards"]] == [0, 1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        json.dumps({"format": FORMAT}),
        MANIFEST.to_json()[:-1],
        MANIFEST.to_json().replace('"uuid":"00', '"uuid":"zz'),
        MANIFEST.to_json().replace('"faults"', '"unheard of"'),
    ],
)
def test_what_is_no_manifest_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ArchiveError, match="here is no manifest"):
        Manifest.from_json(text, "here")


@pytest.mark.parametrize("other", [FORMAT - 1, FORMAT + 1])
def test_another_format_is_refused(other: int) -> None:
    text = MANIFEST.to_json().replace(f'"format":{FORMAT}', f'"format":{other}')
    with pytest.raises(ArchiveError, match=f"here has format {other}.*: archive the journal to another place"):
        Manifest.from_json(text, "here")
