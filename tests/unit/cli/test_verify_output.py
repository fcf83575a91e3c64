"""What `verify` says of differences that it counted and did not name, in its own words and with Spark."""

from __future__ import annotations

import pytest
import typer

from journal.cli.verify.by_spark import show
from journal.cli.verify.verify import summary
from journal.verify import Report, ShardReport
from journal.verify.differences import Differences

LEFT_OUT = "differences that are not named here: 1,998 (--differences-max 0 names all)"


def report(kept_max: int) -> Report:
    """A report of two shards with a thousand differences each."""
    shards = []
    for shard in range(2):
        differences = Differences(shard, kept_max)
        for id in range(1000):
            differences.add("record", f"id {id}", "none", "kind 1")
        shards.append(ShardReport(shard, 7, 0, 0, 8, 1000, differences))
    return Report(shards)


@pytest.mark.parametrize(("kept_max", "told"), [(1, True), (1000, False)])
def test_how_many_differences_are_not_named_is_said_with_the_option_that_names_them(
    kept_max: int, told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (LEFT_OUT in summary(report(kept_max))) == told
    with pytest.raises(typer.Exit):
        show(report(kept_max), as_json=False)
    printed = capsys.readouterr().out
    assert (LEFT_OUT in printed.splitlines()) == told
    assert printed.count("kind 1") == 2 * kept_max
    assert "2,000 differences, 0 places" in printed


def test_a_record_that_an_operator_had_skipped_is_named_and_makes_nobody_fail(
    capsys: pytest.CaptureFixture[str],
) -> None:
    differences = Differences(0)
    differences.add_skip(3)
    found = Report([ShardReport(0, 7, 0, 0, 8, 1000, differences)])
    told = "1 record that an operator had skipped: named above, and no difference"
    assert summary(found)[1:] == [told, "the WAL, the tables and the loaded state agree"]
    with pytest.raises(typer.Exit) as ended:
        show(found, as_json=False)
    assert ended.value.exit_code == 0
    assert told in capsys.readouterr().out.splitlines()
