"""What is asked of a replay tells it from every other: what is selected, not what of the source was repaired."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from journal.cli.main import app
from loaders.spark.replay.replaying import Filter


def test_skipped_records_do_not_make_another_replay() -> None:
    asked = Filter(queues=("orders/eu",))
    skipping = Filter(queues=("orders/eu",), skip=((0, 1234),))
    assert skipping.digest(remapped=False) == asked.digest(remapped=False)
    assert asked.digest(remapped=True) != asked.digest(remapped=False) != Filter().digest(remapped=False)
    assert '"skip"' in skipping.to_json()


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--until", "yesterday", "not a time such as 2024-05-17T08:30:00Z"),
        ("--ids", "7-3", "expected FIRST-LAST, such as 3-7"),
        ("--ids", "-3", "expected FIRST-LAST, such as 3-7"),
        ("--epochs", "one", "expected FIRST-LAST, such as 3-7"),
        ("--days", "2024-02-30", "expected YYYY-MM-DD or YYYY-MM-DD/YYYY-MM-DD"),
        ("--days", "2024-05-18/2024-05-17", "the last is before the first"),
        ("--skip", "0-1234", "expected SHARD:OFFSET, such as 0:1234"),
        ("--skip", "zero:1", "expected SHARD:OFFSET, such as 0:1234"),
    ],
)
def test_an_option_that_cannot_be_read_is_refused_before_anything_is_asked(option: str, value: str, said: str) -> None:
    nowhere = ("-b", "127.0.0.1:1", "-j", "orders", "--from", "nowhere")
    ended = CliRunner().invoke(app, ["spark", "replay", *nowhere, f"{option}={value}"])
    assert ended.exit_code == 2, ended.output
    assert f"{option} {value}: {said}" in " ".join(ended.stderr.split())
    assert ended.stdout == ""
